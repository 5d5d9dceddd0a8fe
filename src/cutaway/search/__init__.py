"""The input and output of a search, choices and streaming: shared by all engines. No torch here."""
