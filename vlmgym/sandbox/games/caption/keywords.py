"""Whole-word matching of captions against keywords, with synonyms and plurals."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

Keyword = tuple[str, ...]
"""Synonyms, each of one or more words."""

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


def tokenise(text: str) -> list[str]:
    """Split text into words for counting and comparison.

    A word is a run of letters and digits. Words are lower-cased, stripped of accents, apostrophes and the possessive s,
    and converted by `singular`: `The cat's red-brown BOXES` becomes `the cat red brown box`.
    """
    return list(map(singular, _plain_words(text)))


def _plain_words(text: str) -> list[str]:
    plain = "".join(map(_without_accents, text))
    return _WORD.findall(_POSSESSIVE.sub("", plain).translate(_APOSTROPHES))


@lru_cache(maxsize=4096)
def _without_accents(char: str) -> str:
    """Return a character in lower case, without accents.

    Takes a single character because NFKD of a whole string takes quadratic time on runs of combining characters.
    """
    decomposed = unicodedata.normalize("NFKD", char).casefold()
    return "".join(part for part in decomposed if not unicodedata.combining(part))


def singular(word: str) -> str:
    """Map an English noun and its plural to a common form, which need not be a word (`horse` becomes `hors`).

    Other inflections remain: `riding` and `ride` stay different.
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
"""Words that are never extracted as keywords from reference captions, nor penalised in a model's caption."""


def named_keywords(caption: str, keywords: Sequence[Keyword], limit: int) -> tuple[bool, ...]:
    """For each keyword, return whether a caption's first `limit` words contain a synonym, as consecutive words."""
    line = _line(tokenise(caption)[:limit])
    return tuple(any(_phrase(synonym) in line for synonym in keyword) for keyword in keywords)


def unmatched_words(caption: str, keywords: Sequence[Keyword], limit: int) -> tuple[str, ...]:
    """List the distinct words among the first `limit` that are neither function words nor part of a matched synonym."""
    words = tuple(tokenise(caption)[:limit])
    left = dict.fromkeys(range(len(words)))
    for synonym in {_words(synonym) for keyword in keywords for synonym in keyword}:
        for start in range(len(words) - len(synonym) + 1):
            if words[start : start + len(synonym)] == synonym:
                for index in range(start, start + len(synonym)):
                    left.pop(index, None)
    return tuple(dict.fromkeys(words[index] for index in left if words[index] not in FUNCTION_WORDS))


def shortest_synonym(keyword: Keyword) -> str:
    """Return the synonym with the fewest words; on a tie, the first."""
    return min(keyword, key=lambda synonym: len(tokenise(synonym)))


def keywords_from_captions(captions: Sequence[str]) -> tuple[Keyword, ...]:
    """Extract keywords from reference captions of an image.

    A keyword is a word that occurs in at least half of the captions, and in at least two if there are several;
    `FUNCTION_WORDS` are excluded. Keywords found in more captions come first; on a tie, those that occur earlier.
    Each is spelled as in its first occurrence, which may be a plural.
    """
    counts: Counter[str] = Counter()
    written: dict[str, str] = {}
    for caption in captions:
        words = {singular(word): word for word in reversed(_plain_words(caption))}  # first spelling of each word
        ordered = dict.fromkeys(tokenise(caption))
        counts.update(ordered.keys())
        written = {**{word: words[word] for word in ordered}, **written}
    least = 1 if len(captions) == 1 else max(2, -(-len(captions) // 2))
    return tuple(
        (written[word],) for word, count in counts.most_common() if count >= least and word not in FUNCTION_WORDS
    )


@lru_cache(maxsize=4096)
def _words(synonym: str) -> tuple[str, ...]:
    return tuple(tokenise(synonym))


@lru_cache(maxsize=4096)
def _phrase(synonym: str) -> str:
    return _line(_words(synonym))


def _line(words: Sequence[str]) -> str:
    return f" {' '.join(words)} "
