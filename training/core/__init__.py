"""Training on live games, shared by all trainers: states, rollouts, advantages, records."""
