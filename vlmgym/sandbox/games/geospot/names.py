"""Normalisation of place names, ignoring case, accents and punctuation."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

_LETTERS = {
    "ø": "o",
    "ł": "l",
    "đ": "d",
    "ð": "d",
    "ħ": "h",
    "\u0131": "i",
    "æ": "ae",
    "œ": "oe",
    "þ": "th",
    "ŋ": "n",
    "ə": "a",
}
"""Letters without a Unicode decomposition."""
_WITHIN_WORDS = "'`.\u00b4\u02b9\u02ba\u02bb\u02bc\u02be\u02bf\u2018\u2019"
"""Apostrophes and similar characters, which are removed; all other punctuation separates words."""
_ABBREVIATED = {"saint": "st", "sainte": "st", "ste": "st", "sankt": "st", "mount": "mt", "fort": "ft", "and": ""}
_GENERIC = (
    "administrative area autonomous canton capital city comarca commune community council county department "
    "departement departamento dependency district division emirate federal federation free governorate krai kray lan "
    "metropolitan municipality muhafazah oblast of okrug parish prefecture province provincia provinz region republic "
    "respublika rural sheng state territory union unitary voivodeship wilaya de la el du des the y"
)
_GENERIC_WORDS = frozenset(_GENERIC.split())
"""Generic words in names of regions, such as `state` and `province`."""


class _Translation(dict[int, str]):
    """Table for `str.translate`, filled as characters occur."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        letter = _LETTERS.get(char, char)
        removed = char in _WITHIN_WORDS or unicodedata.combining(char)
        self[code] = letter if char.isalnum() else "" if removed else " "
        return self[code]


_translation = _Translation()


@lru_cache(maxsize=2**16)
def normalise(name: str) -> str:
    """Normalise a name: lower case, no accents or punctuation, single spaces. `São Paulo` becomes `sao paulo`.

    Saint, Mount and Fort are abbreviated; `and`, `&` and a leading `the` are dropped.
    """
    words = unicodedata.normalize("NFKD", name.casefold()).translate(_translation).split()
    kept = [_ABBREVIATED.get(word, word) for word in words[words[:1] == ["the"] :]]
    return " ".join(filter(None, kept)) or " ".join(words)


def without_generic_words(key: str) -> str:
    """Drop generic words from a normalised name: `state of bavaria` becomes `bavaria`. Never returns an empty name."""
    return " ".join(word for word in key.split() if word not in _GENERIC_WORDS) or key
