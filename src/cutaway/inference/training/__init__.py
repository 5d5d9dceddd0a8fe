"""Start a training: data, model, trainer and run folder, and the samples and scores of its validations."""
