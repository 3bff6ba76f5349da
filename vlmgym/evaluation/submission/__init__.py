"""Submissions: runs of a suite in a form that others can verify."""
