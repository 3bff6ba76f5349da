"""Worker processes: start, call, restart and stop them, on this machine or a Ray cluster. Independent of games."""
