"""Looking inside: traces of a run, figures of them, and the report that puts them together."""
