"""Swap: swap adjacent tiles to line up three or more equal tiles, which vanish."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.cells import CELL, Cells, Pair
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import Infos, Metrics, Step, retry
from vlmgym.sandbox.drawing.canvas import Canvas
from vlmgym.sandbox.drawing.shapes import (
    COLOUR_NAMES,
    MAX_COLOURS,
    MAX_SHAPES,
    SHAPE_NAMES,
    paint_colour_shape,
    tile_kinds,
)
from vlmgym.sandbox.games.swap.boards import (
    RUN,
    SearchedLine,
    SwapRules,
    Tiles,
    best_swap,
    blank_tiles,
    certain_points,
    search_line,
    search_lines,
)

Board = tuple[tuple[int, ...], ...]

MIN_KINDS = 3
"""Minimum number of tile kinds: with two, more than half of the cascades on 8 x 8 last over 1000 rounds."""
MAX_ROUNDS = 200
"""Maximum rounds in a cascade before a new board is dealt; the longest of 2000 on 16 x 16 with 3 kinds took 97."""
MAX_DEALS = 10_000
"""Maximum number of attempts to deal a board; 3 x 3 with 64 kinds takes the most, about 170 on average."""
MAX_RESHUFFLES = 100
"""Maximum number of attempts to reshuffle a board before a new board is dealt."""

PROMPT_V1 = """\
The image shows the board of a match-3 game with {rows} rows and {columns} columns. {numbering} Each tile has a colour \
({colours}) and a shape ({shapes}); two tiles are equal if both match. A move swaps two tiles that are adjacent in a \
row or column. It is legal only if it lines up three or more equal tiles without a gap in a row or column. These tiles \
vanish, the tiles above fall, and new random tiles appear at the top; lines that this creates vanish too. If no legal \
move is left, the board is reshuffled. A line of n tiles scores n - 2, twice as much if the first fall of tiles makes \
it, three times as much after the second, and so on; any answer that is not a legal move scores -1.
Actions: {actions}. Their order does not matter.
{form}"""


_STATEMENT = re.compile(
    r"\b(?:(?P<line>row|column) (?P<number>\d{1,4}): (?P<words>[^;.]*)"
    rf"|Swapping (?P<swap>{CELL} and {CELL}) lines up (?P<runs>[^.]*))"
)
"""Statements of `Swap.explain`: comparisons of a line, and runs."""
_SEARCH = "Tiles, tiles needed before; tiles before, needed, beside"


class SwapConfig(BoardConfig):
    """Configuration of Swap.

    `colours` and `shapes` count as reasoning: with more kinds of tile, fewer swaps are legal, and legal swaps are
    harder to find.
    """

    rows: int = config_field("reasoning", [5, 6, 8, 9, 10], "Rows of the board.", ge=3, le=16)
    columns: int = config_field("reasoning", [5, 6, 8, 9, 10], "Columns of the board.", ge=3, le=16)
    colours: int = config_field(
        "reasoning", [2, 3, 4, 5, 6], "Number of colours; the kinds of tile are colours x shapes.", ge=1, le=MAX_COLOURS
    )
    shapes: int = config_field(
        "reasoning", [2, 2, 3, 3, 3], "Number of shapes; the kinds of tile are colours x shapes.", ge=1, le=MAX_SHAPES
    )

    @property
    def kinds(self) -> int:
        """Number of kinds of tile."""
        return self.colours * self.shapes

    def model_post_init(self, context: object) -> None:
        if self.kinds < MIN_KINDS:
            raise ValueError(
                f"{self.colours} colours x {self.shapes} shapes make {self.kinds} kinds of tiles; "
                f"at least {MIN_KINDS} are required"
            )


@dataclass(frozen=True, slots=True)
class SwapState:
    """A board of Swap, rows x columns. A tile is colour * shapes + shape, 0 to kinds - 1."""

    board: Board
    variation_seed: int = 0


class Swap(BoardGame[SwapState, Pair]):
    """Swap adjacent tiles to line up three or more equal ones.

    Description:
        A swap must make a run: three or more equal tiles in an unbroken line along a row or column. All runs vanish at
        once, the tiles above fall, and uniformly random tiles refill the board from the top. This repeats until no runs
        are left. If the board then has no legal move, its tiles are reshuffled until there is a legal move and no run.
        If this fails, or if the cascade exceeds 200 rounds, a new board is dealt.

    Observation:
        The board as an RGB image.

    Action:
        `MultiDiscrete([rows, columns, rows, columns])`: row and column of the first and of the second tile, from 0, in
        any order.

    Reward:
        For each run, its length minus 2, times the round in which it vanishes: a run of four tiles that the swap makes
        earns 2, and a run of three that the first fall of tiles makes, in round 2, also 2. -1 for an illegal or
        unparsable answer.

    Episode end:
        Never; set a turn limit. `info` has `cleared` (number of tiles), `cascade` (rounds), `reshuffled`, and `redealt`
        (a new board was dealt). Metrics: tiles cleared, longest cascade, reshuffles.
    """

    name = "swap"
    skills = ("perception", "search")
    prediction_form = (
        "the board after your answer, in the same form, with new for each new tile, as if it formed no lines"
    )
    answer = Cells(2, "the two tiles to swap", verbs=("swap",), example=(0, 0, 0, 1))
    Config = SwapConfig
    State = SwapState
    illegal_reward = -1.0
    prompt_template = PROMPT_V1
    perception_form = (
        "the board, one line per row, tiles separated by commas, each as colour and shape, for example red circle"
    )

    def deal(self, rng: np.random.Generator) -> SwapState:
        """Deal a board without runs and with a legal move."""
        return SwapState(self.in_rows(tuple(self._deal(rng))))

    def legal_actions(self, state: SwapState) -> tuple[Pair, ...]:
        actions = self.rules.actions
        return tuple([actions[index] for index in self.rules.legal_swaps(_tiles(state.board))])

    def step(self, state: SwapState, action: Pair, rng: np.random.Generator) -> Step[SwapState]:
        tiles = self._swapped(state.board, action)
        cascade = self.rules.cascade(
            tiles, self._indices(action), lambda count: self._random_tiles(count, rng), MAX_ROUNDS
        )
        stuck = not (cascade.settled and self.rules.has_swap(tiles))
        redealt = False
        if stuck:
            reshuffled = self._reshuffle(tiles, rng) if cascade.settled else None
            redealt = reshuffled is None
            tiles = self._deal(rng) if reshuffled is None else reshuffled
        info = {
            "cleared": cascade.cleared,
            "cascade": cascade.rounds,
            "reshuffled": stuck and not redealt,
            "redealt": redealt,
        }
        return Step(SwapState(self.in_rows(tuple(tiles)), state.variation_seed), float(cascade.points), info)

    def after_move(self, state: SwapState, action: Pair) -> str:
        """Describe the board after lines have vanished and tiles have fallen, with `new` for tiles drawn at random.

        New tiles count as equal to no other tile.
        """
        tiles = self._swapped(state.board, action)
        self.rules.cascade(tiles, self._indices(action), blank_tiles(), MAX_ROUNDS)
        words = ("new" if tile < 0 else self.cell_words(tile) for tile in tiles)
        return "\n".join(map(", ".join, self.in_rows((*words,))))

    def ended(self, state: SwapState) -> str | None:
        return None

    def best_action(self, state: SwapState) -> Pair | None:
        """Search for the swap with the highest expected score."""
        swap = best_swap(self.rules, _tiles(state.board), self.config.kinds)
        return None if swap is None else self.rules.actions[swap]

    def is_as_good(self, state: SwapState, action: Pair, best: Pair) -> bool:
        """Return whether an action scores no less than the best one if new tiles match no other tile."""
        self._swapped(state.board, action)  # to reject illegal actions
        tiles, index = _tiles(state.board), self.rules.actions.index
        points, best_points = (certain_points(self.rules, tiles, index(swap)) for swap in (action, best))
        return points >= best_points

    def rule_action(self, state: SwapState) -> Pair | None:
        """Return the first swap that `search_lines` shows to be legal."""
        lines = search_lines(self.rules, _tiles(state.board))
        return next((swap for line in lines for _, swap in line.legal), None)

    def metrics(self, state: SwapState, infos: Infos) -> Metrics:
        played = [info for info in infos if info]
        return {
            "tiles cleared": float(sum(info["cleared"] for info in played)),
            "longest cascade": float(max((info["cascade"] for info in played), default=0)),
            "reshuffles": float(sum(info["reshuffled"] or info["redealt"] for info in played)),
        }

    def paint_cell(self, canvas: Canvas, cell: int, angle: float) -> None:
        paint_colour_shape(canvas, self._names[cell], angle, similarity=self.config.similarity, theme=self.config.theme)

    def cell_words(self, cell: int) -> str:
        return self._names[cell]

    def prompt(self, state: SwapState) -> str:
        c = self.config
        return self.fill_prompt(colours=", ".join(COLOUR_NAMES[: c.colours]), shapes=", ".join(SHAPE_NAMES[: c.shapes]))

    def explain(self, state: SwapState, action: Pair) -> str:
        """State the steps of a search for the chosen swap, then which runs it makes."""
        comparisons = self._search_in_words(_tiles(state.board), action)
        return f"{comparisons} Swapping {self._both(action)} lines up {self._runs_in_words(state.board, action)}."

    def _runs_in_words(self, board: Board, action: Pair) -> str:
        tiles = self._swapped(board, action)
        return " and ".join(self._run_in_words(tiles, run) for run in self.rules.runs(tiles))

    def check_reasoning(self, state: SwapState, text: str) -> list[bool]:
        """Check each comparison of the search, and the runs that the swap makes."""
        tiles, checks, line = _tiles(state.board), list[bool](), None
        for match in _STATEMENT.finditer(text):
            if match["runs"]:
                action: Any = (*chain(*self._cells_in(match["swap"])),)
                try:
                    checks.append(match["runs"] == self._runs_in_words(state.board, action))
                except IllegalAction:
                    checks.append(False)
                continue
            vertical, number = match["line"] == "column", int(match["number"]) - self.config.origin
            if not 0 <= number < len(self.rules.lines(vertical)):
                checks.append(False)
                continue
            line = search_line(self.rules, tiles, vertical, number, line)
            true, equal = self._line_in_words(line), dict(self._equal_in_words(line))
            for place, stated in enumerate(match["words"].split(", ")):
                if stated.startswith("equal at"):
                    checks.append(equal.get(place) == stated)
                elif stated != "needs":
                    checks.append(true[place : place + 1] == [stated])
        return checks

    def _search_in_words(self, tiles: Tiles, action: Pair) -> str:
        """List the comparisons of `search_lines` up to the chosen swap."""
        wanted: Pair = min(action, (*action[2:], *action[:2]))
        origin, texts = self.config.origin, []
        for line in search_lines(self.rules, tiles):
            words, equal = self._line_in_words(line), list(self._equal_in_words(line))
            last = next((number for number, (_, swap) in enumerate(line.legal) if swap == wanted), None)
            if last is not None:
                place, stated = equal[last]
                words[place:] = [stated]
            texts.append(f"{'column' if line.vertical else 'row'} {line.number + origin}: {', '.join(words)}")
            if last is not None:
                break
        return f"{_SEARCH}: {'; '.join(texts)}."

    def _line_in_words(self, line: SearchedLine) -> list[str]:
        """List the comparisons of a line."""
        words = [" or ".join(map(self.cell_words, shown)) or "none" for shown, _ in line.entries]
        words.insert(2 * len(line.cells), "needs")
        return words

    def _equal_in_words(self, line: SearchedLine) -> Iterator[tuple[int, str]]:
        """Yield where the list of comparisons ends with each legal swap, and how it ends."""
        for number, swap in line.legal:
            places = sorted(
                {place + self.config.origin for place in (swap[1 - line.vertical], swap[3 - line.vertical])}
            )
            place = number + 1 + (number >= 2 * len(line.cells))
            yield place, f"equal at {' and '.join(map(str, places))}"

    @cached_property
    def rules(self) -> SwapRules:
        """Rules for boards of the configured size."""
        return SwapRules(self.config.rows, self.config.columns)

    @cached_property
    def _names(self) -> Mapping[int, str]:
        return dict(enumerate(tile_kinds(self.config.colours, self.config.shapes)))

    def _swapped(self, board: Board, action: Pair) -> Tiles:
        """Return the tiles after a swap, before runs vanish."""
        (row1, column1), (row2, column2) = self.answer.cells(action)
        distance = abs(row1 - row2) + abs(column1 - column2)
        if distance == 0:
            raise IllegalAction(f"{self.where((row1, column1))} is given twice; a swap takes two different cells")
        if distance > 1:
            raise IllegalAction(f"{self._both(action)} are not adjacent in a row or column")
        first, second = board[row1][column1], board[row2][column2]
        if first == second:
            raise IllegalAction(f"swapping {self._both(action)} changes nothing: both have a {self.cell_words(first)}")
        tiles = _tiles(board)
        a, b = self._indices(action)
        tiles[a], tiles[b] = second, first
        if not (self.rules.completes_run(tiles, a) or self.rules.completes_run(tiles, b)):
            raise IllegalAction(f"swapping {self._both(action)} makes no run of three equal tiles")
        return tiles

    def _indices(self, action: Pair) -> tuple[int, int]:
        return self.index_of(action[:2]), self.index_of(action[2:])

    def _both(self, action: Pair) -> str:
        return f"{self.where(action[:2])} and {self.where(action[2:])}"

    def _random_tiles(self, count: int, rng: np.random.Generator) -> Tiles:
        tiles: Tiles = rng.integers(self.config.kinds, size=count).tolist()
        return tiles

    def _deal(self, rng: np.random.Generator) -> Tiles:
        """Deal a random board without runs and with a legal move."""
        c = self.config
        what = f"{c.rows} x {c.columns} board with {c.kinds} kinds of tile and a legal move"
        return retry(lambda: self._arranged(self._random_tiles(c.cell_count, rng)), MAX_DEALS, what)

    def _arranged(self, tiles: Tiles) -> Tiles | None:
        """Reorder tiles into a board without runs and with a legal move; None if this fails."""
        arranged = self.rules.arrange(tiles)
        return arranged if arranged is not None and self.rules.has_swap(arranged) else None

    def _reshuffle(self, tiles: Tiles, rng: np.random.Generator) -> Tiles | None:
        """Reorder the tiles into a board without runs and with a legal move; None if none was found."""
        if max(map(tiles.count, set(tiles))) < RUN:
            return None
        boards = (self._arranged(rng.permutation(tiles).tolist()) for _ in range(MAX_RESHUFFLES))
        return next(filter(None, boards), None)

    def _run_in_words(self, tiles: Tiles, run: tuple[int, ...]) -> str:
        """Describe a run, for example `3 red circle tiles in row 2, columns 1 to 3`."""
        origin = self.config.origin
        row, column, last_row, last_column = (
            number + origin for cell in (run[0], run[-1]) for number in self.cell_at(cell)
        )
        what = f"{len(run)} {self.cell_words(tiles[run[0]])} tiles"
        if row == last_row:
            return f"{what} in row {row}, columns {column} to {last_column}"
        return f"{what} in column {column}, rows {row} to {last_row}"


def _tiles(board: Board) -> Tiles:
    return list(chain.from_iterable(board))
