"""Which games there are: the built-in ones, those of installed packages, and those registered in the program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points
from typing import Any

from vlmgym.errors import UsageError, VlmgymError, one_line, short_repr
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.presets import PRESETS

BUILT_IN = {
    "2048-v0": "vlmgym.sandbox.games.game2048.game:Game2048",
    "caption-v0": "vlmgym.sandbox.games.caption.game:Caption",
    "geospot-v0": "vlmgym.sandbox.games.geospot.game:Geospot",
    "nlvr2-v0": "vlmgym.sandbox.games.nlvr2.game:Nlvr2",
    "shisensho-v0": "vlmgym.sandbox.games.shisensho.game:ShisenSho",
    "swap-v0": "vlmgym.sandbox.games.swap.game:Swap",
    "vqa-v0": "vlmgym.sandbox.games.vqa.game:Vqa",
}
"""Id of every built-in game and where its class is. A new game adds one line."""

ENTRY_POINT_GROUP = "vlmgym.games"
"""Packages add games by entry points in this group: `"name-v0" = "module:Class"`."""

NAMESPACE = "vlmgym"
"""Namespace of the Gymnasium ids, for instance `vlmgym/2048-v0`."""

_ID = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)-v(?P<version>[0-9]+)")
_registered: dict[str, type[Game[Any, Any]]] = {}


def register_game(game_class: type[Game[Any, Any]]) -> type[Game[Any, Any]]:
    """Make a game known by its id in this program, also to `gymnasium.make`; usable as a class decorator.

    Raises:
        UsageError: Another class has this id, or the name is not made of letters, digits, `_`, `.` and `-`.
    """
    game_id = f"{game_class.name}-v{game_class.version}"
    if _ID.fullmatch(game_id) is None:
        raise UsageError(
            f"{game_id!r} is not a game's id: a name of letters, digits, '_', '.', '-', then -v and a number"
        )
    own = f"{game_class.__module__}:{game_class.__qualname__}"
    if _sources().get(game_id, own) != own or _registered.get(game_id, game_class) is not game_class:
        raise UsageError(f"there is another game with the id {game_id!r}: choose another name, or raise its version")
    _registered[game_id] = game_class
    return game_class


def game_ids() -> list[str]:
    """Ids of all known games, sorted, without importing them."""
    return sorted({*_sources(), *_registered})


def game_class(game: str) -> type[Game[Any, Any]]:
    """The class of a game by its id (`2048-v0`) or by its name (`2048`: the newest version).

    Raises:
        UsageError: There is no such game, several packages have it, or its package does not load.
    """
    name = game.removeprefix(NAMESPACE + "/")
    if _ID.fullmatch(name) is None:
        versions = [other for other in game_ids() if _split(other)[0] == name]
        name = max(versions, key=lambda other: _split(other)[1], default=name)
    if name in _registered:
        return _registered[name]
    if name not in _sources():
        published = f"; published settings are {', '.join(PRESETS)}" if "/" in name else ""
        raise UsageError(f"there is no game {game!r}; the games are {', '.join(game_ids())}{published}")
    rivals = {point.value for point in _entry_points().select(name=name)}
    if len(rivals) > 1 and name not in BUILT_IN:
        raise UsageError(f"several installed packages have a game {name!r} ({', '.join(sorted(rivals))}): keep one")
    module, _, attribute = _sources()[name].partition(":")
    try:
        found = getattr(import_module(module), attribute)
        if not (isinstance(found, type) and issubclass(found, Game)):
            raise UsageError("not a subclass of vlmgym's Game")
        if name != (actual := f"{found.name}-v{found.version}"):
            raise UsageError(f"its id is {actual}, not the name of the entry point")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a package may raise anything, SystemExit included
        reason = (
            one_line(str(error)) if isinstance(error, VlmgymError) else one_line(f"{type(error).__name__}: {error}")
        )
        raise UsageError(f"the game {name!r} does not load from {_sources()[name]}: {reason}") from error
    return found


def load_games() -> tuple[dict[str, type[Game[Any, Any]]], dict[str, UsageError]]:
    """Load every known game.

    Returns:
        The classes by their ids, and the errors of those that do not load.
    """
    loaded, failed = {}, {}
    for game_id in game_ids():
        try:
            loaded[game_id] = game_class(game_id)
        except UsageError as error:
            failed[game_id] = error
    return loaded, failed


def make_game(game: str, /, perception: int = 3, reasoning: int = 3, **overrides: Any) -> Game[Any, Any]:
    """A game at a difficulty, or at a published setting.

    Args:
        game: Id or name, for instance `2048-v0` or `2048`, or the name of one of `vlmgym.sandbox.presets.PRESETS`.
        perception: Level 1 to 5 for the eye.
        reasoning: Level 1 to 5 for the mind.
        overrides: Single settings that override the levels, for instance `size=320`.

    Raises:
        UsageError: There is no such game, level or config field, a value is not accepted, or a published setting is
            asked for at another level than 3.
    """
    if not isinstance(game, str):
        raise UsageError(f"a game is named by an id or a name, such as '2048', not {short_repr(game)}")
    if (preset := PRESETS.get(game)) is not None:
        if (perception, reasoning) != (3, 3):
            raise UsageError(f"{game} is a published setting and has no levels: leave them at 3, and set config fields")
        return make_game(preset.game, **{**preset.overrides, **overrides})
    found = game_class(game)
    try:
        return found(found.Config.at(perception, reasoning, **overrides))
    except UsageError as error:
        raise UsageError(f"{found.name}: {error}") from None


def make_games(games: object, perception: int = 3, reasoning: int = 3, **overrides: Any) -> list[Game[Any, Any]]:
    """One or several games, each an id, a name or a `Game`, which brings its own levels and config fields.

    Raises:
        UsageError: They are something else, none, or as in `make_game`.
    """
    listed = [games] if isinstance(games, str | Game) else games
    if not isinstance(listed, Sequence) or isinstance(listed, bytes):
        raise UsageError(f"games are an id, a name, a Game or a sequence of these, not {short_repr(games)}")
    if not listed:
        raise UsageError("name at least one game")
    return [game if isinstance(game, Game) else make_game(game, perception, reasoning, **overrides) for game in listed]


@lru_cache(maxsize=1)
def _sources() -> dict[str, str]:
    """Where the class of each built-in or installed game is; a built-in id cannot be taken over."""
    installed = {point.name: point.value for point in _entry_points()}
    return {**{name: value for name, value in installed.items() if _ID.fullmatch(name)}, **BUILT_IN}


@lru_cache(maxsize=1)
def _entry_points() -> EntryPoints:
    """Games of all installed packages. Cached because each call would read the metadata of every package."""
    return entry_points(group=ENTRY_POINT_GROUP)


def _split(game_id: str) -> tuple[str, int]:
    name, _, version = game_id.rpartition("-v")
    return name, int(version)
