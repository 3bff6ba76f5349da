"""Gymnasium environments as games: `gym:CartPole-v1`."""
