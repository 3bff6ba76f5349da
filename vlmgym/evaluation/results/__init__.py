"""Exports of results to formats of other projects."""
