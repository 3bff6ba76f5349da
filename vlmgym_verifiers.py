"""The module `vlmgym.integrations.verifiers` under a name that verifiers accepts: it takes no dotted names."""

from vlmgym.integrations.verifiers import GameEnv, GameHarness, GameTaskset

__all__ = ["GameEnv", "GameHarness", "GameTaskset"]
