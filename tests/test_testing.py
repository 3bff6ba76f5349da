"""Each conformance check finds the fault in a deliberately broken game."""

import random
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from vlmgym.errors import ParseError
from vlmgym.sandbox.answers.choice import Directions
from vlmgym.sandbox.core import response_format
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import Game, Step
from vlmgym.sandbox.games.game2048 import Config2048, Game2048, State2048
from vlmgym.sandbox.games.swap import Swap, SwapConfig
from vlmgym.testing import CHECKS, check_game, check_name, run_check

CHECK = {check_name(check): check for check in CHECKS}
SMALL = Config2048(size=128)


def fault(check: str, message: str, title: str, game: type[Game[Any, Any]] | None = None, /, **members: Any) -> Any:
    """Make a test case: a check, a broken game (by default 2048 with `members` replaced), and the expected message."""
    broken = game or type(title, (Game2048,), {"__doc__": "Broken.", "__module__": __name__, **members})
    return pytest.param(check, broken, message, id=f"{check}-{title}")


def directions(**members: Any) -> Any:
    """Directions with members replaced."""
    return type("Replaced", (Directions,), members)(Game2048.answer.verbs)


class UnmarkedConfig(Config2048):
    unmarked: int = 3


class EqualConfig(Config2048):
    rows: int = config_field("reasoning", [6, 5, 4, 5, 5], "Rows.", ge=3, le=8)
    columns: int = config_field("reasoning", 4, "Columns.", ge=3, le=8)


class HashSeed(Game2048):
    """Uses the hash of a string, which differs between processes."""

    def describe(self, state):
        return f"{super().describe(state)}\n{hash('a string')}"


class Reseeded(Game2048):
    def start(self, rng):
        return super().start(np.random.default_rng(0))

    def step(self, state, action, rng):
        return super().step(state, action, np.random.default_rng(0))


def random_start(self, rng):
    random.random()
    return Game2048.start(self, rng)


def step_with_tuple(self, state, action, rng):
    return replace(Game2048.step(self, state, action, rng), info={"cells": (0, 1)})


def reward_of_calls(self, state, action, rng):
    step = Game2048.step(self, state, action, rng)
    self.steps = getattr(self, "steps", 0) + 1
    return Step(step.state, float(self.steps))


class WorstOracle(Game2048):
    def best_action(self, state):
        return min(
            self.legal_actions(state), key=lambda action: self.step(state, action, np.random.default_rng(0)).reward
        )


class UnseededActions(Game2048):
    """Draws random actions from a generator of its own."""

    answer = directions(sample=lambda self, rng: int(np.random.default_rng().integers(4)))


class CopiedRules(Swap):
    prompt_template = Game2048.prompt_template


def first_direction_in_prose(self, text):
    for index, word in enumerate(("up", "right", "down", "left")):
        if word in text:
            return index
    raise ParseError("no direction")


def draw_from_cache(self, state):
    cache = self.__dict__.setdefault("cache", {})
    return cache.setdefault(state, Game2048.draw(self, state))


calls = count()

FAULTS = [
    fault("identity", "the id 2048-v0 is registered for", "SameId"),
    fault("new_rules", "100% of the prompt is that of 2048-v0", "CopiedRules", CopiedRules),
    fault("levels", "unmarked has no difficulty", "Unmarked", Config=UnmarkedConfig),
    fault("levels", "levels 2 and 4, 2 and 5, 4 and 5 of reasoning are equal", "EqualLevels", Config=EqualConfig),
    fault("determinism_over_processes", "in two processes", "HashSeed", HashSeed),
    fault("seeds", "8 different seeds give the same episode", "Reseeded", Reseeded),
    fault("determinism_over_processes", "in two processes", "UnseededActions", UnseededActions),
    fault("global_random_state", "state of random", "RandomStart", start=random_start),
    fault(
        "json_round_trip",
        "becomes .* through JSON",
        "LossyJson",
        to_json=lambda self, state: Game2048.to_json(self, State2048(state.board)),
    ),
    fault("restored_episode", "restored from a snapshot, reward", "HiddenCount", step=reward_of_calls),
    fault(
        "purity",
        "in a different order",
        "CountedDescription",
        describe=lambda self, state: f"{Game2048.describe(self, state)}\n{next(calls)}",
    ),
    fault("types", "start returns None, expected State2048", "StartsNowhere", start=lambda self, rng: None),
    fault("legal_actions", "step rejects .* in legal_actions", "AllLegal", legal_actions=lambda self, state: range(4)),
    fault("steps", "an info that JSON changes", "TupleInfo", step=step_with_tuple),
    fault("end", "ended returns 'over'", "EndsAtStart", ended=lambda self, state: "over"),
    fault(
        "metrics",
        "expected a number or a string",
        "TupleMetric",
        metrics=lambda self, state, infos: {"board": state.board},
    ),
    fault("oracle", "plays the illegal action 7", "IllegalOracle", best_action=lambda self, state: 7),
    fault("skill", "the oracle scores only -.* more than random legal", "WorstOracle", WorstOracle),
    fault(
        "format_and_parse",
        "which is parsed as",
        "WrongFormat",
        answer=directions(format=lambda self, action: Directions.format(self, (action + 1) % 4)),
    ),
    fault("format_and_parse", "as the action", "ReadsProse", answer=directions(parse=first_direction_in_prose)),
    fault(
        "responses",
        "the perception of",
        "WrongPerception",
        respond=lambda self, state, action: response_format.compose("2, 2", "", self.answer.format(action)),
    ),
    fault("prompt", "does not mention <perception>", "ShortPrompt", prompt=lambda self, state: "Play!"),
    fault(
        "images",
        "float32, not uint8",
        "FloatImage",
        draw=lambda self, state: Game2048.draw(self, state).astype(np.float32),
    ),
    fault("images", "changes the next image", "SharedImage", draw=draw_from_cache),
    fault(
        "image_and_description",
        "one image has two descriptions",
        "BlankImage",
        draw=lambda self, state: np.zeros((self.config.size, self.config.size, 3), np.uint8),
    ),
    fault("environment", "observation", "OtherShapes", image_shapes=((3, 3, 3),)),
]


@pytest.mark.parametrize(("check", "broken", "message"), FAULTS)
def test_check_finds_its_fault(check: str, broken: type[Game[Any, Any]], message: str) -> None:
    with pytest.raises(AssertionError, match=f"^{check} fails for {broken.__name__}.*{message}"):
        run_check(CHECK[check], broken(broken.Config(size=128)))


def test_every_check_has_a_fault() -> None:
    assert {param.values[0] for param in FAULTS} == set(CHECK)


def test_a_state_without_legal_actions_must_be_final() -> None:
    class Stuck(Game2048):
        """Does not end when no move is left."""

        def start(self, rng):
            return State2048(((2, 4, 2, 4), (4, 2, 4, 2)) * 2)

        def ended(self, state):
            return None

    with pytest.raises(AssertionError, match="ended returns None, but the legal actions are"):
        run_check(CHECK["end"], Stuck(SMALL))


class EndlessSwap(Swap):
    """Has no end and no oracle."""

    name = "endless_swap"

    def best_action(self, state):
        return None


def test_check_game_notes_what_was_not_reached() -> None:
    notes = check_game(EndlessSwap(SwapConfig(size=200, rows=4, columns=4, colours=2, shapes=2)), seeds=(0, 3))
    assert [note.partition(" of ")[0] for note in notes] == ["end", "oracle"]
    assert "500 random moves reached no end with the seeds 0, 3" in notes[0]
    assert "best_action returned no action" in notes[1]


def test_check_game_reports_all_failures() -> None:
    class Faulty(Game2048):
        """Plays an illegal action, draws blank images and has a short prompt."""

        name = "faulty"

        def best_action(self, state):
            return 7

        def prompt(self, state):
            return "Play!"

        def draw(self, state):
            return np.zeros((3, 3, 3), np.uint8)

    with pytest.raises(AssertionError) as caught:
        check_game(Faulty, levels=[(1, 1), (3, 3)], seeds=(0,))
    failed = [line.partition(" fails for Faulty(")[0] for line in str(caught.value).splitlines()]
    assert {"oracle", "prompt", "images", "determinism_over_processes"} <= set(failed)
    assert len(failed) == len(set(failed))
