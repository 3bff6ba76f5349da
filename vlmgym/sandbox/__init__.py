"""Games, images, words and rewards. Independent of policies, evaluation and training."""
