"""Minesweeper: open all cells without a mine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import groupby, islice, product
from typing import NamedTuple

import numpy as np

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.cells import Cell, Cells
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame, cells_of, find_cells, with_cell
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import Infos, Metrics, Step, retry
from vlmgym.sandbox.drawing.canvas import COLOURS, THEMES, Canvas, Colour, blend

HIDDEN, MINE = ".", "*"
_WORDS: Mapping[str, str] = {HIDDEN: "hidden", MINE: "mine"}

PROMPT_V1 = """\
The image shows a Minesweeper board with {rows} rows and {columns} columns. {numbering} {mines} of the hidden cells \
contain a mine. The number of an open cell counts the mines in the up to eight cells around it; an open cell without a \
number has none around it. Open all cells without a mine; opening a mine ends the game. {logic}
Actions: {actions}.
{form}"""

_LOGIC = {
    0: "Some boards cannot be solved without guessing.",
    1: "No guess is needed: each step follows from one of the numbers, or from the number of mines left.",
    2: "No guess is needed: each step follows from at most two of the numbers, or from the number of mines left.",
}

_INKS: Mapping[str, Colour] = {
    "1": (20, 80, 220),
    "2": (20, 130, 40),
    "3": (210, 30, 30),
    "4": (90, 20, 150),
    "5": (140, 60, 10),
    "6": (0, 130, 140),
    "7": (40, 40, 40),
    "8": (120, 120, 120),
}


class MinesweeperConfig(BoardConfig):
    """Configuration of Minesweeper."""

    rows: int = config_field("reasoning", [5, 6, 7, 8, 10], "Rows of the board.", ge=4, le=24)
    columns: int = config_field("reasoning", [5, 6, 7, 8, 10], "Columns of the board.", ge=4, le=24)
    mines: int = config_field("reasoning", [3, 5, 8, 12, 20], "Number of mines.", ge=1, le=200)
    compared: int = config_field(
        "reasoning",
        [1, 1, 2, 2, 2],
        "Maximum number of open cells to compare to find a safe cell; 0 allows boards that need a guess.",
        ge=0,
        le=2,
    )

    def model_post_init(self, context: object) -> None:
        cells = self.cell_count
        most = cells - 10
        if self.compared:  # with more mines, few boards can be solved without guessing
            most = min(most, max(6, cells * (15 if self.compared == 1 else 20) // 100))
        if self.mines > most:
            guess = f" with compared={self.compared}; compared=0 allows {cells - 10}" if most < cells - 10 else ""
            raise ValueError(
                f"{self.mines} mines are too many for {self.rows} x {self.columns} cells; at most {most} fit{guess}"
            )


@dataclass(frozen=True, slots=True)
class MinesweeperState:
    """A board of Minesweeper.

    Attributes:
        board: Cells as shown: `.` for a hidden cell, a digit for an open cell, `*` for an opened mine.
        mines: Cells of the mines as row * columns + column, sorted; not shown.
        hidden: Number of cells without a mine that were hidden at the start.
    """

    board: tuple[str, ...]
    mines: tuple[int, ...]
    hidden: int
    variation_seed: int = 0


class Minesweeper(BoardGame[MinesweeperState, Cell]):
    """Open all cells without a mine, using the numbers of adjacent mines.

    Description:
        At the start, one cell without adjacent mines has been opened. Opening a cell shows the number of mines in the
        cells around it; if this is 0, the cells around it are opened too. Boards can be solved without guessing unless
        `compared` is 0. There are no flags.

    Observation:
        The board as an RGB image.

    Action:
        `MultiDiscrete([rows, columns])`: row and column of a hidden cell, from 0.

    Reward:
        The fraction of the initially hidden cells without a mine that the action opens; 0 for a mine and for an illegal
        or unparsable answer.

    Episode end:
        A mine is opened, or all other cells are open. Metrics: fraction of cells opened, solved.

    Oracle:
        Opens a cell that the numbers prove safe, or else the cell with the lowest estimated risk.
    """

    name = "minesweeper"
    skills = ("arithmetic", "search")
    answer = Cells(1, "a hidden cell to open", verbs=("open", "reveal", "click"), example=(0, -1))
    Config = MinesweeperConfig
    State = MinesweeperState
    prompt_template = PROMPT_V1
    perception_form = "the board, one line per row, cells separated by commas, each a number from 0 to 8 or hidden"
    partially_observable = True

    def deal(self, rng: np.random.Generator) -> MinesweeperState:
        c = self.config
        mines, opened = deal(c.rows, c.columns, c.mines, c.compared, int(rng.integers(2**32)))
        hidden = c.cell_count - (mines | opened).bit_count()
        blank = (HIDDEN * c.columns,) * c.rows
        state = MinesweeperState(blank, tuple(cells_of(mines)), hidden)
        return self._with_open(state, opened)

    def legal_actions(self, state: MinesweeperState) -> tuple[Cell, ...]:
        return () if self.ended(state) is not None else tuple(find_cells(state.board, HIDDEN))

    def step(self, state: MinesweeperState, action: Cell, rng: np.random.Generator) -> Step[MinesweeperState]:
        ((row, column),) = self.answer.cells(action)
        if state.board[row][column] != HIDDEN:
            raise IllegalAction(f"the cell {self.where(action)} is already open")
        cell = self.index_of(action)
        if cell in state.mines:
            return Step(replace(state, board=with_cell(state.board, action, MINE)), 0.0, {"opened": 0})
        mines = sum(1 << mine for mine in state.mines)
        before = sum(1 << cell for cell in self._numbers(state))
        opened = opened_by(self._near, mines, cell, before)
        after = self._with_open(state, opened & ~before)
        count = opened.bit_count() - before.bit_count()
        return Step(after, count / state.hidden, {"opened": count})

    def ended(self, state: MinesweeperState) -> str | None:
        text = "".join(state.board)
        if MINE in text:
            return "a mine was opened"
        return "all cells without a mine are open" if text.count(HIDDEN) == len(state.mines) else None

    def best_action(self, state: MinesweeperState) -> Cell | None:
        """Open a provably safe cell, or else the cell with the lowest estimated risk."""
        if self.ended(state) is not None:
            return None
        proofs = self._proofs(state)
        safe = next((cell for cell, proof in proofs.items() if not proof.mine), None)
        if safe is not None:
            return self.cell_at(safe)
        return min(self.legal_actions(state), key=lambda cell: self._risk(state, proofs, cell))

    def metrics(self, state: MinesweeperState, infos: Infos) -> Metrics:
        text = "".join(state.board)
        left = text.count(HIDDEN) + text.count(MINE) - len(state.mines)
        return {"cells opened": 1 - left / state.hidden, "solved": float(left == 0 and MINE not in text)}

    def paint_cell(self, canvas: Canvas, cell: str, angle: float) -> None:
        side, theme = canvas.width, THEMES[self.config.theme]
        if cell == HIDDEN:
            edge = side * 0.08
            canvas.rectangle(0, 0, side, side, blend(theme.board, (0, 0, 0), 0.25), radius=side * 0.09)
            inner = blend(theme.board, theme.tile, 0.12)
            canvas.rectangle(0, 0, side - edge, side - edge, inner, radius=side * 0.09)
            return
        canvas.rectangle(0, 0, side, side, theme.tile, radius=side * 0.09)
        if cell == MINE:
            for x, y in ((1, 0), (0, 1), (0.7, 0.7), (0.7, -0.7)):
                dx, dy = side * 0.36 * x, side * 0.36 * y
                start, end = (side / 2 - dx, side / 2 - dy), (side / 2 + dx, side / 2 + dy)
                canvas.line(start, end, side * 0.07, COLOURS["red"])
            canvas.circle(side / 2, side / 2, side * 0.25, COLOURS["red"])
        elif cell != "0":
            ink = self.tint(_INKS[cell])
            canvas.text(cell, side / 2, side / 2, side * 0.5, ink, angle=angle)

    def cell_words(self, cell: str) -> str:
        return _WORDS.get(cell, cell)

    def prompt(self, state: MinesweeperState) -> str:
        return self.fill_prompt(logic=_LOGIC[self.config.compared])

    def explain(self, state: MinesweeperState, action: Cell) -> str:
        """State a proof that the cell is safe or a mine, if the numbers on the board allow one."""
        proofs, cell = self._proofs(state), self.index_of(action)
        if cell not in proofs:
            return f"Nothing shows that {self.where(action)} is safe; I have to guess."
        needed = argument(self._near, proofs, cell)
        steps = groupby(needed, key=lambda member: (proofs[member].sources, proofs[member].mine))
        return " ".join(self._in_words(state, sources, mine, [*cells]) for (sources, mine), cells in steps)

    @cached_property
    def _near(self) -> tuple[int, ...]:
        return neighbours(self.config.rows, self.config.columns)

    def _numbers(self, state: MinesweeperState) -> dict[int, int]:
        """Numbers shown by the open cells, keyed by cell."""
        return {cell: int(shown) for cell, shown in enumerate("".join(state.board)) if shown.isdigit()}

    def _proofs(self, state: MinesweeperState) -> Proofs:
        return deduce(self._near, self._numbers(state), self.config.mines, pairs=True)

    def _with_open(self, state: MinesweeperState, cells: int) -> MinesweeperState:
        """Return the state with a set of cells opened and their numbers shown."""
        mines, shown = sum(1 << mine for mine in state.mines), list("".join(state.board))
        for cell in cells_of(cells):
            shown[cell] = str((self._near[cell] & mines).bit_count())
        return replace(state, board=self.in_rows("".join(shown)))

    def _risk(self, state: MinesweeperState, proofs: Proofs, cell: Cell) -> float:
        """Estimate a cell's risk of being a mine from the adjacent numbers or, without any, from the number of mines.

        Returns 2 for a cell in `proofs`: this is only called when none of them is safe, so all of them are mines.
        """
        index = self.index_of(cell)
        if index in proofs:
            return 2.0
        numbers, text = self._numbers(state), "".join(state.board)
        hidden = sum(1 << other for other, shown in enumerate(text) if shown == HIDDEN)
        clues = [
            (self._near[other] & hidden, numbers[other]) for other in cells_of(self._near[index]) if other in numbers
        ]
        return max(count / around.bit_count() for around, count in clues or [(hidden, self.config.mines)])

    def _in_words(self, state: MinesweeperState, sources: tuple[int, ...], mine: bool, cells: list[int]) -> str:
        """Describe a step of a proof, for example `The 1 at (0, 1) shows that (0, 2) is a mine.`"""
        numbers = [self._number_in_words(state, source) for source in sorted(sources, reverse=True)]
        named = ", ".join(self.where(self.cell_at(cell)) for cell in sorted(cells))
        text = f"{' and '.join(numbers)} {'shows' if len(numbers) == 1 else 'show'} that {named} "
        one, several = ("is a mine", "are mines") if mine else ("is safe", "are safe")
        return f"{text[0].upper()}{text[1:]}{several if len(cells) > 1 else one}."

    def _number_in_words(self, state: MinesweeperState, source: int) -> str:
        if source == ALL:
            return "the number of mines"
        row, column = self.cell_at(source)
        return f"the {state.board[row][column]} at {self.where((row, column))}"


# Deduction ------------------------------------------------------------------------------------------------------------
#
# Minesweeper: neighbours, opening cells, deduction, and dealing boards that need no guess.
#
# A set of cells is an int; the bit row * columns + column stands for a cell. A clue is a set of hidden cells and the
# number of mines among them.

MAX_DEALS = 2000
"""Maximum number of attempts to deal a board of up to 100 cells, fewer if it is larger; level 5 takes 3 on average."""
ALL = -1
"""Source of the clue that states the total number of mines."""


class Proof(NamedTuple):
    """Proof that a cell is or is not a mine, from one or two numbers and from the proofs of earlier rounds.

    Attributes:
        mine: True if the cell is a mine, False if it is safe.
        sources: Cells whose numbers are used; `ALL` stands for the total number of mines.
        round: Round of the deduction, from 0.
    """

    mine: bool
    sources: tuple[int, ...]
    round: int


Proofs = Mapping[int, Proof]
"""Proofs by cell, in order of rounds."""

_Fact = tuple[int, bool, tuple[int, ...]]
"""A set of cells, whether they are mines, and the sources of the proof."""


@cache
def neighbours(rows: int, columns: int) -> tuple[int, ...]:
    """Return the set of neighbours of each cell."""
    near = []
    for row, column in product(range(rows), range(columns)):
        around = product(
            range(max(0, row - 1), min(rows, row + 2)), range(max(0, column - 1), min(columns, column + 2))
        )
        near.append(sum(1 << r * columns + c for r, c in around if (r, c) != (row, column)))
    return tuple(near)


def opened_by(near: tuple[int, ...], mines: int, cell: int, opened: int) -> int:
    """Return the set of open cells after opening a cell; cells without adjacent mines also open their neighbours."""
    opened |= 1 << cell
    waiting = [cell]
    while waiting:
        around = near[waiting.pop()]
        if around & mines:
            continue
        new = around & ~opened
        opened |= new
        waiting.extend(cells_of(new))
    return opened


def deduce(near: tuple[int, ...], numbers: Mapping[int, int], mine_count: int, pairs: bool) -> Proofs:
    """Prove which hidden cells are safe and which are mines, as far as possible.

    Args:
        near: Set of neighbours of each cell.
        numbers: Numbers that the open cells show, by cell.
        mine_count: Number of mines on the board.
        pairs: Also compare pairs of clues when single clues prove nothing new.

    Returns:
        Proofs of the cells that could be decided.
    """
    hidden = sum(1 << cell for cell in range(len(near)) if cell not in numbers)
    clues = [(near[cell] & hidden, number, cell) for cell, number in numbers.items() if near[cell] & hidden]
    clues.append((hidden, mine_count, ALL))
    proofs: dict[int, Proof] = {}
    safe, mines, number_of_round = 0, 0, 0
    while True:
        left = [
            (cells & ~(safe | mines), count - (cells & mines).bit_count(), source)
            for cells, count, source in clues
            if cells & ~(safe | mines)
        ]
        new: list[_Fact] = [
            (cells, count > 0, (source,)) for cells, count, source in left if count in (0, cells.bit_count())
        ]
        if pairs and not new:
            new = list(islice(_compare(left), 2))
        if not new:
            return proofs
        for cells, mine, sources in new:
            if mine:
                mines |= cells
            else:
                safe |= cells
            for cell in cells_of(cells):
                proofs.setdefault(cell, Proof(mine, sources, number_of_round))
        number_of_round += 1


def _compare(clues: list[tuple[int, int, int]]) -> Iterator[_Fact]:
    """Yield facts that follow from two clues.

    If the first clue has n cells outside the second clue, and n more mines, these n cells are mines, and the cells of
    the second clue outside the first are safe.
    """
    for cells, count, source in clues:
        for other_cells, other_count, other in clues:
            if (
                cells & other_cells
                and cells != other_cells
                and count - other_count == (cells & ~other_cells).bit_count()
            ):
                if mines := cells & ~other_cells:
                    yield mines, True, (source, other)
                if safe := other_cells & ~cells:
                    yield safe, False, (source, other)


def argument(near: tuple[int, ...], proofs: Proofs, cell: int) -> list[int]:
    """List the cells whose proofs are needed to prove a cell, in order, and then the cell itself."""
    needed = {cell}
    for other in reversed([*proofs]):
        proof = proofs[other]
        if other in needed:
            around = -1 if ALL in proof.sources else 0
            for source in proof.sources:
                around |= near[source] if source != ALL else 0
            needed |= {
                member for member, earlier in proofs.items() if earlier.round < proof.round and around >> member & 1
            }
    return [member for member in proofs if member in needed]


def solvable(near: tuple[int, ...], mines: int, opened: int, pairs: bool) -> bool:
    """Return whether deduction alone opens all cells without mines."""
    mine_count = mines.bit_count()
    while (opened | mines).bit_count() < len(near):
        numbers = {cell: (near[cell] & mines).bit_count() for cell in cells_of(opened)}
        proofs = deduce(near, numbers, mine_count, pairs)
        safe = [cell for cell, proof in proofs.items() if not proof.mine]
        if not safe:
            return False
        for cell in safe:
            opened = opened_by(near, mines, cell, opened)
    return True


@lru_cache(maxsize=4096)
def deal(rows: int, columns: int, mine_count: int, compared: int, seed: int) -> tuple[int, int]:
    """Deal mines and open a first cell without adjacent mines; return the mines and the open cells.

    The board has cells left to open and, unless `compared` is 0, can be solved by comparing at most `compared` numbers
    at a time. Cached because the episodes of a group start from the same seed.

    Raises:
        GenerationError: No such board was found.
    """
    rng, near = np.random.default_rng(seed), neighbours(rows, columns)

    def attempt() -> tuple[int, int] | None:
        first = int(rng.integers(len(near)))
        free = [cell for cell in range(len(near)) if cell != first and not near[first] >> cell & 1]
        if mine_count >= len(free):
            return None
        mines = sum(1 << free[i] for i in rng.choice(len(free), mine_count, replace=False).tolist())
        opened = opened_by(near, mines, first, 0)
        if (opened | mines).bit_count() == len(near):
            return None
        return (mines, opened) if not compared or solvable(near, mines, opened, compared > 1) else None

    return retry(attempt, MAX_DEALS * 100 // max(100, len(near)), f"{rows} x {columns} board with {mine_count} mines")
