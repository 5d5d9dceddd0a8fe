"""Search: from a step function that returns logits to texts."""
