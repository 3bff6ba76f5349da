"""Each conformance check finds its fault in a game that is broken on purpose."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from vlmgym import make_game
from vlmgym.errors import IllegalAction, ParseError
from vlmgym.sandbox.core import response_format
from vlmgym.sandbox.core.board_game import with_board_perception
from vlmgym.sandbox.core.config import Levels, config_field
from vlmgym.sandbox.core.game import Game, Step
from vlmgym.sandbox.games.game2048.game import Config2048, Game2048, State2048
from vlmgym.sandbox.games.swap.game import Swap, SwapConfig
from vlmgym.testing import CHECKS, check_game, check_name, run_check

REASONING: Levels = Config2048.levels["reasoning"]
CHECK = {check_name(check): check for check in CHECKS}
SMALL = Config2048(size=128)


def fault(check: str, message: str, title: str, game: type[Game[Any, Any]] | None = None, /, **members: Any) -> Any:
    """A check, a broken game and its message; the game is 2048 with other members unless it is given."""
    broken = game or type(title, (Game2048,), {"__doc__": "Broken.", "__module__": __name__, **members})
    return pytest.param(check, broken, message, id=f"{check}-{title}")


def with_levels(name: str, reasoning: Levels) -> dict[str, Any]:
    return {"Config": type(name, (Config2048,), {"levels": with_board_perception(reasoning), "__module__": __name__})}


@dataclass
class MutableState:
    board: tuple[tuple[int, ...], ...]
    variation_seed: int = 0


class UnmarkedConfig(Config2048):
    unmarked: int = 3


class OtherDefaultConfig(Config2048):
    rows: int = config_field("reasoning", 5, "Rows.", ge=3, le=8)
    levels = with_board_perception({**REASONING, 3: {"rows": 4}})


class HashSeed(Game2048):
    """The hash of a string differs between processes, which import this class."""

    def variation_seed(self, state):
        return hash("a string")

    def describe(self, state):
        return f"{super().describe(state)}\n{hash('a string')}"


class Reseeded(Game2048):
    def start(self, rng):
        return super().start(np.random.default_rng(0))

    def step(self, state, action, rng):
        return super().step(state, action, np.random.default_rng(0))


def use_global_random(method):
    """Wrap a method so that it uses the module `random` first."""

    def wrapped(*args):
        random.random()
        return method(*args)

    return wrapped


def describe_with_numpy_random(self, state):
    np.random.rand()  # noqa: NPY002
    return Game2048.describe(self, state)


def read_any_json(self, text):
    try:
        return Game2048.from_json(self, text)
    except Exception:
        return State2048(((0,) * 4,) * 4)


def change_step(**changes):
    """Return a `step` that replaces fields of its result."""

    def step(self, state, action, rng):
        made = Game2048.step(self, state, action, rng)
        kept = {"state": made.state, "reward": made.reward, "terminated": made.terminated}
        return Step(**{**kept, **changes})

    return step


def reward_of_calls(self, state, action, rng):
    step = Game2048.step(self, state, action, rng)
    self.steps = getattr(self, "steps", 0) + 1
    return Step(step.state, float(self.steps), step.terminated)


def raise_index_error(self, state, action, rng):
    if action not in range(4):
        raise IndexError("no such direction")
    return Game2048.step(self, state, action, rng)


def draw_before_checking(self, state, action, rng):
    rng.random()
    return Game2048.step(self, state, action, rng)


def raise_without_reason(self, state, action, rng):
    try:
        return Game2048.step(self, state, action, rng)
    except IllegalAction:
        raise IllegalAction from None


class PlaysOn(Game2048):
    """Accepts actions after the end."""

    def ended(self, state):
        won = max(map(max, state.board)) >= 8
        return "won" if won else None if super().legal_actions(state) else "no move is left"

    def legal_actions(self, state):
        return () if self.ended(state) else super().legal_actions(state)

    def step(self, state, action, rng):
        after = super().step(state, action, rng).state
        return Step(after, 0.0, self.ended(after) is not None)


class AlternatingOracle(Game2048):
    calls = count()

    def best_action(self, state):
        legal = self.legal_actions(state)
        return legal[next(self.calls) % len(legal)]


def first_direction_in_prose(self, text):
    for index, word in enumerate(("up", "right", "down", "left")):
        if word in text:
            return index
    raise ParseError("no direction")


def parse_anything(self, response):
    try:
        return Game2048.parse(self, response)
    except ParseError:
        return 0


def draw_from_cache(self, state):
    cache = self.__dict__.setdefault("cache", {})
    return cache.setdefault(state, Game2048.draw(self, state))


calls = count()

FAULTS = [
    fault("identity", "the id 2048-v0 is registered for", "SameId"),
    fault("identity", "no docstring", "NoDocstring", __doc__=None, name="no_docstring"),
    fault("identity", "MutableState is not a frozen", "Mutable", name="mutable", State=MutableState),
    fault("config_fields", "unmarked has no difficulty", "Unmarked", Config=UnmarkedConfig),
    fault(
        "config_fields",
        "reasoning sets noise, which belongs to perception",
        "OtherDifficulty",
        **with_levels("NoiseConfig", {**REASONING, 1: {"noise": 0.1}}),
    ),
    fault(
        "levels",
        r"reasoning has levels \[1, 2, 3, 4\]",
        "MissingLevel",
        **with_levels("MissingConfig", {level: REASONING[level] for level in (1, 2, 3, 4)}),
    ),
    fault(
        "levels",
        "levels 2 and 4, 2 and 5, 4 and 5 of reasoning are equal",
        "EqualLevels",
        **with_levels("EqualConfig", {**REASONING, **{level: {"rows": 5} for level in (2, 4, 5)}}),
    ),
    fault("levels", "levels 3 and 3 are not the default", "OtherDefault", Config=OtherDefaultConfig),
    fault(
        "levels",
        "UsageError: rows",
        "ImpossibleLevel",
        **with_levels("ImpossibleConfig", {**REASONING, 1: {"rows": 50}}),
    ),
    fault(
        "determinism",
        "played twice",
        "UnseededStart",
        start=lambda self, rng: Game2048.start(self, np.random.default_rng()),
    ),
    fault("determinism_over_processes", "in two processes", "HashSeed", HashSeed),
    fault("seeds", "8 different seeds give the same episode", "Reseeded", Reseeded),
    fault(
        "random_actions",
        "with the same generators",
        "UnseededActions",
        random_action=lambda self, rng: int(np.random.default_rng().integers(4)),
    ),
    fault("random_actions", "the random action 4 is not in", "OutsideTheSpace", random_action=lambda self, rng: 4),
    *(
        fault("global_random_state", "state of random", f"Random_{name}", **{name: use_global_random(method)})
        for name, method in (
            ("start", Game2048.start),
            ("best_action", Game2048.best_action),
            ("explain", Game2048.explain),
            ("parse_answer", Game2048.parse_answer),
        )
    ),
    fault("global_random_state", "state of numpy.random", "NumpyRandom", describe=describe_with_numpy_random),
    fault(
        "json_round_trip",
        "becomes .* through JSON",
        "LossyJson",
        to_json=lambda self, state: Game2048.to_json(self, State2048(state.board)),
    ),
    fault("json_round_trip", "from_json reads '' as", "AnyText", from_json=read_any_json),
    fault("restored_episode", "restored from a snapshot, reward", "HiddenCount", step=reward_of_calls),
    fault(
        "purity",
        "in a different order",
        "CountedDescription",
        describe=lambda self, state: f"{Game2048.describe(self, state)}\n{next(calls)}",
    ),
    fault("legal_actions", "step rejects .* in legal_actions", "AllLegal", legal_actions=lambda self, state: range(4)),
    fault(
        "legal_actions",
        "step accepts -1",
        "NegativeIndex",
        step=lambda self, state, action, rng: Game2048.step(self, state, action % 4, rng),
    ),
    fault("legal_actions", "IndexError: no such direction", "RaisesIndexError", step=raise_index_error),
    fault("illegal_actions", "used the generator", "DrawsFirst", step=draw_before_checking),
    fault("illegal_actions", "without a reason", "NoReason", step=raise_without_reason),
    fault(
        "steps",
        "terminated=True, but ended returns None",
        "AlwaysTerminated",
        step=change_step(terminated=True),
    ),
    fault("steps", "the reward inf", "InfiniteReward", step=change_step(reward=float("inf"))),
    fault("steps", "an info that JSON changes", "TupleInInfo", step=change_step(info={"cell": (0, 1)})),
    fault("end", "ended returns 'over'", "EndsAtStart", ended=lambda self, state: "over"),
    fault("end", "in the final state", "PlaysOn", PlaysOn),
    fault(
        "metrics",
        "expected a number or a string",
        "TupleMetric",
        metrics=lambda self, state, infos: {"board": state.board},
    ),
    fault(
        "metrics",
        "the metric turns is inf",
        "InfiniteMetric",
        metrics=lambda self, state, infos: {"turns": float("inf") if infos else 0},
    ),
    fault(
        "metrics",
        "metrics from JSON",
        "MetricOfIdentity",
        metrics=lambda self, state, infos: {
            "infos": float(len(set(map(id, infos))) if isinstance(infos, tuple) else -1)
        },
    ),
    fault("oracle", "plays the illegal action 7", "IllegalOracle", best_action=lambda self, state: 7),
    fault(
        "oracle",
        "plays the illegal action 7",
        "OracleFailsLater",
        best_action=lambda self, state: Game2048.best_action(self, state) if sum(map(sum, state.board)) < 20 else 7,
    ),
    fault("oracle", "plays ., then .", "AlternatingOracle", AlternatingOracle),
    fault(
        "format_and_parse",
        "which is parsed as",
        "WrongFormat",
        format=lambda self, action: Game2048.format(self, (action + 1) % 4),
    ),
    fault("format_and_parse", "as the action", "ReadsProse", parse_answer=first_direction_in_prose),
    fault("format_and_parse", "as the action 0", "ReadsAnything", parse=parse_anything),
    fault(
        "responses",
        "the perception of",
        "WrongPerception",
        respond=lambda self, state, action: response_format.compose("2, 2", "", self.format(action)),
    ),
    fault("prompt", "does not mention <perception>", "ShortPrompt", prompt=lambda self, state: "Play!"),
    fault(
        "images",
        "float32, not uint8",
        "FloatImage",
        draw=lambda self, state: Game2048.draw(self, state).astype(np.float32),
    ),
    fault("images", "changes the next image", "SharedImage", draw=draw_from_cache),
    fault("images", "draw returns shapes", "OneOfTwoImages", image_shapes=((100, 100, 3), (100, 100, 3))),
    fault(
        "image_and_description",
        "one image has two descriptions",
        "BlankImage",
        draw=lambda self, state: np.zeros((self.config.size, self.config.size, 3), np.uint8),
    ),
    fault("environment", "observation", "OtherSpace", observation_space=spaces.Box(0, 255, (3, 3, 3), np.uint8)),
]


@pytest.mark.parametrize(("check", "broken", "message"), FAULTS)
def test_check_finds_its_fault(check: str, broken: type[Game[Any, Any]], message: str) -> None:
    with pytest.raises(AssertionError, match=f"^{check} fails for {broken.__name__}.*{message}"):
        run_check(CHECK[check], broken(broken.Config(size=128)))


def test_every_check_has_a_fault() -> None:
    assert {param.values[0] for param in FAULTS} == set(CHECK)


def test_a_state_without_legal_actions_must_be_final() -> None:
    class Stuck(Game2048):
        """Never ends, although no move is left."""

        def start(self, rng):
            return State2048(((2, 4, 2, 4), (4, 2, 4, 2)) * 2)

        def ended(self, state):
            return None

    with pytest.raises(AssertionError, match="ended returns None, but the legal actions are"):
        run_check(CHECK["end"], Stuck(SMALL))


def test_a_class_inside_a_function_cannot_be_imported_by_workers() -> None:
    class Local(Game2048):
        pass

    with pytest.raises(AssertionError, match="defined in a function"):
        run_check(CHECK["determinism_over_processes"], Local())


def test_check_game_runs_the_checks() -> None:
    class AllLegal(Game2048):
        """Lists actions that step rejects."""

        name = "all_legal"

        def legal_actions(self, state):
            return range(4)

    with pytest.raises(AssertionError, match="fails for AllLegal"):
        check_game(AllLegal(SMALL), seeds=(0,))


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


def test_check_game_accepts_ids_classes_and_games() -> None:
    class SameId(Game2048):
        """Has the id of 2048."""

    levels: Sequence[tuple[int, int]] = [(2, 5)]
    assert check_game("2048", levels=levels, seeds=(3,)) == []
    for game in (SameId, SameId(make_game("2048").config)):
        with pytest.raises(AssertionError, match="identity fails"):
            check_game(game, levels=levels)
