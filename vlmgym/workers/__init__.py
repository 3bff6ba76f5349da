"""Worker processes: start, supervise, restart and talk to them. Knows nothing of games."""
