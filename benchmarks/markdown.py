"""Format generated pages as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import fill

from vlmgym.terminal import make_console

WIDTH = 100
ITEM = re.compile(r" (?=([0-9]+[.)]|[-+*>#]+)( |$))")
"""A space before a word that would begin a list item, a quotation or a heading if it started a line."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table."""
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def publish(page: Path, text: str) -> None:
    """Write the text of a page, wrapped, and print its path."""
    page.write_text(wrapped(text), encoding="utf-8")
    make_console().print(f"page    {page}", soft_wrap=True)


def wrapped(page: str) -> str:
    """Wrap the paragraphs of a page at `WIDTH`; leave headings, tables, images and code unchanged."""
    parts = page.rstrip("\n").split("\n\n")
    prose = [part if part.startswith(("#", "|", "!", "    ")) else _filled(part) for part in parts]
    return "\n\n".join(prose) + "\n"


def _filled(paragraph: str) -> str:
    """Wrap a paragraph, but not before a word that would begin a list item, a quotation or a heading."""
    text = ITEM.sub("\0", " ".join(paragraph.split()))
    return fill(text, WIDTH, break_long_words=False, break_on_hyphens=False).replace("\0", " ")
