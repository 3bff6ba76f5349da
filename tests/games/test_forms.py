"""Forms: clicks and typing fill in the form; only what was asked for counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.games.puzzles import RNG, scores
from vlmgym import make_game
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.envs.human import Player
from vlmgym.sandbox.games.forms import Forms, FormsConfig, FormsState, elements

GAME = Forms(FormsConfig(fields=4, tasks=2, confirm=True, size=200))
LABELS = ("Name", "Insurance", "Size", "Country")
BEFORE = ("-", "on", "small", "Peru")
STATE = FormsState(LABELS, BEFORE, BEFORE, ("Anna", "on", "small", "Spain"), "plain", 0, False)


def click(state: FormsState, what: str, field: int = -1, option: str = "") -> FormsState:
    """Click on the middle of an element."""
    (element,) = (e for e in elements(state)[::-1] if e[:3] == (what, field, option))
    x, y = round((element.left + element.right) / 2), round((element.top + element.bottom) / 2)
    return GAME.step(state, f"click ({x}, {y})", RNG).state


def fill(state: FormsState) -> FormsState:
    """Fill in what is asked for."""
    state = GAME.step(click(state, "field", 0), "type Anna", RNG).state
    return click(click(state, "field", 3), "option", 3, "Spain")


def test_a_form_that_is_filled_in_as_asked_scores_one() -> None:
    state = fill(STATE)
    assert state.values == STATE.wanted
    state = click(state, "send")
    assert GAME.describe(state) == "yes, no"
    assert GAME.ended(click(state, "no")) is None
    assert click(state, "no").values == state.values
    step = GAME.step(state, "click (365, 575)", RNG)
    assert (step.reward, GAME.ended(step.state)) == (1.0, "the form has been sent")


@pytest.mark.parametrize(
    ("values", "reward"),
    [
        (("Anna", "on", "small", "Peru"), 0.5),
        (("Anna", "off", "small", "Spain"), 0.5),  # another field changed
        (("Ben", "on", "small", "Spain"), 0.5),
        (("Ben", "off", "large", "Spain"), 0.0),
        (BEFORE, 0.0),
    ],
)
def test_wrong_and_other_changes_cost(values: tuple[str, ...], reward: float) -> None:
    state = replace(STATE, values=values, status="dialog")
    assert GAME.step(state, "click (365, 575)", RNG).reward == reward


def test_check_boxes_radio_buttons_lists_and_focus() -> None:
    assert click(STATE, "field", 1).values[1] == "off"
    assert click(STATE, "option", 2, "large").values[2] == "large"
    opened = click(STATE, "field", 3)
    assert GAME.describe(opened) == "France, Japan, Kenya, Peru, Spain"
    assert GAME.step(opened, "click (10, 10)", RNG).state == STATE
    assert click(opened, "option", 2, "large") == STATE  # only closes the list
    assert GAME.step(STATE, "type Anna", RNG).state == STATE
    assert GAME.ended(click(STATE, "cancel")) == "the form has been cancelled"


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_the_oracle_fills_in_cropped_and_scaled_screens(level: int) -> None:
    game = make_game("forms", perception=level, reasoning=level, size=64)
    assert scores(game, range(10), 30) == [1.0] * 10


def test_a_person_clicks_on_the_image() -> None:
    game = make_game("forms", reasoning=1, size=200)
    player = Player(Episode(game, 0))
    (box,) = (e for e in elements(player.episode.state) if e.what == "cancel")
    assert player.click(int((box.left + box.right) / 10), int((box.top + box.bottom) / 10)) is not None
    assert player.episode.ended == "the form has been cancelled"
