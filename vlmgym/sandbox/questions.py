"""Questions about the states of a game, such as `qa/2048`, answered from its rules, description and oracle."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, get_args

import numpy as np

from vlmgym.errors import GenerationError, IllegalAction, ParseError, UsageError
from vlmgym.sandbox.answers.line import Line
from vlmgym.sandbox.core.board_game import BoardGame
from vlmgym.sandbox.core.config import LIST, Difficulty, GameConfig, config_field, setting
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import Game, ImageArray, pick
from vlmgym.sandbox.core.perception import Perception
from vlmgym.sandbox.core.response_format import INSTRUCTIONS_START
from vlmgym.sandbox.core.task import LineState, LineTask, Question, Task, TaskConfig
from vlmgym.sandbox.registry import make_game

PREFIX = "qa/"
Kind = Literal["cell", "count", "legal", "after", "best"]
KINDS: tuple[Kind, ...] = get_args(Kind)
COMPARED = 20
"""Number of states compared to check whether the number of legal actions varies."""
ATTEMPTS = 100
"""Maximum number of states sampled to find one that suits a question, and of actions to find an illegal one."""

PROMPT_V1 = """\
{rules}

Do not play, but answer a question about the state that the image shows. Question: {question}
{form}"""


class QuestionsConfig(TaskConfig):
    """Configuration of questions about a game; the game itself has the default config of its levels."""

    game: str = setting("2048", "Game to ask about, set by the game id.")
    game_perception: int = config_field("perception", [1, 2, 3, 4, 5], "Perceptual difficulty of the game.", ge=1, le=5)
    game_reasoning: int = config_field("reasoning", [1, 2, 3, 4, 5], "Reasoning difficulty of the game.", ge=1, le=5)
    kinds: Annotated[tuple[Kind, ...], LIST] = setting(
        KINDS, f"Kinds of questions, comma-separated: {', '.join(KINDS)}.", min_length=1
    )
    moves: int = setting(10, "Maximum number of random moves before the state.", ge=0, le=1000)

    @classmethod
    def level_values(cls, difficulty: Difficulty) -> dict[str, list[Any]]:
        """Return only the level of the game asked about; its images are not degraded further."""
        return {f"game_{difficulty}": super().level_values(difficulty)[f"game_{difficulty}"]}


@dataclass(frozen=True, kw_only=True)
class QuestionState(LineState):
    """A state of the game as JSON, with a question about it."""

    kind: Kind
    state: str


class Questions(LineTask[QuestionState]):
    """Answer questions about a state of a game, for example `qa/2048`.

    Description:
        The state is reached by random legal moves. Kinds of questions: `cell` (what is in a cell), `count` (how many
        moves are legal), `legal` (whether a move is legal), `after` (what is in a cell after a move that has no random
        effects), `best` (which move is best; the oracle's move and moves known to be equally good are accepted, but
        other equally good moves may be rejected).

    Observation:
        The images of the game.

    Action:
        A line of text.

    Reward:
        1 if correct, regardless of case and markup; 0 if wrong or unparsable.

    Episode end:
        After one turn. Metrics: accuracy, overall and by kind of question.
    """

    name = "qa"
    Config = QuestionsConfig
    State = QuestionState
    prompt_template = PROMPT_V1
    answer = Line("answer", lambda config: (("yes", "no", *map(str, range(10))), 1))

    def __init__(self, config: GameConfig | None = None) -> None:
        super().__init__(config)
        c = self.config
        self.game: Game[Any, Any] = make_game(c.game, c.game_perception, c.game_reasoning, size=c.size)
        if isinstance(self.game, Task):
            raise UsageError(f"{self.game.name} asks questions itself: choose a game with several turns")
        vars(self)["name"] = PREFIX + self.game.name
        try:
            self.generate(np.random.default_rng(0))
        except GenerationError as error:
            raise UsageError(f"{error}; the kinds are {', '.join(KINDS)}") from None

    @property
    def id(self) -> str:
        """`qa/` followed by the id of the game."""
        return PREFIX + self.game.id

    @property
    def image_shapes(self) -> tuple[tuple[int, int, int], ...]:
        return self.game.image_shapes

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify the game, its config and the version of the questions."""
        return hashlib.sha256(f"{super().fingerprint} {self.version}".encode()).hexdigest()[:16]

    def generate(self, rng: np.random.Generator) -> QuestionState:
        for _ in range(ATTEMPTS):
            state = self._state(rng)
            for kind in rng.permutation(self.config.kinds).tolist():
                if (question := self._makers[kind](state, rng)) is not None:
                    return QuestionState(kind=kind, state=self.game.to_json(state), **question._asdict())
        raise GenerationError(f"no question of the kinds {', '.join(self.config.kinds)} fits {self.game.name}")

    def _state(self, rng: np.random.Generator) -> Any:
        """Return the state after random legal moves, before the episode ends."""
        episode: Episode[Any, Any] = Episode(self.game, int(rng.integers(2**31)))
        for _ in range(int(rng.integers(self.config.moves + 1))):
            state, action = episode.state, self._random_legal(episode.state, rng)
            if action is None or episode.act(action).terminated:
                return state
        return episode.state

    def _random_legal(self, state: Any, rng: np.random.Generator) -> Any:
        legal = self.game.legal_actions(state)
        return pick(rng, legal) if legal else None

    @cached_property
    def _makers(self) -> Mapping[str, Callable[[Any, np.random.Generator], Question | None]]:
        return dict(zip(KINDS, (self._cell, self._count, self._legal, self._after, self._best)))

    def _cell(self, state: Any, rng: np.random.Generator) -> Question | None:
        grid = self._grid(state)
        if grid is None:
            return None
        question, cell, word = self._ask_for_cell(grid, rng)
        return Question(f"{question}?", word, f"The cell at {cell} is {word}.")

    def _count(self, state: Any, rng: np.random.Generator) -> Question | None:
        """Ask for the number of legal actions; None if actions cannot be enumerated or their number never varies."""
        legal = self.game.legal_actions(state)
        if legal is None or not self._count_varies:
            return None
        question, distinct = "How many of the actions are legal?", set(legal)
        if self.game.answer.clicks == 2 and all((*action[2:], *action[:2]) in distinct for action in legal):
            question = f"{question} Two cells in either order are one action."
            legal = [action for action in legal if action[:2] < action[2:]]
        return Question(question, str(len(legal)), f"Legal are {'; '.join(map(self.game.answer.format, legal))}.")

    @cached_property
    def _count_varies(self) -> bool:
        states = (self._state(np.random.default_rng(seed)) for seed in range(COMPARED))
        first, *others = (len(self.game.legal_actions(state) or ()) for state in states)
        return any(count != first for count in others)

    def _legal(self, state: Any, rng: np.random.Generator) -> Question | None:
        """Ask whether a move is legal, equally often for legal and illegal moves; None if no illegal move is found."""
        legal = self.game.legal_actions(state)
        samples = (self.game.answer.sample(rng) for _ in range(ATTEMPTS))
        illegal = None if legal is None else next((action for action in samples if action not in legal), None)
        if illegal is None:
            return None
        if rng.random() < 0.5:
            move = self.game.answer.format(self._random_legal(state, rng))
            return Question(f"Is the move {move} legal? Answer yes or no.", "yes", f"The move {move} is legal.")
        move, fault = self.game.answer.format(illegal), self._fault(state, illegal)
        return Question(f"Is the move {move} legal? Answer yes or no.", "no", f"The move {move} is illegal: {fault}.")

    def _fault(self, state: Any, action: Any) -> str:
        try:
            self.game.step(state, action, np.random.default_rng(0))
        except IllegalAction as error:
            return str(error)
        raise AssertionError(f"{self.game.name} plays {action!r}, which is not a legal action")

    def _after(self, state: Any, rng: np.random.Generator) -> Question | None:
        """Ask for the content of a cell after a move; None if the result is random or not visible in the image.

        With probability 0.5, the cell is chosen among those that the move changes, if any.
        """
        action, move_rng = self._random_legal(state, rng), np.random.default_rng(0)
        before, rng_state = self._grid(state), repr(move_rng.bit_generator.state)
        if before is None or action is None or self.game.partially_observable:
            return None
        after = self._grid(self.game.step(state, action, move_rng).state)
        if after is None or repr(move_rng.bit_generator.state) != rng_state:
            return None
        changed = [(r, c) for r, row in enumerate(after) for c, word in enumerate(row) if word != before[r][c]]
        question, cell, word = self._ask_for_cell(after, rng, changed if changed and rng.random() < 0.5 else None)
        move = self.game.answer.format(action)
        return Question(f"{question}, after the move {move}?", word, f"After {move}, the cell at {cell} is {word}.")

    def _best(self, state: Any, rng: np.random.Generator) -> Question | None:
        """Ask for the best move; None without an oracle, or if images hide something that the oracle may know."""
        action = None if self.game.partially_observable else self.game.best_action(state)
        if action is None:
            return None
        return Question("What is the best move?", self.game.answer.format(action), self.game.explain(state, action))

    def _grid(self, state: Any) -> list[list[str]] | None:
        """Return the words of a board's cells, rows x columns; None if the description is not such a grid."""
        if not isinstance(self.game, BoardGame):
            return None
        c, grid = self.game.config, [row.split(", ") for row in self.game.describe(state).splitlines()]
        return grid if [len(row) for row in grid] == [c.columns] * c.rows else None

    def _ask_for_cell(
        self, grid: list[list[str]], rng: np.random.Generator, cells: Sequence[tuple[int, int]] | None = None
    ) -> tuple[str, str, str]:
        """Choose one of `cells`, by default any; return the start of the question, and the cell and its content."""
        assert isinstance(self.game, BoardGame)
        cells = cells or [(row, column) for row in range(len(grid)) for column in range(len(grid[0]))]
        row, column = pick(rng, cells)
        cell = self.game.where((row, column))
        return f"{self.game.numbering} What is at {cell}, as (row, column)", cell, grid[row][column]

    def paint(self, state: QuestionState) -> Sequence[ImageArray]:
        return self.game.images(self.game.from_json(state.state))

    def is_correct(self, state: QuestionState, action: str) -> bool:
        return self._is_best(state, action) if state.kind == "best" else super().is_correct(state, action)

    def _is_best(self, state: QuestionState, answer: str) -> bool:
        """Return True if an answer is a move with the same effect as the oracle's.

        If rewards reveal the best moves and the oracle's move earns a positive reward, any move that earns at least as
        much is also accepted.
        """
        game_state = self.game.from_json(state.state)
        parse = self.game.answer.parse
        try:
            return self.game.is_as_good(game_state, parse(answer), parse(state.answer))
        except (ParseError, IllegalAction):
            return False

    def describe(self, state: QuestionState) -> str:
        return self.game.describe(self.game.from_json(state.state))

    def perceive(self, state: QuestionState, text: str) -> Perception | None:
        return self.game.perceive(self.game.from_json(state.state), text)

    @property
    def no_text_observation(self) -> str | None:
        return self.game.no_text_observation

    def prompt(self, state: QuestionState) -> str:
        original = self.game.prompt(self.game.from_json(state.state))
        rules, _, form = original.partition(INSTRUCTIONS_START)  # other packages may use another format
        perception = form.partition("<perception>")[2].partition("</perception>")[0] or "what the image shows"
        return self.fill_prompt(perception, rules=rules.strip(), question=state.question)

    def check_state(self, state: QuestionState) -> None:
        self.game.from_json(state.state)
        super().check_state(state)
