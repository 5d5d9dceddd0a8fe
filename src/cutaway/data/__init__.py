"""Text in, batches out. Only `batching` needs torch."""
