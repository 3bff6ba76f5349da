"""Write a page per game, docs/games/NAME.md with NAME.png, their table docs/games.md, and their list in README.md.

python -m benchmarks.game_pages sokoban
python -m benchmarks.game_pages

Everything is derived from the classes of the games. Config fields that several games share are described in
docs/games.md.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from benchmarks.markdown import table, wrapped
from benchmarks.posters import draw_levels, draw_thumbnail
from benchmarks.protocols import ROOT, write_between
from vlmgym.cli.games import Option, options_of
from vlmgym.pages.gallery import items_of, shown_seed
from vlmgym.runs.files import replace_file
from vlmgym.sandbox.core.config import GameConfig
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.options import GameNames
from vlmgym.sandbox.registry import BUILT_IN, about, game_class, make_game, title_of
from vlmgym.terminal import parse_options, reporting_errors

FOLDER = ROOT / "docs" / "games"
README = ROOT / "README.md"
SHARED = 4
"""Number of games that declare a config field alike for docs/games.md to describe it."""
SECTION = re.compile(r"^([A-Z][a-z]+(?: [a-z]+)?):\n((?:    .*\n|\n)*)", re.MULTILINE)
"""A section of a docstring in Google style: its title and its indented body."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Write game pages."""

    game: GameNames = ()
    """Names of built-in games. Default: all."""


def names() -> list[str]:
    """Return the names of the built-in games."""
    return [game_id.rpartition("-v")[0] for game_id in BUILT_IN]


def page(name: str) -> str:
    """Return the page of a game as Markdown."""
    cls = game_class(name)
    game = make_game(name)
    state = Episode(game, shown_seed(game)).state
    best = game.best_action(state)
    response = [] if best is None else ["The oracle responds:", _code(game.respond(state, best))]
    parts = [
        f"# {title_of(cls)}",
        f"![Levels of {name}]({name}.png)",
        f"Perception levels (top) and reasoning levels (bottom). {_measured(name)}",
        *documentation(cls.__doc__ or ""),
        _history(game.history),
        f"More: [docs/tasks/{name}.md](../tasks/{name}.md)." if (ROOT / "docs/tasks" / f"{name}.md").exists() else "",
        "## Config fields",
        *_fields(cls.Config),
        "## Prompt",
        _code(game.instructions(state)),
        *response,
    ]
    return wrapped("\n\n".join(part for part in parts if part))


def overview() -> str:
    """Return docs/games.md, the table of games, as Markdown."""
    rows = []
    for name in names():
        game, path = game_class(name), f"games/{name}.md"
        title = title_of(game)
        rows.append((f"[![{title}](games/thumbnails/{name}.png)]({path})", f"[{title}]({path})", about(game)))
    parts = [
        "# Games",
        table(("", "game", "task"), rows),
        "Play a game, or score a policy without a model ([scores of all games](protocols.md#scores)):",
        "    .venv/bin/vlmgym play sokoban\n    .venv/bin/vlmgym eval sokoban --policy random-legal",
        "## Shared config fields",
        "The page of a game describes its own config fields and names those that it shares with other games.",
        *(f"{_title(games)}:\n\n{field_table(fields)}" for games, fields in shared_fields().items()),
    ]
    return wrapped("\n\n".join(parts))


def readme_list() -> str:
    """Return the list of games for README.md as Markdown."""
    links = [f"[{title_of(game_class(name))}](docs/games/{name}.md)" for name in names()]
    return wrapped(", ".join(links)).rstrip("\n")


def documentation(docstring: str) -> Iterator[str]:
    """Yield the parts of a docstring in Google style as Markdown."""
    text = inspect.cleandoc(docstring) + "\n"
    yield SECTION.sub("", text).strip()
    for title, body in SECTION.findall(text):
        yield f"## {title}"
        parts = inspect.cleandoc(body).split("\n\n")
        if title == "Arguments":
            parts = ["- " + item for part in parts for item in re.split(r"\n(?=`\w+`: )", part)]
        yield "\n\n".join(" ".join(part.split()) for part in parts)


def _history(turns: int) -> str:
    """Return a sentence about the earlier turns that prompts repeat by default, or an empty string if none."""
    if not turns:
        return ""
    return f"The game needs memory: by default, prompts repeat {turns} earlier turns with their images (`--history`)."


@cache
def shared_fields() -> Mapping[tuple[str, ...], list[Option]]:
    """Return the config fields that at least `SHARED` games declare alike, by the names of these games."""
    games: dict[Option, list[str]] = defaultdict(list)
    for name in names():
        for field in options_of(game_class(name).Config):
            games[field].append(name)
    shared: dict[tuple[str, ...], list[Option]] = defaultdict(list)
    for field, users in sorted(games.items(), key=lambda item: -len(item[1])):
        if len(users) >= SHARED:
            shared[tuple(users)].append(field)
    return shared


def field_table(fields: Iterable[Option]) -> str:
    """Format config fields as a table."""
    rows = (
        (f"`{field.name}`", field.kind, field.default, " ".join(field.levels), field.accepted, field.description)
        for field in fields
    )
    return table(["config field", "kind", "default", "levels 1 to 5", "accepts", "description"], rows)


def _fields(config: type[GameConfig]) -> Iterator[str]:
    """Yield the table of a game's own config fields, and a sentence about the shared ones."""
    shared = {field for fields in shared_fields().values() for field in fields}
    fields = options_of(config)
    unshared = [field for field in fields if field not in shared]
    if unshared:
        yield field_table(unshared)
    shared_names = _listed(field.name for field in fields if field in shared)
    yield f"[Shared with other games](../games.md#shared-config-fields): {shared_names}."


def _title(games: Sequence[str]) -> str:
    """Say which games share config fields."""
    if len(games) == len(names()):
        return "All games"
    rest = [name for name in names() if name not in games]
    if len(rest) < len(games):
        return f"All games except {_listed(rest)}"
    return _listed(games)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _measured(name: str) -> str:
    measured = (ROOT / "docs" / "difficulty" / f"{name}.md").exists()
    return f"[Effect of the levels](../difficulty/{name}.md)." if measured else "Their effect is not measured yet."


def _code(text: str) -> str:
    return "\n".join(f"    {line}" if line else "    " for line in text.splitlines())


def main() -> None:
    """Write the pages."""
    with reporting_errors():
        options = parse_options(Options, None, "python -m benchmarks.game_pages")
        (FOLDER / "thumbnails").mkdir(parents=True, exist_ok=True)
        for name in options.game or names():
            item = items_of([name])[0]
            replace_file(FOLDER / f"{name}.png", draw_levels(item))
            replace_file(FOLDER / "thumbnails" / f"{name}.png", draw_thumbnail(item))
            replace_file(FOLDER / f"{name}.md", page(name).encode())
            print(FOLDER / f"{name}.md")
        replace_file(FOLDER.with_suffix(".md"), overview().encode())
        text = write_between(README.read_text(encoding="utf-8"), "games", readme_list().splitlines())
        replace_file(README, text.encode())


if __name__ == "__main__":
    main()
