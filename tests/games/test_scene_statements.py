"""Scene statements: neither the text alone nor, in some forms, one image reveals the truth."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

import numpy as np
import pytest

from tests.games import scene_oracle
from vlmgym.sandbox.games.scenes.statements import SceneStatements, SceneStatementsConfig, SceneStatementsState

STATEMENTS = 1500
SIGMAS = 3.5
"""Allowed deviation of a share from 1/2, in standard deviations; exceeded by chance in one of 2,000 cases."""


def start(game: SceneStatements, seed: int) -> SceneStatementsState:
    return game.start(np.random.default_rng(seed))


@pytest.fixture(scope="module")
def states() -> list[SceneStatementsState]:
    """Return states with all kinds of statements, but few colours and shapes, so that wordings repeat often."""
    game = SceneStatements(SceneStatementsConfig.at(1, 1, kinds=5, colours=3, shapes=3))
    return [start(game, seed) for seed in range(STATEMENTS)]


def interval(count: int) -> float:
    return SIGMAS * 0.5 / math.sqrt(count)


# Truth ----------------------------------------------------------------------------------------------------------------


def test_truth_matches_the_scenes(states: list[SceneStatementsState]) -> None:
    for state in states:
        assert scene_oracle.is_true(state.statement, *state.scenes) == state.truth, state
    assert len({state.kind for state in states}) == 5


# No shortcuts ---------------------------------------------------------------------------------------------------------


def table_accuracy(keys: Sequence[Hashable], truths: Sequence[bool]) -> tuple[float, int]:
    """Predict each key's most frequent truth value; return the held-out accuracy and the number of held-out cases."""
    half = len(keys) // 2
    seen: dict[Hashable, Counter[bool]] = defaultdict(Counter)
    for key, truth in zip(keys[:half], truths[:half]):
        seen[key][truth] += 1
    cases = [(seen[key][True] > seen[key][False], truth) for key, truth in zip(keys[half:], truths[half:])]
    return float(np.mean([guess == truth for guess, truth in cases])), len(cases)


def test_the_text_alone_does_not_reveal_the_truth(states: list[SceneStatementsState]) -> None:
    truths = [state.truth for state in states]
    for keys in (
        [state.statement for state in states],
        [scene_oracle.parts(state.statement)[0] for state in states],
        [len(state.statement.split()) for state in states],
    ):
        accuracy, cases = table_accuracy(keys, truths)
        assert abs(accuracy - 0.5) < interval(cases)


def one_image(state: SceneStatementsState, side: int) -> Hashable:
    """Return all that one image reveals about a statement: the truth of its clause, or a count."""
    form, clauses = scene_oracle.parts(state.statement)
    scene = state.scenes[side]
    if form in ("and", "or"):
        return form, scene_oracle.is_true(f"{clauses[side]}.", *state.scenes)
    if form == "total":
        return form, clauses[0], len(scene_oracle.named(scene, clauses[1]))
    if form == "equal" or form.startswith("more"):
        return form, len(scene_oracle.named(scene, clauses[0]))
    return form, scene_oracle.holds(clauses[0], scene)


@pytest.mark.parametrize("side", [0, 1])
def test_one_image_reveals_nothing_where_both_are_needed(states: list[SceneStatementsState], side: int) -> None:
    chosen = [s for s in states if scene_oracle.parts(s.statement)[0] in ("one", "total", "equal")]
    assert len(chosen) > STATEMENTS / 5
    accuracy, cases = table_accuracy([one_image(s, side) for s in chosen], [s.truth for s in chosen])
    assert abs(accuracy - 0.5) < interval(cases)


# Perception -----------------------------------------------------------------------------------------------------------


def test_perception_of_both_images_is_scored() -> None:
    game = SceneStatements()
    state = start(game, 0)
    text = game.describe(state)
    left, _, right = text.partition("\nright:\n")
    objects = sum(map(len, state.scenes))
    assert game.perceive(state, text) == (1.0, 1.0)
    assert game.perceive(state, f"Right:\n{right}\n\n{left.upper()}") == (1.0, 1.0)
    assert game.perceive(state, "") == (0.0, 0.0)
    only_left = game.perceive(state, left)
    assert only_left is not None
    assert only_left.partial == pytest.approx(len(state.scenes[0]) / objects)
    swapped = game.perceive(state, f"left:\n{right}\nright:\n{left.removeprefix('left:')}")
    assert swapped is not None
    assert swapped.partial < 0.5
    without_headings = game.perceive(state, left.removeprefix("left:") + "\n" + right)
    assert without_headings == (0.0, 0.0)
