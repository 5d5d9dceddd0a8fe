"""Process files of any size line by line: a million translations in one command. Only the workers import torch.

lines --> windows --> batches --> workers --> results in order --> OUT.part --> OUT
          (sorted by length,      (one thread each)               + OUT.journal: progress,
           cut by tokens)                                           survives a kill

windows.py        group lines into windows, and windows into batches
workers.py        worker pools: other processes, or this one
jobs.py           one job class per task; process_file
formats.py        output formats: text, scores, alignment, JSON
unknown_words.py  count words outside the vocabulary
journal.py        the partial output file and its journal
runner.py         run_job: run a job over a file
"""
