"""NLVR2: the text alone does not reveal the truth, and data are read as documented."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.games import scene_oracle
from vlmgym import make_game
from vlmgym.sandbox.core.reward import score_response
from vlmgym.sandbox.games.nlvr2 import Nlvr2, Nlvr2Config, Nlvr2State

STATEMENTS = 1500
SIGMAS = 3.5
"""Allowed deviation of a share from 1/2, in standard deviations; exceeded by chance in one of 2,000 cases."""


def start(game: Nlvr2, seed: int) -> Nlvr2State:
    return game.start(np.random.default_rng(seed))


@pytest.fixture(scope="module")
def states() -> list[Nlvr2State]:
    """Return states with all kinds of statements, but few colours and shapes, so that wordings repeat often."""
    game = Nlvr2(Nlvr2Config.at(1, 1, kinds=5, colours=3, shapes=3))
    return [start(game, seed) for seed in range(STATEMENTS)]


def interval(count: int) -> float:
    return SIGMAS * 0.5 / math.sqrt(count)


# Truth ----------------------------------------------------------------------------------------------------------------


def test_truth_matches_the_scenes(states: list[Nlvr2State]) -> None:
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


def test_the_text_alone_does_not_reveal_the_truth(states: list[Nlvr2State]) -> None:
    truths = [state.truth for state in states]
    for keys in (
        [state.statement for state in states],
        [scene_oracle.parts(state.statement)[0] for state in states],
        [len(state.statement.split()) for state in states],
    ):
        accuracy, cases = table_accuracy(keys, truths)
        assert abs(accuracy - 0.5) < interval(cases)


def one_image(state: Nlvr2State, side: int) -> Hashable:
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
def test_one_image_reveals_nothing_where_both_are_needed(states: list[Nlvr2State], side: int) -> None:
    chosen = [s for s in states if scene_oracle.parts(s.statement)[0] in ("one", "total", "equal")]
    assert len(chosen) > STATEMENTS / 5
    accuracy, cases = table_accuracy([one_image(s, side) for s in chosen], [s.truth for s in chosen])
    assert abs(accuracy - 0.5) < interval(cases)


# Perception -----------------------------------------------------------------------------------------------------------


def test_perception_of_both_images_is_scored() -> None:
    game = Nlvr2()
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


# Data -----------------------------------------------------------------------------------------------------------------


def write_rows(folder: Path, labels: Sequence[object]) -> Path:
    for name, grey in (("a.png", 40), ("b.png", 200)):
        Image.new("RGB", (60, 40), (grey,) * 3).save(folder / name)
    file = folder / "rows.jsonl"
    rows = [
        {"left_image": "a.png", "right_image": "b.png", "sentence": f"Statement {i}.", "label": label}
        for i, label in enumerate(labels)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_statements_from_data(tmp_path: Path) -> None:
    file = write_rows(tmp_path, ["True", "False"])
    game = make_game("nlvr2", data=str(file), order="rows", size=100)
    for seed, truth in enumerate([True, False]):
        state = game.start_at(seed, np.random.default_rng(0))
        assert (state.statement, state.truth) == (f"Statement {seed}.", truth)
        assert "Each object is" not in game.prompt(state)
        assert state.statement in game.prompt(state)
        left, right = game.images(state)
        assert left[50, 50].tolist() == [40] * 3
        assert right[50, 50].tolist() == [200] * 3
        scored = score_response(game, state, game.respond(state, int(truth)), np.random.default_rng(0))
        assert (scored.game, scored.format, scored.perception) == (1.0, 1.0, None)
        assert game.from_json(game.to_json(state)) == state
