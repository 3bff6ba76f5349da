"""Swap: swap adjacent tiles to line up three or more equal tiles, which vanish."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count, groupby, pairwise
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.cells import CELL, Cells, Pair
from vlmgym.sandbox.answers.choice import neighbours
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


# Boards ---------------------------------------------------------------------------------------------------------------
#
# Runs, swaps, falling tiles and cascades.
#
# A board is a flat list of tiles in row-major order: cell = row * columns + column. A tile is any int; equal ints are
# equal tiles. Lists with precomputed tables beat NumPy on 8 x 8, where the overhead of NumPy calls exceeds the work,
# and are hardly slower on 16 x 16.

RUN = 3
"""Number of equal tiles in a line that make a run."""

Tiles = list[int]
Line = tuple[int, ...]
"""Cells of a row or column, in order."""
Window = tuple[int, int, int]
"""Three consecutive cells of a row or column; a run if their tiles are equal."""


class Cascade(NamedTuple):
    """Result of a cascade.

    Attributes:
        points: Sum over all runs of their length minus 2, times the round in which they vanish, from 1.
        cleared: Number of tiles cleared.
        rounds: Number of rounds.
        settled: False if runs are left on the board.
    """

    points: int
    cleared: int
    rounds: int
    settled: bool


class SwapRules:
    """The rules for boards of one size, with precomputed tables."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        self._near = [[other for _, other in near] for near in neighbours(rows, columns)]
        adjacent = ((*divmod(a, columns), *divmod(b, columns)) for a, near in enumerate(self._near) for b in near)
        self.actions: tuple[Pair, ...] = tuple(sorted(adjacent))
        """All ordered pairs of adjacent cells; swaps are identified by their index in this tuple."""
        self._lines = tuple(
            [tuple(range(row * columns, (row + 1) * columns)) for row in range(rows)]
            + [tuple(range(column, rows * columns, columns)) for column in range(columns)]
        )
        self._windows: tuple[Window, ...] = tuple(
            window for line in self._lines for window in zip(line, line[1:], line[2:])
        )
        self._windows_at, self._windows_down_to = self._windows_by_cell()
        self._completions = self._completions_by_pair()

    def completes_run(self, tiles: Tiles, cell: int) -> bool:
        """True if a cell is part of a run."""
        return any(tiles[a] == tiles[b] == tiles[c] for a, b, c in self._windows_at[cell])

    def runs(self, tiles: Tiles) -> list[tuple[int, ...]]:
        """List all maximal runs, rows first; a run is its cells from left to right or top to bottom."""
        runs = []
        for line in self._lines:
            for _, group in groupby(line, key=tiles.__getitem__):
                if len(cells := tuple(group)) >= RUN:
                    runs.append(cells)
        return runs

    def legal_swaps(self, tiles: Tiles) -> list[int]:
        """List the indices into `actions` of the legal swaps on a board without runs, in ascending order."""
        return sorted({index for both_orders in self._swaps(tiles) for index in both_orders})

    def has_swap(self, tiles: Tiles) -> bool:
        """True if a board without runs has a legal swap."""
        return next(self._swaps(tiles), None) is not None

    def _swaps(self, tiles: Tiles) -> Iterator[tuple[int, int]]:
        """Yield the indices of each legal swap in both orders; some swaps are yielded more than once."""
        for a, b, completions in self._completions:
            tile = tiles[a]
            if tile == tiles[b]:
                for source, both_orders in completions:
                    if tiles[source] == tile:
                        yield both_orders

    def lines(self, vertical: bool) -> tuple[Line, ...]:
        """Return the cells of each column if `vertical`, else of each row."""
        return self._lines[self.rows :] if vertical else self._lines[: self.rows]

    def cells(self, index: int) -> tuple[int, int]:
        """Return the two cells of `actions[index]`."""
        row1, column1, row2, column2 = self.actions[index]
        return row1 * self.columns + column1, row2 * self.columns + column2

    def pair(self, first: int, second: int) -> Pair:
        """Return the swap of two cells."""
        return (*divmod(first, self.columns), *divmod(second, self.columns))

    def swap(self, tiles: Tiles, index: int) -> Tiles:
        """Return a copy of the board with the two tiles of `actions[index]` swapped."""
        a, b = self.cells(index)
        swapped = tiles.copy()
        swapped[a], swapped[b] = tiles[b], tiles[a]
        return swapped

    def fall(self, tiles: Tiles, vanished: set[int], new: Tiles) -> None:
        """Let tiles fall into vanished cells and refill the board from the top, in place.

        `new` has a tile for each vanished cell: columns from the left and, within a column, cells from the top.
        """
        start = 0
        for column in sorted({cell % self.columns for cell in vanished}):
            cells = self._lines[self.rows + column]
            kept = [tiles[cell] for cell in cells if cell not in vanished]
            end = start + self.rows - len(kept)
            tiles[column :: self.columns] = new[start:end] + kept
            start = end

    def cascade(self, tiles: Tiles, changed: Iterable[int], new: Callable[[int], Tiles], max_rounds: int) -> Cascade:
        """Clear runs and let tiles fall, in place, until no runs are left or `max_rounds` is reached.

        `changed` are the cells that changed since the board had no runs, so every run includes one of them.
        `new(n)` generates n new tiles.
        """
        points = cleared = rounds = 0
        windows = [window for cell in changed for window in self._windows_at[cell]]
        while matches := {(a, b, c) for a, b, c in windows if tiles[a] == tiles[b] == tiles[c]}:
            if rounds == max_rounds:
                return Cascade(points, cleared, rounds, False)
            vanished = {*chain.from_iterable(matches)}
            self.fall(tiles, vanished, new(len(vanished)))
            lowest = {cell % self.columns: cell for cell in sorted(vanished)}
            windows = [window for cell in lowest.values() for window in self._windows_down_to[cell]]
            cleared += len(vanished)
            rounds += 1
            points += rounds * len(matches)  # a run of n tiles has n - 2 windows
        return Cascade(points, cleared, rounds, True)

    def arrange(self, bag: Tiles) -> Tiles | None:
        """Arrange a bag of tiles into a board without runs, greedily in reading order; None if no tile fits a cell."""
        bag, columns = bag[::-1], self.columns
        tiles: Tiles = []
        for cell in range(self.rows * columns):
            left = tiles[-1] if cell % columns >= RUN - 1 and tiles[-1] == tiles[-2] else None
            above = tiles[-columns] if cell >= 2 * columns and tiles[-columns] == tiles[-2 * columns] else None
            for i in range(len(bag) - 1, -1, -1):
                if bag[i] != left and bag[i] != above:
                    tiles.append(bag.pop(i))
                    break
            else:
                return None
        return tiles

    def _windows_by_cell(self) -> tuple[tuple[tuple[Window, ...], ...], tuple[tuple[Window, ...], ...]]:
        """Return, for each cell, the windows that contain it, and those that contain it or a cell above it."""
        cells = range(self.rows * self.columns)
        at = tuple(tuple(window for window in self._windows if cell in window) for cell in cells)
        column = [range(cell, -1, -self.columns) for cell in cells]
        down_to = tuple(tuple({window: None for above in column[cell] for window in at[above]}) for cell in cells)
        return at, down_to

    def _completions_by_pair(self) -> tuple[tuple[int, int, tuple[tuple[int, tuple[int, int]], ...]], ...]:
        """Return pairs of cells that a third equal tile would turn into a run, with the swaps that can bring it in.

        An entry has both cells of a pair and, for each swap, the cell that the tile comes from and the indices of the
        swap in both orders. This covers every legal swap: the two swapped tiles differ, so a new run contains only one
        of them.
        """
        index = {self.cells(i): i for i in range(len(self.actions))}
        completions: dict[tuple[int, int], list[tuple[int, tuple[int, int]]]] = defaultdict(list)
        for cell, windows in enumerate(self._windows_at):
            for a, b, c in windows:
                pair = a if a != cell else b, c if c != cell else b
                sources = [source for source in self._near[cell] if source not in pair]
                completions[pair] += [(source, (index[cell, source], index[source, cell])) for source in sources]
        return tuple((a, b, tuple(entries)) for (a, b), entries in completions.items())


# Oracle ---------------------------------------------------------------------------------------------------------------
#
# One-move lookahead for Swap: the swap with the highest expected score.
#
# Swaps are first ranked by their score if new tiles match no other tile, which needs no sampling. For the best of them,
# cascades with random new tiles are then sampled. The generator is seeded with the board, so a given board always gets
# the same swap.
#
# On one core of a small server, a move takes about 2 ms on 8 x 8 with 12 kinds, 6 ms on 5 x 5 with 4 kinds, and 0.2 s
# in the slowest case, 16 x 16 with 3 kinds.

CANDIDATES = 12
"""Number of swaps whose cascades are sampled."""
SAMPLES = 24
"""Number of cascades to sample per candidate."""
ROUNDS = 6
"""Maximum number of rounds per cascade."""


def best_swap(rules: SwapRules, tiles: Tiles, kinds: int) -> int | None:
    """Return the index of the best swap on a board without runs, or None if no swap is legal.

    Tiles are 0 to kinds - 1, and at most 255.
    """
    # Keep one of the two orders of each swap.
    swaps = [index for index in rules.legal_swaps(tiles) if rules.actions[index][:2] < rules.actions[index][2:]]
    if len(swaps) < 2:
        return swaps[0] if swaps else None
    certain = {index: certain_points(rules, tiles, index) for index in swaps}
    candidates = sorted(swaps, key=lambda index: -certain[index])[:CANDIDATES]
    rng = np.random.default_rng(crc32(bytes(tiles)))

    def new(number: int) -> Any:
        return rng.integers(kinds, size=number).tolist()

    expected = {index: sum(_points(rules, tiles, index, new) for _ in range(SAMPLES)) for index in candidates}
    return max(candidates, key=expected.__getitem__)


def certain_points(rules: SwapRules, tiles: Tiles, index: int) -> int:
    """Return the score of a swap if new tiles match no other tile."""
    return _points(rules, tiles, index, blank_tiles())


def blank_tiles() -> Callable[[int], Tiles]:
    """Return a source of new tiles that match no other tile: -1, -2 and so on."""
    blanks = count(-1, -1)
    return lambda number: [next(blanks) for _ in range(number)]


def _points(rules: SwapRules, tiles: Tiles, index: int, new: Callable[[int], Tiles]) -> int:
    return rules.cascade(rules.swap(tiles, index), rules.cells(index), new, ROUNDS).points


# Search line by line --------------------------------------------------------------------------------------------------
#
# The search for legal swaps that explanations of Swap demonstrate.

Entry = tuple[tuple[int, ...], Pair | None]
"""Tiles, and the swap that is legal if one of them is in the entry before."""


class SearchedLine(NamedTuple):
    """A row or column of the search.

    Attributes:
        vertical: True for a column.
        number: Index of the row or column.
        cells: Cells of the line.
        shown: Tiles of the line.
        needed: For each index in the line, the tiles that would complete a run there.
        entries: Comparisons: for each index, the tile and those needed at this index in the line before; then for each
            index, the tile of the line before, those needed in this line and, if this is not at an end of the line, the
            neighbour that a swap along the line would bring here.
    """

    vertical: bool
    number: int
    cells: Sequence[int]
    shown: Sequence[int]
    needed: Sequence[tuple[int, ...]]
    entries: Sequence[Entry]

    @property
    def legal(self) -> Iterator[tuple[int, Pair]]:
        """Indices of the entries that show a swap to be legal, and these swaps."""
        for number, ((before, _), (tiles, swap)) in enumerate(pairwise(self.entries), 1):
            if swap is not None and not set(before).isdisjoint(tiles):
                yield number, swap


def search_lines(rules: SwapRules, tiles: Tiles) -> Iterator[SearchedLine]:
    """Compare the tiles of each row, and of each column, with those of the line before; this finds all legal swaps.

    The search may start at any line, and returns to the lines before it. A checksum of the board chooses the start, so
    that demonstrations show each line equally often; the search succeeds from every start.
    """
    lines = [(vertical, number) for vertical in (False, True) for number in range(len(rules.lines(vertical)))]
    start = crc32(bytes(tiles)) % len(lines)
    line: SearchedLine | None = None
    for vertical, number in [*lines[start:], *lines[:start], lines[start]]:
        line = search_line(rules, tiles, vertical, number, line)
        yield line


def search_line(rules: SwapRules, tiles: Tiles, vertical: bool, number: int, last: SearchedLine | None) -> SearchedLine:
    """Compare the tiles of a line with those of the line searched last, if it is next to this one."""
    follows = last is not None and (last.vertical, last.number + 1) == (vertical, number)
    before, cells = last if follows else None, rules.lines(vertical)[number]
    shown = [tiles[cell] for cell in cells]
    needed, beside = _needed(shown), _beside(shown)
    entries: list[Entry] = []
    across = [None] * len(cells) if before is None else [*map(rules.pair, before.cells, cells)]
    for place, tile in enumerate(shown):
        entries += [((tile,), None), (() if before is None else before.needed[place], across[place])]
    for place, side in enumerate(beside):
        entries += [(() if before is None else (before.shown[place],), None), (needed[place], across[place])]
        if side is not None:
            entries.append(((shown[side],), rules.pair(*sorted((cells[place], cells[side])))))
        elif 0 < place < len(cells) - 1 and len(cells) > RUN:
            entries.append(((), None))
    return SearchedLine(vertical, number, cells, shown, needed, entries)


def _needed(line: Sequence[int]) -> list[tuple[int, ...]]:
    """Return, for each index in a line, the tiles that would complete a run there: none, one or two."""
    tiles = []
    for place in range(len(line)):
        pairs = ((place - 2, place - 1), (place - 1, place + 1), (place + 1, place + 2))
        equal = (line[a] for a, b in pairs if a >= 0 and b < len(line) and line[a] == line[b])
        tiles.append(tuple(dict.fromkeys(equal)))
    return tiles


def _beside(line: Sequence[int]) -> list[int | None]:
    """Return, for each index in a line, the neighbour that a swap along the line can bring to two equal tiles.

    The two tiles are next to each other, on the other side of the index. None means that there are no such tiles, or
    two different pairs; then no swap along the line completes a run.
    """
    neighbours: list[int | None] = []
    for place in range(len(line)):
        sides = {}
        for side, near, far in ((place + 1, place - 1, place - 2), (place - 1, place + 1, place + 2)):
            if min(side, far) >= 0 and max(side, far) < len(line) and line[near] == line[far]:
                sides[line[side]] = side
        neighbours.append(sides.popitem()[1] if len(sides) == 1 else None)
    return neighbours
