"""Wrap and draw paragraphs."""

from __future__ import annotations

from collections.abc import Sequence

from vlmgym.sandbox.drawing.canvas import Canvas, Colour, text_width

LINE_PITCH = 2.0
"""Line spacing relative to the cap height."""


def wrap(text: str, height: float, width: float) -> list[str]:
    """Wrap text with cap height `height` to lines of at most `width` pixels; keep line breaks, split long words."""
    lines = []
    for paragraph in text.splitlines():
        line = ""
        for word in paragraph.split():
            longer = f"{line} {word}" if line else word
            if text_width(longer, height) <= width:
                line = longer
                continue
            if line:
                lines.append(line)
            while text_width(word, height) > width and len(word) > 1:
                fitting = len(word) - 1
                while fitting > 1 and text_width(word[:fitting], height) > width:
                    fitting -= 1
                lines.append(word[:fitting])
                word = word[fitting:]
            line = word
        lines.append(line)
    return lines


def fit(text: str, width: float, height: float, largest: float, smallest: float) -> tuple[list[str], float]:
    """Wrap text to fit a box of `width` x `height` pixels; return the lines and their cap height.

    The cap height is the largest that fits, from `largest` down to `smallest` in steps of half a pixel. Text that does
    not fit even at the smallest is cut at a line break and ends with an ellipsis on its own line.
    """
    capitals = largest
    while True:
        lines = wrap(text, capitals, width)
        room = int(height / (capitals * LINE_PITCH))
        if len(lines) <= room:
            return lines, capitals
        if capitals <= smallest:
            return [*lines[: max(0, room - 1)], "..."], capitals
        capitals = max(smallest, capitals - 0.5)


def write_lines(canvas: Canvas, lines: Sequence[str], x: float, y: float, capitals: float, colour: Colour) -> float:
    """Draw left-aligned lines from (x, y) downwards; return the y coordinate below the last line."""
    for line in lines:
        y += capitals * LINE_PITCH
        canvas.text(line, x, y - capitals * LINE_PITCH / 2, capitals, colour, align="left")
    return y
