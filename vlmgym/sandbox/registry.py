"""Registry of games: built-in games, presets, games of installed packages, and games registered in the program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any

import gymnasium

from vlmgym.errors import UsageError, VlmgymError, did_you_mean, one_line, short_repr
from vlmgym.sandbox.core.game import Game

BUILT_IN = {
    "2048-v0": "vlmgym.sandbox.games.game2048:Game2048",
    "billiards-v0": "vlmgym.sandbox.games.billiards:Billiards",
    "blocks-v0": "vlmgym.sandbox.games.blocks:Blocks",
    "canary-v0": "vlmgym.sandbox.games.canary:Canary",
    "caption-v0": "vlmgym.sandbox.games.caption.game:Caption",
    "charts-v0": "vlmgym.sandbox.games.charts:Charts",
    "clocks-v0": "vlmgym.sandbox.games.clocks:Clocks",
    "corridors-v0": "vlmgym.sandbox.games.corridors:Corridors",
    "differences-v0": "vlmgym.sandbox.games.differences:Differences",
    "fallingblocks-v0": "vlmgym.sandbox.games.fallingblocks:FallingBlocks",
    "forms-v0": "vlmgym.sandbox.games.forms:Forms",
    "fourinarow-v0": "vlmgym.sandbox.games.line_duel:FourInARow",
    "geospot-v0": "vlmgym.sandbox.games.geospot.game:Geospot",
    "graph-v0": "vlmgym.sandbox.games.graph:Graph",
    "grids-v0": "vlmgym.sandbox.games.grids:Grids",
    "jigsaw-v0": "vlmgym.sandbox.games.jigsaw:Jigsaw",
    "laser-v0": "vlmgym.sandbox.games.laser:Laser",
    "lightsout-v0": "vlmgym.sandbox.games.lightsout:LightsOut",
    "matrices-v0": "vlmgym.sandbox.games.matrices:Matrices",
    "maze-v0": "vlmgym.sandbox.games.maze:Maze",
    "minesweeper-v0": "vlmgym.sandbox.games.minesweeper:Minesweeper",
    "nonogram-v0": "vlmgym.sandbox.games.nonogram:Nonogram",
    "packing-v0": "vlmgym.sandbox.games.packing:Packing",
    "pairs-v0": "vlmgym.sandbox.games.pairs:Pairs",
    "parking-v0": "vlmgym.sandbox.games.parking:Parking",
    "pegs-v0": "vlmgym.sandbox.games.pegs:Pegs",
    "rotation-v0": "vlmgym.sandbox.games.rotation:Rotation",
    "routes-v0": "vlmgym.sandbox.games.routes:Routes",
    "scenes-questions-v0": "vlmgym.sandbox.games.scenes.questions:SceneQuestions",
    "scenes-statements-v0": "vlmgym.sandbox.games.scenes.statements:SceneStatements",
    "shisensho-v0": "vlmgym.sandbox.games.shisensho.game:ShisenSho",
    "sliding-v0": "vlmgym.sandbox.games.sliding:Sliding",
    "snake-v0": "vlmgym.sandbox.games.snake:Snake",
    "sokoban-v0": "vlmgym.sandbox.games.sokoban:Sokoban",
    "solitaire-v0": "vlmgym.sandbox.games.solitaire:Solitaire",
    "stacks-v0": "vlmgym.sandbox.games.stacks:Stacks",
    "sudoku-v0": "vlmgym.sandbox.games.sudoku:Sudoku",
    "swap-v0": "vlmgym.sandbox.games.swap:Swap",
    "tictactoe-v0": "vlmgym.sandbox.games.line_duel:TicTacToe",
    "tracking-v0": "vlmgym.sandbox.games.tracking:Tracking",
    "wordsearch-v0": "vlmgym.sandbox.games.wordsearch:Wordsearch",
}
"""Class of each built-in game as `module:Class`, keyed by id. A new game adds one line."""

OWN_DATA_TASKS = {
    "nlvr2-v0": "vlmgym.sandbox.games.nlvr2:Nlvr2",
    "vqa-v0": "vlmgym.sandbox.games.vqa:Vqa",
}
"""Class of each task that requires `data`, keyed by id; `game_ids` does not list them."""

WITHOUT_DATA = {"nlvr2": "scenes-statements", "vqa": "scenes-questions"}
"""Game that a name means without `data`."""


@dataclass(frozen=True)
class Preset:
    """A published config of a game. Fields that the source does not specify keep their defaults."""

    game: str
    overrides: Mapping[str, Any]
    source: str

    def describe(self) -> str:
        """Format game, overrides and source as two lines."""
        overrides = " ".join(f"{config_field}={value}" for config_field, value in self.overrides.items())
        return f"  {self.game}: {overrides}\n  from {self.source}"


_SHISENSHO: Mapping[str, Any] = {"colours": 6, "shapes": 6, "copies": 4, "turns": 2, "solvable": False}

# G1: github.com/chenllliang/G1 at commit 716e666 of May 2025, the code of arxiv.org/abs/2505.13426.
# vlm-gym: github.com/sdan/vlm-gym at commit 05766d1 of October 2025.
PRESETS: Mapping[str, Preset] = {
    "g1/2048": Preset(
        "2048",
        {"rows": 4, "columns": 4, "four_probability": 0.1, "goal": None},
        "G1, games/game2048.py: gymnasium-2048 with its defaults; 4x4, 10% of new tiles are 4, no goal",
    ),
    "g1/shisensho-6x6": Preset(
        "shisensho",
        {"rows": 6, "columns": 6, **_SHISENSHO},
        "G1, games/gamematch.py, as its comments and actions describe it: 6x6, 6 colours x 6 shapes, four tiles of "
        "each kind, dealt at random, at most two turns per path",
    ),
    "g1/shisensho-12x12": Preset(
        "shisensho",
        {"rows": 12, "columns": 12, **_SHISENSHO},
        "G1, games/gamematch.py as released, GRID_SIZE = 12; its actions only reach 6x6 cells, here all",
    ),
    "g1/swap": Preset(
        "swap",
        {"rows": 8, "columns": 8, "colours": 4, "shapes": 3},
        "G1, games/gamematch3.py: 8x8, 4 colours x 3 shapes; its score counts tiles, with a bonus for long runs; here "
        "the score counts swaps",
    ),
    "vlm-gym/geospot": Preset(
        "geospot",
        {"preset": "vlm-gym", "stage": 5, "tolerance": 1.0},
        "vlm-gym, envs/geospot.py: weights of its last stage, scales of 2000, 500, 100 and 25 km; its images are from "
        "OSV-5M, to be set by --config data=... (docs/data.md)",
    ),
}
"""Game configs from published work, keyed by name."""

PREFIXES = {
    "gym:": ("vlmgym.sandbox.games.gym.game:GymGame", "env"),
    "qa/": ("vlmgym.sandbox.questions:Questions", "game"),
}
"""Class of the games with each prefix of ids, and name of the config field that the rest of the id sets."""

ENTRY_POINT_GROUP = "vlmgym.games"
"""Entry point group through which packages add games: `"name-v0" = "module:Class"`."""

NAMESPACE = "vlmgym"
"""Namespace of the Gymnasium ids, e.g. `vlmgym/2048-v0`."""

_ID = re.compile(r"[A-Za-z0-9_.-]+-v[0-9]+")
_registered: dict[str, type[Game[Any, Any]]] = {}


def register_game(game_class: type[Game[Any, Any]]) -> type[Game[Any, Any]]:
    """Register a game with vlmgym and Gymnasium in this program; usable as a class decorator.

    Raises:
        UsageError: The id is invalid or taken by another game.
    """
    game_id = f"{game_class.name}-v{game_class.version}"
    if _ID.fullmatch(game_id) is None:
        raise UsageError(
            f"invalid game id {game_id!r}: use letters, digits, '_', '.' and '-', followed by -v and a number"
        )
    location = f"{game_class.__module__}:{game_class.__qualname__}"
    if _sources().get(game_id, location) != location or _registered.get(game_id, game_class) is not game_class:
        raise UsageError(f"the game id {game_id!r} is already taken: choose another name or version")
    _registered[game_id] = game_class
    _register_env(game_id)
    return game_class


def register_with_gymnasium() -> None:
    """Register every game with Gymnasium; called when `vlmgym.sandbox` is imported.

    Gymnasium 1.0 dropped plugins. Programs that do not import vlmgym must therefore name it before the id:
    `gymnasium.make("vlmgym:vlmgym/2048-v0")`.
    """
    for game_id in _known():
        _register_env(game_id)


def _register_env(game_id: str) -> None:
    env_id = f"{NAMESPACE}/{game_id}"
    if env_id not in gymnasium.registry:
        gymnasium.register(env_id, entry_point="vlmgym.sandbox.envs.single:GameEnv", kwargs={"game": game_id})


def game_ids() -> list[str]:
    """Return the sorted ids of all built-in, installed and registered games, without importing them.

    Tasks that require the user's data are left out.
    """
    return sorted(_known() - OWN_DATA_TASKS.keys())


def game_class(game: str) -> type[Game[Any, Any]]:
    """Load the class of a game.

    Args:
        game: Id such as `2048-v0` or `gym:CartPole-v1`, or name such as `2048` for the newest version.

    Raises:
        UsageError: The game is unknown, fails to load, or is provided by several packages.
    """
    if (prefixed := _prefixed(game)) is not None:
        cls: type[Game[Any, Any]] = resolve_name(prefixed[0])
        return cls
    name = game.removeprefix(NAMESPACE + "/")
    if _ID.fullmatch(name) is None:
        versions = [known_id for known_id in _known() if _split(known_id)[0] == name]
        name = max(versions, key=lambda known_id: _split(known_id)[1], default=name)
    if name in _registered:
        return _registered[name]
    if name not in _sources():
        preset_names = f"; the presets are {', '.join(PRESETS)}" if "/" in name else ""
        suggestion = did_you_mean(game, [*(_split(known_id)[0] for known_id in _known()), *PRESETS])
        raise UsageError(f"unknown game {game!r}{suggestion}; the games are {', '.join(game_ids())}{preset_names}")
    try:
        cls = resolve_name(_sources()[name])
        if not (isinstance(cls, type) and issubclass(cls, Game)):
            raise UsageError("not a subclass of vlmgym's Game")
        if name != (actual := f"{cls.name}-v{cls.version}"):
            raise UsageError(f"its id is {actual}, not the name of the entry point")
    except (Exception, SystemExit) as error:
        reason = one_line(f"{'' if isinstance(error, VlmgymError) else f'{type(error).__name__}: '}{error}")
        raise UsageError(f"failed to load the game {name!r} from {_sources()[name]}: {reason}") from error
    return cls


def title_of(game: type[Game[Any, Any]]) -> str:
    """Return the name of a game for headings."""
    return game.title or game.name.capitalize()


def about(game: type[Game[Any, Any]]) -> str:
    """Return the first line of a game's docstring."""
    return (game.__doc__ or "").strip().partition("\n")[0]


def load_games() -> tuple[dict[str, type[Game[Any, Any]]], dict[str, UsageError]]:
    """Load all games of `game_ids`; return the classes and the load errors, both keyed by game id."""
    classes, errors = {}, {}
    for game_id in game_ids():
        try:
            classes[game_id] = game_class(game_id)
        except UsageError as error:
            errors[game_id] = error
    return classes, errors


def make_game(game: str, /, perception: int = 3, reasoning: int = 3, **overrides: Any) -> Game[Any, Any]:
    """Make a game at the given difficulty, or from a preset.

    Args:
        game: Id or name, e.g. `2048-v0` or `2048`; a name in `PRESETS`; `gym:` followed by the
            id of a Gymnasium environment; or `qa/` followed by a game to ask questions about. Without `data`, the
            names in `WITHOUT_DATA` mean other games.
        perception: Perceptual difficulty, 1 to 5.
        reasoning: Reasoning difficulty, 1 to 5.
        overrides: Config fields that override the levels, e.g. `size=320`.

    Raises:
        UsageError: The game, level or config field is unknown, a value is invalid, or a preset is combined with a
            level other than 3.
    """
    if not isinstance(game, str):
        raise UsageError(f"game must be an id or a name such as '2048', got {short_repr(game)}")
    if game.endswith(tuple(PREFIXES)):
        raise UsageError(f"{game!r} ends without a name: complete it, as in gym:CartPole-v1 or qa/2048")
    if (preset := PRESETS.get(game)) is not None:
        if (perception, reasoning) != (3, 3):
            raise UsageError(f"{game} is a preset without difficulty levels: keep them at 3 and override config fields")
        return make_game(preset.game, **{**preset.overrides, **overrides})
    if not {"data", "split"} & overrides.keys():
        game = WITHOUT_DATA.get(game, game)
    cls = game_class(game)
    if (prefixed := _prefixed(game)) is not None:
        _, field, value = prefixed
        if overrides.setdefault(field, value) != value:
            raise UsageError(f"{game}: the config field {field} is set by the id")
    try:
        return cls(cls.Config.at(perception, reasoning, **overrides))
    except UsageError as error:
        raise UsageError(f"{cls.name if prefixed is None else game}: {error}") from None


def make_games(games: object, perception: int = 3, reasoning: int = 3, **overrides: Any) -> list[Game[Any, Any]]:
    """Make one or more games, each given as an id, a name or a `Game`. A `Game` is returned unchanged.

    Raises:
        UsageError: See `make_game`. Also raised if `games` is empty or of another type, or if all games are `Game`
            objects but levels or config fields are given.
    """
    items = [games] if isinstance(games, str | Game) else games
    if not isinstance(items, Sequence) or isinstance(items, bytes):
        raise UsageError(f"games must be an id, a name, a Game or a sequence of these, got {short_repr(games)}")
    if not items:
        raise UsageError("games must not be empty")
    if all(isinstance(game, Game) for game in items) and ((perception, reasoning) != (3, 3) or overrides):
        raise UsageError("levels and config fields cannot be combined with a Game object")
    return [game if isinstance(game, Game) else make_game(game, perception, reasoning, **overrides) for game in items]


def _prefixed(game: str) -> tuple[str, str, str] | None:
    """Return the class of a prefixed id, and the config field's name and value; None without one of `PREFIXES`."""
    for prefix, (location, field) in PREFIXES.items():
        if game.startswith(prefix):
            return location, field, game.removeprefix(prefix)
    return None


@lru_cache(maxsize=1)
def _sources() -> dict[str, str]:
    """Class locations of built-in and installed games, keyed by id; built-in games take precedence. Slow to read."""
    installed = {point.name: point.value for point in entry_points(group=ENTRY_POINT_GROUP)}
    return {**{name: value for name, value in installed.items() if _ID.fullmatch(name)}, **BUILT_IN, **OWN_DATA_TASKS}


def _known() -> set[str]:
    return {*_sources(), *_registered}


def _split(game_id: str) -> tuple[str, int]:
    name, _, version = game_id.rpartition("-v")
    return name, int(version)
