"""Normalise answers before a game parses them, by stripping markup that cannot change their meaning.

Nothing is guessed. Markup is stripped only if it encloses the whole text; anything unrecognised is left for the parser
to reject. The accepted spellings are listed in `docs/protocols.md`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from functools import lru_cache

from vlmgym.errors import ParseError, truncate

_SAME = ("```", "``", "`", "***", "**", "*", "___", "__", "_", "$$", "$", '"', "'")
_QUOTES = ("\u201c\u201d", "\u2018\u2019", "\u201e\u201c", "\u00ab\u00bb", "\u300c\u300d")
_BOX = ("<|begin_of_box|>", "<|end_of_box|>")
"""Special tokens that GLM puts around its answer."""
_MARKUP = (*((mark, mark) for mark in _SAME), *map(tuple, _QUOTES), ("\\(", "\\)"), ("\\[", "\\]"), _BOX)
_BRACKETS = (("(", ")"), ("[", "]"))
_FENCE = re.compile(r"```[\w+-]*[ \t]*\n([^`]*)```")
_COMMAND = re.compile(
    r"\\(?:boxed|fbox|mbox|emph|text(?:bf|it|tt|rm|sf)?|math(?:bf|it|tt|rm|sf))"
    r"\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}"
)
"""LaTeX commands that only frame their content or set its font, unlike `\\cancel`."""
_LABEL = re.compile(r"([*_]{0,2})(?:final )?(?:answer|action|move)(?:\1:|:\1)\s*", re.IGNORECASE | re.ASCII)
_OBJECT = re.compile(r"""\{\s*(["'])(?:answer|action|move)\1\s*:(.*)\}""", re.IGNORECASE | re.ASCII | re.DOTALL)
"""A JSON object whose only field is `answer`, `action` or `move`. An object with more fields also matches, but its
other fields are then part of the answer, which no parser accepts."""
_END = re.compile(r"(?<![.!?\s])\s*\.$|(?<![.!?0-9\s])\s*!$")
"""A final full stop or exclamation mark, but not an ellipsis or a factorial."""
_INVISIBLE = "\u00ad\u200b\u200e\u200f\u2060\ufeff"
"""Zero-width characters: soft hyphen, zero-width space, direction marks, word joiner, byte order mark."""
_BLANKS = _INVISIBLE + "".join(filter(str.isspace, map(chr, range(0x3001))))
_WIDTHS = {
    **{code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)},
    **dict.fromkeys(map(ord, set(_BLANKS).difference(string.whitespace)), " "),
    0x3001: ",",
    0x3002: ".",
}
"""Replacements of full-width characters, of spaces outside ASCII and invisible characters, and of the ideographic comma
and full stop."""


def unwrap(text: str) -> str:
    """Strip enclosing whitespace, invisible characters, quotes, and emphasis, code and LaTeX markup."""
    before = None
    while text != before:
        before = text = text.strip(_BLANKS)
        match = _FENCE.fullmatch(text) or _COMMAND.fullmatch(text)
        text = match[1] if match else _peel(text, _MARKUP)
    return text


def narrow(text: str) -> str:
    """Convert full-width characters to ASCII, and other spaces and invisible characters to spaces."""
    return text.translate(_WIDTHS)


@lru_cache(maxsize=256)  # most answers of an action game repeat
def plain(text: str, brackets: bool = False) -> str:
    """Normalise an answer that is not free text.

    Strips everything that `unwrap` strips, a leading label such as `Answer:`, a JSON object with such a label as its
    only key, and a final full stop or exclamation mark; with `brackets`, also brackets around the whole text.
    Full-width characters become ASCII.
    """
    text, before = narrow(text), None
    while text != before:
        before = text
        text = unlabelled(_END.sub("", unwrap(text)))
        if brackets:
            text = _peel(text, _BRACKETS)
    return text


def unlabelled(text: str) -> str:
    """Strip a leading label or an enclosing JSON object."""
    if (match := _OBJECT.fullmatch(text)) is not None:
        return match[2]
    return text[label.end() :] if (label := _LABEL.match(text)) is not None else text


def word_answer(text: str, verbs: Sequence[str] = ()) -> str:
    """Normalise a one-word or numeric answer: lower case, without a leading verb from `verbs`."""
    word = " ".join(plain(text, brackets=True).lower().split())
    verb, _, rest = word.partition(" ")
    return plain(rest, brackets=True) if verb in verbs and rest else word


def unreadable(text: str, expected: str) -> ParseError:
    """Return the error for an unreadable answer; `expected` is a noun phrase such as `a number`."""
    return ParseError(f"the answer {truncate(text, 40)!r} is not {expected}")


def _peel(text: str, pairs: Sequence[tuple[str, ...]]) -> str:
    """Strip the first pair of delimiters that encloses the text and does not occur inside it."""
    for opening, closing in pairs:
        if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening) + len(closing):
            inside = text[len(opening) : -len(closing)]
            if inside.strip() and opening not in inside and closing not in inside:
                return inside
    return text
