"""A trained model at work: pipelines, the engines behind them, fast paths for CPUs, and the start of a training."""
