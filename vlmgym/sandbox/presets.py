"""Settings that others have published, by name, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Preset:
    """A published setting of a game; what it does not name is as the game has it by default.

    Attributes:
        game: Name of the game.
        overrides: What the source says.
        source: Where that is, and what is otherwise there.
    """

    game: str
    overrides: Mapping[str, Any]
    source: str

    def words(self) -> str:
        """What it sets, and where from, in two lines."""
        overrides = " ".join(f"{config_field}={value}" for config_field, value in self.overrides.items())
        return f"  {self.game}: {overrides}\n  from {self.source}"


_SHISENSHO: Mapping[str, Any] = {"colours": 6, "shapes": 6, "copies": 4, "turns": 2, "solvable": False}

# G1: github.com/chenllliang/G1 at commit 716e666 of May 2025, the code of arxiv.org/abs/2505.13426.
# vlm-gym: github.com/sdan/vlm-gym at commit 05766d1 of October 2025.
PRESETS: Mapping[str, Preset] = {
    "g1/2048": Preset(
        "2048",
        {"rows": 4, "columns": 4, "four_probability": 0.1, "goal": None},
        "G1, games/game2048.py, which plays gymnasium-2048 at its defaults: 4x4, one new tile in ten is a 4, no goal",
    ),
    "g1/shisensho-6x6": Preset(
        "shisensho",
        {"rows": 6, "columns": 6, **_SHISENSHO},
        "G1, games/gamematch.py, whose comments and actions are those of 6x6: 6 colours x 6 shapes, four tiles of a "
        "kind, dealt at random, two turns",
    ),
    "g1/shisensho-12x12": Preset(
        "shisensho",
        {"rows": 12, "columns": 12, **_SHISENSHO},
        "G1, games/gamematch.py as it was released, GRID_SIZE = 12; there the actions reach 6x6 cells only, here all",
    ),
    "g1/swap": Preset(
        "swap",
        {"rows": 8, "columns": 8, "colours": 4, "shapes": 3},
        "G1, games/gamematch3.py: 8x8, 4 colours x 3 shapes, which are 12 kinds; there the score counts tiles, more in "
        "long runs, here swaps",
    ),
    "vlm-gym/geospot": Preset(
        "geospot",
        {"preset": "hierarchical", "stage": 5, "tolerance": 1.0},
        "vlm-gym, envs/geospot.py: the weights of its last stage, scales of 2000, 500, 100 and 25 km; its images are "
        "OSV-5M, which --config data=... names (docs/data.md)",
    ),
}
