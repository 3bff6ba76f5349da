"""Diagnose the turns of a saved run: where each of them went wrong, from the recorded states alone.

An answer is judged twice: on the board that the response states in `<perception>`, and on the true one. An answer that
fits the stated board but not the true one is a mistake in seeing; any other mistake is one in the rules or in planning.
Where no board is stated, or the answer cannot be judged on a wrong one, the turn has no such cause.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import chain
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, PositiveInt

from vlmgym.errors import GameError, IllegalAction, UsageError
from vlmgym.evaluation.summary import states_perception
from vlmgym.runs.record import EpisodeRecord, RunRecord, TurnRecord, recorded_states
from vlmgym.runs.store import StoredEpisode
from vlmgym.sandbox.answers.choice import DIRECTIONS
from vlmgym.sandbox.core.board_game import BoardGame
from vlmgym.sandbox.core.episode import game_errors
from vlmgym.sandbox.core.game import NO_CHANCE, ChanceNeeded, Game, Step
from vlmgym.sandbox.core.perception import read_grid
from vlmgym.sandbox.core.response_format import INSTRUCTIONS_START, parse_response
from vlmgym.sandbox.core.reward import PARTLY, Outcome
from vlmgym.statistics import LEVEL, Share, clustered_share

Cause = Literal["none", "see", "know", "plan", "repeat", "unparsable", "unjudged", "unclear"]
CAUSES: Mapping[Cause, str] = {
    "see": "the stated board is wrong, and the answer is better there",
    "know": "illegal on the stated board, too",
    "plan": "legal, but not best on the stated board",
    "repeat": "the same invalid answer again",
    "unparsable": "no readable answer",
    "unjudged": "the stated board is wrong, and the answer cannot be judged there",
    "unclear": "no board stated that can be checked",
}
"""Causes of wrong turns."""
STAGES = ("see", "know", "plan", "act")
EXAMPLES = 4
"""Maximum number of example turns for each cause, from different episodes."""
MOST_MOVES = 1000
"""Maximum number of moves in which an oracle's plan must end the game."""


class Worth(IntEnum):
    """What an answer is worth on a board, from worst to best; `LEGAL` if it was not compared with a best move."""

    ILLEGAL = 0
    WORSE = 1
    LEGAL = 2
    BEST = 3


class TurnDiagnosis(NamedTuple):
    """Diagnosis of a turn.

    Attributes:
        seed: Seed of the episode.
        turn: Number of the turn, from 1.
        seen: Whether the stated board is the true one; None if none is stated, or there is no ground truth.
        stated: Worth of the answer on the stated board, or on the true one if none is stated, but the prompt described
            it. None if the answer is unparsable, no board is known, or the game cannot have it. If the board is wrong,
            a legal answer is compared with the oracle's only where it is `WORSE` on the true board, because oracles
            take long on boards that play does not lead to.
        true: Worth of the answer on the true board; None if it is unparsable.
        after_invalid: Whether the answer of the turn before was invalid, and the state has not changed.
        repeated: Whether this is the same invalid answer again.
        returned: Whether the turn before led back to an earlier state; None if it did not change the state.
        rule: The broken rule, which is the feedback without cells, numbers and directions; empty if legal.
        rule_shown: Whether the prompt of the turn had the game's rules.
    """

    seed: int
    turn: int
    seen: bool | None
    stated: Worth | None
    true: Worth | None
    after_invalid: bool
    repeated: bool
    returned: bool | None
    rule: str
    rule_shown: bool

    @property
    def cause(self) -> Cause:
        """First stage that explains a wrong turn."""
        if self.true is not None and self.true >= Worth.LEGAL:
            return "none"
        if self.repeated:
            return "repeat"
        if self.true is None:
            return "unparsable"
        if self.stated is None:
            return "unclear" if self.seen is None else "unjudged"
        if self.stated > self.true:
            return "see"
        return "know" if self.stated is Worth.ILLEGAL else "plan"

    @property
    def path(self) -> tuple[str, str, str, str]:
        """Result of each of the `STAGES`."""
        see = {None: "not known", True: "right", False: "wrong"}[self.seen]
        if self.stated is None:
            know = plan = "not known"
        else:
            know = "illegal" if self.stated is Worth.ILLEGAL else "legal"
            plan = self.stated.name.lower()
        act = "unparsable" if self.true is None else "repeated" if self.repeated else self.true.name.lower()
        return see, know, plan, act


class Rate(Share):
    """A share of `total` turns; turns of an episode are not independent, see `clustered_share`."""

    total: int


class Path(BaseModel):
    """Number of turns with the same result of each of the `STAGES`."""

    model_config = ConfigDict(frozen=True)

    stages: tuple[str, str, str, str]
    turns: int


class BrokenRule(BaseModel):
    """A rule that illegal answers broke, in the words of the feedback.

    Attributes:
        rule: The feedback, without cells, numbers and directions.
        turns: Number of illegal turns.
        shown: Number of these turns whose prompt had the game's rules.
    """

    model_config = ConfigDict(frozen=True)

    rule: str
    turns: int
    shown: int


class GameDiagnosis(BaseModel):
    """Diagnosis of a game.

    Attributes:
        episodes: Number of episodes with a turn.
        turns: Number of turns.
        causes: Share of the turns that went wrong for each cause.
        rates: Shares of the turns to which they apply, by name.
        paths: Results of the stages, the most frequent first.
        rules: Broken rules, the most frequent first.
        examples: Seeds and turns for each cause, from different episodes.
    """

    model_config = ConfigDict(frozen=True)

    episodes: int
    turns: PositiveInt
    causes: dict[Cause, Rate]
    rates: dict[str, Rate]
    paths: tuple[Path, ...]
    rules: tuple[BrokenRule, ...]
    examples: dict[Cause, tuple[tuple[int, int], ...]]


class Diagnosis(BaseModel):
    """Diagnosis of a run: `diagnose.json`.

    Attributes:
        diagnose: Version of this format.
        run: Configuration of the run.
        level: Confidence level of all intervals.
        games: Diagnosis of each game with a turn, by id.
    """

    model_config = ConfigDict(frozen=True)

    diagnose: Literal[1] = 1
    run: RunRecord
    level: float = LEVEL
    games: dict[str, GameDiagnosis]


RATES: Mapping[str, Callable[[TurnDiagnosis], bool | None]] = {
    "board stated right": lambda turn: turn.seen,
    "legal on the stated board": lambda turn: None if turn.stated is None else turn.stated > Worth.ILLEGAL,
    "best, if the stated board is right and the answer legal": lambda turn: _is_best(turn.true) if turn.seen else None,
    "legal on the true board": lambda turn: turn.true is not None and turn.true > Worth.ILLEGAL,
    "best on the true board, if legal": lambda turn: _is_best(turn.true),
    "invalid answer repeated in the next turn": lambda turn: turn.repeated if turn.after_invalid else None,
    "state seen before, after a move": lambda turn: turn.returned,
    "rules in the prompt, if illegal": lambda turn: turn.rule_shown if turn.true is Worth.ILLEGAL else None,
}
"""Shares of turns by name; None leaves out a turn."""


def _is_best(worth: Worth | None) -> bool | None:
    return worth is Worth.BEST if worth in (Worth.WORSE, Worth.BEST) else None


def diagnose_game(episodes: Sequence[Sequence[TurnDiagnosis]]) -> GameDiagnosis:
    """Combine the diagnoses of all turns of a game, of which there must be at least one."""
    turns = [*chain(*episodes)]

    def rate(applies: Callable[[TurnDiagnosis], bool | None]) -> Rate | None:
        values = [[value for turn in episode if (value := applies(turn)) is not None] for episode in episodes]
        totals = [*map(len, values)]
        return Rate(**dict(clustered_share([*map(sum, values)], totals)), total=sum(totals)) if any(totals) else None

    def share_of(cause: Cause) -> Rate | None:
        return rate(lambda turn: turn.cause == cause)

    rates = {name: rate(applies) for name, applies in RATES.items()}
    rules = Counter(turn.rule for turn in turns if turn.rule)
    return GameDiagnosis(
        episodes=sum(map(bool, episodes)),
        turns=len(turns),
        causes={cause: share for cause in CAUSES if (share := share_of(cause)) is not None},
        rates={name: share for name, share in rates.items() if share is not None},
        paths=tuple(Path(stages=path, turns=n) for path, n in Counter(turn.path for turn in turns).most_common()),
        rules=tuple(
            BrokenRule(rule=rule, turns=n, shown=sum(turn.rule == rule and turn.rule_shown for turn in turns))
            for rule, n in rules.most_common()
        ),
        examples={cause: _examples(episodes, cause) for cause in CAUSES},
    )


def _examples(episodes: Sequence[Sequence[TurnDiagnosis]], cause: Cause) -> tuple[tuple[int, int], ...]:
    firsts = (next((turn for turn in episode if turn.cause == cause), None) for episode in episodes)
    return tuple((turn.seed, turn.turn) for turn in firsts if turn is not None)[:EXAMPLES]


def diagnose_episode(stored: StoredEpisode) -> list[TurnDiagnosis]:
    """Diagnose the turns of an episode.

    Raises:
        UsageError: The record cannot be read, or the game is not installed.
        GameError: The game failed.
    """
    episode = stored.read()
    with stored.named(), game_errors(episode.game.id, episode.seed, None, UsageError):
        return [*_diagnosed(episode, episode.game.game())]


def _diagnosed(episode: EpisodeRecord, game: Game[Any, Any]) -> Iterator[TurnDiagnosis]:
    judge = Judge(game)
    before: tuple[Any, TurnRecord] | None = None
    last, earlier = "", set[str]()
    for state, turn in zip(recorded_states(game, episode), episode.turns):
        actions = [] if turn.action is None else game.recorded_actions(turn.action)
        seen, stated, true = _seen(turn), None, None
        if actions:
            worth = judge.worth(state, actions)
            true = Worth.ILLEGAL if turn.outcome is Outcome.ILLEGAL else worth
            is_told = true is worth  # else an action was illegal after a random effect, which no board before it tells
            if is_told and (seen or (seen is None and episode.prompts.has_descriptions)):
                stated = true
            elif is_told and seen is False:
                try:
                    with game_errors(game.id, episode.seed, turn.turn):
                        board = _stated_state(game, state, turn.response)
                        stated = None if board is None else judge.worth(board, actions, compare=true is Worth.WORSE)
                except GameError:  # the rules of a game need not hold for boards that play does not lead to
                    pass
        invalid = turn.outcome is not Outcome.PLAYED
        after_invalid = before is not None and before[0] == state
        repeated = invalid and before is not None and after_invalid and _same_answer(before[1], turn)
        before = (state, turn) if invalid else None
        key = game.to_json(state)
        returned = key in earlier if last and key != last else None
        last = key
        earlier.add(key)
        yield TurnDiagnosis(
            episode.seed,
            turn.turn,
            seen,
            stated,
            true,
            after_invalid,
            repeated,
            returned,
            _rule(game, state, turn.feedback) if true is Worth.ILLEGAL else "",
            _rules(game, state) in f"{turn.system}\n{turn.prompt}",
        )


def _seen(turn: TurnRecord) -> bool | None:
    """Return whether the board is stated as it is; None if it is not stated, or there is no ground truth."""
    exact = turn.reward.perception_exact
    return None if exact is None or not states_perception(turn.response) else exact == 1.0


def _stated_state(game: Game[Any, Any], state: Any, response: str) -> Any:
    """Return the state that the response describes; None if there is none, or it is one in which the game has ended."""
    perception = parse_response(response).perception
    if perception is None or not isinstance(game, BoardGame):
        return None
    stated = game.described_state(state, perception)
    return None if stated is None or game.ended(stated) is not None else stated


def _same_answer(before: TurnRecord, turn: TurnRecord) -> bool:
    if turn.action is None:
        return before.action is None and before.response == turn.response
    return before.action == turn.action


def _rule(game: Game[Any, Any], state: Any, feedback: str) -> str:
    """Replace cells, numbers, directions and names such as `red circle` in a feedback by three dots."""
    feedback = feedback.partition(", because ")[2] if feedback.startswith(PARTLY) else feedback
    names = {word for word in chain(*read_grid(game.describe(state))) if " " in word}
    words = "|".join([*map(re.escape, sorted(names, key=len, reverse=True)), *DIRECTIONS, r"\d+"])
    return re.sub(rf"\(-?\d+, -?\d+\)|\b(?:{words})\b", "...", feedback)


def _rules(game: Game[Any, Any], state: Any) -> str:
    """Return the game's prompt without the response format."""
    return game.prompt(state).partition(INSTRUCTIONS_START)[0].strip()


class Judge:
    """Judge answers by the rules and the oracle of a game."""

    def __init__(self, game: Game[Any, Any]) -> None:
        self.game = game
        self._values: dict[str, tuple[float, int] | None] = {}

    def worth(self, state: Any, actions: Sequence[Any], compare: bool = True) -> Worth:
        """Return what an answer is worth in a state that has not ended: what its worst action is worth there.

        Actions that follow an illegal one, or one with random effects, do not count.

        Args:
            state: The state.
            actions: Actions of the answer, at least one.
            compare: Compare legal actions with the oracle's.
        """
        worst = Worth.BEST
        for action in actions:
            try:
                step = self.game.step(state, action, NO_CHANCE)
            except IllegalAction:
                return Worth.ILLEGAL
            except ChanceNeeded:
                return min(worst, self._legal_worth(state, action, None, compare))
            worst = min(worst, self._legal_worth(state, action, step, compare))
            state = step.state
            if self.game.ended(state) is not None:
                break
        return worst

    def _legal_worth(self, state: Any, action: Any, step: Step[Any] | None, compare: bool) -> Worth:
        """Return what a legal action is worth; `step` is its effect, None if it is random."""
        game = self.game
        best = game.best_action(state) if compare else None
        if best is None:
            return Worth.LEGAL
        if game.is_as_good(state, action, best):
            return Worth.BEST
        if game.partially_observable:
            return Worth.LEGAL
        expected, value = self._value(state), None if step is None else self._value(step.state)
        if step is None or expected is None or value is None:
            return Worth.WORSE
        return Worth.BEST if _before(step, value) >= expected else Worth.WORSE

    def _value(self, state: Any) -> tuple[float, int] | None:
        """Return the oracle's total reward and -1 x its number of moves to the end.

        Returns None if the oracle finds no way to the end, or a move has random effects.
        """
        values, path = self._values, list[tuple[str, Step[Any]]]()
        while (key := self.game.to_json(state)) not in values:
            values[key] = None
            if self.game.ended(state) is not None:
                values[key] = (0.0, 0)
                break
            action = self.game.best_action(state)
            if action is None or len(path) == MOST_MOVES:
                break
            try:
                step = self.game.step(state, action, NO_CHANCE)
            except ChanceNeeded:
                break
            path.append((key, step))
            state = step.state
        value = values[key]
        for key, step in reversed(path):
            value = values[key] = None if value is None else _before(step, value)
        return value


def _before(step: Step[Any], value: tuple[float, int]) -> tuple[float, int]:
    """Return the value of the state before a step, rounded so that equal sums compare equal."""
    return round(step.reward + value[0], 9), value[1] - 1
