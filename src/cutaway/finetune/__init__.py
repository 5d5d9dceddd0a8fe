"""Fine-tuning: a trained run as the beginning of another, of which all is trained, or a little beside it."""
