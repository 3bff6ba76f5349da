"""The form of a response: what is accepted, and that nothing else is guessed at."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmgym.errors import ParseError
from vlmgym.sandbox import response_form
from vlmgym.sandbox.response_form import compose, format_reward, section

LONGEST_ANSWER = 200


def answer(response: str) -> str:
    return response_form.answer(response, LONGEST_ANSWER)


GOOD = compose("0, 2", "because", "up")
TAGS = [f"<{slash}{name}>" for name in response_form.SECTIONS for slash in ("", "/")]

plain = st.text(st.characters(blacklist_characters="<>"), max_size=40)


@given(plain, plain, plain.map(str.strip).filter(bool))
def test_sections_of_a_composed_response_are_what_was_put_in(perception: str, think: str, word: str) -> None:
    response = compose(perception, think, word)
    assert section(response, "perception") == perception.strip()
    assert section(response, "think") == think.strip()
    assert answer(response) == word
    assert format_reward(response) == 1.0


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        ("", "no <answer>"),
        ("up", "no <answer>"),
        ("up</answer>", "no <answer>"),
        ("<ANSWER>up</ANSWER>", "no <answer>"),
        ("< answer>up</ answer>", "no <answer>"),
        ("<answer >up</answer >", "no <answer>"),
        ("\\boxed{up}", "no <answer>"),
        ("<answer>up", "not closed"),
        ("</answer>up<answer>", "not closed"),
        ("<answer>up</answer", "not closed"),
        ("<answer>up</answer><answer>up</answer>", "2 <answer> sections"),
        ("<answer>up</answer><answer>", "2 <answer> sections"),
        ("<answer>up</answer></answer>", "2 <answer> sections"),
        ("<answer><answer>up</answer></answer>", "2 <answer> sections"),
        ("<answer>" * 7 + "up", "7 <answer> sections"),
        ("<think>so <answer>up</answer></think><answer>down</answer>", "2 <answer> sections"),
        ("<think>I write <answer> next</think><answer>down</answer>", "2 <answer> sections"),
        ("<answer></answer>", "empty"),
        ("<answer> \n\t\u3000</answer>", "empty"),
        (f"<answer>{'x' * (LONGEST_ANSWER + 1)}</answer>", f"{LONGEST_ANSWER + 1} characters"),
    ],
)
def test_whatever_is_not_exactly_one_answer_is_an_error_that_says_what_was_wrong(response: str, problem: str) -> None:
    with pytest.raises(ParseError, match=problem) as caught:
        answer(response)
    assert "\n" not in str(caught.value)


def test_an_answer_may_be_as_long_as_the_limit_and_blanks_around_it_do_not_count() -> None:
    word = "x" * LONGEST_ANSWER
    assert answer(f"<answer>{' ' * 1000}{word}\n</answer>") == word


@pytest.mark.parametrize("word", ["上", "e\u0301", "\u202eup", "a\x00b", "\x1b[31mred", "\ud800", "👍🏽", "a\r\nb"])
def test_an_answer_is_never_changed(word: str) -> None:
    assert answer(compose("", "", word)) == word


@pytest.mark.parametrize(
    "response",
    [
        "",
        "up",
        "<answer>up</answer>",
        compose("", "", "up").replace("<think></think>", ""),
        compose("", "", "up").replace("</think>", ""),
        compose("", "", "up").replace("</answer>", ""),
        compose("", "", "up").replace("<perception>", ""),
        "<think></think><perception></perception><answer>up</answer>",
        "<answer>up</answer><perception></perception><think></think>",
        "<perception><think></think></perception><answer>up</answer>",
        "<perception><think></perception></think><answer>up</answer>",
        "</perception><perception><think></think><answer>up</answer>",
        "<think></think>" + GOOD,
        "Sure! " + GOOD,
        GOOD + " Good luck!",
        GOOD.replace("</think>", "</think> and"),
        GOOD + GOOD,
        GOOD + "</answer>",
        GOOD.upper(),
        "\x00" + GOOD,
        "\u200b" + GOOD,
    ],
)
def test_format_reward_is_zero_but_for_the_exact_form(response: str) -> None:
    assert format_reward(response) == 0.0


def test_format_reward_allows_blanks_around_sections_and_does_not_judge_their_content() -> None:
    assert format_reward(GOOD) == 1.0
    assert format_reward(f"\n {GOOD} \n\n") == 1.0
    assert format_reward(GOOD.replace("\n", "")) == 1.0
    assert format_reward(compose("", "a < b > c </p> <b>", "")) == 1.0


@given(st.lists(st.one_of(st.sampled_from(TAGS), plain), max_size=12).map("".join))
def test_the_exact_form_always_has_sections_and_one_answer_at_most(response: str) -> None:
    reward = format_reward(response)
    assert reward in (0.0, 1.0)
    if reward:
        for name in response_form.SECTIONS:
            section(response, name)
    if response.count("<answer>") != 1:
        with pytest.raises(ParseError):
            answer(response)


HOSTILE = [
    "<answer>" * 1_250_000,
    "<answer" * 1_430_000,
    "<" * 10_000_000,
    " " * 10_000_000,
    "<perception>" + "\n" * 10_000_000,
    "<perception>" * 400_000 + "</perception>" * 400_000,
    "<answer>" + " " * 10_000_000 + "up</answer>",
    compose("[" * 5_000_000, "<think" * 800_000, "up"),
]


@pytest.mark.parametrize("response", HOSTILE, ids=range(len(HOSTILE)))
def test_ten_megabytes_are_read_in_a_number_of_steps_that_does_not_grow_with_them(response: str) -> None:
    """Counts executed lines of Python instead of time: the work left is that of linear string methods."""
    lines = 0

    def count(frame: object, event: str, argument: object) -> object:
        nonlocal lines
        lines += 1
        return count

    outside = sys.gettrace()
    sys.settrace(count)  # type: ignore[arg-type]
    try:
        format_reward(response)
        for name in response_form.SECTIONS:
            try:
                section(response, name)
            except ParseError as error:
                assert len(str(error)) < 200  # noqa: PT017
    finally:
        sys.settrace(outside)
    assert lines < 200
