"""2048: rules compared with gymnasium-2048, text, JSON and images."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import numpy as np
import pytest
from gymnasium_2048.envs.twenty_forty_eight import TwentyFortyEightEnv
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from vlmgym import make_game
from vlmgym.errors import IllegalAction, ParseError, StateError, UsageError
from vlmgym.sandbox.games.game2048.game import DIRECTIONS, Board, Game2048, State2048, slide

EMPTY: Board = ((0,) * 4,) * 4
MIXED: Board = ((0, 2, 4, 8), (16, 32, 64, 128), (256, 512, 1024, 2048), (4096, 8192, 16384, 131072))
STUCK: Board = ((2, 4, 2, 4), (4, 2, 4, 2), (2, 4, 2, 4), (4, 2, 4, 2))


def game_2048(**overrides: Any) -> Game2048:
    game = make_game("2048", **overrides)
    assert isinstance(game, Game2048)
    return game


@st.composite
def boards(draw: st.DrawFn, largest: int = 5) -> Board:
    """Boards of 3 to 8 rows and columns; with few kinds of tile, merges are frequent."""
    rows, columns = draw(st.integers(3, 8)), draw(st.integers(3, 8))
    exponents = st.lists(st.integers(0, largest), min_size=columns, max_size=columns)
    grid = draw(st.lists(exponents, min_size=rows, max_size=rows))
    return tuple(tuple(1 << e if e else 0 for e in row) for row in grid)


def exponents_of(board: Board) -> NDArray[np.uint8]:
    return np.array([[tile.bit_length() - 1 if tile else 0 for tile in row] for row in board], dtype=np.uint8)


def board_of(exponents: NDArray[np.uint8]) -> Board:
    return tuple(tuple(1 << int(e) if e else 0 for e in row) for row in exponents)


# Rules ------------------------------------------------------------------------------------------------------------


@given(boards(), st.integers(0, 3))
def test_slide_matches_gymnasium_2048(board: Board, action: int) -> None:
    expected, score, changed = TwentyFortyEightEnv.apply_action(exponents_of(board), action)
    after, gained = slide(board, action)
    assert after == board_of(expected)
    assert gained == score
    assert (after != board) == changed


@pytest.mark.parametrize(
    ("row", "after", "score"),
    [
        ((2, 2, 2, 2), (4, 4, 0, 0), 8),
        ((2, 2, 2, 0), (4, 2, 0, 0), 4),
        ((4, 2, 2, 0), (4, 4, 0, 0), 4),
        ((2, 0, 0, 2), (4, 0, 0, 0), 4),
        ((0, 0, 0, 131072), (131072, 0, 0, 0), 0),
    ],
)
def test_tile_merges_once_per_move(row: tuple[int, ...], after: tuple[int, ...], score: int) -> None:
    assert slide((row,) * 4, DIRECTIONS.index("left")) == ((after,) * 4, score * 4)


@given(boards(largest=3))
def test_legal_actions_match_step_and_gymnasium_2048(board: Board) -> None:
    game, state = game_2048(rows=len(board), columns=len(board[0])), State2048(board)
    legal = game.legal_actions(state)
    for action in range(4):
        rng = np.random.default_rng(0)
        if action in legal:
            step = game.step(state, action, rng)
            assert step.terminated == (game.ended(step.state) is not None)
        else:
            with pytest.raises(IllegalAction, match="changes nothing"):
                game.step(state, action, rng)
            assert rng.bit_generator.state == np.random.default_rng(0).bit_generator.state
    if any(map(any, board)):  # the package does not terminate on an empty board, which never occurs
        assert (not legal) == TwentyFortyEightEnv.is_terminated(exponents_of(board))


def test_step_adds_one_tile_after_the_slide() -> None:
    game, rng = game_2048(), np.random.default_rng(0)
    state = State2048(((2, 2, 0, 0), (0, 4, 0, 0), EMPTY[0], EMPTY[0]), variation_seed=7)
    for _ in range(50):
        step = game.step(state, DIRECTIONS.index("left"), rng)
        slid = ((4, 0, 0, 0), (4, 0, 0, 0), EMPTY[0], EMPTY[0])
        new = [(b, a) for before, after in zip(slid, step.state.board) for b, a in zip(before, after) if b != a]
        assert len(new) == 1
        assert new[0] in ((0, 2), (0, 4))
        assert step.reward == 4.0
        assert step.state.variation_seed == 7


@pytest.mark.parametrize("four", [0.0, 0.1, 0.5, 1.0])
def test_new_tiles_are_uniform_and_fours_follow_four_probability(four: float) -> None:
    game, rng, trials = game_2048(four_probability=four), np.random.default_rng(1), 4000
    state = State2048(((2, 0, 0, 0), *EMPTY[1:]))
    counts: dict[tuple[int, int], int] = {}
    fours = 0
    for _ in range(trials):
        board = game.step(state, DIRECTIONS.index("right"), rng).state.board
        (cell,) = ((r, c) for r in range(4) for c in range(4) if board[r][c] and (r, c) != (0, 3))
        counts[cell] = counts.get(cell, 0) + 1
        fours += board[cell[0]][cell[1]] == 4
    assert len(counts) == 15
    expected = trials / 15
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_square < 36.1  # 14 degrees of freedom, p = 0.001
    assert abs(fours - trials * four) <= 4 * (trials * four * (1 - four)) ** 0.5


def test_start_has_two_tiles_and_is_deterministic() -> None:
    game = game_2048(rows=3, columns=5)
    starts = [game.start(np.random.default_rng(seed)) for seed in range(20)]
    assert starts == [game.start(np.random.default_rng(seed)) for seed in range(20)]
    assert len(set(starts)) == 20
    for start in starts:
        assert (len(start.board), len(start.board[0])) == (3, 5)
        assert sorted(tile for row in start.board for tile in row if tile) in ([2, 2], [2, 4], [4, 4])


def test_full_board_without_equal_neighbours_ends_the_game() -> None:
    game = game_2048()
    assert game.ended(State2048(STUCK)) == "no move is left"
    assert game.legal_actions(State2048(STUCK)) == ()
    last_gap = State2048(((2, 4, 8, 16), (4, 2, 16, 8), (2, 4, 8, 16), (0, 64, 32, 128)))
    step = game.step(last_gap, DIRECTIONS.index("left"), np.random.default_rng(0))
    assert step.terminated
    assert step.reward == 0.0


def test_goal_ends_the_game() -> None:
    game = game_2048(goal=16)
    state = State2048(((8, 8, 0, 0), *EMPTY[1:]))
    assert game.ended(state) is None
    step = game.step(state, DIRECTIONS.index("left"), np.random.default_rng(0))
    assert step.terminated
    assert game.ended(step.state) == "goal reached"
    assert game.legal_actions(step.state) == ()
    assert game.best_action(step.state) is None
    with pytest.raises(IllegalAction, match="goal 16"):
        game.step(step.state, 0, np.random.default_rng(0))
    assert game_2048().ended(step.state) is None


@pytest.mark.parametrize("goal", [4, 12, 2**21, 0, -16, True, "16"])
def test_goal_must_be_a_tile(goal: object) -> None:
    with pytest.raises(UsageError, match="goal"):
        game_2048(goal=goal)


@pytest.mark.parametrize("action", [-1, 4, 9999, True, 1.0, "1", None, (1,)])
def test_actions_other_than_0_to_3_are_illegal(action: Any) -> None:
    game = game_2048()
    with pytest.raises(IllegalAction, match="is not an action"):
        game.step(game.start(np.random.default_rng(0)), action, np.random.default_rng(0))


def test_metric_is_the_largest_tile() -> None:
    assert game_2048().metrics(State2048(MIXED), []) == {"largest tile": "131072"}


# Text -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", range(4))
def test_documented_answers_are_parsed(action: int) -> None:
    game, name = game_2048(), DIRECTIONS[action]
    for text in (str(action), name, name.upper(), name.title(), f"  {name}\n", f"\t{action} "):
        assert game.parse_answer(text) == action
    assert game.format(action) == name


@pytest.mark.parametrize(
    "text",
    ["left right", "left.", "go left", "1.0", "-1", "+1", "1e0", "0x1", "\uff11", "\xb2", "12345", "\uff55\uff50",
     "up\x00", "u p", "<b>up</b>", "0 1", "None", "[1]", '"up"', "\ud800", "上"],
)  # fmt: skip
def test_other_answers_are_parse_errors(text: str) -> None:
    with pytest.raises(ParseError, match="0, 1, 2, 3, up, right, down, left"):
        game_2048().parse_answer(text)


@given(st.text(max_size=300))
def test_any_text_is_an_action_or_a_short_parse_error(text: str) -> None:
    word = text.strip().lower()
    if word in DIRECTIONS:
        assert game_2048().parse_answer(text) == DIRECTIONS.index(word)
    elif re.fullmatch("[0-9]{1,4}", word):
        assert game_2048().parse_answer(text) == int(word)
    else:
        with pytest.raises(ParseError) as caught:
            game_2048().parse_answer(text)
        assert len(str(caught.value)) < 600


def test_number_out_of_range_is_parsed() -> None:
    assert game_2048().parse("<answer>7</answer>") == 7


@pytest.mark.parametrize("origin", [0, 1])
def test_prompt_covers_rules_actions_origin_and_format(origin: int) -> None:
    game = game_2048(rows=5, columns=3, origin=origin)
    prompt = game.prompt(game.start(np.random.default_rng(0)))
    for words in (
        "2048", "5 rows", "3 columns", f"numbered from {origin}", "slides", "merge", "score", "illegal",
        "0 or up, 1 or right, 2 or down, 3 or left", "<perception>", "</perception>", "<think>", "</think>",
        "<answer>", "</answer>", "exactly one <answer>",
    ):  # fmt: skip
        assert words in prompt
    assert "{" not in prompt


def test_prompt_states_the_goal() -> None:
    state = State2048(EMPTY)
    assert "Reach the tile 512" in game_2048(goal=512).prompt(state)
    assert "Score as high as you can" in game_2048().prompt(state)


@given(boards(largest=17))
def test_description_is_the_board(board: Board) -> None:
    game, state = game_2048(rows=len(board), columns=len(board[0])), State2048(board)
    lines = game.describe(state).split("\n")
    assert tuple(tuple(map(int, line.split(", "))) for line in lines) == board
    assert game.perceive(state, game.describe(state)) == (1.0, 1.0)


def test_explanation_lists_merges() -> None:
    game = game_2048()
    state = State2048(((4, 4, 0, 0), *EMPTY[1:]))
    expected = "Merges in rows: yes no no no; in columns: no no no no. I slide left."
    assert game.explain(state, DIRECTIONS.index("left")) == expected


# JSON -------------------------------------------------------------------------------------------------------------


@given(boards(largest=62), st.integers(0, 2**32 - 1))
def test_json_round_trip(board: Board, variation_seed: int) -> None:
    game, state = game_2048(rows=len(board), columns=len(board[0])), State2048(board, variation_seed)
    text = game.to_json(state)
    assert "\n" not in text
    assert game.from_json(text) == state
    assert hash(game.from_json(text)) == hash(state)


def test_json_format_is_public() -> None:
    state = State2048(((2, 0, 0), (0, 4, 0), (0, 0, 0)), variation_seed=5)
    assert json.loads(game_2048(rows=3, columns=3).to_json(state)) == {
        "board": [[2, 0, 0], [0, 4, 0], [0, 0, 0]],
        "variation_seed": 5,
    }


def state_json(board: object, variation_seed: object = 0) -> str:
    return json.dumps({"board": board, "variation_seed": variation_seed})


def with_cell(value: object) -> str:
    return state_json([[value, 0, 0, 0], *EMPTY[1:]])


@pytest.mark.parametrize(
    "text",
    [
        *map(with_cell, [1, 3, 6, -2, -1, 2**63, 10**100, 2.0, 2.5, "2", True, None, [2], {}, float("nan")]),
        *map(state_json, [EMPTY[1:], (*EMPTY, EMPTY[0]), (*EMPTY[1:], (0, 0, 0)), [[0] * 5] * 4, [], [0] * 16]),
        *(state_json(EMPTY, seed) for seed in ("0", 1.5, -1, 2**32)),
        json.dumps({"variation_seed": 0}),
        with_cell(2) + "x",
        with_cell(2) + with_cell(2),
        with_cell(2)[:-1],
        "", "null", "[]", "0", '"board"', "board", "\x00", "{" * 10_000, "[" * 10_000,
    ],
)  # fmt: skip
def test_invalid_state_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(StateError, match="invalid state of 2048") as caught:
        game_2048().from_json(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


# Images ----------------------------------------------------------------------------------------------------------

GOLDEN = {
    (320, "light", False): "64d261d49549ccc1e762c3d38d6248871e8c0c3a7c671a631682b9983a056a71",
    (320, "light", True): "312666179bf85399847e506b5218af09c683cdf80590d8f0a177f7c0277a5e22",
    (320, "dark", False): "ebd897a4f9e1bfd94c96a43c40adb2c1b1a2024bb1087e738704bb7997a3e866",
    (320, "dark", True): "3a7dba406ed95cfc965854e4a0ddf3652bade523169cfd20877d4982c5ab63e7",
    (640, "light", False): "59764cfd9da4e0118bd0fe7c191f27f73a137984ef10c9ee2b8d840992648346",
    (640, "light", True): "3e6544dd978a222d4faa9370f5abf012678940725d63e3df43397d73a43ebdb3",
    (640, "dark", False): "9fddf56e8126acc76b57c8f494128ea1adb6a815c872d8418ef386d9e3381eb8",
    (640, "dark", True): "21457677a5d4e905f8ae32d2a64c49832128bc79201cd6943cc8cad9aafbacd8",
    (1024, "light", False): "544ce7f0b513e01324dee9a315096479429e51926d87ff602adb933fd2d52714",
    (1024, "light", True): "86c2b5bb7ad7d6afb1fdf233042fcebb1d63102126eeb9288ce17907f639e3e3",
    (1024, "dark", False): "0f4c9cb4cd07fcfc092614e4c3334028ff6920bc05f97ec01043d31d5dbfa1b1",
    (1024, "dark", True): "f2e13502dd5ead1ae503c337c314f0b14d71c736c732b026c356fd90cf768e05",
}
"""sha256 of the image of MIXED by size, theme and coordinates."""
GOLDEN_PERCEPTION_5 = "4a9a06fc16b9c33e47b14b934e9c6026439235943f2bc84c05cfd7da1dc40f7b"


def sha256(image: NDArray[np.uint8]) -> str:
    assert image.dtype == np.uint8
    assert image.flags.c_contiguous
    return hashlib.sha256(image.tobytes()).hexdigest()


@pytest.mark.parametrize(("size", "theme", "coordinates"), GOLDEN)
def test_golden_images(size: int, theme: str, coordinates: bool) -> None:
    game = game_2048(size=size, theme=theme, coordinates=coordinates)
    image = game.draw(State2048(MIXED, variation_seed=12345))
    assert image.shape == (size, size, 3)
    assert sha256(image) == GOLDEN[size, theme, coordinates]


def test_golden_image_at_perception_5() -> None:
    game = game_2048(perception=5, size=320)
    assert sha256(game.images(State2048(MIXED, variation_seed=12345))[0]) == GOLDEN_PERCEPTION_5


@pytest.mark.parametrize("perception", [1, 3, 5])
def test_painting_changes_equals_painting_all(perception: int) -> None:
    game = game_2048(perception=perception, size=128)
    rng = np.random.default_rng(3)
    state = game.start(rng)
    out = game.painter.paint(game.cells(state), state.variation_seed)
    while game.ended(state) is None:
        legal = game.legal_actions(state)
        after = game.step(state, legal[int(rng.integers(len(legal)))], rng).state
        painted = game.painter.paint(game.cells(after), after.variation_seed, out=out, before=game.cells(state))
        assert painted is out
        np.testing.assert_array_equal(out, game.draw(after))
        state = after


@pytest.mark.parametrize("perception", [1, 2, 3, 4, 5])
def test_image_and_description_change_together(perception: int) -> None:
    """Changing one tile changes both, and the image only in that cell."""
    game = game_2048(perception=perception, size=200)
    geometry = game.painter.geometry
    state = State2048(MIXED, variation_seed=9)
    before = game.draw(state)
    for tile in (0, 2, 4, 8, 1024, 2048, 4096, 65536):
        board = (MIXED[0], (16, 32, tile, 128), *MIXED[2:])
        other = game.draw(State2048(board, variation_seed=9))
        left, top, width, height = geometry.cell_box(1, 2)
        assert (other[top : top + height, left : left + width] != before[top : top + height, left : left + width]).any()
        other[top : top + height, left : left + width] = before[top : top + height, left : left + width]
        np.testing.assert_array_equal(other, before)
        words = game.describe(State2048(board, variation_seed=9)).split("\n")[1].split(", ")
        assert words == ["16", "32", str(tile), "128"]


def test_tiles_look_different() -> None:
    game = game_2048(size=96)
    seen = {game.draw(State2048(((1 << e if e else 0, 0, 0, 0), *EMPTY[1:]))).tobytes() for e in range(21)}
    assert len(seen) == 21
