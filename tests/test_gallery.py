"""The gallery in a real browser, and its captions."""

from dataclasses import replace

import pytest

from vlmgym.cli.main import main
from vlmgym.errors import UsageError
from vlmgym.pages.gallery import CAPTIONS, VARIANTS, GalleryConfig, gallery, items_of, render_page
from vlmgym.sandbox.core.config import DIFFICULTIES, LEVELS
from vlmgym.sandbox.games.shisensho.game import ShisenSho
from vlmgym.sandbox.games.swap import Swap
from vlmgym.sandbox.registry import game_class, game_ids

SIZE = 160
SHOWN = ["2048", "geospot", "scenes-statements", "shisensho", "swap"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("gallery") / "new" / "gallery.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vlmgym.pages.gallery.LONGEST", 4)  # the oracle of 2048 takes its time
        main(["gallery", *SHOWN, "--output", str(path), "--size", str(SIZE)])
    return path


@pytest.mark.slow
def test_every_level_is_shown(path, watched):
    shown = {game_class(item.game) for item in items_of()}
    assert shown >= {game_class(game) for game in game_ids() if game_class(game).__module__.startswith("vlmgym.")}
    page = watched.visit(path)
    for item in items_of(SHOWN):
        for difficulty in DIFFICULTIES:
            for level in LEVELS:
                images = page.locator(f"[id='{item.name}'] figure.{difficulty}-{level} img")
                widths = images.evaluate_all("all => all.map(one => one.complete && one.naturalWidth)")
                assert widths == [SIZE] * len(item.at(SIZE, **{difficulty: level}).image_shapes)
    assert len(watched.requests) == 1
    assert "<answer>" in page.locator("[id='2048'] .prompt pre").inner_text()
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate("[...document.querySelectorAll('.panel')].every(p => p.scrollWidth <= p.clientWidth)")
    watched.check()


def test_captions_name_changed_config_fields(path, watched):
    page = watched.visit(path)

    def overrides(name, level):
        return page.inner_text(f"[id='{name}'] .{level} .config-fields")

    assert overrides("swap", "reasoning-5") == "rows 10, columns 10, colours 6"
    assert overrides("2048", "perception-1") == "coordinates, relief 1, similarity 0"
    assert overrides("shisensho", "reasoning-3") == "the default"
    assert "variety" in overrides("shisensho_images", "perception-1")
    assert "colours" not in overrides("shisensho_images", "perception-1")


def test_text_is_escaped(path, monkeypatch):
    html = render_page([], SIZE, [("caption", "it needs <script>alert(1)</script>")])
    assert "caption is not shown: it needs &lt;script&gt;alert(1)&lt;/script&gt;" in html
    evil = "<b onclick='x()'>\""
    (item,) = items_of(["scenes-statements"])
    monkeypatch.setitem(CAPTIONS, "scenes-statements", lambda *_: evil)
    html = render_page([replace(item, title=evil, about=evil)], SIZE)
    assert html.count('class="caption"') == 2 * len(LEVELS)
    assert "<b" not in html.replace("<body", "")


@pytest.mark.slow
def test_games_that_cannot_be_drawn_are_left_out_unless_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(VARIANTS, "shisensho", {"folders": {"tiles": "folder"}})
    games = {"swap-v0": Swap, "shisensho-v0": ShisenSho}
    monkeypatch.setattr("vlmgym.pages.gallery.load_games", lambda: (games, {}))
    path = tmp_path / "gallery.html"
    main(["gallery", "--output", str(path), "--size", str(SIZE)])
    assert "Shisen-Sho with folders is not shown: shisensho: tiles=folder needs data" in path.read_text()
    with pytest.raises(SystemExit):
        main(["gallery", "shisensho", "--output", str(path)])
    assert "tiles=folder needs data" in capsys.readouterr().err
    with pytest.raises(UsageError, match="no game can be drawn: swap: size"):
        gallery(GalleryConfig(output=tmp_path / "none.html", size=5000))
    assert not (tmp_path / "none.html").exists()
