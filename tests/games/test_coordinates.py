"""Coordinates of cells in text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmgym.errors import ParseError
from vlmgym.sandbox.core.coordinates import Pair, format_cells, parse_cells


@pytest.mark.parametrize(
    "text",
    [
        "(0, 1) (2, 3)",
        "(0,1)(2,3)",
        "[0, 1], [2, 3]",
        "(0, 1); [2, 3]",
        "(0, 1) and (2, 3)",
        "(0, 1) AND (2, 3)",
        "  ( 0 ,\n1 )\t( 2 , 3 )  ",
        "(+0, 01), (2, 0003)",
    ],
)
def test_documented_spellings(text: str) -> None:
    assert parse_cells(text, 2) == (0, 1, 2, 3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0, 1, 2, 3",
        "(0, 1, 2, 3)",
        "((0, 1), (2, 3))",
        "[[0, 1], [2, 3]]",
        "(0, 1)",
        "(0, 1) (2, 3) (4, 5)",
        "(0, 1] (2, 3)",
        "{0, 1} {2, 3}",
        "(0 1) (2 3)",
        "(0; 1) (2; 3)",
        "(0, 1) -> (2, 3)",
        "(0, 1),, (2, 3)",
        "swap (0, 1) (2, 3)",
        "(0, 1) (2, 3).",
        "(0.0, 1) (2, 3)",
        "(a, b) (c, d)",
        "(12345, 1) (2, 3)",
        "(\uff10, 1) (2, 3)",
        "(--1, 1) (2, 3)",
        "(0, 1)\x00(2, 3)",
        "(" * 1000,
    ],
)
def test_other_texts_are_parse_errors(text: str) -> None:
    with pytest.raises(ParseError, match=r"two coordinates like \(0, 0\) \(0, 1\)") as caught:
        parse_cells(text, 2)
    assert len(str(caught.value)) < 400


def test_error_uses_the_origin() -> None:
    with pytest.raises(ParseError, match=r"like \(1, 1\) \(1, 2\)"):
        parse_cells("?", 2, origin=1)


def test_negative_numbers_are_parsed() -> None:
    assert parse_cells("(-1, 0) (0, 0)", 2) == (-1, 0, 0, 0)
    assert parse_cells("(0, 1) (1, 1)", 2, origin=1) == (-1, 0, 0, 0)


@given(st.tuples(*[st.integers(0, 999)] * 4), st.integers(0, 1))
def test_parsing_inverts_formatting(pair: Pair, origin: int) -> None:
    assert parse_cells(format_cells(pair, origin), 2, origin) == pair


@given(st.lists(st.integers(0, 99), min_size=2, max_size=10).filter(lambda numbers: len(numbers) % 2 == 0))
def test_any_number_of_cells(numbers: list[int]) -> None:
    text = format_cells(numbers)
    assert list(parse_cells(text, len(numbers) // 2)) == numbers
    with pytest.raises(ParseError):
        parse_cells(text, len(numbers) // 2 + 1)


@given(st.text("()[],; and0123456789+-", max_size=40))
def test_any_text_is_two_cells_or_a_parse_error(text: str) -> None:
    try:
        pair = parse_cells(text, 2)
    except ParseError:
        return
    assert len(pair) == 4
    assert parse_cells(format_cells(pair), 2) == pair
