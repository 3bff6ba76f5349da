"""Agreement of a described grid with the true one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmgym.sandbox.core.perception import LONGEST_PERCEPTION, compare_grids

TRUTH = "0, 2, 4\n8, 16, 32"


@pytest.mark.parametrize(
    "text",
    [
        TRUTH,
        "0,2,4\n8,16,32",
        "0 2 4\n8 16 32",
        "0\t2   4\n8 16 32  ",
        "| 0 | 2 | 4 |\n| 8 | 16 | 32 |",
        "[[0, 2, 4],\n [8, 16, 32]]",
        "((0, 2, 4),\r\n(8, 16, 32))",
        "{'0', '2', '4'}\n\n\n\"8\", \"16\", \"32\"\n",
        "\n  0, 2, 4  \n\n  8, 16, 32\n",
    ],
)
def test_brackets_quotes_bars_blanks_and_empty_lines_do_not_count(text: str) -> None:
    assert compare_grids(TRUTH, text) == (1.0, 1.0)


def test_case_does_not_count_and_words_of_a_cell_are_one_cell() -> None:
    assert compare_grids("red star, empty", "Red  STAR , Empty") == (1.0, 1.0)
    assert compare_grids("red star, empty", "red star empty") == (0.0, 0.0)


@pytest.mark.parametrize(
    ("text", "partial"),
    [
        ("0, 2, 4\n8, 16, 64", 5 / 6),
        ("0, 2, 4", 3 / 6),
        ("0, 2\n8, 16", 4 / 6),
        ("8, 16, 32\n0, 2, 4", 0.0),
        ("0, 2, 4, 0\n8, 16, 32", 6 / 7),
        ("0, 2, 4\n8, 16, 32\n0, 2, 4", 6 / 9),
        ("The board is:\n0, 2, 4\n8, 16, 32", 0.0),
        ("0, 2, 4, 8, 16, 32", 3 / 6),
        ("00, 2.0, 4\n8, 16, 32", 4 / 6),
        ("", 0.0),
        ("[]", 0.0),
        (",,,\n|||", 0.0),
    ],
)
def test_the_partial_score_is_the_share_of_right_cells_of_the_larger_grid(text: str, partial: float) -> None:
    seen = compare_grids(TRUTH, text)
    assert seen.partial == pytest.approx(partial)
    assert seen.exact == 0.0


def test_all_possible_cells_at_once_do_not_pay() -> None:
    spam = "\n".join([", ".join(["0", "2", "4", "8", "16", "32"])] * 100)
    assert compare_grids(TRUTH, spam).partial < 0.01


words = st.text("abcdefgh 0123456789", min_size=1, max_size=8).map(lambda word: " ".join(word.split())).filter(bool)
grids = st.integers(2, 5).flatmap(
    lambda columns: st.lists(st.lists(words, min_size=columns, max_size=columns), min_size=1, max_size=5)
)


def written(grid: list[list[str]]) -> str:
    return "\n".join(", ".join(row) for row in grid)


@given(grids, grids)
def test_it_is_a_share_and_exact_only_where_all_cells_are_equal(truth: list[list[str]], seen: list[list[str]]) -> None:
    partial, exact = compare_grids(written(truth), written(seen))
    assert 0.0 <= partial <= 1.0
    assert exact == float(truth == seen)
    assert (partial == 1.0) == (exact == 1.0)
    assert compare_grids(written(seen), written(truth)) == (partial, exact)


@given(grids, st.data())
def test_one_wrong_cell_costs_one_cell(truth: list[list[str]], data: st.DataObject) -> None:
    row = data.draw(st.integers(0, len(truth) - 1))
    column = data.draw(st.integers(0, len(truth[0]) - 1))
    seen = [list(line) for line in truth]
    seen[row][column] = "wrong"
    cells = len(truth) * len(truth[0])
    partial, exact = compare_grids(written(truth), written(seen))
    assert partial == pytest.approx((cells - 1) / cells)
    assert exact == 0.0


@given(st.text(max_size=200))
def test_any_text_gives_a_share(text: str) -> None:
    partial, exact = compare_grids(TRUTH, text)
    assert 0.0 <= partial <= 1.0
    assert exact in (0.0, 1.0)


def test_what_follows_the_longest_perception_is_not_read() -> None:
    assert compare_grids(TRUTH, " " * LONGEST_PERCEPTION + TRUTH) == (0.0, 0.0)
    assert compare_grids(TRUTH, TRUTH + "\n" * LONGEST_PERCEPTION + "more") == (1.0, 1.0)
    assert compare_grids(TRUTH, "," * 10_000_000).partial == 0.0
