"""Names of places as they are compared: without case, accents and punctuation."""

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
"""Letters that Unicode does not decompose."""
_WITHIN_WORDS = "'`.\u00b4\u02b9\u02ba\u02bb\u02bc\u02be\u02bf\u2018\u2019"
"""Apostrophes and the like, which are left out; all others stand between words."""
_ABBREVIATED = {"saint": "st", "sainte": "st", "ste": "st", "sankt": "st", "mount": "mt", "fort": "ft", "and": ""}
_KINDS_OF_REGION = (
    "administrative area autonomous canton capital city comarca commune community council county department "
    "departement departamento dependency district division emirate federal federation free governorate krai kray lan "
    "metropolitan municipality muhafazah oblast of okrug parish prefecture province provincia provinz region republic "
    "respublika rural sheng state territory union unitary voivodeship wilaya de la el du des the y"
)
"""Words that say what a region is, not which."""
_KINDS = frozenset(_KINDS_OF_REGION.split())


class _Signs(dict[int, str]):
    """What becomes of each character, worked out when it is first met; for `str.translate`."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        letter = _LETTERS.get(sign, sign)
        left_out = sign in _WITHIN_WORDS or unicodedata.combining(sign)
        self[code] = letter if sign.isalnum() else "" if left_out else " "
        return self[code]


_signs = _Signs()


@lru_cache(maxsize=2**16)
def normalise(name: str) -> str:
    """A name in lower case, without accents and punctuation, with single blanks: `São Paulo` is `sao paulo`.

    Saint, Mount and Fort are abbreviated, and `and`, `&` and a leading `the` are left out, so that both ways to write
    them are the same.
    """
    words = unicodedata.normalize("NFKD", name.casefold()).translate(_signs).split()
    kept = [_ABBREVIATED.get(word, word) for word in words[words[:1] == ["the"] :]]
    return " ".join(filter(None, kept)) or " ".join(words)


def without_kind(key: str) -> str:
    """A normalised name of a region without what it is: `state of bavaria` is `bavaria`; if nothing is left, all."""
    return " ".join(word for word in key.split() if word not in _KINDS) or key
