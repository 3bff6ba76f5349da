"""Configuration of Shisen-Sho."""

from __future__ import annotations

from typing import Literal

from vlmgym.sandbox.core.board_game import BoardConfig
from vlmgym.sandbox.core.config import config_field, setting
from vlmgym.sandbox.games.tiles import MAX_COLOURS, MAX_SHAPES


class ShisenShoConfig(BoardConfig):
    """Configuration of Shisen-Sho.

    `colours` and `shapes` count as perception: the size of the board and `copies` determine the number of kinds of
    tile. With more colours and shapes to choose from, tiles are only harder to distinguish or name.

    `colours`, `shapes` and `similarity` do not apply to tiles with images; `variety` applies only to tiles with images.
    If the images have fewer classes than the board needs kinds, some classes have more than `copies` tiles.
    """

    rows: int = config_field(
        "reasoning", [4, 4, 6, 8, 10], "Rows of the board; rows x columns must be even.", ge=2, le=16
    )
    columns: int = config_field("reasoning", [4, 6, 6, 8, 10], "Columns of the board.", ge=2, le=16)
    copies: Literal[2, 4] = config_field(
        "reasoning", 4, "Number of tiles per kind; one kind has 2 if rows x columns is not divisible by 4."
    )
    turns: int = config_field("reasoning", 2, "Maximum number of turns of a path.", ge=0, le=4)
    solvable: bool = config_field("reasoning", True, "Deal boards that can be cleared; if false, random boards.")
    colours: int = config_field(
        "perception", [5, 5, 6, 7, 8], "Number of colours to choose tiles from.", ge=1, le=MAX_COLOURS
    )
    shapes: int = config_field(
        "perception", [5, 6, 6, 7, 8], "Number of shapes to choose tiles from.", ge=1, le=MAX_SHAPES
    )
    tiles: Literal["shapes", "digits", "cifar10", "folder"] = config_field(
        "perception", "shapes", "Coloured shapes, or images that match by class: digits, CIFAR-10, or those in data."
    )
    variety: int = config_field(
        "perception", [1, 2, 256, 256, 256], "Maximum number of different images per class on a board.", ge=1, le=256
    )
    data: str | None = setting(
        None,
        "Your own images: a folder with one subfolder per class, a table with image and label columns, or CIFAR-10's "
        "archive.",
    )
    split: str | None = setting(None, "Split of the data; CIFAR-10 has test (default) and train.")
    bad_rows: Literal["skip", "fail"] = setting("skip", "Skip unreadable images and list them in the state, or fail.")

    def model_post_init(self, context: object) -> None:
        """Check the numbers of cells and kinds, and that `data` and `split` are given only where they apply.

        With `tiles=folder`, `data` must be given.
        """
        cells = self.rows * self.columns
        if cells % 2:
            raise ValueError(f"rows x columns must be even, got {self.rows} x {self.columns}")
        if self.tiles == "folder" and self.data is None:
            raise ValueError("tiles=folder needs data=, such as a folder with a subfolder per class")
        for name, value in (("data", self.data), ("split", self.split)):
            if self.tiles in ("shapes", "digits") and value is not None:
                raise ValueError(f"{name} applies to tiles=folder and tiles=cifar10, not to tiles={self.tiles}")
        if self.tiles == "shapes" and self.kinds > self.colours * self.shapes:
            raise ValueError(
                f"{self.rows} x {self.columns} cells with {self.copies} copies need {self.kinds} kinds of tile, but "
                f"{self.colours} colours x {self.shapes} shapes make {self.colours * self.shapes}"
            )

    @property
    def kinds(self) -> int:
        """Number of tile kinds that a board needs."""
        return -(-self.rows * self.columns // self.copies)

    @property
    def unused_fields(self) -> tuple[str, ...]:
        return ("variety",) if self.tiles == "shapes" else ("colours", "shapes", "similarity")
