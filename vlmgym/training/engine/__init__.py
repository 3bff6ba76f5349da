"""The model in training on one machine: encoding, generation, log-probabilities, processes and checkpoints."""
