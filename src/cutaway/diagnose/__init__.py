"""What is wrong with a run, or with its data: measured, then judged."""
