"""Render the images of the README: `.venv/bin/python -m assets.make_assets`.

`gallery.png` and `gallery-dark.png` show every game, `skins.jpg` states in all skins, `oracle.gif` the oracles playing,
`trained.gif` a trained model next to random play, replayed from docs/learning/whole_games. Pixels are the same on every
machine; the files themselves depend on the compression of the installed Pillow.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import imageio.v3 as imageio

from benchmarks.posters import draw_poster
from vlmgym import Episode as Rollout
from vlmgym import make_game
from vlmgym.pages.gallery import items_of
from vlmgym.rollout.states import FIRST_VALIDATION_SEED
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.drawing.canvas import THEMES, Canvas
from vlmgym.sandbox.drawing.skins import SkinName

FOLDER = Path(__file__).parent
THEME = THEMES["light"]
GAMES = {"2048": "2048", "shisensho": "Shisen-Sho", "swap": "Swap"}
GIF_TURNS = 40
GIF_MILLISECONDS = 320
TRAINED_MILLISECONDS = 120
RESULTS = FOLDER.parent / "docs" / "learning" / "whole_games"


@dataclass(frozen=True)
class Panel:
    """An image with a caption."""

    image: ImageArray
    caption: str


def main() -> None:
    """Write all images next to this file."""
    (FOLDER / "gallery.png").write_bytes(draw_poster(items_of(), levels=(3,)))
    (FOLDER / "gallery-dark.png").write_bytes(draw_poster(items_of(), levels=(3,), theme="dark"))
    imageio.imwrite(FOLDER / "skins.jpg", sheet([("", row) for row in skins(side=220)], 220), quality=88)
    write_gif(FOLDER / "oracle.gif", oracle_play(side=296), 296, GIF_MILLISECONDS)
    write_gif(FOLDER / "trained.gif", trained_play(side=224), 224, TRAINED_MILLISECONDS)


def skins(side: int) -> Iterator[list[Panel]]:
    """Yield rows with a state of a game in each skin."""
    for game in ("2048", "sokoban", "clocks"):
        images = {skin: Rollout(game, 3, size=side, skin=skin).images for skin in get_args(SkinName)}
        yield [Panel(image, skin) for skin, (image, *_) in images.items()]


def write_gif(path: Path, panels: Iterable[Sequence[Panel]], side: int, milliseconds: int) -> None:
    """Write an animation with a frame for each row of panels."""
    frames = [sheet([("", row)], side) for row in panels]
    durations = [milliseconds] * (len(frames) - 1) + [3000]
    imageio.imwrite(path, frames, duration=durations, loop=0, optimize=True)


def oracle_play(side: int) -> Iterator[list[Panel]]:
    """Yield frames with the games in `GAMES` side by side, one oracle turn per frame; ended games stay as they are."""
    episodes: list[Episode[Any, Any]] = [Episode(make_game(name, size=side), seed=3) for name in GAMES]
    for _ in range(GIF_TURNS):
        yield [
            Panel(episode.game.images(episode.state)[0], f"{title}, turn {episode.turn}, score {episode.score:g}")
            for title, episode in zip(GAMES.values(), episodes)
        ]
        for episode in episodes:
            if not episode.ended:
                episode.act(episode.game.best_action(episode.state))


def trained_play(side: int) -> Iterator[list[Panel]]:
    """Yield frames of random play next to a model of `benchmarks.miniature`, both playing the first held-out game."""
    baselines, trained = (json.loads((RESULTS / f"2048-{name}.json").read_text()) for name in ("baselines", "0-grpo"))
    actions = {"random": baselines["random"]["actions"], "tiny model": trained["GRPO"]["games"]["actions"]}
    game = make_game("2048", size=side)
    episodes: dict[str, Episode[Any, Any]] = {name: Episode(game, FIRST_VALIDATION_SEED) for name in actions}
    for turn in range(max(map(len, actions.values())) + 1):
        yield [
            Panel(
                game.images(episode.state)[0], f"{name}, turn {min(turn, len(actions[name]))}, score {episode.score:g}"
            )
            for name, episode in episodes.items()
        ]
        for name, episode in episodes.items():
            if turn < len(actions[name]) and actions[name][turn] in (game.legal_actions(episode.state) or ()):
                episode.act(actions[name][turn])


def sheet(rows: Sequence[tuple[str, Sequence[Panel]]], side: int) -> ImageArray:
    """Draw rows of panels, each row below its title; return uint8 RGB (height, width, 3)."""
    margin, gap, caption, heading = 24, 16, 30, 48
    columns = max(len(panels) for _, panels in rows)
    width = 2 * margin + columns * side + (columns - 1) * gap
    tops: list[int] = []
    y = margin // 2
    for title, _ in rows:
        y += heading if title else 0
        tops.append(y)
        y += side + caption
    page = Canvas(width, y + margin // 2, THEME.page)
    for (title, panels), top in zip(rows, tops):
        page.text(title, margin + 6, top - heading * 0.42, 18, THEME.label, align="left")
        for column, panel in enumerate(panels):
            x = margin + column * (side + gap) + side / 2
            page.text(panel.caption, x, top + side + caption * 0.4, 10, THEME.label)
    pixels = page.pixels()
    for (_, panels), top in zip(rows, tops):
        for column, panel in enumerate(panels):
            x = margin + column * (side + gap)
            pixels[top : top + side, x : x + side] = panel.image
    return pixels


if __name__ == "__main__":
    main()
