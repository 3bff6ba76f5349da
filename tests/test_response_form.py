"""Grammar of responses: a response needs exactly one answer, and nothing is guessed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vlmgym import make_game
from vlmgym.cli.main import main
from vlmgym.errors import ParseError
from vlmgym.evaluation import open_run
from vlmgym.pages.document import marked
from vlmgym.sandbox.core.response_format import MOST_TAGS, compose, parse_response
from vlmgym.sandbox.core.reward import Outcome, score_response

LONGEST_ANSWER = 200
THOUGHTS = [
    "think", "thinking", "thought", "thoughts", "reason", "reasoning", "reflection", "analysis", "scratchpad", "cot",
    "inner_monologue", "internal_monologue", "antThinking", "seed:think", "perception", "prediction",
]  # fmt: skip
TOKENS = (
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
)
"""Special tokens around thoughts, which servers without a reasoning parser leave in the text."""


def answer(response: str) -> str:
    return parse_response(response).answer(LONGEST_ANSWER)


def format_reward(response: str) -> float:
    return parse_response(response).format_reward(LONGEST_ANSWER)


GOOD = compose("0, 2", "because", "up")

plain = st.text(st.characters(blacklist_characters="<>"), max_size=40)


@given(plain, plain, plain.map(str.strip).filter(bool))
def test_composed_sections_are_parsed_back(perception: str, think: str, word: str) -> None:
    parsed = parse_response(compose(perception, think, word))
    assert parsed.perception == perception.strip()
    assert parsed.answer(LONGEST_ANSWER) == word
    assert parsed.format_reward(LONGEST_ANSWER) == 1.0


# Answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "response",
    [
        "<answer>up</answer>",
        "I slide. <answer>up</answer> Done.",
        "<ANSWER>up</ANSWER>",
        "<answer\n>up</answer\t>",
        '<answer id="1">up</answer>',
        "<answer>up</answer><perception>after it</perception><!-- too -->",
        "an arrow --> and <answer>up</answer> --> another",
        "<answers>down</answers><answer>up</answer>",
    ],
)
def test_the_only_answer_outside_thoughts_counts(response: str) -> None:
    assert answer(response) == "up"


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        ("", "has no <answer>$"),
        ("up", "has no <answer>$"),
        ("< answer>up</ answer>", "has no <answer>$"),
        ("\uff1canswer\uff1eup\uff1c/answer\uff1e", "has no <answer>$"),
        ("<an\u017fwer>up</an\u017fwer>", "has no <answer>$"),
        ("</answer>up<answer>", "not closed"),
        ("<answer>up</answer", "not closed"),
        ("<answer/>", "<answer/> is empty"),
        ("<answer>up</answer><answer>up</answer>", "2 <answer> sections"),
        ("<answer>up</answer><ANSWER>up</ANSWER>", "2 <answer> sections"),
        ("<answer>up</answer><answer/>", "2 <answer> sections"),
        ("<answer><answer>up</answer></answer>", "2 <answer> sections"),
        ("<answer>" * 7 + "up", "7 <answer> sections"),
        ("<think>I go <answer>up</answer>", "ends inside <think>"),
        ("<answer>up</answer><think>I had to</think>", "outside its thoughts"),
        ("<answer>up</answer><think>wait, rather <answer>down", "ends inside <think>"),
        ("<!-- <answer>up</answer> -->", "outside its thoughts"),
        ("<!-- </think> <answer>up</answer> -->", "outside its thoughts"),
        ("<perception>a <think>b</think> <answer>up</answer></perception>", "outside its thoughts"),
        ("<answer>up <think>or down</think></answer>", "has no <answer>"),
        ("<answer>up <perception>or down</perception></answer>", "a thought or a comment inside"),
        ("<answer>up <!-- or down --></answer>", "a thought or a comment inside"),
        ("<answer> \n\t\u3000</answer>", "empty"),
        (f"<answer>{'x' * (LONGEST_ANSWER + 1)}</answer>", f"{LONGEST_ANSWER + 1} characters"),
        ("<think/>" * MOST_TAGS + "<answer>up</answer>", "more than 10,000 tags"),
    ],
)
def test_other_responses_are_parse_errors(response: str, problem: str) -> None:
    with pytest.raises(ParseError, match=problem) as caught:
        answer(response)
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)
    assert format_reward(response) == 0.0


# Thoughts, by properties ----------------------------------------------------------------------------------------------


def spelled(name: str, slash: str = "") -> st.SearchStrategy[str]:
    """Draw a tag in upper, lower or title case, possibly with attributes."""
    cases = st.sampled_from([name, name.upper(), name.title()])
    attributes = st.sampled_from(["", "", " ", "\n", ' id="1"', " class='x' hidden"])
    return st.tuples(cases, attributes).map(lambda pair: f"<{slash}{pair[0]}{pair[1]}>")


def section(name: str, content: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(spelled(name), content, spelled(name, "/")).map("".join)


prose = st.sampled_from(["", " ", "I see 2 < 4. ", "so -> up ", "\n", "a</b> "])
secret = section("answer", st.just("secret"))
mention = st.one_of(*(spelled(name) for name in (*THOUGHTS, "answer")), st.just("<!--"), spelled("answer", "/"))
musing = st.lists(st.one_of(prose, secret, mention), max_size=4).map("".join)


def closed_thought(content: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Draw closed thoughts: sections with a matching closing tag, or complete comments."""
    return st.one_of(*(section(name, content) for name in THOUGHTS), musing.map(lambda text: f"<!--{text}-->"))


token_thought = st.sampled_from(TOKENS).flatmap(lambda pair: musing.map(lambda text: text.join(pair)))
plain_thought = closed_thought(st.lists(st.one_of(prose, secret), max_size=3).map("".join))
unclosed_thought = st.tuples(st.one_of(*map(spelled, THOUGHTS), st.just("<!--")), prose, secret, prose).map("".join)
opened_in_prompts = [name for name in THOUGHTS if name not in ("perception", "prediction")]
template_thought = st.tuples(musing, st.one_of(*(spelled(name, "/") for name in opened_in_prompts))).map("".join)


@given(st.lists(st.one_of(prose, plain_thought, closed_thought(plain_thought)), max_size=4).map("".join), prose)
def test_an_answer_after_closed_thoughts_is_read(before: str, after: str) -> None:
    assert answer(f"{before}<answer>up</answer>{after}") == "up"


@given(template_thought, st.lists(st.one_of(prose, plain_thought), max_size=3).map("".join))
def test_an_answer_after_a_thought_opened_in_the_prompt_is_read(thought: str, more: str) -> None:
    assert answer(f"{thought}{more}<answer>up</answer>") == "up"


@given(st.one_of(section("think", musing), token_thought), secret.map(lambda text: text.replace("secret", "up")))
@example("<think><!-- </think>", "<answer>up</answer>")
def test_closed_thoughts_may_contain_anything(thought: str, good: str) -> None:
    assert answer(thought + good) == "up"


@given(
    st.lists(st.one_of(prose, plain_thought, closed_thought(plain_thought)), max_size=3).map("".join),
    st.one_of(unclosed_thought, template_thought, section("think", musing), plain_thought, token_thought, st.just("")),
)
def test_an_answer_in_a_thought_is_never_read(before: str, last: str) -> None:
    with pytest.raises(ParseError):
        answer(before + last)


# Perception -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "perception"),
    [
        (GOOD, "0, 2"),
        ("<PERCEPTION a=1> 0, 2\n</Perception >", "0, 2"),
        ("<perception>0, 2</perception><think>a <perception> I gave</think>", "0, 2"),
        ("<think>I will write <perception>8</perception></think><perception>0, 2</perception>", "0, 2"),
        ("<perception>0, 2 <!--</perception><think></think>", "0, 2 <!--"),
        ("<perception></perception>", ""),
        ("", None),
        ("<perception>0, 2", None),
        ("<perception/>", None),
        ("<perception>0</perception><perception>2</perception>", None),
        ("<perception>0</perception><PERCEPTION>0</PERCEPTION>", None),
        ("<think><perception>0, 2</perception></think>", None),
        ("<perception>0, 2</perception></think><answer>up</answer>", None),
        ("<!-- <perception>0, 2</perception> -->", None),
    ],
)
def test_the_only_perception_outside_other_thoughts_is_scored(response: str, perception: str | None) -> None:
    assert parse_response(response).perception == perception


# The documented form --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "response",
    [
        "", "up", "<answer>up</answer>", compose("", "", ""), compose("", "", "x" * (LONGEST_ANSWER + 1)),
        compose("", "", "up").replace("<think></think>", ""), compose("", "", "up").replace("<perception>", ""),
        "<think></think><perception></perception><answer>up</answer>",
        "<answer>up</answer><perception></perception><think></think>",
        "<perception><think></think></perception><answer>up</answer>",
        "<perception><think></perception></think><answer>up</answer>",
        "</perception><perception><think></think><answer>up</answer>", "Sure! " + GOOD,
        GOOD.replace("</think>", "</think> and"), GOOD + GOOD, GOOD.upper(), GOOD.replace("<answer>", "<answer >"),
        GOOD.replace("<think>", '<think id="1">'), GOOD.replace("think>", "thinking>"),
        GOOD.replace("because", "<answer>left</answer>"), GOOD.replace("up", "up <!-- or down -->"),
        GOOD + "<!-- done -->", "\u200b" + GOOD,
    ],
)  # fmt: skip
def test_only_the_exact_format_is_rewarded(response: str) -> None:
    assert format_reward(response) == 0.0


def test_a_prediction_belongs_to_the_format_where_it_is_asked_for() -> None:
    parsed = parse_response(compose("0, 2", "because", "up", "2, 0"))
    assert parsed.prediction == "2, 0"
    assert (parsed.format_reward(LONGEST_ANSWER), parsed.format_reward(LONGEST_ANSWER, True)) == (0.0, 1.0)
    assert parse_response(GOOD).prediction is None
    assert parse_response(GOOD).format_reward(LONGEST_ANSWER, True) == 0.0
    assert parse_response(compose("", "<prediction>2</prediction>", "up")).prediction is None
    assert parse_response("<prediction>2</prediction>" * 2 + "<answer>up</answer>").prediction is None
    assert parse_response("<prediction>2</prediction></think><answer>up</answer>").prediction is None


def test_another_tag_of_the_reasoning(tmp_path: Path) -> None:
    """It is in prompt, demonstrations, format reward and record."""
    game = make_game("2048", size=64, think_tag="reasoning")
    state = game.start(np.random.default_rng(0))
    response, prompt = game.respond(state, game.best_action(state)), game.prompt(state)
    assert "<reasoning>your reasoning</reasoning>" in prompt
    assert "think>" not in prompt + response
    for written, expected in ((response, 1.0), (response.replace("reasoning>", "think>"), 0.0)):
        scored = score_response(game, state, written, np.random.default_rng(0))
        assert (scored.outcome, scored.format, scored.perception) == (Outcome.PLAYED, expected, (1.0, 1.0))
    assert game.fingerprint != make_game("2048", size=64).fingerprint
    options = ["--policy", "oracle", "--think-tag", "reasoning", "--size", "64", "--episodes", "1", "--max-turns", "2"]
    main(["eval", "2048", *options, "--videos", "0", "--no-report", "--output-dir", str(tmp_path / "run")])
    (recorded,) = open_run(tmp_path / "run").config.games
    assert recorded.config["think_tag"] == "reasoning"


# Everything ----------------------------------------------------------------------------------------------------------


anything = st.lists(
    st.one_of(
        prose, mention, plain, st.sampled_from(["<!--", "-->", "<answer/>"]), *(spelled(name, "/") for name in THOUGHTS)
    ),
    max_size=12,
).map("".join)


@given(anything)
def test_spans_cover_what_is_read(response: str) -> None:
    parsed, pieces = parse_response(response), marked(response)
    assert "".join(text for _, text in pieces) == response
    assert ("answer" in dict(pieces)) == (parsed.fault is None)
    assert ("perception" in dict(pieces)) == (parsed.perception is not None)
    assert ("prediction" in dict(pieces)) == (parsed.prediction is not None)
