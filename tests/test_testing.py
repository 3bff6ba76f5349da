"""Each conformance check finds the fault it is there for: games that are broken on purpose, one fault a class."""

import random
from collections.abc import Mapping, Sequence
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
from vlmgym.sandbox.core.coordinates import Pair
from vlmgym.sandbox.core.game import Game, ImageArray, Step
from vlmgym.sandbox.games.game2048.game import Config2048, Game2048, State2048
from vlmgym.sandbox.games.swap.game import Swap, SwapConfig, SwapState
from vlmgym.testing import CHECKS, check_game, check_name, run_check

REASONING: Levels = Config2048.levels["reasoning"]


class SameId(Game2048):
    """Another game with the id of 2048."""


class NoPage(Game2048):
    name = "no_page"


@dataclass
class LooseState:
    board: tuple[tuple[int, ...], ...]
    variation_seed: int = 0


class LoosePositions(Game2048):
    """Positions can be changed."""

    name = "loose_positions"
    State = LooseState  # type: ignore[assignment]


class UnmarkedConfig(Config2048):
    unmarked: int = 3


class UnmarkedField(Game2048):
    """A config field belongs to no difficulty."""

    Config = UnmarkedConfig


class WrongDifficultyConfig(Config2048):
    levels = with_board_perception({**REASONING, 1: {"noise": 0.1}})


class WrongDifficulty(Game2048):
    """The reasoning difficulty sets a perceptual config field."""

    Config = WrongDifficultyConfig


class MissingLevelConfig(Config2048):
    levels = with_board_perception({level: REASONING[level] for level in (1, 2, 3, 4)})


class MissingLevel(Game2048):
    """A difficulty has four levels."""

    Config = MissingLevelConfig


class EqualLevelsConfig(Config2048):
    levels = with_board_perception({**REASONING, **{level: {"rows": 5} for level in (2, 4, 5)}})


class EqualLevels(Game2048):
    """Three levels are the same."""

    Config = EqualLevelsConfig


class OtherDefaultConfig(Config2048):
    rows: int = config_field("reasoning", 5, "Rows.", ge=3, le=8)
    levels = with_board_perception({**REASONING, 3: {"rows": 4}})


class OtherDefault(Game2048):
    """Levels 3 and 3 are not the default."""

    Config = OtherDefaultConfig


class ImpossibleLevelConfig(Config2048):
    levels = with_board_perception({**REASONING, 1: {"rows": 50}})


class ImpossibleLevel(Game2048):
    """A level cannot be made."""

    Config = ImpossibleLevelConfig


class IgnoresGenerator(Game2048):
    """Chance that is not in the seed."""

    def start(self, rng: np.random.Generator) -> State2048:
        return super().start(np.random.default_rng())


class HashSeed(Game2048):
    """The hash of a string is different in every process."""

    def variation_seed(self, state: State2048) -> int:
        return hash("a string")

    def describe(self, state: State2048) -> str:
        return f"{super().describe(state)}\n{hash('a string')}"


class IgnoresSeed(Game2048):
    """The same episode for every seed."""

    def start(self, rng: np.random.Generator) -> State2048:
        return super().start(np.random.default_rng(0))

    def step(self, state: State2048, action: int, rng: np.random.Generator) -> Step[State2048]:
        return super().step(state, action, np.random.default_rng(0))


class UnseededActions(Game2048):
    """Random actions that no seed decides."""

    def random_action(self, rng: np.random.Generator) -> int:
        return int(np.random.default_rng().integers(4))


class ActionsOutsideTheSpace(Game2048):
    """Random actions that are not in the space."""

    def random_action(self, rng: np.random.Generator) -> int:
        return 4


class GlobalRandom(Game2048):
    """Uses the module random."""

    def start(self, rng: np.random.Generator) -> State2048:
        random.random()
        return super().start(rng)


class GlobalNumpyRandom(Game2048):
    """Uses the global generator of NumPy."""

    def describe(self, state: State2048) -> str:
        np.random.rand()  # noqa: NPY002
        return super().describe(state)


class GlobalRandomOracle(Game2048):
    """The oracle uses the module random."""

    def best_action(self, state: State2048) -> int | None:
        random.random()
        return super().best_action(state)


class GlobalRandomReasons(Game2048):
    """The explanation uses the module random."""

    def explain(self, state: State2048, action: int) -> str:
        return random.choice(("I like it.", "Why not?"))


class GlobalRandomParser(Game2048):
    """Reading an answer uses the module random."""

    def parse_answer(self, text: str) -> int:
        random.random()
        return super().parse_answer(text)


class LossyJson(Game2048):
    """JSON that forgets how the image looks."""

    def to_json(self, state: State2048) -> str:
        return super().to_json(State2048(state.board))


class TakesAnything(Game2048):
    """Any text is a position."""

    def from_json(self, text: str) -> State2048:
        try:
            return super().from_json(text)
        except Exception:
            return State2048(((0,) * 4,) * 4)


class HiddenScore(Game2048):
    """The reward depends on what the object has seen, not on the position alone."""

    def step(self, state: State2048, action: int, rng: np.random.Generator) -> Step[State2048]:
        step = super().step(state, action, rng)
        self.steps = getattr(self, "steps", 0) + 1
        return Step(step.state, float(self.steps), step.terminated)


class Counting(Game2048):
    """The description depends on how often it was asked for."""

    asked = count()

    def describe(self, state: State2048) -> str:
        return f"{super().describe(state)}\n{next(self.asked)}"


class AllLegal(Game2048):
    """Names actions that step refuses."""

    def legal_actions(self, state: State2048) -> tuple[int, ...]:
        return (0, 1, 2, 3)


class NegativeIndex(Game2048):
    """Takes -1 for the last action."""

    def step(self, state: State2048, action: int, rng: np.random.Generator) -> Step[State2048]:
        return super().step(state, action % 4, rng)


class RaisesIndexError(Game2048):
    """Refuses an action with another error than IllegalAction."""

    def step(self, state: State2048, action: int, rng: np.random.Generator) -> Step[State2048]:
        if action not in range(4):
            raise IndexError("no such direction")
        return super().step(state, action, rng)


class WastesChance(Game2048):
    """An illegal action moves the generator."""

    def step(self, state: State2048, action: int, rng: np.random.Generator) -> Step[State2048]:
        rng.random()
        return super().step(state, action, rng)


class NoReason(Game2048):
    """Does not say why an action is illegal."""

    def step(self, state: State2048, action: int, rng: np.random.Generator) -> Step[State2048]:
        try:
            return super().step(state, action, rng)
        except IllegalAction:
            raise IllegalAction from None


class AlwaysTerminated(Game2048):
    """Terminated and ended disagree."""

    def step(self, state: State2048, action: int, rng: np.random.Generator) -> Step[State2048]:
        return Step(super().step(state, action, rng).state, 0.0, True)


class InfiniteReward(Game2048):
    """A reward that no mean survives."""

    def step(self, state: State2048, action: int, rng: np.random.Generator) -> Step[State2048]:
        step = super().step(state, action, rng)
        return Step(step.state, float("inf"), step.terminated)


class TupleFacts(Game2048):
    """Facts that JSON changes."""

    def step(self, state: State2048, action: int, rng: np.random.Generator) -> Step[State2048]:
        step = super().step(state, action, rng)
        return Step(step.state, step.reward, step.terminated, {"place": (0, 1)})


class NeverEnds(Game2048):
    """No end where no move is left."""

    def ended(self, state: State2048) -> str | None:
        return None


class EndsAtOnce(Game2048):
    """An ended position with legal actions."""

    def ended(self, state: State2048) -> str | None:
        return "over"


class PlaysOn(Game2048):
    """Steps are possible after the end."""

    def ended(self, state: State2048) -> str | None:
        won = max(map(max, state.board)) >= 8
        return "won" if won else None if super().legal_actions(state) else "no move is left"

    def legal_actions(self, state: State2048) -> tuple[int, ...]:
        return () if self.ended(state) else super().legal_actions(state)

    def step(self, state: State2048, action: int, rng: np.random.Generator) -> Step[State2048]:
        after = super().step(state, action, rng).state
        return Step(after, 0.0, self.ended(after) is not None)


class IllegalOracle(Game2048):
    """The oracle's action is not in the game."""

    def best_action(self, state: State2048) -> int | None:
        return 7


class OracleLosesItsWay(Game2048):
    """The oracle's action is legal only in the first moves of a game."""

    def best_action(self, state: State2048) -> int | None:
        return super().best_action(state) if sum(map(sum, state.board)) < 20 else 7


class FickleOracle(Game2048):
    """The oracle depends on how often the class was asked."""

    asked = count()

    def best_action(self, state: State2048) -> int | None:
        legal = self.legal_actions(state)
        return legal[next(self.asked) % len(legal)]


class FormatsWrongly(Game2048):
    """Says another direction than it plays."""

    def format(self, action: int) -> str:
        return super().format((action + 1) % 4)


class GuessesTheAnswer(Game2048):
    """Takes a direction out of the prose."""

    def parse_answer(self, text: str) -> int:
        for index, word in enumerate(("up", "right", "down", "left")):
            if word in text:
                return index
        raise ParseError("no direction")


class GuessesAnything(Game2048):
    """Never fails to parse."""

    def parse(self, response: str) -> int:
        try:
            return super().parse(response)
        except ParseError:
            return 0


class LyingResponse(Game2048):
    """Its own responses describe another board."""

    def respond(self, state: State2048, action: int) -> str:
        return response_format.compose("2, 2", "", self.format(action))


class SilentPrompt(Game2048):
    """The prompt does not name the form of a response."""

    def prompt(self, state: State2048) -> str:
        return "Play!"


class FloatImage(Game2048):
    """Images are not uint8."""

    def draw(self, state: State2048) -> ImageArray:
        return super().draw(state).astype(np.float32)


class SharedImage(Game2048):
    """Hands out its cache."""

    def draw(self, state: State2048) -> ImageArray:
        cache: dict[State2048, ImageArray] = self.__dict__.setdefault("cache", {})
        return cache.setdefault(state, super().draw(state))


class TwoImages(Game2048):
    """Announces two images and draws one."""

    image_shapes = ((100, 100, 3), (100, 100, 3))


class BlankImage(Game2048):
    """The image shows nothing of the position."""

    def draw(self, state: State2048) -> ImageArray:
        return np.zeros((self.config.size, self.config.size, 3), np.uint8)


class WordyMetrics(Game2048):
    """A metric that is neither a number nor a word."""

    def metrics(self, state: State2048, infos: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        return {"board": state.board}


class EndlessMetric(Game2048):
    """A metric that no mean survives."""

    def metrics(self, state: State2048, infos: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        return {"turns": float("inf") if infos else 0}


class FactsKeptApart(Game2048):
    """A metric from the facts' identity, which no record keeps."""

    def metrics(self, state: State2048, infos: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        return {"kinds of facts": float(len(set(map(id, infos))) if isinstance(infos, tuple) else -1)}


class OtherSpace(Game2048):
    """Observations are not in the announced space."""

    observation_space = spaces.Box(0, 255, (3, 3, 3), np.uint8)


BROKEN: list[tuple[str, type[Game[Any, Any]], str]] = [
    ("identity", SameId, "the id 2048-v0 is registered for"),
    ("identity", NoPage, "no docstring"),
    ("identity", LoosePositions, "LooseState is no frozen dataclass"),
    ("config_fields", UnmarkedField, "unmarked has no difficulty"),
    ("config_fields", WrongDifficulty, "the difficulty reasoning sets noise, which is marked perception"),
    ("levels", MissingLevel, r"the difficulty reasoning has levels \[1, 2, 3, 4\]"),
    ("levels", EqualLevels, "levels 2 and 4, 2 and 5, 4 and 5 of reasoning are equal, but all five must differ"),
    ("levels", OtherDefault, "levels 3 and 3 are not the default"),
    ("levels", ImpossibleLevel, "UsageError: rows"),
    ("determinism", IgnoresGenerator, "played twice"),
    ("determinism_over_processes", HashSeed, "in two processes"),
    ("seeds", IgnoresSeed, "8 different seeds give the same episode"),
    ("random_actions", UnseededActions, "from the same generators"),
    ("random_actions", ActionsOutsideTheSpace, "the random action 4 is not in"),
    ("global_random_state", GlobalRandom, "the module random"),
    ("global_random_state", GlobalNumpyRandom, "numpy.random"),
    ("global_random_state", GlobalRandomOracle, "the module random"),
    ("global_random_state", GlobalRandomReasons, "the module random"),
    ("global_random_state", GlobalRandomParser, "the module random"),
    ("json_round_trip", LossyJson, "comes back from JSON as"),
    ("json_round_trip", TakesAnything, "from_json takes ''"),
    ("restored_episode", HiddenScore, "from a restored position, reward"),
    ("purity", Counting, "in another order"),
    ("legal_actions", AllLegal, "step refuses ., and legal_actions names it"),
    ("legal_actions", NegativeIndex, "step accepts -1"),
    ("legal_actions", RaisesIndexError, "IndexError: no such direction"),
    ("illegal_actions", WastesChance, "used the generator"),
    ("illegal_actions", NoReason, "without a reason"),
    ("steps", AlwaysTerminated, "terminated True, and ended says None"),
    ("steps", InfiniteReward, "the reward inf"),
    ("steps", TupleFacts, "change through JSON"),
    ("end", EndsAtOnce, "ended says 'over'"),
    ("end", PlaysOn, "in the ended position"),
    ("metrics", WordyMetrics, "no number and no word"),
    ("metrics", EndlessMetric, "the metric turns is inf"),
    ("metrics", FactsKeptApart, "metrics from a record"),
    ("oracle", IllegalOracle, "plays the illegal action 7"),
    ("oracle", OracleLosesItsWay, "plays the illegal action 7"),
    ("oracle", FickleOracle, "and then"),
    ("format_and_parse", FormatsWrongly, "which is read as"),
    ("format_and_parse", GuessesTheAnswer, "for the action"),
    ("format_and_parse", GuessesAnything, "for the action 0"),
    ("responses", LyingResponse, "the perception of"),
    ("prompt", SilentPrompt, "does not name <perception>"),
    ("images", FloatImage, "float32, not uint8"),
    ("images", SharedImage, "changes what is drawn next"),
    ("images", TwoImages, "draw returns shapes"),
    ("image_and_description", BlankImage, "one image has two descriptions"),
    ("environment", OtherSpace, "observation"),
]


@pytest.mark.parametrize(("check", "broken", "message"), BROKEN, ids=[f"{c}-{b.__name__}" for c, b, _ in BROKEN])
def test_a_check_finds_its_fault(check: str, broken: type[Game[Any, Any]], message: str) -> None:
    found = next(each for each in CHECKS if check_name(each) == check)
    with pytest.raises(AssertionError, match=f"^{check} fails for {broken.__name__}.*{message}"):
        run_check(found, broken(broken.Config(size=128)))


def test_every_check_has_a_fault_that_it_finds() -> None:
    assert {check for check, _, _ in BROKEN} == {check_name(check) for check in CHECKS}


def test_a_position_without_a_move_must_be_an_end() -> None:
    end = next(each for each in CHECKS if check_name(each) == "end")

    class StuckAtOnce(NeverEnds):
        """Starts where nothing moves."""

        def start(self, rng: np.random.Generator) -> State2048:
            return State2048(((2, 4, 2, 4), (4, 2, 4, 2)) * 2)

    with pytest.raises(AssertionError, match="ended says None, and the legal actions are"):
        run_check(end, StuckAtOnce(Config2048(size=128)))


def test_a_game_made_inside_a_function_cannot_be_played_by_workers() -> None:
    class Local(Game2048):
        """No other process finds it."""

    check = next(each for each in CHECKS if check_name(each) == "determinism_over_processes")
    with pytest.raises(AssertionError, match="made inside a function"):
        run_check(check, Local())


@pytest.mark.parametrize("broken", [AllLegal, GuessesTheAnswer])
def test_check_game_runs_the_checks(broken: type[Game[Any, Any]]) -> None:
    class Named(broken):  # type: ignore[misc, valid-type]
        """An id of its own."""

        name = "named"

    with pytest.raises(AssertionError, match="fails for"):
        check_game(Named(Config2048(size=128)), seeds=(0,))


class Speechless(Swap):
    """A game without an end and without an oracle."""

    name = "speechless"

    def best_action(self, state: SwapState) -> Pair | None:
        return None


def test_check_game_notes_what_was_not_reached() -> None:
    notes = check_game(Speechless(SwapConfig(size=200, rows=4, columns=4, colours=2, shapes=2)), seeds=(0, 3))
    assert [note.partition(" of ")[0] for note in notes] == ["end", "oracle"]
    assert "random play of 500 moves reached no end from the seeds 0, 3" in notes[0]
    assert "best_action knows no action" in notes[1]


def test_check_game_takes_an_id_and_levels() -> None:
    levels: Sequence[tuple[int, int]] = [(2, 5)]
    assert check_game("2048", levels=levels, seeds=(3,)) == []
    with pytest.raises(AssertionError, match="identity fails"):
        check_game(SameId, levels=levels)
    with pytest.raises(AssertionError, match="identity fails"):
        check_game(SameId(make_game("2048").config))
