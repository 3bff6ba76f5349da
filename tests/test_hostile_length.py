"""Scoring takes time linear in the length of any response.

Unlike other tests, these assert CPU times: the best of several tries, on texts each four times as long as the last, so
that a quadratic step fails at a few thousand characters instead of hanging at a million.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import chain, cycle, islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlmgym.sandbox.core.reward import score_response
from vlmgym.sandbox.registry import game_ids, make_game

LONGEST = 250_000
"""A quarter of the maximum length of a response (`MAX_TEXT`); a quadratic step would already take minutes here."""
SECONDS = 0.05
"""Maximum CPU time of scoring one response on an idle machine."""
BUSY = 4
"""Factor by which a busy machine may exceed `SECONDS`, if the time still grows linearly with the length."""
TRIES = 5

TAGS = tuple(f"<{mark}{name}>" for name in ("perception", "think", "thinking", "answer") for mark in ("", "/"))
SIGNS = (*"()[]{}<>,.;:|/%*_`'\"$\\+-=!?&#0123456789aA \t\n\r", "\\boxed{", "left:\n", "\n- ", "and", "<!--", "-->")
ACCENTS = "\N{COMBINING GRAVE ACCENT BELOW}\N{COMBINING ACUTE ACCENT}"
"""Unicode normalisation has to sort a run of these accents."""
UNICODE = (
    "\N{NO-BREAK SPACE}",
    "\N{IDEOGRAPHIC SPACE}",
    "\N{LINE SEPARATOR}",
    "\N{MINUS SIGN}",
    "\N{FULLWIDTH LEFT PARENTHESIS}",
    "\N{ARABIC-INDIC DIGIT THREE}",
    "\N{SUPERSCRIPT TWO}",
    "\N{LATIN SMALL LETTER SHARP S}",
    "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}",
    "\N{COMBINING ACUTE ACCENT}",
    ACCENTS,
    "\N{TIBETAN VOWEL SIGN II}",
    "\N{ARABIC LIGATURE SALLALLAHOU ALAYHE WASALLAM}",  # 18 characters in normal form KC
    "\N{ZERO WIDTH JOINER}",
    "\N{GRINNING FACE}",
    "\ud800",
)


Tokens = tuple[str, ...]
EVERYWHERE = ""
"""Name of the section for texts that are the whole response."""


@lru_cache
def grammar(game_id: str) -> tuple[Any, Any, dict[str, tuple[Tokens, ...]]]:
    """Return a game, a state, and the tokens of correct texts by section."""
    game = make_game(game_id)
    state = game.start_at(0, np.random.default_rng(0))
    action = game.best_action(state)
    description, answer = game.describe(state), game.answer.format(action)
    texts = {
        EVERYWHERE: [game.respond(state, action)],
        "perception": [description, *description.splitlines()[:3]],
        "answer": [answer, *answer.splitlines()[:1]],
    }
    tokens = {place: tuple(tuple(re.findall(r"\w+|\s+|.", text)) for text in said) for place, said in texts.items()}
    return game, state, tokens


def seconds(game: Any, state: Any, response: str) -> float:
    """Return the best CPU time of scoring a response in up to `TRIES` tries, stopping at the first below `SECONDS`."""
    taken = []
    for _ in range(TRIES):
        begun = time.thread_time()
        score_response(game, state, response, np.random.default_rng(0))
        taken.append(time.thread_time() - begun)
        if taken[-1] < SECONDS:
            break
    return min(taken)


def check(game_id: str, place: str, build: Callable[[int], str]) -> None:
    """Check that scoring time stays low as texts made by `build`, placed in the section `place`, grow longer."""
    game, state, _ = grammar(game_id)
    score_response(game, state, "", np.random.default_rng(0))  # imports and tables must not count
    length, before = 250, 0.0
    while length < LONGEST:
        length = min(4 * length, LONGEST)
        text = build(length)
        taken = seconds(game, state, f"<{place}>{text}</{place}>" if place else text)
        in_time = taken < SECONDS or taken < min(BUSY * SECONDS, 6 * before)
        assert in_time, f"{taken:.3f} s for {length} characters, {before:.3f} s for a quarter of them"
        before = taken


def repeated(unit: str, length: int) -> str:
    return (unit * (length // len(unit) + 1))[:length]


def stretched(tokens: Tokens, fillers: Sequence[str], end: str, length: int) -> str:
    """Return a text of about this length: the tokens, each followed by filler, and the end."""
    gaps = (repeated(filler, length // len(tokens)) for filler in islice(cycle(fillers), len(tokens)))
    return "".join(chain.from_iterable(zip(tokens, gaps))) + end


@pytest.mark.parametrize("game_id", game_ids())
@pytest.mark.parametrize("filler", [" ", ACCENTS], ids=["blanks", "accents"])
def test_long_runs_between_tokens_take_linear_time(game_id: str, filler: str) -> None:
    for place, texts in grammar(game_id)[2].items():
        for tokens in (*texts, texts[0][:1]):
            check(game_id, place, partial(stretched, tokens, [filler], "x"))


@pytest.mark.parametrize("before", ["", "<answer>", "<answer ", "<!--"])
@pytest.mark.parametrize("bomb", ["<answer", "<answer ", "<answer a=1", "</perception", "<perception><think>", "<!--"])
def test_unclosed_tags_take_linear_time(bomb: str, before: str) -> None:
    check("2048", EVERYWHERE, lambda length: f"{before}{repeated(bomb, length)}</answer>")


@pytest.mark.parametrize("game_id", game_ids())
@settings(max_examples=2)
@given(data=st.data())
def test_any_filler_between_tokens_takes_linear_time(game_id: str, data: st.DataObject) -> None:
    places = grammar(game_id)[2]
    place = data.draw(st.sampled_from([*places]))
    tokens = data.draw(st.sampled_from(places[place]))
    first = data.draw(st.integers(0, len(tokens) - 1))
    last = data.draw(st.integers(first, len(tokens) - 1))
    fillers = data.draw(st.lists(st.sampled_from((*SIGNS, *UNICODE)), min_size=1, max_size=2))
    end = data.draw(st.sampled_from(("", "x", ")", "</perception>", "</answer>")))
    check(game_id, place, partial(stretched, tokens[first : last + 1], fillers, end))


@pytest.mark.parametrize("game_id", game_ids())
@settings(max_examples=2)
@given(data=st.data())
def test_any_repetition_takes_linear_time(game_id: str, data: st.DataObject) -> None:
    places = grammar(game_id)[2]
    place = data.draw(st.sampled_from([*places, "think"]))
    own = places[EVERYWHERE][0]
    unit = st.lists(st.one_of(*map(st.sampled_from, (own, TAGS, SIGNS, UNICODE))), min_size=1, max_size=6)
    parts = data.draw(st.lists(st.tuples(*[unit.map("".join)] * 2), min_size=1, max_size=4))

    def build(length: int) -> str:
        return "".join(fixed + repeated(unit, length // len(parts)) for fixed, unit in parts)

    check(game_id, place, build)
