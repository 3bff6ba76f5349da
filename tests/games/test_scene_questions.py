"""Scene questions: answers match the scene and cannot be guessed from the question."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
from scipy.special import chdtrc

from tests.games import scene_oracle
from vlmgym.sandbox.games.scenes.questions import SceneQuestions, SceneQuestionsConfig, SceneQuestionsState
from vlmgym.sandbox.games.scenes.scene import SIZES

QUESTIONS = 2000
RARE = 0.001
"""Significance level of the chi-squared tests."""


def start(game: SceneQuestions, seed: int) -> SceneQuestionsState:
    return game.start(np.random.default_rng(seed))


def possible_answers(question: str, config: SceneQuestionsConfig) -> tuple[str, ...]:
    """Derive the possible answers to a question from its text."""
    if question.startswith("How many objects are"):
        return tuple(map(str, range(config.min_objects)))
    if question.startswith("How many"):
        return tuple(map(str, range(config.min_objects + 1)))
    if question.startswith("Is there"):
        return "yes", "no"
    asked = question.split()[1]
    return {"colour": config.vocabulary.colours, "shape": config.vocabulary.shapes, "size": SIZES}[asked]


@pytest.fixture(scope="module")
def config() -> SceneQuestionsConfig:
    """A config with small scenes, so that questions repeat often."""
    chosen = SceneQuestionsConfig.at(1, 1, relations=True)
    assert isinstance(chosen, SceneQuestionsConfig)
    return chosen


@pytest.fixture(scope="module")
def states(config: SceneQuestionsConfig) -> list[SceneQuestionsState]:
    game = SceneQuestions(config)
    return [start(game, seed) for seed in range(QUESTIONS)]


# Truth ----------------------------------------------------------------------------------------------------------------


def test_answers_match_the_scenes(states: list[SceneQuestionsState]) -> None:
    for state in states:
        assert (scene_oracle.answer(state.question, state.scene),) == state.answers, state
    assert Counter(state.type for state in states).keys() == {"counting", "attribute", "existence"}


# No shortcuts ---------------------------------------------------------------------------------------------------------


def test_all_answers_to_a_question_are_equally_likely(
    states: list[SceneQuestionsState], config: SceneQuestionsConfig
) -> None:
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for state in states:
        counts[state.type, state.question][state.answers[0]] += 1
    total = {"counting": [0.0, 0], "attribute": [0.0, 0], "existence": [0.0, 0]}
    tests = 0
    for (kind, question), seen in counts.items():
        answers = possible_answers(question, config)
        assert seen.keys() <= set(answers)
        expected = seen.total() / len(answers)
        if expected < 5:
            continue
        statistic = sum((seen[answer] - expected) ** 2 / expected for answer in answers)
        assert chdtrc(len(answers) - 1, statistic) > RARE / 100, (question, seen)
        total[kind][0] += statistic
        total[kind][1] += len(answers) - 1
        tests += 1
    assert tests > 30
    for kind, (statistic, freedom) in total.items():
        assert chdtrc(freedom, statistic) > RARE, kind
