"""Hypothesis without deadlines: how long an example takes says more of the machine than of the code."""

from hypothesis import settings

settings.register_profile("vlmgym", deadline=None)
settings.load_profile("vlmgym")
