"""What a caption names of keywords, and what else: whole words, synonyms, singular and plural, up to a limit."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

Keyword = tuple[str, ...]
"""Synonyms, each of one word or several."""

_IRREGULAR = {
    "men": "man",
    "women": "woman",
    "children": "child",
    "people": "person",
    "feet": "foot",
    "teeth": "tooth",
    "mice": "mouse",
    "geese": "goose",
    "leaves": "leaf",
    "knives": "knife",
    "shelves": "shelf",
    "loaves": "loaf",
    "wolves": "wolf",
    "halves": "half",
    "lens": "lens",
}
_WORD = re.compile(r"[^\W_]+")
_APOSTROPHES = str.maketrans("", "", "'\N{RIGHT SINGLE QUOTATION MARK}")
_POSSESSIVE = re.compile("['\N{RIGHT SINGLE QUOTATION MARK}]s\\b")


def words_of(text: str) -> list[str]:
    """The words of a text as they are counted and compared.

    Runs of letters and digits, in lower case, without accents, possessive s and apostrophes, nouns in the form
    of `singular`: `The cat's red-brown BOXES` are `the cat red brown box`. A hyphen parts words.
    """
    return list(map(singular, _plain_words(text)))


def _plain_words(text: str) -> list[str]:
    plain = "".join(map(_without_accents, text))
    return _WORD.findall(_POSSESSIVE.sub("", plain).translate(_APOSTROPHES))


@lru_cache(maxsize=4096)
def _without_accents(char: str) -> str:
    """Normalise one character: in a whole text, NFKD sorts runs of combining characters in quadratic time."""
    decomposed = unicodedata.normalize("NFKD", char).casefold()
    return "".join(part for part in decomposed if not unicodedata.combining(part))


def singular(word: str) -> str:
    """A form that an English noun and its plural have in common, not always a word itself (`horse`: `hors`).

    Nothing else about a word is changed: `riding` is not `ride`.
    """
    if word in _IRREGULAR:
        word = _IRREGULAR[word]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        word = word[:-1]
    if len(word) > 3 and word.endswith(("se", "xe", "ze", "che", "she", "oe")):
        return word[:-1]
    return f"{word[:-2]}y" if len(word) > 3 and word.endswith("ie") else word


_FUNCTION_WORDS = (
    "a an the this that these those some any each every other another such same both all several many much "
    "few more most i me my mine we us our ours you your yours he him his she her hers it its they them their "
    "theirs who whom whose which what there here am is are was were be been being do does did have has had "
    "having can could may might must shall should will would and or but nor so yet if than then as while when "
    "where because though although not no very too just only also of in on at by for with from to into onto "
    "over under above below up down out off about around across along through between among against behind "
    "beside near next after before during without within toward towards upon inside outside picture photo "
    "photograph image shot view"
)
FUNCTION_WORDS = frozenset(map(singular, _FUNCTION_WORDS.split()))
"""Words that tell nothing of what a picture shows: no keywords of reference captions, and not `unmatched`."""


def named(caption: str, keywords: Sequence[Keyword], limit: int) -> tuple[bool, ...]:
    """Whether each keyword, or a synonym of it, is among the first words of a caption.

    Args:
        caption: Any text.
        keywords: What is looked for; the words of a synonym follow each other in the caption.
        limit: Words that count, from the first; those after them change nothing.
    """
    line = _line(words_of(caption)[:limit])
    return tuple(any(_phrase(synonym) in line for synonym in keyword) for keyword in keywords)


def unmatched(caption: str, keywords: Sequence[Keyword], limit: int) -> tuple[str, ...]:
    """The different words among the first of a caption that name no keyword, but for `FUNCTION_WORDS`.

    Args:
        caption: Any text.
        keywords: What may be named; all words of a synonym that stands in the caption name it.
        limit: Words that count, from the first.
    """
    words = tuple(words_of(caption)[:limit])
    left = dict.fromkeys(range(len(words)))
    for synonym in {_words(synonym) for keyword in keywords for synonym in keyword}:
        for start in range(len(words) - len(synonym) + 1):
            if words[start : start + len(synonym)] == synonym:
                for position in range(start, start + len(synonym)):
                    left.pop(position, None)
    return tuple(dict.fromkeys(words[position] for position in left if words[position] not in FUNCTION_WORDS))


def shortest(keyword: Keyword) -> str:
    """The first of the synonyms with the fewest words."""
    return min(keyword, key=lambda synonym: len(words_of(synonym)))


def shared_words(captions: Sequence[str]) -> tuple[Keyword, ...]:
    """The keywords of reference captions of one picture.

    They are the words that at least half of the captions have, and at least two of several, but for `FUNCTION_WORDS`;
    those of most captions first, and then those that come first. Each is written as where it first stands.
    """
    counts: Counter[str] = Counter()
    written: dict[str, str] = {}
    for caption in captions:
        words = {singular(word): word for word in reversed(_plain_words(caption))}  # as each is written first
        ordered = dict.fromkeys(words_of(caption))
        counts.update(ordered.keys())
        written = {**{word: words[word] for word in ordered}, **written}
    least = 1 if len(captions) == 1 else max(2, -(-len(captions) // 2))
    return tuple(
        (written[word],) for word, count in counts.most_common() if count >= least and word not in FUNCTION_WORDS
    )


@lru_cache(maxsize=4096)
def _words(synonym: str) -> tuple[str, ...]:
    return tuple(words_of(synonym))


@lru_cache(maxsize=4096)
def _phrase(synonym: str) -> str:
    return _line(_words(synonym))


def _line(words: Sequence[str]) -> str:
    return f" {' '.join(words)} "
