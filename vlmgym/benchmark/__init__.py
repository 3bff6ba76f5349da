"""Suites of games, and what is done with runs of them: verification, ranking and export."""
