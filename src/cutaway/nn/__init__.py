"""The parts of a Transformer. They know nothing of configuration: each receives finished parts.

Dimension key, used as a suffix on names whose shape matters:

    B batch   S source length   T target length   Q, K query and key length
    D width   H heads   G key-value heads   E head width   F hidden width   V vocabulary   C classes
"""
