"""Worker processes: start, call and stop them, on this machine or a Ray cluster. Independent of games."""
