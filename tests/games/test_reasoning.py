"""Rules that demonstrations follow, such as the first step of a search."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.playing import summarise
from vlmgym import RewardConfig, make_game
from vlmgym.evaluation import evaluate
from vlmgym.evaluation.tables import summary_rows
from vlmgym.policies import Reply, StatePolicy
from vlmgym.policies.baselines import random_legal_action
from vlmgym.rollout.states import FIRST_VALIDATION_SEED
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.sandbox.core.search import shortest_path
from vlmgym.sandbox.registry import game_class, game_ids

SWAP = {"rows": 5, "columns": 5, "colours": 4, "shapes": 1}
SHISENSHO = {"rows": 6, "columns": 6, "copies": 2, "colours": 6, "shapes": 3}


def first_move(game: Any, state: Any) -> int | None:
    """Make the first push that the text about Sokoban states, or walk towards it; do not read the move itself."""
    action = game.best_action(state)
    if action is None:
        return None
    text = game.explain(state, action).partition(" I move ")[0]
    push = re.search(r"Pushes that solve the room: box \((\d), (\d)\) (\w+)", text)
    assert push is not None
    steps = {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}
    row, column = int(push[1]), int(push[2])
    behind = (row - steps[push[3]][0], column - steps[push[3]][1])
    rows = [line.split(", ") for line in game.describe(state).splitlines()]
    free = {(r, c) for r, line in enumerate(rows) for c, cell in enumerate(line) if cell in ("floor", "target")}
    (player,) = [(r, c) for r, line in enumerate(rows) for c, cell in enumerate(line) if "player" in cell]

    def walks(cell: tuple[int, int]) -> list[tuple[str, tuple[int, int]]]:
        cells = [(name, (cell[0] + down, cell[1] + right)) for name, (down, right) in steps.items()]
        return [(name, to) for name, to in cells if to in free]

    walk = shortest_path(player, walks, lambda cell: cell == behind)
    return [*steps].index(walk[0][1] if walk else push[3])


def follow_rule(game: Any, state: Any) -> Any:
    return game.rule_action(state)


def follow_oracle(game: Any, state: Any) -> Any:
    return game.best_action(state)


def whole_games(game: Any, policy: Callable[[Any, Any], Any], games: int, turns: int, slip: int = 0) -> float:
    """Play whole games and return the sum of the rewards of legal moves; every `slip`-th answer is random.

    In Swap, where demonstrations look for any legal move, it is the number of legal moves.
    """
    total = 0.0
    for number in range(games):
        episode, rng = Episode(game, FIRST_VALIDATION_SEED + number, RewardConfig()), np.random.default_rng(number)
        for turn in range(turns):
            if episode.ended:
                break
            action = None if slip and turn % slip == 0 else policy(game, episode.state)
            action = game.answer.sample(rng) if action is None else action  # after a wrong push, there is no oracle
            scored = episode.respond(f"<answer>{game.answer.format(action)}</answer>")
            reward = 1.0 if game.name == "swap" else scored.game
            total += reward if scored.outcome is Outcome.PLAYED else 0.0
    return total


@pytest.mark.parametrize(
    ("name", "config", "policy", "games", "turns"),
    [
        ("2048", {}, follow_rule, 8, 50),
        pytest.param("2048", {}, follow_rule, 50, 100, marks=pytest.mark.slow),
        ("shisensho", SHISENSHO, follow_rule, 4, 40),
        ("swap", SWAP, follow_rule, 4, 40),
        ("sokoban", {}, first_move, 10, 60),
    ],
)
def test_the_demonstrated_reasoning_wins_whole_games(
    name: str, config: dict[str, Any], policy: Callable[[Any, Any], Any], games: int, turns: int
) -> None:
    """A player that follows the text, not a solver, is almost as good as the oracle, and withstands slips."""
    game: Any = make_game(name, **config)
    oracle = whole_games(game, follow_oracle, games, turns)
    assert whole_games(game, policy, games, turns) >= 0.95 * oracle
    assert whole_games(game, policy, games, turns, slip=5) >= 0.8 * oracle


@pytest.mark.parametrize(("name", "config"), [("swap", SWAP), ("shisensho", SHISENSHO)])
def test_demonstrations_start_anywhere(name: str, config: dict[str, Any]) -> None:
    """The last line or pair of the search is also demonstrated about as often as the first."""
    game: Any = make_game(name, **config)
    starts = []
    for seed in range(200):
        state = game.start(np.random.default_rng(seed))
        action = game.rule_action(state)
        assert action in game.legal_actions(state)
        starts.append(game.explain(state, action).partition(": ")[2].partition(",")[0])
    assert max(map(starts.count, starts)) < 0.2 * len(starts)


VARIABLE = {
    "2048": r"\d+|both|left|right|up|down",
    "shisensho": r"(?<=\) )\d+|none|circle|red|blue",  # other cells may have equal tiles, too
    "swap": r"\d+|none|circle|red|blue",
    "sokoban": r"\d+|left|right|up|down",
    "lightsout": r"\d+(?=[^.]+ switches)",
    "sliding": r"\d+|left|right|up|down",
}


@pytest.mark.parametrize("origin", [0, 1])
@pytest.mark.parametrize("name", VARIABLE)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1))
def test_false_statements_are_found(name: str, origin: int, seed: int) -> None:
    """All that games explain is true; no longer after a change of one number, name or direction."""
    game: Any = make_game(name, origin=origin)
    rng = np.random.default_rng(seed)
    state = game.start(rng)
    for _ in range(int(rng.integers(4))):
        state = game.step(state, random_legal_action(game, state, rng), rng).state
    text = game.explain(state, random_legal_action(game, state, rng))
    checks = game.check_reasoning(state, text)
    assert checks
    assert all(checks)
    assert game.check_reasoning(state, f"I see a board. {text} So it is.") == checks
    assert game.check_reasoning(state, "I think that this move is good.") == []
    places = [*re.finditer(VARIABLE[name], text)]
    place = places[int(rng.integers(len(places)))]
    other = str(int(place[0]) + 1) if place[0].isdecimal() else "green" if place[0] in ("red", "none") else "other"
    changed = game.check_reasoning(state, text[: place.start()] + other + text[place.end() :])
    assert not all(changed) or len(changed) < len(checks)


def games_with_statements() -> list[str]:
    return [name for name in game_ids() if game_class(name).statements is not None]


@pytest.mark.parametrize("name", games_with_statements())
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), perception=st.integers(1, 5), reasoning=st.integers(1, 4))
def test_all_that_is_explained_is_true(name: str, seed: int, perception: int, reasoning: int) -> None:
    game: Any = make_game(name, perception, reasoning)
    rng = np.random.default_rng(seed)
    state = game.start(rng)
    for _ in range(int(rng.integers(4))):
        after = game.step(state, random_legal_action(game, state, rng), rng).state
        state = state if game.ended(after) else after
    for action in (random_legal_action(game, state, rng), game.best_action(state)):
        if action is not None:
            checks = game.check_reasoning(state, f"I look. {game.explain(state, action)} So it is.")
            assert checks
            assert all(checks)
    assert not any(game.check_reasoning(state, sentence) for sentence in OWN_WORDS)


OWN_WORDS = (
    "I think that this move is good. I move up. I play the 7. I go on. I turn to the map first. Moving up is good.",
    "From here I look around. From the picture I count seven. On the other hand, I see few cards. The path is long.",
    "Sliding puzzles need planning. The cell must be filled. The head is at the top. The fewest moves are best.",
    "Figure 3 is a bit different from the others. The red car A is stuck. The peg at the top jumps. The ball meets it.",
)
"""Reasoning that does not have the form of any statement."""


@pytest.mark.parametrize("name", games_with_statements())
def test_repeated_words_are_searched_at_once(name: str) -> None:
    """A model may repeat the beginning of a statement until its limit of tokens."""
    game: Any = make_game(name)
    state = game.start(np.random.default_rng(0))
    words = game.explain(state, game.best_action(state)).split(" ")
    for count in range(1, len(words) + 1):
        beginning = " ".join(words[:count])
        game.check_reasoning(state, f"{beginning} " * (100_000 // len(beginning)))
        game.check_reasoning(state, beginning[:-1] * (100_000 // len(beginning)))


OTHER = {"up": "down", "down": "up", "left": "right", "right": "left", "ahead": "left"}


@pytest.mark.parametrize("name", games_with_statements())
def test_statements_of_what_is_not_there_are_false(name: str) -> None:
    game: Any = make_game(name)
    for seed in range(5):
        state = game.start(np.random.default_rng(seed))
        text = game.explain(state, game.best_action(state))
        changed = re.sub(r"\d+|\b(up|down|left|right|ahead)\b", lambda match: OTHER.get(match[0], "77"), text)
        assert False in game.check_reasoning(state, changed)


@pytest.mark.parametrize("name", VARIABLE)
def test_statements_with_huge_numbers_are_not_true(name: str) -> None:
    """Python reads no number with more than 4,300 digits."""
    game: Any = make_game(name)
    state = game.start(np.random.default_rng(0))
    text = game.explain(state, game.best_action(state))
    for number in re.finditer(r"\d+(?=.* switches)" if name == "lightsout" else r"\d+", text):
        changed = game.check_reasoning(state, text[: number.start()] + "9" * 5000 + text[number.end() :])
        assert not all(changed) or len(changed) < len(game.check_reasoning(state, text))


def test_statements_are_checked_in_order() -> None:
    game: Any = make_game("2048", rows=3, columns=3)
    state = game.State(((4, 4, 2), (0, 0, 8), (0, 2, 0)))
    rows = "Rows: 4 4 2 (1) 0 0 8 (right) 0 2 0 (both), together 1."
    columns = "Columns: 4 0 0 (down) 4 0 2 (both) 2 8 0 (down), together"
    assert game.check_reasoning(state, f"{rows} {columns} both.") == [True, False, *[True] * 6]
    assert game.check_reasoning(state, f"{rows} {columns} 1.") == [True, False, *[True] * 5, False]
    assert game.check_reasoning(game.State(((2, 4, 8), (0, 0, 0), (0, 0, 0))), "I slide up. I slide down.") == [
        False,
        True,
    ]


def test_any_plan_that_solves_a_room_is_true() -> None:
    game: Any = make_game("sokoban", rows=6, columns=6, boxes=1)
    state = game.State(("######", "#    #", "# $  #", "#  . #", "#@   #", "######"))
    for plan, true in (
        ("box (2, 2) down to (3, 2), right to (3, 3).", [True, True, True]),
        ("box (2, 2) right to (2, 3), down to (3, 3).", [True, True, True]),
        ("box (2, 2) right to (2, 3).", [True, False]),  # solves nothing
        ("box (2, 2) left to (2, 1), right to (2, 3).", [True, False, False]),  # the player cannot get behind it
        ("box (2, 3) down to (3, 3).", [False, False]),  # no box is there
        ("box (2, 2) up to (3, 2).", [False, False]),
    ):
        assert game.check_reasoning(state, f"Pushes that solve the room: {plan}") == true


class HalfWrong(StatePolicy):
    """Plays the oracle's move, and explains it in every second state as if for another board."""

    name = "half-wrong"

    def respond(self, game: Any, state: Any, rng: np.random.Generator) -> str:
        right: str = game.respond(state, game.best_action(state))
        if rng.random() < 0.5:
            return right
        other = game.start(np.random.default_rng(int(rng.integers(1000))))
        thought = game.explain(other, game.best_action(other))
        return re.sub("<think>.*</think>", f"<think>{thought}</think>", right)


@pytest.mark.parametrize("name", ["2048", "swap"])
def test_wrong_reasons_of_right_answers_are_counted(name: str) -> None:
    records = evaluate(make_game(name, size=200), HalfWrong(), 4, max_turns=20, workers=0)
    turns = [turn for record in records for turn in record.turns]
    wrong = [turn.statements is not None and turn.statements.first_false is not None for turn in turns]
    rewarded = [turn.reward.game > 0 for turn in turns]
    summary = summarise(records)
    assert 0.25 < np.mean(wrong) < 0.75
    assert summary.reasoning_exact_match == pytest.approx(1 - np.mean(wrong))
    assert summary.wrong_reasoning == pytest.approx(np.average(wrong, weights=rewarded))
    assert 0.25 < summary.reasoning_accuracy < 1
    assert "of rewarded answers have a false one" in dict(summary_rows(summary))["reasoning"]
    silent = summarise(evaluate(make_game(name, size=200), "random", 1, max_turns=3, workers=0))
    assert dict(summary_rows(silent))["reasoning"] == "no checkable statements"
    unchecked = summarise(evaluate(make_game("minesweeper", size=200), "oracle", 1, max_turns=3, workers=0))
    assert "reasoning" not in dict(summary_rows(unchecked))


def test_reasoning_that_a_server_returns_separately_is_checked() -> None:
    game: Any = make_game("2048", size=200)

    def respond(images: Any, prompts: Any) -> list[Reply]:
        states = [Episode.restore(prompt.game, prompt.snapshot).state for prompt in prompts]
        return [Reply("<answer>up</answer>", reasoning=game.explain(state, 0)) for state in states]

    (record,) = evaluate(game, respond, 1, max_turns=3, workers=0)
    assert all(turn.statements is not None and turn.statements.checked >= 10 for turn in record.turns)
