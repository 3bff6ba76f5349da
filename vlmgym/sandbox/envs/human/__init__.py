"""Play a game by keyboard and mouse."""
