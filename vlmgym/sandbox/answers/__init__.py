"""Kinds of answers: how actions are written in responses, read from them and entered in `vlmgym play`."""
