"""Play a game with keyboard and mouse."""
