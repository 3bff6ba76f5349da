"""Spellings of an answer: strip what cannot change its meaning, so that a game's parser reads what is left.

Nothing is guessed. Markup goes only where it encloses the whole text, and what is not recognised stays as it is, for
the parser to refuse. `docs/protocols.md` has a table of what is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

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
"""LaTeX that frames its content or sets its font. A command that strikes it out is another matter."""
_LABEL = re.compile(r"([*_]{0,2})(?:final )?(?:answer|action|move)(?:\1:|:\1)\s*", re.IGNORECASE)
_OBJECT = re.compile(r"""\{\s*(["'])(?:answer|action|move)\1\s*:(.*)\}""", re.IGNORECASE | re.DOTALL)
"""A JSON object with one field, or what looks like one: more fields leave a text that no parser reads."""
_END = re.compile(r"(?<![.!?\s])\s*\.$|(?<![.!?0-9\s])\s*!$")
"""A full stop or an exclamation mark, but no ellipsis and no factorial."""
_INVISIBLE = "\u00ad\u200b\u200e\u200f\u2060\ufeff"
"""Characters without width: soft hyphen, zero-width space, marks of direction, word joiner, byte order mark."""
_BLANKS = _INVISIBLE + "".join(filter(str.isspace, map(chr, range(0x3001))))
_WIDTHS = {
    **{code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)},
    **dict.fromkeys(map(ord, _INVISIBLE), " "),
    0x3000: " ",
    0x3001: ",",
    0x3002: ".",
}
"""Full-width forms, invisible characters, and the ideographic space, comma and full stop."""


def unwrap(text: str) -> str:
    """Strip blanks, invisible characters, quotes, emphasis, code and LaTeX around a text."""
    before = None
    while text != before:
        before = text = text.strip(_BLANKS)
        found = _FENCE.fullmatch(text) or _COMMAND.fullmatch(text)
        text = found[1] if found else _peel(text, _MARKUP)
    return text


def narrow(text: str) -> str:
    """Write full-width characters in ASCII, and invisible ones as blanks."""
    return text.translate(_WIDTHS)


def plain(text: str, brackets: bool = False) -> str:
    """Strip what cannot change the meaning of an answer that is not free text.

    This is what `unwrap` strips, a label such as `Answer:` in front, a JSON object around it with such a label as its
    only key, and a full stop or an exclamation mark at the end. Full-width characters become ASCII.

    Args:
        text: The answer.
        brackets: Whether to strip brackets around the whole text, too.
    """
    text, before = narrow(text), None
    while text != before:
        before = text
        text = unlabelled(_END.sub("", unwrap(text)))
        if brackets:
            text = _peel(text, _BRACKETS)
    return text


def unlabelled(text: str) -> str:
    """The text without a label in front, or a JSON object around it."""
    if (found := _OBJECT.fullmatch(text)) is not None:
        return found[2]
    return text[label.end() :] if (label := _LABEL.match(text)) is not None else text


def word_answer(text: str, verbs: Sequence[str] = ()) -> str:
    """Reduce an answer that is one word or number to that, in lower case.

    Args:
        text: The answer.
        verbs: Verbs that may stand before the word.
    """
    word = " ".join(plain(text, brackets=True).lower().split())
    verb, _, rest = word.partition(" ")
    return plain(rest, brackets=True) if verb in verbs and rest else word


def _peel(text: str, pairs: Sequence[tuple[str, ...]]) -> str:
    """The text without the first pair of delimiters that encloses it and does not occur inside."""
    for opening, closing in pairs:
        if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening) + len(closing):
            inside = text[len(opening) : -len(closing)]
            if inside.strip() and opening not in inside and closing not in inside:
                return inside
    return text
