"""Scoring of described grids against the true grid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmgym.sandbox.core.perception import LONGEST_PERCEPTION, compare_grids

TRUTH = "0, 2, 4\n8, 16, 32"


@pytest.mark.parametrize(
    "text",
    [
        TRUTH, "0,2,4\n8,16,32", "0 2 4\n8 16 32", "0\t2   4\n8 16 32  ", "| 0 | 2 | 4 |\n| 8 | 16 | 32 |",
        "[[0, 2, 4],\n [8, 16, 32]]", "((0, 2, 4),\r\n(8, 16, 32))", "{'0', '2', '4'}\n\n\n\"8\", \"16\", \"32\"\n",
        "\n  0, 2, 4  \n\n  8, 16, 32\n",
    ],
)  # fmt: skip
def test_punctuation_and_blanks_are_ignored(text: str) -> None:
    assert compare_grids(TRUTH, text) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("text", "partial"),
    [
        ("0, 2, 4\n8, 16, 64", 5 / 6), ("0, 2, 4", 3 / 6), ("0, 2\n8, 16", 4 / 6), ("8, 16, 32\n0, 2, 4", 0.0),
        ("0, 2, 4, 0\n8, 16, 32", 6 / 7), ("0, 2, 4\n8, 16, 32\n0, 2, 4", 6 / 9),
        ("The board is:\n0, 2, 4\n8, 16, 32", 0.0), ("0, 2, 4, 8, 16, 32", 3 / 6), ("00, 2.0, 4\n8, 16, 32", 4 / 6),
        ("", 0.0), ("[]", 0.0), (",,,\n|||", 0.0),
    ],
)  # fmt: skip
def test_partial_score_is_the_share_of_the_larger_grid(text: str, partial: float) -> None:
    seen = compare_grids(TRUTH, text)
    assert seen.partial == pytest.approx(partial)
    assert seen.exact == 0.0


words = st.text("abcdefgh 0123456789", min_size=1, max_size=8).map(lambda word: " ".join(word.split())).filter(bool)
grids = st.integers(2, 5).flatmap(
    lambda columns: st.lists(st.lists(words, min_size=columns, max_size=columns), min_size=1, max_size=5)
)


def written(grid: list[list[str]]) -> str:
    return "\n".join(", ".join(row) for row in grid)


@given(grids, grids)
def test_exact_means_equal_grids(truth: list[list[str]], seen: list[list[str]]) -> None:
    partial, exact = compare_grids(written(truth), written(seen))
    assert 0.0 <= partial <= 1.0
    assert exact == float(truth == seen)
    assert (partial == 1.0) == (exact == 1.0)
    assert compare_grids(written(seen), written(truth)) == (partial, exact)


def test_long_perceptions_are_truncated() -> None:
    assert compare_grids(TRUTH, " " * LONGEST_PERCEPTION + TRUTH) == (0.0, 0.0)
    assert compare_grids(TRUTH, TRUTH + "\n" * LONGEST_PERCEPTION + "more") == (1.0, 1.0)
    assert compare_grids(TRUTH, "," * 10_000_000).partial == 0.0
