"""Files of any size, worked line by line: a million translations in one command. No torch here but in the workers.

lines --> windows --> batches --> workers --> results in order --> OUT.part --> OUT
          (sorted by length,      (one thread each)               + OUT.journal: what is done,
           cut by tokens)                                           whatever ends the process

windows.py   lines in windows, windows in batches
crew.py      who works: other processes, or this one
machine.py   how many cores and how much memory there are for it
jobs.py      what is done with a line, task by task
form.py      how what was written is printed: text, scores, alignment, JSON
unknown.py   words that the model does not know
part.py      the output in the making, and its journal
work.py      all of it together: work_file
"""
