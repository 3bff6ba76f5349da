"""Code shared by all trainers: training states, expert responses, advantages, records and results."""
