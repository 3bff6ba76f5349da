"""Cells of the table: each is a run with a seed, and has one result file, which is written once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.learning.running import once, train
from vlmgym.errors import UsageError
from vlmgym.training.config import read_config
from vlmgym.training.curves import read_curve
from vlmgym.training.engine.actor import Actor
from vlmgym.training.validation import Images

from .games import DEMONSTRATIONS, G1, GAMES, GREY_DEMONSTRATIONS, POLICIES, TURNS, run_args
from .play import play_games, play_policy

CURVE = ("step", "perception", "format", "reward", "played")
"""Metrics of a training curve that the result file keeps."""


@dataclass(frozen=True)
class Cell:
    """A run of a game with a seed."""

    game: str
    seed: int
    run: str

    @property
    def name(self) -> str:
        """Name of its folder and result file."""
        return f"{self.game}-{self.seed}-{self.run.lower().replace(', ', '-').replace(' ', '-')}"

    def train(self, runs: Path) -> float:
        """Train this run unless done, after the run that it continues; return the minutes of this run alone."""
        start = GAMES[self.game].runs[self.run].start
        more = []
        if start is not None:
            before = Cell(self.game, self.seed, start)
            before.train(runs)
            more = ["--model", str(runs / before.name / "model")]
        return train(runs / self.name, *run_args(self.game, self.seed, self.run), *more)

    def measure(self, runs: Path, results: Path, episodes: int) -> None:
        """Train and play whole games, unless there is a result file.

        Raises:
            UsageError: The training failed, or the result file has other options or another number of games.
        """
        args = self._all_args()

        def find() -> dict[str, Any]:
            minutes = self.train(runs)
            config = read_config(args[0])
            actor = Actor(runs / self.name / "model", config.model)
            images: tuple[Images, ...] = ("true", "blank", "shuffled") if self == CONTROLLED else ("true",)
            rows = read_curve(runs / self.name / ("sft_curve.jsonl" if config.sft.steps else "curve.jsonl"))
            return {
                "args": args,
                "minutes": minutes,
                **{shown: play_games(actor, config, TURNS, episodes, shown) for shown in images},
                "curve": [{name: row[name] for name in CURVE if name in row} for row in rows],
            }

        path = results / f"{self.name}.json"
        found = once(path, find)
        if found.get("args") != args or len(found["true"]["score"]) != episodes:
            raise UsageError(f"{path} was measured with other options: remove it to measure again")

    def _all_args(self) -> list[list[str]]:
        """Return the options of the run, then the options of the run that it continues, if any."""
        start = GAMES[self.game].runs[self.run].start
        names = [self.run] if start is None else [self.run, start]
        return [run_args(self.game, self.seed, name) for name in names]

    def result(self, results: Path) -> dict[str, Any] | None:
        """Read the result file, if any."""
        path = results / f"{self.name}.json"
        return json.loads(path.read_text()) if path.exists() else None


CONTROLLED = Cell("2048", 0, G1)
"""The cell whose model is also tested on grey images and on images of other games."""


def cells() -> list[Cell]:
    """List all cells, seed by seed."""
    found = [
        Cell(name, seed, run)
        for name, game in GAMES.items()
        for run, one in game.runs.items()
        if run != GREY_DEMONSTRATIONS  # its model has seen only grey images
        for seed in (game.seeds if one.every_seed else game.seeds[:1])
    ]
    return sorted(found, key=lambda cell: cell.seed)


def measure_policies(game: str, results: Path, episodes: int) -> None:
    """Play the same games with policies that need no images, unless there is a result file."""

    def find() -> dict[str, Any]:
        config = read_config(run_args(game, 0, DEMONSTRATIONS))
        return {policy: play_policy(config, policy, TURNS, episodes) for policy in POLICIES}

    path = _policies(game, results)
    if any(len(found["score"]) != episodes for found in once(path, find).values()):
        raise UsageError(f"{path} has another number of games: remove it to measure again")


def policies_of(game: str, results: Path) -> dict[str, Any]:
    """Read the results of policies that need no images."""
    found: dict[str, Any] = json.loads(_policies(game, results).read_text())
    return found


def _policies(game: str, results: Path) -> Path:
    return results / f"{game}-policies.json"
