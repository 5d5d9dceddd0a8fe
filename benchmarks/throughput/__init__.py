"""Modules of benchmarks/training_throughput.py.

shape.py             the architecture, and the number of operations of a batch
pairs.py             the sentence pairs for all implementations
implementations.py   Cutaway and other libraries: one class or function each
turns.py             worker processes for each implementation, measured in turns
report.py            tables of the measurements
profiling.py         a profile of Cutaway's training step
"""
