"""Training with verl on a CPU; CONTRIBUTING.md has the command that creates the environment."""
