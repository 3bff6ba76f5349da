"""Command-line options of a game."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

import tyro

from vlmgym.errors import UsageError
from vlmgym.sandbox.core.config import DIFFICULTIES, parse_config_fields
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.response_format import ThinkTag
from vlmgym.sandbox.registry import make_game

GameNames = Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="GAME ...", help_behavior_hint="")]
"""Names of games on a command line."""


@dataclass(frozen=True, kw_only=True)
class GameOptions:
    """Difficulty and config of a game."""

    size: int | None = None
    """Side of the image in pixels. None means 640."""
    perception: int = 3
    """Perceptual difficulty, 1 to 5."""
    reasoning: int = 3
    """Reasoning difficulty, 1 to 5."""
    actions: int = 1
    """Maximum number of actions in a response."""
    interface: Literal["text", "click"] = "text"
    """Answer board games with rows and columns, or with the points of the image to click on, from 0 to 1000."""
    prediction: bool = False
    """Ask for the board after the move, in <prediction>; only in board games."""
    think_tag: ThinkTag = "think"
    """Tag of the reasoning in responses. With --chat, some models see earlier reasoning only if it is not <think>."""
    overrides: Annotated[
        tuple[tuple[str, ...], ...], tyro.conf.arg(name="config", metavar="NAME=VALUE ..."), tyro.conf.UseAppendAction
    ] = ()
    """Config fields that override the levels, e.g. rows=5 columns=5; list them with vlmgym games GAME."""

    def changed_options(self) -> list[str]:
        """Return the options of this class that are not at their defaults, as on the command line."""
        names = [field.name for field in fields(GameOptions) if getattr(self, field.name) != field.default]
        return ["--config" if name == "overrides" else f"--{name.replace('_', '-')}" for name in names]

    def data_settings(self) -> dict[str, Any]:
        """Return the config fields set by `--config`, for use with a curriculum, which accepts only data settings.

        Raises:
            UsageError: Any other option of this class is not at its default.
        """
        if changed := [option for option in self.changed_options() if option != "--config"]:
            raise UsageError(f"a curriculum sets the difficulty of its games: remove {', '.join(changed)}")
        return parse_config_fields(itertools.chain.from_iterable(self.overrides))

    def make_game(self, name: str, preset: Mapping[str, Any] | None = None) -> Game[Any, Any]:
        """Make a game with these options; config fields in `preset` override the levels, but not the other options."""
        overrides = parse_config_fields(itertools.chain.from_iterable(self.overrides))
        for difficulty in DIFFICULTIES:
            if difficulty in overrides:
                raise UsageError(f"set {difficulty} by --{difficulty}, not by --config")
        for option, field, value in (
            ("size", "size", self.size),
            ("actions", "actions_per_turn", None if self.actions == 1 else self.actions),
            ("interface", "interface", None if self.interface == "text" else self.interface),
            ("prediction", "prediction", self.prediction or None),
            ("think-tag", "think_tag", None if self.think_tag == "think" else self.think_tag),
        ):
            if value is not None and overrides.setdefault(field, value) != value:
                raise UsageError(f"--{option} and --config set {field} to different values")
        return make_game(name, self.perception, self.reasoning, **{**(preset or {}), **overrides})
