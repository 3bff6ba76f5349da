"""Word search: find words in a grid of letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.cells import Cell, Cells, Pair
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import Infos, Metrics, Step, pick
from vlmgym.sandbox.drawing.board import Grid
from vlmgym.sandbox.drawing.canvas import Canvas, Colour

_WORDS = (
    "CAT DOG FOX OWL BEE COW HEN PIG BAT ANT BEAR BIRD CRAB DEER DUCK FISH FROG GOAT HARE LION MOLE SEAL SWAN "
    "TOAD WOLF BOAT BOOK CAKE COIN DOOR FORK GATE HAND KING KITE LAMP LEAF MOON NEST PARK RAIN RING ROAD ROSE "
    "SALT SHIP SNOW SOAP STAR TREE APPLE BEACH BREAD CHAIR CLOCK CLOUD GLASS GRASS HORSE HOUSE JUICE KNIFE "
    "LEMON MOUSE NIGHT PAPER PIANO PLANT RIVER SHEEP SNAKE SPOON STONE TABLE TIGER TRAIN WATER WHEAT "
)
WORDS = tuple(_WORDS.split())
STEPS = ((0, 1), (1, 0), (1, 1), (-1, 1), (0, -1), (-1, 0), (-1, -1), (1, -1))
"""Directions of words, as changes of row and column: right, down, diagonals to the right, then their opposites."""
PAPER: Colour = (252, 249, 240)
GRID: Colour = (222, 214, 196)
INK: Colour = (40, 42, 52)
MARKERS: tuple[Colour, ...] = ((255, 224, 92), (158, 226, 150), (150, 208, 250), (250, 184, 204), (216, 190, 250))

PROMPT_V1 = """\
The image shows letters in {rows} rows and {columns} columns. {numbering} Find these words, one per turn, in straight \
lines that read {directions}: {words}. Words that have been found are marked with colours; {left} wrong answers end \
the game.
Actions: {actions}.
{form}"""
READ = {
    2: "to the right or down",
    4: "to the right, down or diagonally to the right",
    8: "in any of the eight directions",
}


class WordsearchConfig(BoardConfig):
    """Configuration of word search."""

    rows: int = config_field("reasoning", [5, 6, 8, 9, 11], "Rows of letters.", ge=5, le=14)
    columns: int = config_field("reasoning", [5, 6, 8, 9, 11], "Columns of letters.", ge=5, le=14)
    words: int = config_field("reasoning", [2, 3, 4, 5, 6], "Number of words.", ge=1, le=8)
    directions: int = config_field(
        "reasoning", [2, 2, 4, 8, 8], "Number of directions in which words may read: 2, 4 or 8.", ge=2, le=8
    )
    mistakes: int = config_field("reasoning", 3, "Number of wrong answers that end the episode.", ge=1, le=10)

    def model_post_init(self, context: object) -> None:
        if self.directions not in READ:
            raise ValueError(f"directions must be 2, 4 or 8, got {self.directions}")
        if self.words > (most := self.cell_count // 10):
            raise ValueError(f"at most {most} words fit, got words={self.words}")


@dataclass(frozen=True, slots=True)
class WordsearchState:
    """The letters, the words with their first and last cells, those found so far by index, and the wrong answers."""

    board: tuple[str, ...]
    words: tuple[tuple[str, tuple[int, int, int, int]], ...]
    found: tuple[int, ...] = ()
    wrong: int = 0
    variation_seed: int = 0


class Wordsearch(BoardGame[WordsearchState, Pair]):
    """Find words in a grid of letters.

    Description:
        Every word occurs exactly once in any of the eight directions; words may cross. An answer is a straight line as
        long as one of the words not found yet.

    Observation:
        The letters as an RGB image.

    Action:
        `MultiDiscrete([rows, columns, rows, columns])`: the cells of the first and the last letter of a word, from 0.

    Reward:
        1 / `words` for a word; 0 for any other answer.

    Episode end:
        All words have been found, or after `mistakes` wrong lines. Metrics: solved, words found.
    """

    name = "wordsearch"
    title = "Word search"
    skills = ("perception", "search")
    joined = True
    optimal_oracle = True
    answer = Cells(2, "the first and the last letter of a word", example=(0, 1, 0, 4))
    Config = WordsearchConfig
    State = WordsearchState
    prompt_template = PROMPT_V1
    prediction_form = ""
    perception_form = "the letters, one line per row, comma-separated"

    def deal(self, rng: np.random.Generator) -> WordsearchState | None:
        c = self.config
        known = [word for word in WORDS if len(word) <= max(c.rows, c.columns)]
        letters: dict[Cell, str] = {}
        placed: list[tuple[str, Pair]] = []
        for index in rng.permutation(len(known))[: c.words].tolist():
            lines = _lines(c.rows, c.columns, len(known[index]), c.directions)
            for _ in range(40):
                line = pick(rng, lines)
                cells = _cells(line)
                if all(letters.get(cell, letter) == letter for cell, letter in zip(cells, known[index])):
                    letters.update(zip(cells, known[index]))
                    placed.append((known[index], line))
                    break
            else:
                return None
        other = "".join(word for word, _ in placed) + "AEIORSTLN"
        board = self.in_rows("".join(letters.get(cell) or pick(rng, other) for cell in self.all_cells))
        if any(_occurrences(board, word) != 1 for word, _ in placed):
            return None
        return WordsearchState(board, tuple(sorted(placed)))

    def _left(self, state: WordsearchState) -> list[tuple[str, Pair]]:
        return [word for index, word in enumerate(state.words) if index not in state.found]

    def legal_actions(self, state: WordsearchState) -> tuple[Pair, ...]:
        if self.ended(state):
            return ()
        lengths = sorted({len(word) for word, _ in self._left(state)})
        return _all_lines(self.config.rows, self.config.columns, tuple(lengths))

    def step(self, state: WordsearchState, action: Pair, rng: np.random.Generator) -> Step[WordsearchState]:
        first, last = self.answer.cells(action)
        height, width = abs(last[0] - first[0]), abs(last[1] - first[1])
        length = max(height, width) + 1
        if height and width and height != width:
            raise IllegalAction(f"{self.where(first)} and {self.where(last)} are not in a straight line")
        if length not in {len(word) for word, _ in self._left(state)}:
            raise IllegalAction(f"no word that is left has {length} letters")
        index = next((i for i, (_, line) in enumerate(state.words) if line == action and i not in state.found), None)
        if index is None:
            return Step(replace(state, wrong=state.wrong + 1), 0.0, {"right": False})
        return Step(replace(state, found=(*state.found, index)), 1 / self.config.words, {"right": True})

    def ended(self, state: WordsearchState) -> str | None:
        if len(state.found) == len(state.words):
            return "all words have been found"
        return f"{state.wrong} wrong answers" if state.wrong >= self.config.mistakes else None

    def best_action(self, state: WordsearchState) -> Pair | None:
        """First word, in alphabetical order, that has not been found."""
        return None if self.ended(state) else self._left(state)[0][1]

    def metrics(self, state: WordsearchState, infos: Infos) -> Metrics:
        return {"solved": float(len(state.found) == len(state.words)), "words found": float(len(state.found))}

    # Images and text -----------------------------------------------------------------------------------------------

    def cells(self, state: WordsearchState) -> Grid:
        marks = {cell: index for index in state.found for cell in _cells(state.words[index][1])}
        return self.in_rows(tuple([(state.board[r][c], marks.get((r, c), -1)) for r, c in self.all_cells]))

    def paint_cell(self, canvas: Canvas, cell: tuple[str, int], angle: float) -> None:
        side, (letter, mark) = canvas.width, cell
        canvas.rectangle(0, 0, side, side, self.tint(GRID))
        canvas.rectangle(0, 0, side * 0.97, side * 0.97, self.tint(PAPER if mark < 0 else MARKERS[mark % len(MARKERS)]))
        canvas.text(letter, side / 2, side / 2, side * 0.44, self.tint(INK), angle=angle)

    def prompt(self, state: WordsearchState) -> str:
        words = ", ".join(word for word, _ in self._left(state))
        left = self.config.mistakes - state.wrong
        return self.fill_prompt(words=words, left=left, directions=READ[self.config.directions])

    def explain(self, state: WordsearchState, action: Pair) -> str:
        word = "".join(state.board[row][column] for row, column in _cells(action))
        return f"The letters from {self.where(action[:2])} to {self.where(action[2:])} read {word}."


def _step(line: Pair) -> Cell:
    """Return the change of row and column from one cell of a straight line to the next."""
    row, column, last_row, last_column = line
    return (last_row > row) - (last_row < row), (last_column > column) - (last_column < column)


def _cells(line: Pair) -> list[Cell]:
    """Return the cells of a straight line, in order."""
    (row, column, last_row, last_column), (down, right) = line, _step(line)
    length = max(abs(last_row - row), abs(last_column - column)) + 1
    return [(row + i * down, column + i * right) for i in range(length)]


@lru_cache
def _lines(rows: int, columns: int, length: int, directions: int = len(STEPS)) -> tuple[Pair, ...]:
    """List all straight lines of a length on a board, in the first of the `STEPS`."""
    lines = []
    for row, column, (down, right) in product(range(rows), range(columns), STEPS[:directions]):
        last_row, last_column = row + (length - 1) * down, column + (length - 1) * right
        if 0 <= last_row < rows and 0 <= last_column < columns:
            lines.append((row, column, last_row, last_column))
    return tuple(lines)


@lru_cache(maxsize=256)
def _all_lines(rows: int, columns: int, lengths: tuple[int, ...]) -> tuple[Pair, ...]:
    return tuple(line for length in lengths for line in _lines(rows, columns, length))


def _occurrences(board: Sequence[str], word: str) -> int:
    """Count the occurrences of a word in all directions."""
    count = 0
    for line in _lines(len(board), len(board[0]), len(word)):
        if board[line[0]][line[1]] == word[0] and board[line[2]][line[3]] == word[-1]:
            count += all(board[row][column] == letter for (row, column), letter in zip(_cells(line), word))
    return count
