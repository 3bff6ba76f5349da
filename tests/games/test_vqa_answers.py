"""Free-text answers are equal if and only if they mean the same."""

from __future__ import annotations

import sys
import unicodedata
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmgym.sandbox.games.vqa import normalise

FINAL = (
    ".?,;:\N{HORIZONTAL ELLIPSIS}\uff0e\uff1f\uff0c\uff1b\uff1a\ufe50\ufe52\ufe54\ufe55\ufe56\u037e"
    "\u3001\u3002\uff61\uff64\ufe51\u060c\u061b\u061f\u06d4\u0964\u0965"
)
EXCLAMATION = "!\uff01\ufe57"
FULL_WIDTH = {ord(digit): ord(digit) + 0xFEE0 for digit in "0123456789"}
DASHES = (
    "-\N{MINUS SIGN}\N{HYPHEN}\N{NON-BREAKING HYPHEN}\N{FIGURE DASH}\N{EN DASH}\N{EM DASH}\N{FULLWIDTH HYPHEN-MINUS}"
)
MARKUP = ("**", "**"), ("*", "*"), ("__", "__"), ("_", "_"), ("`", "`"), ('"', '"'), ("'", "'"), ("(", ")"), ("[", "]")
CURLY = ("\u201c", "\u201d"), ("\u2018", "\u2019"), ("\u00ab", "\u00bb"), ("\u201e", "\u201c")
FIRST_NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
ONES = FIRST_NUMBERS.split()
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


class Quantity(NamedTuple):
    """The meaning of an answer. Two answers are equal if and only if all of these parts are."""

    before: str
    negative: bool
    whole: int
    fraction: str
    after: str


quantities = st.builds(
    Quantity,
    st.sampled_from(["", *"<>≤≥≠≈~¬±$€+#^", "not ", "about ", "x = "]),
    st.booleans(),
    st.one_of(st.integers(0, 99), st.integers(0, 10**7)),
    st.sampled_from(["", "5", "05", "125"]),
    st.sampled_from(["", *"%°!²½/", "/2", "x", " cm", "-4", ":30", "e2", ",5", ".1.1"]),
)
affixes = st.lists(st.sampled_from(MARKUP + CURLY), max_size=2, unique_by=lambda pair: pair[0][0])


@st.composite
def writings(draw: st.DrawFn, quantity: Quantity) -> str:
    """Draw one of many ways to write a quantity."""
    before, negative, whole, fraction, after = quantity
    alone = not after or after[0] in "%° "
    apart = alone or after[0] in "!/-"
    number = f"{whole:,}" if apart and draw(st.booleans()) else str(whole)
    if fraction:
        number = ("" if whole == 0 and apart and draw(st.booleans()) else number) + "." + fraction
        number += "0" * draw(st.integers(0, 2)) if alone else ""
    elif alone:
        number += draw(st.sampled_from(["", ".0", ".00"]))
        if whole < 16 and draw(st.booleans()):
            number = ONES[whole]
        elif 20 <= whole <= 99 and draw(st.booleans()):
            one = f"{draw(st.sampled_from(['-', ' ', DASHES[1]]))}{ONES[whole % 10]}" if whole % 10 else ""
            number = TENS[whole // 10 - 2] + one
    if draw(st.booleans()):
        number = number.translate(FULL_WIDTH)
    text = before + (draw(st.sampled_from(DASHES)) if negative else "") + number + after
    text = draw(st.sampled_from([text, text.upper(), text.title()])) if after != "x" else text
    for opening, closing in draw(affixes):
        text = opening + text + draw(st.sampled_from(["", "."])) + closing
    return draw(st.sampled_from(["", " "])) + text + draw(st.sampled_from(["", ".", "...", " "]))


@given(st.data())
def test_quantities_are_equal_exactly_if_all_parts_are(data: st.DataObject) -> None:
    one, fresh = data.draw(quantities), data.draw(quantities)
    shared = data.draw(st.sets(st.sampled_from(Quantity._fields)))
    other = fresh._replace(**{name: getattr(one, name) for name in shared})
    written, rewritten = data.draw(writings(one)), data.draw(writings(other))
    assert (normalise(written) == normalise(rewritten)) is (one == other), (normalise(written), normalise(rewritten))


@pytest.mark.parametrize("answer", ["3", "yes"])
def test_only_final_punctuation_is_dropped(answer: str) -> None:
    for char in map(chr, range(sys.maxunicode + 1)):
        if unicodedata.category(char)[0] not in "PSM" and unicodedata.category(char) != "Cf":
            continue
        assert normalise(char + answer) != answer, ascii(char)
        final = char in FINAL or (char in EXCLAMATION and answer == "yes")
        assert (normalise(answer + char) == answer) is final, ascii(char)


words = st.text(st.characters(categories=["L", "N", "Zs"], include_characters="-%$<"), min_size=1, max_size=20)


@given(words, affixes)
def test_markup_is_ignored(text: str, around: list[tuple[str, str]]) -> None:
    text = text.strip(" \N{NO-BREAK SPACE}") or "x"
    marked = text
    for opening, closing in around:
        marked = opening + marked + closing
    assert normalise(marked) == normalise(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The red one.", "red 1"), ("A CIRCLE", "circle"), ("None", "0"), ("yes!", "Yes"), ("**Yes**!", "yes"),
        ("('yes').", "yes"), ("t-shirt", "T\N{NON-BREAKING HYPHEN}Shirt"),
        ("don\N{RIGHT SINGLE QUOTATION MARK}t", "don't"), ("traffic   light", "the traffic light"),
        ("traffic_light", "traffic light"), ("red, blue and green", "red,blue and green"), ("50 %", "50%"),
        ("1 / 2", "1/2"), ("cafe\N{COMBINING ACUTE ACCENT}", "caf\N{LATIN SMALL LETTER E WITH ACUTE}"),
    ],
)  # fmt: skip
def test_equal_answers(one: str, other: str) -> None:
    assert normalise(one) == normalise(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("3", "4"), ("3.5", "35"), ("3,5", "3 5"), ("1 - 2", "1 2"), ("twenty, one", "21"), ("twenty - one", "21"),
        ("0,123", "123"), ("007", "7"), ("no", "0"), ("no one", "no 1"), ("A", "the"), ("vitamin A", "vitamin"),
        ("A and B", "and B"), ("[1, 2)", "[1, 2]"), ("!yes", "yes"), ("we're", "were"), ('5"', "5"), ("?", "!"),
        ("red or blue", "red"), ("star", "stars"),
    ],
)  # fmt: skip
def test_different_answers(one: str, other: str) -> None:
    assert normalise(one) != normalise(other)


@given(st.one_of(st.text(max_size=30), st.text("a1.,!?'\"*_()- \u2212the", max_size=12)))
def test_normalisation_is_idempotent(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)
