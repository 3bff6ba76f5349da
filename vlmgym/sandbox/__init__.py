"""Games, images, words and rewards. Knows nothing of policies, evaluation or training."""
