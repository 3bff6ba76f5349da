"""Jigsaw: swap patches until the picture is whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.cells import Cells, Pair
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import Infos, Metrics, Step, pick
from vlmgym.sandbox.drawing.canvas import COLOURS, MIDDLE, WHITE, Canvas, Colour, blend

PROMPT_V1 = """\
The image shows a picture that was cut into {rows} rows and {columns} columns of square patches, which were then \
shuffled. {numbering} A move swaps any two patches. Restore the picture: colours and shapes must continue across the \
edges of the patches. Each patch in its place scores 1/{cell_count}; no patch starts in its place.
Actions: {actions}. Their order does not matter.
{form}"""


class JigsawConfig(BoardConfig):
    """Configuration of the jigsaw."""

    rows: int = config_field("reasoning", [2, 2, 3, 4, 5], "Rows of patches.", ge=1, le=8)
    columns: int = config_field("reasoning", [2, 3, 3, 4, 5], "Columns of patches.", ge=2, le=8)


@dataclass(frozen=True, slots=True)
class JigsawState:
    """Patch numbers, rows x columns, and the picture's number. Patch n belongs in cell n, row by row from 0."""

    board: tuple[tuple[int, ...], ...]
    picture: int
    variation_seed: int = 0


class Jigsaw(BoardGame[JigsawState, Pair]):
    """Swap patches of a picture until it is whole.

    Description:
        A picture is cut into square patches, which are shuffled until none is in the right place. A move swaps any two
        patches. Pictures are gradients between four colours with circles that cross the edges of patches.

    Observation:
        The patches as an RGB image.

    Action:
        `MultiDiscrete([rows, columns, rows, columns])`: row and column of both patches, from 0, in any order.

    Reward:
        Change in the fraction of patches in the right place, so a restored picture scores 1; 0 for an illegal or
        unparsable answer.

    Episode end:
        The picture is whole. Metric: fraction of patches in the right place.
    """

    name = "jigsaw"
    skills = ("perception", "spatial")
    reward_is_hint = True
    answer = Cells(2, "the two patches to swap", verbs=("swap",), example=(0, 0, 0, 1))
    optimal_oracle = True
    Config = JigsawConfig
    State = JigsawState
    prompt_template = PROMPT_V1
    no_text_observation = "the numbers of the places give away the solution"
    perception_form = (
        "the number of the place where each patch belongs, counted from 1 row by row; one line per row, comma-separated"
    )

    def deal(self, rng: np.random.Generator) -> JigsawState:
        """Choose a picture, and shuffle its patches until none is in the right place."""
        picture, count = int(rng.integers(PICTURES)), self.config.cell_count
        patches = rng.permutation(count)
        while (patches == np.arange(count)).any():
            patches = rng.permutation(count)
        return JigsawState(self.in_rows(tuple(patches.tolist())), picture)

    def legal_actions(self, state: JigsawState) -> tuple[Pair, ...]:
        if self.ended(state):
            return ()
        return tuple((*first, *second) for first, second in permutations(self.all_cells, 2))

    def step(self, state: JigsawState, action: Pair, rng: np.random.Generator) -> Step[JigsawState]:
        (row1, column1), (row2, column2) = self.answer.cells(action)
        if (row1, column1) == (row2, column2):
            raise IllegalAction(f"{self.where((row1, column1))} is given twice; a swap takes two different patches")
        patches = _flat(state)
        first, second = self.index_of((row1, column1)), self.index_of((row2, column2))
        before = _in_place(patches)
        patches[first], patches[second] = patches[second], patches[first]
        after = JigsawState(self.in_rows(tuple(patches)), state.picture, state.variation_seed)
        return Step(after, (_in_place(patches) - before) / self.config.cell_count)

    def ended(self, state: JigsawState) -> str | None:
        return "the picture is whole" if _in_place(_flat(state)) == self.config.cell_count else None

    def goal(self, state: JigsawState) -> JigsawState:
        return replace(state, board=self.in_rows(tuple(range(self.config.cell_count))))

    def best_action(self, state: JigsawState) -> Pair | None:
        """Put a patch in the right place; any sequence of such swaps is a shortest solution."""
        patches = _flat(state)
        misplaced = next((place for place, patch in enumerate(patches) if patch != place), None)
        if misplaced is None:
            return None
        return (*self.cell_at(misplaced), *self.cell_at(patches[misplaced]))

    def metrics(self, state: JigsawState, infos: Infos) -> Metrics:
        return {"in place": _in_place(_flat(state)) / self.config.cell_count}

    def cells(self, state: JigsawState) -> list[list[tuple[int, int]]]:
        return [[(state.picture, patch) for patch in row] for row in state.board]

    def paint_cell(self, canvas: Canvas, cell: tuple[int, int], angle: float) -> None:
        c, side = self.config, canvas.width
        number, patch = cell
        pixels = draw_patch(number, divmod(patch, c.columns), max(c.rows, c.columns), side, c.similarity)
        canvas.image(pixels, side / 2, side / 2, angle)

    def cell_words(self, cell: tuple[int, int]) -> str:
        return str(cell[1] + 1)

    def explain(self, state: JigsawState, action: Pair) -> str:
        words = []
        for cell, to in ((action[:2], action[2:]), (action[2:], action[:2])):
            home = self.cell_at(state.board[cell[0]][cell[1]])
            right = "where it belongs" if home == to else f"but it belongs at {self.where(home)}"
            words.append(f"the patch at {self.where(cell)} goes to {self.where(to)}, {right}")
        return f"{'; '.join(words)}.".capitalize()


def _flat(state: JigsawState) -> list[int]:
    return [patch for row in state.board for patch in row]


def _in_place(patches: Sequence[int]) -> int:
    return sum(patch == place for place, patch in enumerate(patches))


# Pictures -------------------------------------------------------------------------------------------------------------
#
# Pictures to cut into patches: circles over a gradient.

SHADES = tuple(COLOURS.values())
CIRCLES = (9, 14)
"""Minimum and maximum number of circles in a picture."""
PICTURES = 10_000
"""Number of different pictures."""


Circle = tuple[float, float, float, Colour]
"""x, y and radius, relative to the picture's side, and colour."""


@lru_cache(maxsize=256)
def make_picture(number: int) -> tuple[list[Colour], list[Circle]]:
    """Make a picture from its number: the colours of its corners, row by row, and its circles.

    The gradient between the colours shows where each patch belongs.
    """
    rng = np.random.default_rng(number)
    corners = [SHADES[i] for i in rng.permutation(len(SHADES))[:4]]
    circles: list[Circle] = []
    for _ in range(int(rng.integers(CIRCLES[0], CIRCLES[1] + 1))):
        x, y, radius = rng.uniform((0, 0, 0.05), (1, 1, 0.2)).tolist()
        circles.append((x, y, radius, pick(rng, SHADES)))
    return corners, circles


def draw_patch(number: int, place: tuple[int, int], patches: int, side: int, similarity: float) -> NDArray[np.uint8]:
    """Draw the patch at `place` (row, column) of a picture cut into `patches` x `patches`: uint8 (side, side, 3)."""
    corners, circles = make_picture(number)
    whole, left, top = patches * side, place[1] * side, place[0] * side
    canvas = Canvas(side, side, MIDDLE, left=left, top=top)
    shades = [blend(corner, MIDDLE, similarity) for corner in corners]
    canvas.image(_gradient(shades, whole, left, top, side), left + side / 2, top + side / 2)
    for x, y, radius, shade in circles:
        colour = blend(shade, MIDDLE, similarity)
        canvas.circle(x * whole, y * whole, radius * whole, colour)
        canvas.circle(x * whole, y * whole, radius * whole * 0.6, blend(colour, WHITE, 0.45))
    return canvas.pixels()


def _gradient(corners: list[Colour], whole: int, left: int, top: int, side: int) -> NDArray[np.uint8]:
    """Interpolate between four colours, with integers so that pixels are identical on all machines."""
    end, at = whole - 1, np.arange(side, dtype=np.int32)
    across, down = (at + left)[None, :, None], (at + top)[:, None, None]
    top_left, top_right, bottom_left, bottom_right = np.array(corners, np.int32)
    mixed = (end - down) * ((end - across) * top_left + across * top_right) + down * (
        (end - across) * bottom_left + across * bottom_right
    )
    pixels: NDArray[np.uint8] = ((mixed + end * end // 2) // (end * end)).astype(np.uint8)
    return pixels
