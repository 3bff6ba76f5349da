"""VQA: data are read as documented, and answers are equal only if they mean the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.colours import RED, write_rows
from vlmgym.errors import UsageError
from vlmgym.sandbox.core.reward import Outcome, score_response
from vlmgym.sandbox.games.scenes.questions import SceneQuestions
from vlmgym.sandbox.games.vqa import Vqa, VqaConfig, agreement, normalise

# Answers --------------------------------------------------------------------------------------------------------------


def test_responses_are_parsed_and_scored() -> None:
    game = SceneQuestions()
    state = game.start(np.random.default_rng(0))
    right = state.answers[0]
    for text, reward, outcome in (
        (f" The {right.upper()}. ", 1.0, Outcome.PLAYED),
        ("something else", 0.0, Outcome.PLAYED),
        ("yes or no", 0.0, Outcome.PLAYED),
        ("two\nlines", 0.0, Outcome.UNPARSABLE),
        ("x" * 101, 0.0, Outcome.UNPARSABLE),
        ("a\x00", 0.0, Outcome.UNPARSABLE),
        ("", 0.0, Outcome.UNPARSABLE),
    ):
        scored = score_response(game, state, f"<answer>{text}</answer>", np.random.default_rng(0))
        assert (scored.game, scored.outcome, scored.terminated) == (reward, outcome, True), text


# Data -----------------------------------------------------------------------------------------------------------------


def photographs(file: str, **overrides: Any) -> Vqa:
    return Vqa(VqaConfig.at(data=file, **overrides))


def test_questions_from_data(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"question": "What is it?", "answer": "a cat", "type": "object"},
        {"question": "How many?", "answer": 2, "type": None},
        {"question": "Which colour?", "answer": ["red", "crimson"]},
    ]
    game = photographs(write_rows(tmp_path, *rows), order="rows", size=100)
    first, second, third = (game.start_at(seed, np.random.default_rng(0)) for seed in range(3))
    assert (first.type, first.question, first.answers) == ("object", "What is it?", ("a cat",))
    assert (second.type, second.answers, third.answers) == ("", ("2",), ("red", "crimson"))
    for state, text in ((first, "Cat."), (second, "two"), (third, "crimson")):
        assert game.score(state, text)[0] == 1.0
        assert game.from_json(game.to_json(state)) == state
        assert game.perceive(state, "anything") is None
        assert "Each object is" not in game.prompt(state)
    assert game.score(third, "blue")[0] == 0.0
    assert game.images(first)[0][50, 50].tolist() == [*RED]


def test_agreement_of_several_annotators(tmp_path: Path) -> None:
    answers = [{"answer": word, "answer_id": i} for i, word in enumerate(["red"] * 2 + ["pink"] * 8)]
    file = write_rows(tmp_path, {"question": "Which colour?", "answers": answers})
    game = photographs(file, agreement=3)
    state = game.start_at(0, np.random.default_rng(0))
    assert game.score(state, "red")[0] == pytest.approx(2 / 3)
    assert game.score(state, "The Pink!")[0] == 1.0
    assert game.best_action(state) == "pink"
    assert agreement("red", state.answers) == 2
    assert photographs(file).score(state, "red")[0] == 1.0


@pytest.mark.parametrize(
    ("answers", "solution"),
    [
        (["cat", "", "cat"], "cat"),
        (["cat", None], "cat"),
        ([{"answer": "cat"}, {"answer": None}], "cat"),
        (["two\nlines", "cat"], "cat"),
        (True, "yes"),
        (7, "7"),
    ],
)
def test_empty_and_long_answers_are_ignored(tmp_path: Path, answers: object, solution: str) -> None:
    game = photographs(write_rows(tmp_path, {"question": "What?", "answers": answers}), bad_rows="fail")
    state = game.start_at(0, np.random.default_rng(0))
    assert game.solution(state) == solution
    assert game.score(state, solution)[0] == 1.0


@pytest.mark.parametrize(
    "answer", [None, "", [], [None], {"text": "cat"}, "word " * 40, "two\nlines", "<answer>", "a</answer>"]
)
def test_a_row_without_a_possible_answer_is_bad(tmp_path: Path, answer: object) -> None:
    file = write_rows(tmp_path, {"question": "What?", "answer": answer})
    with pytest.raises(UsageError, match=r"row 0 .* is bad: .*answer"):
        photographs(file, bad_rows="fail").start_at(0, np.random.default_rng(0))


# Equal answers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The red one.", "red 1"), ("A CIRCLE", "circle"), ("None", "0"), ("yes!", "Yes"), ("**Yes**!", "yes"),
        ("('yes').", "yes"), ("t-shirt", "T\N{NON-BREAKING HYPHEN}Shirt"),
        ("don\N{RIGHT SINGLE QUOTATION MARK}t", "don't"), ("traffic   light", "the traffic light"),
        ("traffic_light", "traffic light"), ("red, blue and green", "red,blue and green"), ("50 %", "50%"),
        ("1 / 2", "1/2"), ("東京。", "東京"), ("a\u0589", "a"), ("a\u1362", "a"), ("a\u17d4", "a"),
        ("3\uff1f", "3"), ("yes\u060c", "yes"),
        ("cafe\N{COMBINING ACUTE ACCENT}", "caf\N{LATIN SMALL LETTER E WITH ACUTE}"),
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
        ("red or blue", "red"), ("star", "stars"), ("3!", "3"), ("$3", "3"), ("#3", "3"),
        ("3%", "3"), ("3+", "3"), (".3", "3"),
    ],
)  # fmt: skip
def test_different_answers(one: str, other: str) -> None:
    assert normalise(one) != normalise(other)
