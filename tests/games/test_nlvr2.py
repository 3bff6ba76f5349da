"""nlvr2: statements are true as often as not, whatever can be guessed without looking; only true and false are read."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.stats import chi2

from tests.games import scene_reading
from vlmgym import make_game
from vlmgym.errors import ParseError, StateError, UsageError
from vlmgym.evaluation import evaluate
from vlmgym.sandbox.core.reward import Outcome, score_response
from vlmgym.sandbox.games.nlvr2.game import Nlvr2, Nlvr2Config, Nlvr2State
from vlmgym.sandbox.games.nlvr2.statements import Statement, comparison, count

STATEMENTS = 1500
SIGMAS = 3.5
"""How far a share may be from 1/2 in standard deviations: once in 2000 times by chance, and the seeds are fixed."""


def start(game: Nlvr2, seed: int) -> Nlvr2State:
    return game.start(np.random.default_rng(seed))


@pytest.fixture(scope="module")
def states() -> list[Nlvr2State]:
    """Many statements of all kinds about small scenes, so that the same words come often."""
    game = Nlvr2(Nlvr2Config.at(1, 1, kinds=5, colours=3, shapes=3))
    return [start(game, seed) for seed in range(STATEMENTS)]


def interval(count: int) -> float:
    return SIGMAS * 0.5 / math.sqrt(count)


# Truth ----------------------------------------------------------------------------------------------------------------


def test_statements_are_true_as_the_scenes_say(states: list[Nlvr2State]) -> None:
    for state in states:
        assert scene_reading.is_true(state.statement, *state.scenes) == state.truth, state
    assert len({state.kind for state in states}) == 5


@pytest.mark.parametrize("level", [2, 3, 4, 5])
def test_statements_are_true_as_the_scenes_say_at_every_level(level: int) -> None:
    game = Nlvr2(Nlvr2Config.at(reasoning=level))
    for seed in range(25):
        state = start(game, seed)
        assert scene_reading.is_true(state.statement, *state.scenes) == state.truth, state


# No shortcuts ---------------------------------------------------------------------------------------------------------


def test_half_of_the_statements_are_true_in_every_kind_and_form(states: list[Nlvr2State]) -> None:
    truths = defaultdict(list)
    for state in states:
        truths["all"].append(state.truth)
        truths[state.kind].append(state.truth)
        truths[scene_reading.parts(state.statement)[0]].append(state.truth)
    assert len(truths) > 12
    for name, values in truths.items():
        assert abs(np.mean(values) - 0.5) < interval(len(values)), name


def table_accuracy(keys: Sequence[Hashable], truths: Sequence[bool]) -> tuple[float, int]:
    """Held-out accuracy of a guesser that says what was true most often of the same key, and over how many cases."""
    half = len(keys) // 2
    seen: dict[Hashable, Counter[bool]] = defaultdict(Counter)
    for key, truth in zip(keys[:half], truths[:half]):
        seen[key][truth] += 1
    cases = [(seen[key][True] > seen[key][False], truth) for key, truth in zip(keys[half:], truths[half:])]
    return float(np.mean([guess == truth for guess, truth in cases])), len(cases)


def test_who_knows_only_the_statement_guesses_no_better_than_a_coin(states: list[Nlvr2State]) -> None:
    truths = [state.truth for state in states]
    for keys in (
        [state.statement for state in states],
        [scene_reading.parts(state.statement)[0] for state in states],
        [len(state.statement.split()) for state in states],
    ):
        accuracy, cases = table_accuracy(keys, truths)
        assert abs(accuracy - 0.5) < interval(cases)


def logistic_accuracy(features: np.ndarray, truths: np.ndarray) -> tuple[float, int]:
    """Held-out accuracy of logistic regression, fitted to the other half by gradient descent with a little decay."""
    half = len(truths) // 2
    x = np.hstack([features, np.ones((len(features), 1))])
    weights = np.zeros(x.shape[1])
    for _ in range(500):
        error = 1 / (1 + np.exp(-x[:half] @ weights)) - truths[:half]
        weights -= 0.5 * (x[:half].T @ error / half + 0.002 * weights)
    return float(np.mean((x[half:] @ weights > 0) == truths[half:])), len(truths) - half


def test_a_bag_of_words_learns_nothing_of_the_truth(states: list[Nlvr2State]) -> None:
    bags = [Counter(state.statement.lower().strip(".").replace(",", "").split()) for state in states]
    words = sorted(set().union(*bags))
    features = np.array([[bag[word] for word in words] for bag in bags], float)
    truths = np.array([state.truth for state in states])
    accuracy, cases = logistic_accuracy(features, truths)
    assert abs(accuracy - 0.5) < interval(cases)
    # The same learner finds a shortcut where there is one.
    planted = np.hstack([features, (truths ^ (np.arange(len(truths)) % 4 == 0))[:, None]])
    assert logistic_accuracy(planted, truths)[0] > 0.65


def one_image(state: Nlvr2State, side: int) -> Hashable:
    """All that one image tells of a statement: whether what is said holds for it, or how many there are."""
    form, said = scene_reading.parts(state.statement)
    scene = state.scenes[side]
    if form in ("and", "or"):
        return form, scene_reading.is_true(f"{said[side]}.", *state.scenes)
    if form == "total":
        return form, said[0], len(scene_reading.named(scene, said[1]))
    if form == "equal" or form.startswith("more"):
        return form, len(scene_reading.named(scene, said[0]))
    return form, scene_reading.holds(said[0], scene)


@pytest.mark.parametrize("side", [0, 1])
def test_one_image_tells_nothing_where_both_are_needed(states: list[Nlvr2State], side: int) -> None:
    chosen = [s for s in states if scene_reading.parts(s.statement)[0] in ("one", "total", "equal")]
    assert len(chosen) > STATEMENTS / 5
    accuracy, cases = table_accuracy([one_image(s, side) for s in chosen], [s.truth for s in chosen])
    assert abs(accuracy - 0.5) < interval(cases)


@pytest.mark.parametrize(("make", "form"), [(count, "total"), (comparison, "equal")])
def test_numbers_of_one_image_tell_nothing_of_both(make: Callable[..., Statement], form: str) -> None:
    config = Nlvr2Config.at(1, 2)
    rng = np.random.default_rng(0)
    made = [make(rng, config) for _ in range(1000)]
    chosen = [statement for statement in made if scene_reading.parts(statement.text)[0] == form]
    for side in (0, 1):
        seen: dict[Hashable, list[bool]] = defaultdict(list)
        for statement in chosen:
            said = scene_reading.parts(statement.text)[1]
            number = len(scene_reading.named(statement.scenes[side], said[-1]))
            seen[said[:-1], number].append(statement.truth)
        chi = sum((2 * sum(truths) - len(truths)) ** 2 / len(truths) for truths in seen.values())
        assert chi2.sf(chi, len(seen)) > 0.001


@pytest.mark.parametrize("side", [0, 1])
def test_one_image_is_not_enough_for_the_others(states: list[Nlvr2State], side: int) -> None:
    # Who sees that one image lacks it knows that "both" is false, which makes 3 of 4 right; see `PATTERNS`.
    forms = ("both", "neither", "and", "or", "more left", "more right", "left" if side else "right")
    chosen = [s for s in states if scene_reading.parts(s.statement)[0] in forms]
    accuracy, cases = table_accuracy([one_image(s, side) for s in chosen], [s.truth for s in chosen])
    assert accuracy < 0.75 + interval(cases)


def test_the_number_of_objects_tells_nothing(states: list[Nlvr2State]) -> None:
    keys = [tuple(map(len, state.scenes)) for state in states]
    accuracy, cases = table_accuracy(keys, [state.truth for state in states])
    assert abs(accuracy - 0.5) < interval(cases)


# Answers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "action"),
    [("true", 1), ("True", 1), ("FALSE.", 0), ("yes", 1), ("No.", 0), (" false ", 0), ("true.", 1)],
)
def test_documented_answers_are_read(text: str, action: int) -> None:
    assert Nlvr2().parse_answer(text) == action


@pytest.mark.parametrize(
    "text", ["true or false", "maybe", "not true", "truefalse", "false, true", "0", "1", "t", "true..", "true?", "wahr"]
)
def test_an_ambiguous_answer_is_unparsable_and_not_false(text: str) -> None:
    game = Nlvr2()
    state = start(game, 0)
    scored = score_response(game, state, f"<answer>{text}</answer>", np.random.default_rng(0))
    assert scored.outcome is Outcome.UNPARSABLE
    assert scored.action is None
    assert scored.game == 0.0
    assert scored.terminated
    with pytest.raises(ParseError, match="not one of true, false, yes, no"):
        game.parse_answer(text)


@given(st.text(max_size=20))
def test_nothing_but_the_documented_words_is_read(text: str) -> None:
    try:
        action = Nlvr2().parse_answer(text)
    except ParseError:
        return
    assert text.strip().casefold().rstrip(".") in (("false", "no"), ("true", "yes"))[action]


def test_right_answers_score_one_and_wrong_ones_nothing() -> None:
    game = Nlvr2()
    state = start(game, 3)
    for action in (0, 1):
        step = game.step(state, action, np.random.default_rng(0))
        assert step.reward == float(action == state.truth)
        assert step.info == {"correct": action == state.truth, "truth": "true" if state.truth else "false"}


def test_accuracy_by_kind_is_in_the_summary() -> None:
    episodes = evaluate("nlvr2", "oracle", episodes=6, workers=0)
    assert [episode.score for episode in episodes] == [1.0] * 6
    kinds = {name.removeprefix("accuracy ") for episode in episodes for name in episode.metrics if " " in name}
    assert kinds <= {"presence", "count", "comparison", "spatial"}
    assert all(episode.metrics["accuracy"] == 1.0 for episode in episodes)


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


def test_statements_about_photographs_of_the_user(tmp_path: Path) -> None:
    file = write_rows(tmp_path, ["True", "False"])
    game = make_game("nlvr2", data=str(file), order="rows", size=100)
    for seed, truth in enumerate([True, False]):
        state = game.start_at(seed, np.random.default_rng(0))
        assert (state.statement, state.truth) == (f"Statement {seed}.", truth)
        assert "Objects are" not in game.prompt(state)
        assert state.statement in game.prompt(state)
        left, right = game.images(state)
        assert left[50, 50].tolist() == [40] * 3
        assert right[50, 50].tolist() == [200] * 3
        scored = score_response(game, state, game.respond(state, int(truth)), np.random.default_rng(0))
        assert (scored.game, scored.format, scored.perception) == (1.0, 1.0, None)
        assert game.from_json(game.to_json(state)) == state


def test_an_unlabelled_row_is_told(tmp_path: Path) -> None:
    file = write_rows(tmp_path, [True, -1])
    game = make_game("nlvr2", data=str(file), order="rows", bad_rows="fail")
    with pytest.raises(UsageError, match=r"row 1 .* unlabelled"):
        game.start_at(1, np.random.default_rng(0))


# Difficulty and images ----------------------------------------------------------------------------------------------


def test_scenes_of_another_configuration_are_refused() -> None:
    state = start(Nlvr2(Nlvr2Config.at(reasoning=5)), 1)
    easy = Nlvr2(Nlvr2Config.at(reasoning=1))
    with pytest.raises(StateError):
        easy.from_json(Nlvr2(Nlvr2Config.at(reasoning=5)).to_json(state))


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 2**32))
@settings(max_examples=15)
def test_every_level_makes_positions_that_are_accepted_back(perception: int, reasoning: int, seed: int) -> None:
    game = Nlvr2(Nlvr2Config.at(perception, reasoning))
    state = start(game, seed)
    assert game.from_json(game.to_json(state)) == state
    assert game.perceive(state, game.describe(state)) == (1.0, 1.0)


def test_keys() -> None:
    game = Nlvr2()
    assert [game.key_action(start(game, 0), key) for key in ("t", "y", "f", "n", "up")] == [1, 1, 0, 0, None]


GOLDEN = {
    1: "1fe7c532f7006e5424923cf0035c57bd8bed2468dbe62e2cec5c4df1c66342eb",
    3: "8890c455346197a4972a826fbb29747ab800126f8a3d4ae9c2f3f74996291f08",
    5: "51938b71970f443bc9cc3c2da26411917d495d09ecfe2ac0b4295927559fba95",
}
"""SHA-256 of the first images of seed 0 by perception level: the same on every machine."""


@pytest.mark.parametrize("level", sorted(GOLDEN))
def test_golden_images(level: int) -> None:
    game = Nlvr2(Nlvr2Config.at(perception=level, size=320))
    pixels = b"".join(image.tobytes() for image in game.draw(start(game, 0)))
    assert hashlib.sha256(pixels).hexdigest() == GOLDEN[level]
