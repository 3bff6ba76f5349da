"""Base class for games against an opponent, won by completing a line of pieces."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from vlmgym.errors import StateError
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame, with_cell
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import ActionT, Step
from vlmgym.sandbox.games.line_search import LineRules, best_moves, line_rules, search

OWN, OTHER, FREE = "X", "O", "."
"""Characters for the player's, the opponent's and free cells."""
REWARDS: Mapping[str | None, float] = {"won": 1.0, "drawn": 0.5}
ORACLE_NODES = 20_000
"""Approximate maximum number of positions that the oracle searches per move, which takes about 0.2 s."""


class LineConfig(BoardConfig):
    """Config fields of games against an opponent."""

    skill: float = config_field(
        "reasoning", [0.0, 0.25, 0.5, 0.75, 1.0], "Probability that the opponent plays its best move.", ge=0.0, le=1.0
    )
    depth: int = config_field("reasoning", 2, "Moves that the opponent looks ahead.", ge=1, le=9)


@dataclass(frozen=True, slots=True)
class LineState:
    """A board as rows from top to bottom: `X` for the player, `O` for the opponent, `.` for a free cell."""

    board: tuple[str, ...]
    variation_seed: int = 0


class LineDuel(BoardGame[LineState, ActionT]):
    """A game of two players who take turns; the first to make a line wins."""

    State = LineState
    length: ClassVar[int]
    """Number of pieces in a line."""
    gravity: ClassVar[bool]
    """True if pieces fall to the lowest free cell of a column."""
    words: ClassVar[Mapping[str, str]]
    """Words for the cells `OWN`, `OTHER` and `FREE`."""

    @abstractmethod
    def action_at(self, row: int, column: int) -> ActionT:
        """Action that places a piece in a cell."""

    @abstractmethod
    def cell_of(self, state: LineState, action: ActionT) -> tuple[int, int]:
        """Return the free cell where an action places a piece; raise `IllegalAction` without one."""

    def start(self, rng: np.random.Generator) -> LineState:
        """Make an empty board; with probability 0.5, the opponent plays first."""
        state = LineState((FREE * self.config.columns,) * self.config.rows, int(rng.integers(2**32)))
        return self._reply(state, rng) if rng.random() < 0.5 else state

    def legal_actions(self, state: LineState) -> tuple[ActionT, ...]:
        if self.ended(state) is not None:
            return ()
        moves = self.rules.moves(sum(self._pieces(state)))
        cells = sorted(map(self._cell, moves), key=lambda cell: cell[::-1] if self.gravity else cell)
        return tuple([self.action_at(*cell) for cell in cells])

    def step(self, state: LineState, action: ActionT, rng: np.random.Generator) -> Step[LineState]:
        cell = self.cell_of(state, action)
        self.check_running(state)
        after = replace(state, board=with_cell(state.board, cell, OWN))
        if self.ended(after) is None:
            after = self._reply(after, rng)
        result = self.ended(after)
        return Step(after, REWARDS.get(result, 0.0), result is not None)

    def ended(self, state: LineState) -> str | None:
        own, other = self._pieces(state)
        if self.rules.has_line(own):
            return "won"
        if self.rules.has_line(other):
            return "lost"
        return None if any(FREE in row for row in state.board) else "drawn"

    def best_action(self, state: LineState) -> ActionT | None:
        """Return the best move found by searching at most about `ORACLE_NODES` positions."""
        if self.ended(state) is not None:
            return None
        return self.action_at(*self._cell(search(self.rules, *self._pieces(state), ORACLE_NODES).moves[0]))

    def metrics(self, state: LineState, infos: Sequence[Mapping[str, Any]]) -> Mapping[str, float | str]:
        return {"result": self.ended(state) or "unfinished"}

    def cell_words(self, cell: Any) -> str:
        return self.words[cell]

    def explain(self, state: LineState, action: ActionT) -> str:
        """State whether the move completes or blocks a line."""
        own, other = self._pieces(state)
        row, column = self.cell_of(state, action)
        square = self.rules.square(self.config.rows - 1 - row, column)
        if self.rules.completes(own, square):
            reason = f"it completes my line of {self.length}"
        elif self.rules.completes(other, square):
            reason = f"otherwise the opponent could complete a line of {self.length} there"
        elif any(self.rules.completes(side, move) for move in self.rules.moves(own | other) for side in (own, other)):
            reason = "I ignore a line that could be completed now"
        else:
            reason = f"nobody can complete a line of {self.length} with the next piece"
        return f"I choose {self.format(action)}: {reason}."

    def check_state(self, state: LineState) -> None:
        self.check_board_size(state.board)
        cells = "".join(state.board)
        if unknown := set(cells) - {OWN, OTHER, FREE}:
            raise StateError(f"{min(unknown)!r} is not a cell; cells are X, O and .")
        if abs(cells.count(OWN) - cells.count(OTHER)) > 1:
            raise StateError("the players have not taken turns")
        if self.gravity and any(FREE in "".join(column).lstrip(FREE) for column in zip(*state.board)):
            raise StateError("a piece is above a free cell")
        if all(map(self.rules.has_line, self._pieces(state))):
            raise StateError("both players have a line")

    @cached_property
    def rules(self) -> LineRules:
        """Rules for the configured board."""
        return line_rules(self.config.rows, self.config.columns, self.length, self.gravity)

    def _pieces(self, state: LineState) -> tuple[int, int]:
        """Return the player's and the opponent's squares as sets; see `line_search`."""
        text = "".join(["".join(column) for column in zip(*reversed(state.board))])[::-1]
        own = int("".join(["1" if cell == OWN else "0" for cell in text]), 2)
        return own, int("".join(["1" if cell == OTHER else "0" for cell in text]), 2)

    def _cell(self, square: int) -> tuple[int, int]:
        column, height = divmod(square.bit_length() - 1, self.config.rows)
        return self.config.rows - 1 - height, column

    def _reply(self, state: LineState, rng: np.random.Generator) -> LineState:
        """Play the opponent's move."""
        own, other = self._pieces(state)
        moves: Sequence[int] = self.rules.moves(own | other)
        if rng.random() < self.config.skill:
            moves = best_moves(self.rules, other, own, self.config.depth).moves
        cell = self._cell(moves[int(rng.integers(len(moves)))])
        return replace(state, board=with_cell(state.board, cell, OTHER))
