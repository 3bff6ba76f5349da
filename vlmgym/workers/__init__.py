"""Worker processes: start, call, restart and end them, on this machine or a Ray cluster. Independent of games."""
