"""Pages of games in docs/games, and their lists."""

import pytest

from benchmarks import protocols
from benchmarks.game_pages import FOLDER, README, names, overview, page, readme_list

PROTOCOLS = FOLDER.parent / "protocols.md"


@pytest.mark.parametrize("name", names())
def test_the_page_of_a_game_is_up_to_date(name: str) -> None:
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert text == page(name), f"run python -m benchmarks.game_pages {name}"
    assert f"| `{name}` | random | " in PROTOCOLS.read_text(encoding="utf-8"), (
        f"run python -m benchmarks.protocols --games {name}"
    )
    assert (FOLDER / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_the_table_of_games_is_up_to_date() -> None:
    assert FOLDER.with_suffix(".md").read_text(encoding="utf-8") == overview()
    assert f"<!-- games -->\n{readme_list()}\n<!-- /games -->" in README.read_text(encoding="utf-8")
    assert {path.stem for path in FOLDER.glob("*.md")} == {*names()}


def test_the_page_of_protocols_has_all_rows() -> None:
    text = PROTOCOLS.read_text(encoding="utf-8")
    assert all(f"| `{setting.name}` |" in text for setting in protocols.SETTINGS)
    assert all(f"| {row.game} | " in text for row in protocols.COMPARISONS)
