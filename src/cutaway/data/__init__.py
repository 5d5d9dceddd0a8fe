"""Text in, batches out. The tokenizer and the corpora need no torch; only `batching` does."""
