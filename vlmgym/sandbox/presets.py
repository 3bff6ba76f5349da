"""Game configs from published work, with their sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Preset:
    """A published config of a game. Fields that the source does not specify keep their defaults."""

    game: str
    overrides: Mapping[str, Any]
    source: str

    def describe(self) -> str:
        """Format game, overrides and source as two lines."""
        overrides = " ".join(f"{config_field}={value}" for config_field, value in self.overrides.items())
        return f"  {self.game}: {overrides}\n  from {self.source}"


_SHISENSHO: Mapping[str, Any] = {"colours": 6, "shapes": 6, "copies": 4, "turns": 2, "solvable": False}

# G1: github.com/chenllliang/G1 at commit 716e666 of May 2025, the code of arxiv.org/abs/2505.13426.
# vlm-gym: github.com/sdan/vlm-gym at commit 05766d1 of October 2025.
PRESETS: Mapping[str, Preset] = {
    "g1/2048": Preset(
        "2048",
        {"rows": 4, "columns": 4, "four_probability": 0.1, "goal": None},
        "G1, games/game2048.py: gymnasium-2048 with its defaults; 4x4, 10% of new tiles are 4, no goal",
    ),
    "g1/shisensho-6x6": Preset(
        "shisensho",
        {"rows": 6, "columns": 6, **_SHISENSHO},
        "G1, games/gamematch.py, as its comments and actions describe it: 6x6, 6 colours x 6 shapes, four tiles of "
        "each kind, dealt at random, at most two turns per path",
    ),
    "g1/shisensho-12x12": Preset(
        "shisensho",
        {"rows": 12, "columns": 12, **_SHISENSHO},
        "G1, games/gamematch.py as released, GRID_SIZE = 12; its actions only reach 6x6 cells, here all",
    ),
    "g1/swap": Preset(
        "swap",
        {"rows": 8, "columns": 8, "colours": 4, "shapes": 3},
        "G1, games/gamematch3.py: 8x8, 4 colours x 3 shapes; its score counts tiles, with a bonus for long runs; here "
        "the score counts swaps",
    ),
    "vlm-gym/geospot": Preset(
        "geospot",
        {"preset": "vlm-gym", "stage": 5, "tolerance": 1.0},
        "vlm-gym, envs/geospot.py: weights of its last stage, scales of 2000, 500, 100 and 25 km; its images are from "
        "OSV-5M, to be set by --config data=... (docs/data.md)",
    ),
}
