"""The machine and its files: processes, cores, folders that come with the package."""
