"""When two short answers are the same: case, articles, punctuation and numbers in words do not count."""

from __future__ import annotations

import re
import unicodedata

ARTICLES = frozenset({"a", "an", "the"})
_BELOW_20 = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_ONES = _BELOW_20.split()
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
NUMBERS: dict[str, str] = {
    **{word: str(number) for number, word in enumerate(_ONES)},
    **{word: str(10 * number) for number, word in enumerate(_TENS, start=2)},
    **{f"{ten}-{one}": str(10 * i + j) for i, ten in enumerate(_TENS, start=2) for j, one in enumerate(_ONES[1:10], 1)},
    "none": "0",
}
"""Numbers from 0 to 99 in words."""

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_PUNCTUATION = re.compile(
    r"""[^\w\s.-] | _
    | (?<!\d)\. | \.(?!\d)          # points but for those inside numbers
    | -(?!\w) | (?<!\w)-(?!\d)      # hyphens but for those inside words and before numbers
    """,
    re.VERBOSE,
)


def normalise(answer: str) -> str:
    """An answer as it is compared.

    In this order: Unicode NFKC and lower case; commas between thousands away; other punctuation becomes a space, but
    points inside numbers, hyphens inside words and minus signs stay; numbers in words become digits; articles go,
    unless there is nothing else (an option `A`). `The Red one!` is `red 1`, `twenty-one` is `21`, `None` is `0`,
    `1,000` is `1000`.
    """
    text = _THOUSANDS.sub("", unicodedata.normalize("NFKC", answer).casefold())
    words = _PUNCTUATION.sub(" ", text).split()
    return " ".join(NUMBERS.get(word, word) for word in words if word not in ARTICLES) or " ".join(words)


def agreement(answer: str, accepted: tuple[str, ...]) -> int:
    """How many of the accepted answers are the same as an answer."""
    said = normalise(answer)
    return sum(normalise(other) == said for other in accepted)
