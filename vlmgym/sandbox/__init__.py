"""Games, pictures, words and rewards. Knows nothing of policies, evaluation or training."""
