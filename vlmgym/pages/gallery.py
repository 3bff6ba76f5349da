"""`vlmgym gallery`: every game at every level, with prompts and scored responses, as a page without scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from vlmgym import __version__
from vlmgym.checks import check_int
from vlmgym.errors import UsageError
from vlmgym.pages.document import data_url, document, marked
from vlmgym.pages.posters import AnyGame, GalleryItem, Level, draw_poster, items_of, levels_of, middle_state, shown_seed
from vlmgym.runs.files import check_own_file, write_own_file
from vlmgym.sandbox.core.config import DIFFICULTIES, Difficulty
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.reward import Outcome, Scored, score_response
from vlmgym.sandbox.presets import PRESETS
from vlmgym.sandbox.registry import game_class
from vlmgym.terminal import make_console

CAPTIONS: Mapping[str, Callable[[AnyGame, Any], str]] = {
    "caption": lambda game, state: game.describe(state),
    "geospot": lambda _, state: f"{state.city}, {state.country}",
    "nlvr2": lambda _, state: state.statement,
    "vqa": lambda _, state: state.question,
}
"""Text below an image, such as the question, by game."""

OTHER_STATES = 4
"""Number of other states whose correct responses are candidates for the wrong response."""
FOR_THE: dict[Difficulty, str] = {"perception": "harder to see", "reasoning": "harder to solve"}


@dataclass(frozen=True, kw_only=True)
class GalleryConfig:
    """Options of `vlmgym gallery`."""

    game: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="GAME ...", help_behavior_hint="")
    ] = ()
    """Names or ids of games; if empty, all installed games."""
    output: Path = Path("gallery.html")
    """Output page."""
    poster: Path | None = None
    """Also write a poster of all levels to this PNG file."""
    size: int = 384
    """Image size in pixels."""

    def __post_init__(self) -> None:
        check_int("size", self.size, 64)


def gallery(config: GalleryConfig) -> None:
    """Write the page and, if requested, the poster."""
    for path in (config.output, config.poster):
        if path is not None:
            check_own_file(path)
    console = make_console()
    shown = items_of(config.game)
    left_out: list[tuple[str, str]] = []
    if not config.game:
        shown, left_out = _drawable(shown, config.size)
        if not shown:
            raise UsageError(f"no game can be drawn: {left_out[0][1]}")
    write_own_file(config.output, render_page(shown, config.size, left_out).encode())
    console.print(f"gallery {config.output}", soft_wrap=True)
    if config.poster is not None:
        write_own_file(config.poster, draw_poster(shown))
        console.print(f"poster  {config.poster}", soft_wrap=True)


def _drawable(items: Sequence[GalleryItem], size: int) -> tuple[list[GalleryItem], list[tuple[str, str]]]:
    """Separate items that can be drawn from those whose libraries or data are missing, with the reasons."""
    shown, left_out = [], []
    for item in items:
        try:
            game = item.at(size)
            game.images(Episode(game, shown_seed(game)).state)
        except UsageError as error:
            left_out.append((item.title, str(error)))
        else:
            shown.append(item)
    return shown, left_out


def render_page(items: Sequence[GalleryItem], size: int, left_out: Sequence[tuple[str, str]] = ()) -> str:
    """Build the page; `left_out` has the titles of games that cannot be rendered, with the reasons."""
    parts = {
        "links": "".join(f'<a href="#{escape(item.name)}">{escape(item.title)}</a>' for item in items),
        "left_out": "".join(
            f'<p class="banner">{escape(f"{title} is not shown: {why}")}</p>' for title, why in left_out
        ),
        "items": "".join(_item(item, size) for item in items),
        "version": __version__,
        "size": str(size),
    }
    return document("vlmgym: gallery", "gallery", parts)


def _item(item: GalleryItem, size: int) -> str:
    game = item.at(size)
    state = middle_state(game)
    title = item.title
    return f"""
<section id="{escape(item.name)}" class="item">
<h2>{escape(title)}</h2>
<p class="lead">{escape(item.about)}</p>
{"".join(_strip(item, difficulty, size) for difficulty in DIFFICULTIES)}
<div class="responses">
<article class="panel prompt"><h4>Prompt</h4>
{_images(game.images(state), f"{title} at level 3")}
<pre {_scrolling(f"{title}: prompt")}>{escape(game.instructions(state))}</pre></article>
{"".join(_example(example, title) for example in examples(game, state))}
</div>
</section>"""


def _strip(item: GalleryItem, difficulty: Difficulty, size: int) -> str:
    return f"""
<div class="difficulty">
<h3>{difficulty} <span class="faint">{FOR_THE[difficulty]}</span></h3>
<div class="strip" {_scrolling(f"{item.title}: levels of {difficulty}")}>
{"".join(_level(item, level) for level in levels_of(item, difficulty, size))}
</div>
</div>"""


def _level(item: GalleryItem, level: Level) -> str:
    text = CAPTIONS[level.game.name](level.game, level.state) if level.game.name in CAPTIONS else ""
    caption = f'<p class="caption">{escape(text)}</p>' if text else ""
    overrides = level.overrides or [_default_words(item) if level.level == 3 else "as level 3"]
    return f"""
<figure class="level {level.difficulty}-{level.level}">
{_images(level.game.images(level.state), f"{item.title}, {level.difficulty} {level.level}")}
<figcaption><span class="number">{level.level}</span>
<span class="config-fields">{escape(", ".join(overrides))}</span></figcaption>
{caption}</figure>"""


def _default_words(item: GalleryItem) -> str:
    """Describe the config of level 3."""
    game, config = game_class(item.game), game_class(item.game).Config.at()
    presets = (preset.overrides.items() for preset in PRESETS.values() if game_class(preset.game) is game)
    same = any(all(getattr(config, name) == value for name, value in overrides) for overrides in presets)
    return "the published setting" if same and not item.overrides else "the default"


def _images(images: Sequence[ImageArray], alt: str) -> str:
    elements = []
    for number, image in enumerate(images, 1):
        label = escape(alt if len(images) == 1 else f"{alt}, image {number}")
        height, width = image.shape[:2]
        elements.append(f'<img src="{data_url(image)}" alt="{label}" width="{width}" height="{height}">')
    return f'<div class="images of-{len(elements)}">{"".join(elements)}</div>'


def _scrolling(label: str) -> str:
    """Return the attributes that make a scrollable element reachable by keyboard."""
    return f'role="region" aria-label="{escape(label)}" tabindex="0"'


def _example(example: Example, title: str) -> str:
    scored = example.scored
    numbers = {"game": f"{scored.game:.3g}", "format": f"{scored.format:g}"}
    if scored.perception is not None:
        numbers["perception"] = f"{scored.perception.partial:.0%}"
    response = "".join(
        f'<span class="section {name}">{escape(text)}</span>' if name else escape(text)
        for name, text in marked(example.response)
    )
    feedback = f'<p class="feedback">{escape(scored.feedback)}</p>' if scored.feedback else ""
    outcome = scored.outcome.value
    return f"""
<article class="panel example">
<div class="outcome"><span class="badge {outcome}">{outcome}</span>
<span class="faint">{escape(example.title)}</span></div>
<dl class="numbers">{"".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in numbers.items())}</dl>
<pre {_scrolling(f"{title}: {example.title}")}>{response}</pre>
{feedback}</article>"""


@dataclass(frozen=True)
class Example:
    """A response with its score and a title."""

    title: str
    response: str
    scored: Scored[Any, Any]


def examples(game: AnyGame, state: Any) -> list[Example]:
    """Return responses to a state, from best to worst; empty if there is no oracle.

    They are the oracle's response, its response to another state, and prose that names the oracle's action.
    """
    action = game.best_action(state)
    if action is None:
        return []

    def score(title: str, response: str) -> Example:
        return Example(title, response, score_response(game, state, response, np.random.default_rng(shown_seed(game))))

    states = [middle_state(game, 1 + i) for i in range(OTHER_STATES)]
    blind = (score("correct for another image", _best(game, state)) for state in states)
    return [
        score("from the oracle", _best(game, state)),
        min(blind, key=_rank),
        score(
            "the oracle's answer, not in the response format",
            f"{game.explain(state, action)} My answer is {game.answer.format(action)}.",
        ),
    ]


def _best(game: AnyGame, state: Any) -> str:
    return game.respond(state, game.best_action(state))


def _rank(example: Example) -> tuple[bool, float, float]:
    """Return a sort key: responses that were not played first, then by reward and perception."""
    scored = example.scored
    return scored.outcome is Outcome.PLAYED, scored.game, scored.perception.partial if scored.perception else 0.0
