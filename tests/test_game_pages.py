"""Pages of games in docs/games, and their lists."""

import pytest

from benchmarks.game_pages import FOLDER, README, documentation, names, overview, page, readme_list
from benchmarks.markdown import WIDTH, wrapped


@pytest.mark.parametrize("name", names())
def test_the_page_of_a_game_is_up_to_date(name: str) -> None:
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert text == page(name), f"run python -m benchmarks.game_pages {name}"
    assert f"| `{name}` | random | " in text, f"run python -m benchmarks.protocols --games {name}"
    assert (FOLDER / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_the_table_of_games_is_up_to_date() -> None:
    assert FOLDER.with_suffix(".md").read_text(encoding="utf-8") == overview()
    assert f"<!-- games -->\n{readme_list()}\n<!-- /games -->" in README.read_text(encoding="utf-8")
    assert {path.stem for path in FOLDER.glob("*.md")} == {*names()}


def test_only_arguments_become_items() -> None:
    docstring = """Play.

    Description:
        Cells in a fog are hidden. With
        `fog`, others are shown.

    Arguments:
        `rows`, `columns`: Size, with
            a note.
        `fog`: Distance.
    """
    assert "\n\n".join(documentation(docstring)).split("\n\n") == [
        "Play.",
        "## Description",
        "Cells in a fog are hidden. With `fog`, others are shown.",
        "## Arguments",
        "- `rows`, `columns`: Size, with a note.",
        "- `fog`: Distance.",
    ]


def test_no_wrapped_line_begins_a_list() -> None:
    for before in range(WIDTH - 12, WIDTH + 2):
        text = wrapped(f"{'x' * (before - 6)} from 1. Numbers - and 2) more.")
        assert not [line for line in text.splitlines() if line.startswith(("1.", "- ", "2)"))]
