"""The gallery as a self-contained HTML page without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template

from vlmgym import __version__
from vlmgym.cli.gallery.items import Example, GalleryItem, Level, examples, levels_of, middle_state
from vlmgym.evaluation.report.document import asset, content_policy, marked
from vlmgym.evaluation.report.images import data_url
from vlmgym.sandbox.core.config import DIFFICULTIES, Difficulty
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.presets import PRESETS
from vlmgym.sandbox.registry import game_class

FOR_THE: dict[Difficulty, str] = {"perception": "harder to see", "reasoning": "harder to solve"}


def render_page(items: Sequence[GalleryItem], size: int, left_out: Sequence[tuple[str, str]] = ()) -> str:
    """Build the page; `left_out` has the titles of games that cannot be rendered, with the reasons."""
    folder = files(__package__) / "assets"
    style = asset("base.css") + (folder / "gallery.css").read_text(encoding="utf-8")
    return Template((folder / "gallery.html").read_text(encoding="utf-8")).substitute(
        policy=content_policy(style),
        style=style,
        links="".join(f'<a href="#{escape(one.name)}">{escape(one.title)}</a>' for one in items),
        left_out="".join(f'<p class="banner">{escape(f"{title} is not shown: {why}")}</p>' for title, why in left_out),
        items="".join(_item(item, size) for item in items),
        version=__version__,
        size=size,
    )


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
    text = level.game.caption(level.state)
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
