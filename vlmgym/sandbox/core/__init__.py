"""The game interface: states, responses, rewards and episodes."""
