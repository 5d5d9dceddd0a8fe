"""The parts of benchmarks/training_throughput.py.

shape.py         the architecture, and how many operations a batch of it is worth
pairs.py         the sentence pairs that all contestants read
contestants.py   Cutaway and its peers: one class or function each
turns.py         each contestant in processes of its own, which work when it is their turn
report.py        from what was measured to tables
profiling.py     where the time of Cutaway's step goes
"""
