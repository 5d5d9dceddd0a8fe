"""Run trained models: pipelines, their engines, fast paths for CPUs; and start trainings."""
