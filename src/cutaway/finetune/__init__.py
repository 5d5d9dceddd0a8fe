"""Fine-tuning: continue from the weights of another run, and train all of them or an adapter."""
