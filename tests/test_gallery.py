"""The gallery in a real browser, opened from disk; and its image of all levels."""

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser

from tests.browser import Watched, chromium
from vlmgym.cli.gallery.command import GalleryConfig, gallery
from vlmgym.cli.gallery.exhibits import EXHIBITS, Exhibit, exhibits_of, levels_of
from vlmgym.cli.gallery.page import LeftOut, write_page
from vlmgym.cli.gallery.poster import draw_poster
from vlmgym.cli.gallery.responses import examples
from vlmgym.cli.main import main
from vlmgym.errors import UsageError
from vlmgym.sandbox.core.config import DIFFICULTIES, LEVELS
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.sandbox.registry import game_class, game_ids

SIZE = 192


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gallery") / "new" / "gallery.html"
    main(["gallery", "--output", str(path), "--size", str(SIZE)])
    return path


@pytest.fixture(scope="module")
def browser(page: Path) -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def watched(browser: Browser, page: Path) -> Iterator[Watched]:
    with browser.new_page(viewport={"width": 1280, "height": 900}) as opened:
        watched = Watched(opened)
        opened.goto(page.as_uri())
        yield watched


def test_every_level_of_every_game_is_there_and_every_image_loads(watched: Watched) -> None:
    shown = {game_class(exhibit.game) for exhibit in EXHIBITS}
    assert shown >= {game_class(game) for game in game_ids() if game_class(game).__module__.startswith("vlmgym.")}
    for exhibit in EXHIBITS:
        for difficulty in DIFFICULTIES:
            for level in LEVELS:
                figure = watched.page.locator(f"[id='{exhibit.name}'] .{difficulty}-{level}")
                assert figure.count() == 1
                images = figure.locator("img").evaluate_all("all => all.map(one => one.complete && one.naturalWidth)")
                assert images == [SIZE] * len(exhibit.at(SIZE).image_shapes)
    assert len(watched.requests) == 1
    watched.check()


def test_a_level_is_told_by_the_config_fields_that_it_changes(watched: Watched) -> None:
    def overrides(name: str, level: str) -> str:
        return watched.page.inner_text(f"[id='{name}'] .{level} .config-fields")

    assert overrides("swap", "reasoning-5") == "rows 10, columns 10, colours 5, shapes 5"
    assert overrides("2048", "perception-1") == "coordinates, similarity 0"
    assert overrides("geospot", "reasoning-3") == "the published setting"
    assert overrides("shisensho", "reasoning-3") == "the default", "boards that others published may have no solution"
    assert overrides("caption", "reasoning-3") == "the default"
    assert "variety" in overrides("shisensho_pictures", "perception-1")
    assert "colours" not in overrides("shisensho_pictures", "perception-1")


def test_a_good_a_bad_and_a_formless_response_are_shown_with_their_scores(watched: Watched) -> None:
    for exhibit in EXHIBITS:
        section = watched.page.locator(f"[id='{exhibit.name}']")
        assert "<answer>" in section.locator(".prompt pre").inner_text()
        cards = section.locator(".example").all()
        numbers = [card.locator("dd").all_inner_texts() for card in cards]
        badges = [card.locator(".badge").inner_text() for card in cards]
        assert (badges[0], badges[2]) == ("played", "unparsable")
        assert numbers[0][1:] == ["1", "100%"]
        assert [form for _, form, _ in numbers] == ["1", "1", "0"]
        good, bad, formless = (float(game) for game, _, _ in numbers)
        assert good > bad
        assert good > formless
        assert "has no <answer>" in cards[2].inner_text()


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_nothing_is_wider_than_the_window(watched: Watched, width: int) -> None:
    watched.page.set_viewport_size({"width": width, "height": 700})
    assert watched.page.evaluate("document.documentElement.scrollWidth") == width
    assert watched.page.evaluate("[...document.querySelectorAll('.panel')].every(p => p.scrollWidth <= p.clientWidth)")


def test_what_is_right_for_another_board_is_illegal_on_this_one() -> None:
    for name in ("2048", "shisensho", "swap"):
        (exhibit,) = exhibits_of([name])
        game = exhibit.at(SIZE)
        bad = examples(exhibit, game, exhibit.position(game))[1]
        assert bad.scored.outcome is Outcome.ILLEGAL
        assert bad.scored.feedback


def test_positions_shown_have_not_ended_and_the_dial_of_perception_shows_one() -> None:
    (played,) = exhibits_of(["shisensho_pictures"])
    for level in levels_of(replace(played, moves=10), "reasoning", SIZE):  # 4 x 4 are cleared in 8
        assert level.game.ended(level.state) is None
    exhibit = replace(*exhibits_of(["2048"]), moves=5)
    assert len({level.state for level in levels_of(exhibit, "perception", SIZE)}) == 1


def test_games_of_others_are_shown_too_and_those_without_an_oracle_have_no_responses(lamps: ModuleType) -> None:
    exhibit = exhibits_of()[-1]
    assert exhibit.about.startswith("Switch off all lamps.")
    assert (exhibit.title, exhibit.game) == ("lamps", "lamps-v0")
    html = write_page([exhibit], SIZE)
    assert html.count("<figure") == 2 * len(LEVELS)
    assert 'class="panel example"' not in html


def test_a_game_is_found_by_its_id_and_an_unknown_one_is_refused() -> None:
    assert exhibits_of(["swap-v0"]) == exhibits_of(["swap"])
    with pytest.raises(UsageError, match="unknown game 'chess'"):
        exhibits_of(["chess"])


def test_texts_are_text_and_what_is_left_out_is_told() -> None:
    html = write_page([], SIZE, [LeftOut("caption", "it needs <script>alert(1)</script>")])
    assert "caption is left out: it needs &lt;script&gt;alert(1)&lt;/script&gt;" in html


def test_a_game_that_cannot_be_drawn_is_left_out_unless_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = Exhibit("folder", "Folder", "shisensho", "", overrides={"tiles": "folder"})
    monkeypatch.setattr("vlmgym.cli.gallery.exhibits.EXHIBITS", (*exhibits_of(["swap"]), bad))
    monkeypatch.setattr("vlmgym.cli.gallery.exhibits.load_games", lambda: ({}, {}))
    path = tmp_path / "gallery.html"
    main(["gallery", "--output", str(path), "--size", str(SIZE)])
    assert "Folder is left out: shisensho: tiles=folder needs data" in path.read_text()
    with pytest.raises(SystemExit):
        main(["gallery", "folder", "--output", str(path)])
    assert "tiles=folder needs data" in capsys.readouterr().err
    with pytest.raises(UsageError, match="no game can be drawn: swap: size: input should be less"):
        gallery(GalleryConfig(output=tmp_path / "none.html", size=5000))
    assert not (tmp_path / "none.html").exists()


def test_the_poster_has_a_column_for_each_game_and_a_row_for_each_level(tmp_path: Path) -> None:
    exhibits = exhibits_of(["swap", "nlvr2"])
    path = tmp_path / "poster.png"
    main(["gallery", "swap", "--output", str(tmp_path / "g.html"), "--size", str(SIZE), "--poster", str(path)])
    one, two = (Image.open(io.BytesIO(data)) for data in (path.read_bytes(), draw_poster(exhibits)))
    assert one.format == two.format == "PNG"
    assert one.height == two.height > len(LEVELS) * 200
    assert two.width - one.width == 2 * 200 + 14 + 7  # nlvr2 has two images
    whole = np.asarray(two.convert("RGB"))[:, : one.width - 30]
    assert np.abs(whole.astype(int) - np.asarray(one.convert("RGB"))[:, : one.width - 30]).mean() < 8  # other palette
