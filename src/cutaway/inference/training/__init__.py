"""Starting a training: data, model, trainer and run folder, with the samples and scores of its validations."""
