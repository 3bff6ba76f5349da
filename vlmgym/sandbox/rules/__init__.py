"""Rules that games and oracles share: boards and moves, without pictures and prompts."""
