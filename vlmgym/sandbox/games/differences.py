"""Differences: find the windows that differ between two pictures of a house."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.cells import Cell, Cells
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame, with_cell
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import ImageArray, Infos, Metrics, Step, pick
from vlmgym.sandbox.drawing.board import Grid
from vlmgym.sandbox.drawing.canvas import BLACK, Canvas, Colour, blend
from vlmgym.sandbox.drawing.shapes import turned

CURTAINS: Mapping[str, Colour | None] = {
    "bare": None,
    "red": (196, 44, 48),
    "blue": (36, 92, 190),
    "yellow": (240, 196, 40),
}
THINGS = ("empty", "cat", "plant", "lamp")
WINDOWS = dict(zip("0123456789abcdef", product(CURTAINS, THINGS)))
"""Curtains and thing of a window, by its code."""
WALL: Colour = (190, 108, 84)
MORTAR: Colour = (168, 92, 72)
PANE: Colour = (188, 218, 236)
FRAME: Colour = (248, 244, 236)
FOUND: Colour = (40, 190, 90)
WRONG: Colour = (30, 30, 36)

PROMPT_V1 = """\
The two images show the windows of a house, {rows} floors with {columns} windows each, at two times. {numbering} Name \
a window that differs between the images, in its curtains or in what stands behind it. {differences} windows differ. \
Those that were named have a green frame if they differ, and a black frame if not; {left} wrong answers end the game.
Actions: {actions}.
{form}"""


class DifferencesConfig(BoardConfig):
    """Configuration of differences."""

    rows: int = config_field("reasoning", [3, 3, 4, 5, 6], "Floors.", ge=2, le=8)
    columns: int = config_field("reasoning", [3, 4, 5, 6, 6], "Windows on each floor.", ge=2, le=8)
    differences: int = config_field("reasoning", [1, 2, 3, 4, 6], "Number of windows that differ.", ge=1, le=32)
    mistakes: int = config_field("reasoning", 2, "Number of wrong answers that end the episode.", ge=1, le=10)

    def model_post_init(self, context: object) -> None:
        if self.differences > self.cell_count // 2:
            raise ValueError(
                f"at most half of the {self.rows} x {self.columns} windows can differ, got differences="
                f"{self.differences}"
            )


@dataclass(frozen=True, slots=True)
class DifferencesState:
    """Windows in both images, a code of `WINDOWS` each, and the windows named so far."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    named: tuple[tuple[int, int], ...] = ()
    variation_seed: int = 0


class Differences(BoardGame[DifferencesState, Cell]):
    """Find the windows that differ between two pictures of a house.

    Description:
        Windows that differ have other curtains, or another thing behind them, but not both.

    Observation:
        Two RGB images.

    Action:
        `MultiDiscrete([rows, columns])`: row and column of a window that has not been named, from 0.

    Reward:
        1 / `differences` for a window that differs; 0 for any other answer.

    Episode end:
        All differences have been found, or `mistakes` other windows were named. Metrics: solved, mistakes.
    """

    name = "differences"
    title = "Spot the difference"
    skills = ("memory", "perception")
    joined = True
    images_per_state = 2
    optimal_oracle = True
    answer = Cells(1, "the window that differs")
    Config = DifferencesConfig
    State = DifferencesState
    prompt_template = PROMPT_V1
    prediction_form = ""
    perception_form = (
        "the windows of the first image, one line per floor, comma-separated, then those of the second image: for each "
        "window its curtains (bare, red, blue or yellow) and what is behind it (empty, cat, plant or lamp), such as "
        "red cat"
    )

    def deal(self, rng: np.random.Generator) -> DifferencesState:
        c = self.config
        codes = [*WINDOWS]
        first = tuple("".join(codes[i] for i in row) for row in rng.integers(len(codes), size=(c.rows, c.columns)))
        second = first
        for index in rng.permutation(c.cell_count)[: c.differences].tolist():
            row, column = self.all_cells[index]
            old = WINDOWS[first[row][column]]
            others = [code for code, new in WINDOWS.items() if (new[0] == old[0]) != (new[1] == old[1])]
            second = with_cell(second, (row, column), pick(rng, others))
        return DifferencesState(first, second)

    def _differing(self, state: DifferencesState) -> list[Cell]:
        first, second = state.first, state.second
        return [(row, column) for row, column in self.all_cells if first[row][column] != second[row][column]]

    def _right(self, state: DifferencesState) -> int:
        """Number of windows named so far that differ."""
        return len({*self._differing(state)} & {*state.named})

    def legal_actions(self, state: DifferencesState) -> tuple[Cell, ...]:
        return () if self.ended(state) else tuple(cell for cell in self.all_cells if cell not in state.named)

    def step(self, state: DifferencesState, action: Cell, rng: np.random.Generator) -> Step[DifferencesState]:
        (cell,) = self.answer.cells(action)
        if cell in state.named:
            raise IllegalAction(f"the window {self.where(cell)} has been named")
        right = state.first[cell[0]][cell[1]] != state.second[cell[0]][cell[1]]
        return Step(replace(state, named=(*state.named, cell)), right / self.config.differences, {"right": right})

    def ended(self, state: DifferencesState) -> str | None:
        if (right := self._right(state)) == self.config.differences:
            return "all differences have been found"
        mistakes = len(state.named) - right
        return f"{mistakes} wrong answers" if mistakes >= self.config.mistakes else None

    def best_action(self, state: DifferencesState) -> Cell | None:
        """First window, in reading order, that differs and has not been named."""
        return next((cell for cell in self._differing(state) if cell not in state.named), None)

    def metrics(self, state: DifferencesState, infos: Infos) -> Metrics:
        right = self._right(state)
        return {"solved": float(right == self.config.differences), "mistakes": float(len(state.named) - right)}

    # Images and text -----------------------------------------------------------------------------------------------

    def cells(self, state: DifferencesState) -> Grid:
        return self._grids_of(state)[0]

    def _grids_of(self, state: DifferencesState) -> list[Grid]:
        """Contents of the cells of both images: curtains and thing of a window, and its frame."""
        differing = self._differing(state)
        frames = {cell: "found" if cell in differing else "wrong" for cell in state.named}
        return [
            self.in_rows(tuple((WINDOWS[board[r][c]], frames.get((r, c), "")) for r, c in self.all_cells))
            for board in (state.first, state.second)
        ]

    def draw(self, state: DifferencesState) -> list[ImageArray]:  # type: ignore[override]
        return [self.painter.paint(grid, state.variation_seed) for grid in self._grids_of(state)]

    def draw_into(
        self, state: DifferencesState, out: Sequence[ImageArray], shown: DifferencesState | None = None
    ) -> None:
        same_seed = shown is not None and shown.variation_seed == state.variation_seed
        before = self._grids_of(shown) if shown is not None and same_seed else (None, None)
        for image, grid, grid_before in zip(out, self._grids_of(state), before):
            self.painter.paint(grid, state.variation_seed, image, grid_before)

    def describe(self, state: DifferencesState) -> str:
        return "\n".join(", ".join(map(self.cell_words, row)) for grid in self._grids_of(state) for row in grid)

    def cell_words(self, cell: Any) -> str:
        return " ".join(cell[0])

    def prompt(self, state: DifferencesState) -> str:
        return self.fill_prompt(left=self.config.mistakes - (len(state.named) - self._right(state)))

    def explain(self, state: DifferencesState, action: Cell) -> str:
        row, column = action
        first, second = (" ".join(WINDOWS[board[row][column]]) for board in (state.first, state.second))
        return f"The window {self.where(action)} shows {first} in the first image and {second} in the second."

    def paint_cell(self, canvas: Canvas, cell: tuple[tuple[str, str], str], angle: float) -> None:
        (curtains, thing), frame = cell
        side = canvas.width
        canvas.rectangle(0, 0, side, side, self.tint(WALL))
        for row in range(8):  # bricks
            y = row * side / 8
            canvas.rectangle(0, y, side, side * 0.012, self.tint(MORTAR))
            for column in range(4):
                x = (column + row % 2 / 2) * side / 4
                canvas.rectangle(x, y, side * 0.012, side / 8, self.tint(MORTAR))
        if frame:
            canvas.rectangle(side * 0.03, side * 0.03, side * 0.94, side * 0.94, FOUND if frame == "found" else WRONG)
        canvas.rectangle(side * 0.1, side * 0.1, side * 0.8, side * 0.8, self.tint(FRAME))
        canvas.rectangle(side * 0.15, side * 0.15, side * 0.7, side * 0.66, self.tint(PANE))
        self._paint_thing(canvas, thing, angle)
        if (colour := CURTAINS[curtains]) is not None:
            fold = blend(colour, BLACK, 0.25)
            for x, width, tint in ((0.15, 0.2, colour), (0.65, 0.2, colour), (0.22, 0.03, fold), (0.75, 0.03, fold)):
                canvas.rectangle(side * x, side * 0.15, side * width, side * 0.66, self.tint(tint))
            canvas.rectangle(side * 0.15, side * 0.15, side * 0.7, side * 0.1, self.tint(colour))
        canvas.rectangle(side * 0.07, side * 0.81, side * 0.86, side * 0.1, self.tint(blend(FRAME, BLACK, 0.12)))

    def _paint_thing(self, canvas: Canvas, thing: str, angle: float) -> None:
        side, middle = canvas.width, canvas.width / 2

        def polygon(points: Sequence[tuple[float, float]], colour: Colour) -> None:
            scaled = [(x * 0.01, y * 0.01) for x, y in points]
            canvas.polygon(turned(scaled, middle, side * 0.56, side, angle / 2), self.tint(colour))

        if thing == "cat":
            fur: Colour = (62, 58, 66)
            polygon([(-13, 25), (13, 25), (9, 0), (-9, 0)], fur)
            polygon([(-14, -2), (-13, -21), (-5, -13), (5, -13), (13, -21), (14, -2), (8, 4), (-8, 4)], fur)
            for x in (-6, 6):
                polygon([(x - 2.5, -6), (x, -8.5), (x + 2.5, -6), (x, -3.5)], (248, 220, 90))
        elif thing == "plant":
            polygon([(-10, 10), (10, 10), (7, 25), (-7, 25)], (176, 92, 48))
            for tilt in (-50, -18, 18, 50):
                leaf = turned([(0, 0), (-5, -16), (0, -30), (5, -16)], 0, 10, 1, -tilt)
                polygon(leaf, (44, 140, 62))
        elif thing == "lamp":
            polygon([(-2, -8), (2, -8), (2, 22), (-2, 22)], (110, 84, 60))
            polygon([(-11, 22), (11, 22), (11, 25), (-11, 25)], (110, 84, 60))
            polygon([(-8, -25), (8, -25), (15, -5), (-15, -5)], (255, 190, 60))
