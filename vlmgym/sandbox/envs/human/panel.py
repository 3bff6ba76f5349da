"""The panel next to the image in human play: score, last outcome and prompt."""

from __future__ import annotations

from typing import Any

from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.reward import Scored
from vlmgym.sandbox.drawing.canvas import Canvas, Colour, text_width
from vlmgym.sandbox.drawing.palette import OUTCOME_COLOURS
from vlmgym.sandbox.drawing.text import LINE_PITCH, fit, write_lines

PANEL_WIDTH = 620

_PAGE: Colour = (28, 31, 40)
_CARD: Colour = (40, 45, 57)
_INK: Colour = (232, 234, 240)
_FAINT: Colour = (146, 154, 172)
_ACCENT: Colour = (96, 165, 250)

_MARGIN = 24
_INNER = PANEL_WIDTH - 2 * _MARGIN
_LONGEST_LINE = 200
_LARGEST_TEXT, _SMALLEST_TEXT = 9.5, 6.5


def draw_panel(
    height: int,
    title: str,
    episode: Episode[Any, Any],
    last: Scored[Any, Any] | None,
    prompt: str,
    typed: str,
    keys: str,
) -> ImageArray:
    """Draw the panel.

    Args:
        height: Height in pixels.
        title: First line.
        episode: The episode played.
        last: Result of the last turn; None before the first.
        prompt: Prompt that a model would get.
        typed: Text typed so far.
        keys: Help on keys.

    Returns:
        uint8 of shape (height, PANEL_WIDTH, 3).
    """
    canvas = Canvas(PANEL_WIDTH, height, _PAGE)
    canvas.text(title, _MARGIN, 30, 12, _INK, align="left", max_width=_INNER - 130)
    canvas.text(f"seed {episode.seed}", PANEL_WIDTH - _MARGIN, 30, 9, _FAINT, align="right", max_width=120)
    _draw_counts(canvas, 52, episode)
    _draw_last(canvas, 130, episode, last)

    bottom = height - 96
    canvas.text("PROMPT FOR A MODEL", _MARGIN, 216, 8, _ACCENT, align="left")
    lines, capitals = fit(prompt, _INNER, bottom - 232, _LARGEST_TEXT, _SMALLEST_TEXT)
    write_lines(canvas, lines, _MARGIN, 230, capitals, _INK)

    canvas.rectangle(_MARGIN, bottom + 8, _INNER, 40, _CARD, radius=8)
    if typed:
        end = typed[-_LONGEST_LINE:]
        while text_width(end + "_", 11) > _INNER - 28:
            end = end[1:]
        canvas.text(end + "_", _MARGIN + 14, bottom + 28, 11, _INK, align="left")
    else:
        canvas.text("your answer", _MARGIN + 14, bottom + 28, 10, _FAINT, align="left")
    canvas.text(keys, _MARGIN, height - 26, 8.5, _FAINT, align="left", max_width=_INNER)
    return canvas.pixels()


def _draw_counts(canvas: Canvas, y: float, episode: Episode[Any, Any]) -> None:
    """Draw five cards: turn, score and the number of turns per outcome."""
    cards: list[tuple[str, str, Colour]] = [
        ("turn", str(episode.turn), _INK),
        ("score", f"{episode.score:g}", _INK),
        *((outcome.value, str(count), OUTCOME_COLOURS[outcome.value]) for outcome, count in episode.outcomes.items()),
    ]
    gap = 10
    width = (_INNER - gap * (len(cards) - 1)) / len(cards)
    for index, (name, value, colour) in enumerate(cards):
        x = _MARGIN + index * (width + gap)
        canvas.rectangle(x, y, width, 62, _CARD, radius=8)
        canvas.text(value, x + width / 2, y + 24, 14, colour, max_width=width - 12)
        canvas.text(name, x + width / 2, y + 48, 7.5, _FAINT)


def _draw_last(canvas: Canvas, y: float, episode: Episode[Any, Any], last: Scored[Any, Any] | None) -> None:
    """Draw a card with outcome, reward and feedback of the last turn, and why the episode ended."""
    canvas.rectangle(_MARGIN, y, _INNER, 64, _CARD, radius=8)
    text, colour = "The episode continues." if episode.turn else "No turns yet.", _FAINT
    if last is not None:
        action = "" if last.action is None else f" {episode.game.format(last.action)}"
        why = f": {last.feedback}" if last.feedback else ""
        text, colour = f"{last.outcome.value}{action}, reward {last.game:g}{why}", OUTCOME_COLOURS[last.outcome.value]
    if (end := episode.ended) is not None:
        text = f"The episode has ended: {end}. {text}"
    canvas.rectangle(_MARGIN, y, 6, 64, colour, radius=3)
    lines, capitals = fit(text, _INNER - 40, 60, 11, _SMALLEST_TEXT)
    top = y + (64 - len(lines) * capitals * LINE_PITCH) / 2
    write_lines(canvas, lines, _MARGIN + 20, top, capitals, _INK if last or end else _FAINT)
