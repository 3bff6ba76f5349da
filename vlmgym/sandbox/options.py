"""Command-line options of a game."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

import tyro

from vlmgym.errors import UsageError
from vlmgym.sandbox.core.config import DIFFICULTIES, parse_config_fields
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.registry import make_game


@dataclass(frozen=True, kw_only=True)
class GameOptions:
    """Which difficulty a game is played at."""

    size: int | None = None
    """Side of the image in pixels. Default: 640."""
    perception: int = 3
    """Difficulty for the eye, 1 to 5."""
    reasoning: int = 3
    """Difficulty for the mind, 1 to 5."""
    strict: bool = False
    """Accept answers only in their documented spelling, without markup; docs/protocols.md tables both."""
    overrides: Annotated[
        tuple[tuple[str, ...], ...], tyro.conf.arg(name="config", metavar="NAME=VALUE ..."), tyro.conf.UseAppendAction
    ] = ()
    """Single config fields that override the levels, for instance rows=5 columns=5; vlmgym games GAME lists them."""

    @property
    def any_given(self) -> bool:
        """Whether one of these options differs from its default."""
        return any(getattr(self, field.name) != field.default for field in fields(GameOptions))

    def make_game(self, name: str, preset: Mapping[str, Any] | None = None) -> Game[Any, Any]:
        """The game at this difficulty.

        Args:
            name: Id or name of the game.
            preset: Knobs that the levels do not set and `--config` may override.

        Raises:
            UsageError: There is no such game, level or config field, or a value is not accepted.
        """
        overrides = parse_config_fields(itertools.chain.from_iterable(self.overrides))
        for dial in DIFFICULTIES:
            if dial in overrides:
                raise UsageError(f"{dial} is set by --{dial}, not by --config")
        if self.size is not None and overrides.setdefault("size", self.size) != self.size:
            raise UsageError("the size is set by --size and, differently, by --config")
        if self.strict and overrides.setdefault("strict", True) is not True:
            raise UsageError("strict is set by --strict and, differently, by --config")
        return make_game(name, self.perception, self.reasoning, **{**(preset or {}), **overrides})
