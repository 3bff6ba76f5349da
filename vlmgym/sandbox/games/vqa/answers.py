"""Comparison of short free-text answers, ignoring case, articles, markup, final punctuation and spelling of numbers.

Nothing that may carry meaning is dropped, so answers are equal only if they mean the same: signs, units, currencies
and comparison operators are kept, as is anything ambiguous.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_WORDS_BELOW_20 = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_BELOW_20 = _WORDS_BELOW_20.split()
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
NUMBERS: dict[str, int] = {
    "none": 0,
    **{word: number for number, word in enumerate(_BELOW_20)},
    **{word: 10 * number for number, word in enumerate(_TENS, start=2)},
}
"""Number words and their values; tens may be followed by a space or a hyphen and a number below 10."""

_EQUIVALENT = ("<wide>", "<narrow>", "<small>", "<font>", "<noBreak>")
"""Compatibility decompositions that preserve meaning (decomposing exponents and fractions does not)."""
_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\N{MINUS SIGN}", "-"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\N{LEFT-POINTING DOUBLE ANGLE QUOTATION MARK}", '"'),
        **dict.fromkeys("\u300c\u300d\u300e\u300f", '"'),  # corner brackets
        "\N{RIGHT-POINTING DOUBLE ANGLE QUOTATION MARK}": '"',
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
    }
)
"""Plain characters for variants of dashes and quotation marks."""

_PAIRED = re.compile(
    r"""(?<![^\s"'`*_(\[{])                     # at the start of a word
    (?: (\*+|_+|`+|") (?=\S) ((?:(?!\1).)+) (?<=\S) \1
      | ' (?=\S) ((?:[^']|(?<=\w)'(?=\w))+) (?<=\S) '
      | \(([^()]*)\) | \[([^\[\]]*)\] | \{([^{}]*)\}
    ) (?![^\W_])""",
    re.VERBOSE,
)
_NUMBER_WORD = re.compile(
    rf"""(?<!\bno\ )\b
    (?: ({"|".join(_TENS)})(?:[\ -]({"|".join(_BELOW_20[1:10])}))? | ({"|".join(_BELOW_20)}|none) )
    \b(?:!+(?!\S))?""",
    re.VERBOSE,
)
_NUMBER = re.compile(r"(?<![\w.,:])(?=\.?[0-9])([1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]*)(?:\.([0-9]+))?(?!\w|[.,:][0-9])")
_UNIT = re.compile(r"\s*([%°$€£¥<>=≤≥≈≠~¬±\u00d7\u00f7/^&@#|])\s*")
_BETWEEN_WORDS = re.compile(r"(?<=[^\W\d_])[,;_](?=[^\W\d_])")
_STOPS = ".?,;:\u2026\u3001\u3002\u060c\u061b\u061f\u06d4\u0964\u0965"
"""Full stops, commas and similar punctuation, also Chinese, Japanese, Arabic, Urdu and Hindi."""
_FINAL = re.compile(rf"(?<=[^\s\d!{_STOPS}])[!{_STOPS}]+(?!\S) | (?<=[\d!])[{_STOPS}]+(?!\S)", re.VERBOSE)
"""Punctuation after a word or a number, except `!` after a number, which may be a factorial."""
_ARTICLE = re.compile(r"(?<!\S)(?:the (?=\S)|an? (?!(?:and|or)\b)(?=[^\W\d_]{2}))")


@lru_cache(maxsize=4096)
def normalise(answer: str) -> str:
    """Normalise an answer for comparison.

    The result is in lower case, with straight quotes and plain hyphens. Paired quotation marks, brackets and Markdown
    emphasis are removed, as are thousands separators, trailing zeros of decimals, punctuation after words and numbers,
    and articles before words. Commas, semicolons and underscores between letters become spaces, and number words up to
    ninety-nine become digits. For example, `The Red one!` becomes `red 1`, `twenty one` becomes `21`, `None` becomes
    `0`, `1,000.0` becomes `1000` and `.5` becomes `0.5`; nothing is removed from `-3`, `<3`, `3%`, `1/2`, `3!` and
    `vitamin A`.
    """
    previous, text = None, answer
    while text != previous:
        previous, text = text, _simplify(text)
    return text


def agreement(answer: str, accepted: tuple[str, ...]) -> int:
    """Count the accepted answers that equal an answer after normalisation."""
    normalised = normalise(answer)
    return sum(normalise(other) == normalised for other in accepted)


def _simplify(text: str) -> str:
    text = unicodedata.normalize("NFC", "".join(map(_plain, text)).translate(_SIGNS).casefold())
    text = " ".join(text.split())
    if (bare := _PAIRED.sub(lambda match: next(filter(None, match.groups()[1:]), ""), text)) != text:
        return bare  # look for nested pairs first: spaces around signs would hide them
    text = _NUMBER_WORD.sub(_in_digits, text)  # before commas are removed: `twenty, one` is not 21
    text = _NUMBER.sub(_without_zeros, _BETWEEN_WORDS.sub(" ", _FINAL.sub("", text)))
    text = _UNIT.sub(r" \1 ", text)
    return _ARTICLE.sub("", " ".join(text.split()))


def _plain(char: str) -> str:
    form = unicodedata.decomposition(char)
    return unicodedata.normalize("NFKC", char) if form.startswith(_EQUIVALENT) else char


def _in_digits(match: re.Match[str]) -> str:
    return str(sum(NUMBERS[word] for word in match.groups() if word))


def _without_zeros(match: re.Match[str]) -> str:
    whole, fraction = match[1].replace(",", "") or "0", (match[2] or "").rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole
