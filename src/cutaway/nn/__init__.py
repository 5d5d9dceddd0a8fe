"""The parts of a Transformer. No part reads the configuration: each receives its sub-modules and sizes.

Dimension letters, used as suffixes of names (`scores_BHQK`) and in docstrings:

    B batch   S source length   T target length   Q, K query and key length
    D width   H heads   G key-value heads   E head width   F hidden width   V vocabulary   C classes
"""
