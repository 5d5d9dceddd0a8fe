"""The machine: cores, memory, child processes, and the folders that are installed with the package."""
