"""A self-contained HTML page without scripts."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from xml.etree import ElementTree

import vlmgym
from vlmgym.cli.gallery.exhibits import Exhibit, Level, levels_of
from vlmgym.cli.gallery.responses import Example, examples
from vlmgym.evaluation.report.document import asset, content_policy
from vlmgym.evaluation.report.images import encode_tile
from vlmgym.evaluation.report.texts import marked
from vlmgym.sandbox.core.config import DIFFICULTIES, Difficulty
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.presets import PRESETS
from vlmgym.sandbox.registry import game_class

Element = ElementTree.Element

FOR_THE: dict[Difficulty, str] = {"perception": "harder to see", "reasoning": "harder to solve"}
LEAD = (
    "Every game at every level. Perception makes the image harder to see, reasoning makes the game harder to solve, "
    "from 1 to 5; 3 is the default."
)


@dataclass(frozen=True)
class LeftOut:
    """A game that cannot be shown, and the reason."""

    name: str
    why: str


def write_page(exhibits: Sequence[Exhibit], size: int, left_out: Sequence[LeftOut] = ()) -> str:
    """Build the page.

    Args:
        exhibits: Exhibits to show.
        size: Image size in pixels.
        left_out: Games that are missing.
    """
    style = asset("base.css") + (files(__package__) / "assets" / "gallery.css").read_text(encoding="utf-8")
    head = element(
        "head",
        {},
        element("meta", {"charset": "utf-8"}),
        element("meta", {"name": "generator", "content": "vlmgym"}),
        element("meta", {"http-equiv": "Content-Security-Policy", "content": content_policy(style)}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", {"name": "color-scheme", "content": "light dark"}),
        element("title", {}, "vlmgym: the gallery"),
        element("style", {}, style),
    )
    body = element(
        "body",
        {},
        element(
            "header",
            {},
            element("p", {"class": "maker"}, "vlmgym"),
            element("h1", {}, "What a model sees, and what it earns"),
            element("p", {"class": "lead"}, LEAD),
            element("nav", {}, *(element("a", {"href": f"#{one.name}"}, one.title) for one in exhibits)),
            *(element("p", {"class": "banner"}, f"{one.name} is left out: {one.why}") for one in left_out),
        ),
        element("main", {}, *(_exhibit(exhibit, size) for exhibit in exhibits)),
        element(
            "footer",
            {},
            element(
                "p",
                {},
                f"Made by vlmgym {vlmgym.__version__}: ",
                element("code", {}, "vlmgym gallery"),
                f". Images are drawn with {size} x {size} pixels; a model sees 640 x 640 unless told otherwise.",
            ),
        ),
    )
    html = element("html", {"lang": "en"}, head, body)
    return "<!doctype html>\n" + ElementTree.tostring(html, encoding="unicode", method="html") + "\n"


def element(tag: str, attributes: dict[str, str], *children: Element | str) -> Element:
    """Make an HTML element; text is escaped on serialization."""
    made = ElementTree.Element(tag, attributes)
    for child in children:
        if not isinstance(child, str):
            made.append(child)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + child
        else:
            made.text = (made.text or "") + child
    return made


def _exhibit(exhibit: Exhibit, size: int) -> Element:
    game = exhibit.at(size)
    state = exhibit.position(game)
    return element(
        "section",
        {"id": exhibit.name, "class": "exhibit"},
        element("h2", {}, exhibit.title),
        element("p", {"class": "lead"}, exhibit.about),
        *(_strip(exhibit, difficulty, size) for difficulty in DIFFICULTIES),
        element(
            "div",
            {"class": "told"},
            element(
                "article",
                {"class": "panel prompt"},
                element("h4", {}, "What a model is told"),
                _images(game.images(state), f"{exhibit.title} at level 3"),
                element("pre", _scrolling(f"{exhibit.title}: prompt"), game.instructions(state)),
            ),
            *(_example(example, exhibit.title) for example in examples(exhibit, game, state)),
        ),
    )


def _strip(exhibit: Exhibit, difficulty: Difficulty, size: int) -> Element:
    return element(
        "div",
        {"class": "difficulty"},
        element("h3", {}, difficulty, " ", element("span", {"class": "faint"}, FOR_THE[difficulty])),
        element(
            "div",
            {"class": "strip", **_scrolling(f"{exhibit.title}: levels of {difficulty}")},
            *(_level(exhibit, level) for level in levels_of(exhibit, difficulty, size)),
        ),
    )


def _level(exhibit: Exhibit, level: Level) -> Element:
    asked = [] if exhibit.words is None else [element("p", {"class": "asked"}, exhibit.words(level.game, level.state))]
    overrides = level.overrides or [_default_words(exhibit) if level.level == 3 else "as level 3"]
    return element(
        "figure",
        {"class": f"level {level.difficulty}-{level.level}"},
        _images(level.game.images(level.state), f"{exhibit.title}, {level.difficulty} {level.level}"),
        element(
            "figcaption",
            {},
            element("span", {"class": "number"}, str(level.level)),
            element("span", {"class": "config-fields"}, ", ".join(overrides)),
        ),
        *asked,
    )


def _default_words(exhibit: Exhibit) -> str:
    """Describe level 3."""
    game, config = game_class(exhibit.game), game_class(exhibit.game).Config.at()
    presets = (preset.overrides.items() for preset in PRESETS.values() if game_class(preset.game) is game)
    same = any(all(getattr(config, name) == value for name, value in overrides) for overrides in presets)
    published = same and not exhibit.overrides
    return "the published setting" if published else "the default"


def _images(images: Sequence[ImageArray], alt: str) -> Element:
    elements = []
    for number, image in enumerate(images, 1):
        kind, data = encode_tile(image)
        which = alt if len(images) == 1 else f"{alt}, image {number}"
        source = f"data:{kind};base64,{base64.b64encode(data).decode()}"
        height, width = image.shape[:2]
        elements.append(element("img", {"src": source, "alt": which, "width": str(width), "height": str(height)}))
    return element("div", {"class": f"images of-{len(elements)}"}, *elements)


def _scrolling(label: str) -> dict[str, str]:
    """Return the attributes that make a scrollable element reachable by keyboard."""
    return {"role": "region", "aria-label": label, "tabindex": "0"}


def _example(example: Example, title: str) -> Element:
    scored = example.scored
    numbers = {"game": f"{scored.game:.3g}", "form": f"{scored.format:g}"}
    if scored.perception is not None:
        numbers["perception"] = f"{scored.perception.partial:.0%}"
    pieces = (
        element("span", {"class": f"section {name}"}, text) if name else text for name, text in marked(example.response)
    )
    feedback = [element("p", {"class": "feedback"}, scored.feedback)] if scored.feedback else []
    return element(
        "article",
        {"class": "panel example"},
        element(
            "div",
            {"class": "outcome"},
            element("span", {"class": f"badge {scored.outcome.value}"}, scored.outcome.value),
            element("span", {"class": "faint"}, example.title),
        ),
        element(
            "dl",
            {"class": "numbers"},
            *(element("div", {}, element("dt", {}, name), element("dd", {}, value)) for name, value in numbers.items()),
        ),
        element("pre", _scrolling(f"{title}: {example.title}"), *pieces),
        *feedback,
    )
