"""The contract of a game: state, response, reward, episode and registry."""
