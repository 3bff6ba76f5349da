"""Is it learned, and is it the eye that learns: fresh seeds, before and after, with controls.

    .venv-train/bin/python -m benchmarks.learning                    # 3 seeds, GRPO and PPO, 3x3: about 30 minutes
    .venv-train/bin/python -m benchmarks.learning --task 4x4         # likewise: benchmarks/learning/tasks.py

For each seed a tiny model is made and cold-started once; each algorithm goes on from there. All that is measured is
measured on held-out positions, sampled at temperature 1 and with the likeliest tokens (greedy). Controls: the trained
model sees grey images, or those of other positions; and a model that is trained on grey images by the same
commands. Small boards come up in training and among held-out positions, so that the trained model is measured on
those alone, too, that never came up. The page docs/learning/TASK.md and its image are written from all of it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from training.core.plots import read_curve
from training.local.actor import Actor
from training.local.config import TrainConfig
from training.local.options import read_config
from training.local.validation import Images, ValidationResult, validate, validation_episodes
from vlmgym.cli.console import parse_options, reporting_errors
from vlmgym.errors import UsageError
from vlmgym.records.output_folder import OutputFolder
from vlmgym.rollout.episode import EpisodeRollout
from vlmgym.terminal import make_console

from .chance import without_looking
from .novel import novel
from .page import Trained, write_page
from .running import once, train
from .tasks import TASKS

LOOKS: tuple[tuple[str, Images, float], ...] = (
    ("sampled", "true", 1.0),
    ("greedy", "true", 0.0),
    ("blank", "blank", 1.0),
    ("shuffled", "shuffled", 1.0),
)
"""Name, what the model sees, temperature."""
RUNS: dict[str, list[str]] = {
    "GRPO": ["--algorithm", "grpo"],
    "PPO": ["--algorithm", "ppo"],
    "PPO over tokens": ["--algorithm", "ppo", "--ppo.gae-over", "tokens"],
    "PPO over tokens, lambda 0.95": ["--algorithm", "ppo", "--ppo.gae-over", "tokens", "--ppo.token-lam", "0.95"],
}
"""Algorithms and their variants."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train, measure, and write a page."""

    task: str = "3x3"
    """What is learned: a task of benchmarks/learning/tasks.py."""
    seeds: tuple[int, ...] = (10, 11, 12)
    """Seeds; the page says how they and the choice of settings are related."""
    runs: tuple[str, ...] = ("GRPO", "PPO")
    """What is compared: GRPO, PPO, "PPO over tokens", "PPO over tokens, lambda 0.95"."""
    blank: int = 1
    """Seeds, the first ones, for which a model is trained on grey images, too, by the first of these."""
    answers: int = 512
    """Held-out positions of each measurement."""
    jobs: int = 2
    """Seeds at once."""
    output_dir: Path = Path("logs/learning")
    """Folder of all runs; those that are finished there are not run again."""
    pages: Path = Path("docs/learning")
    """Folder of the page."""

    def __post_init__(self) -> None:
        if min(self.jobs, self.answers) < 1 or not self.seeds or not self.runs:
            raise UsageError("there is at least one seed, one run, one job and one answer")
        if self.task not in TASKS:
            raise UsageError(f"there is no task {self.task!r}; the tasks are {', '.join(TASKS)}")
        if unknown := [run for run in self.runs if run not in RUNS]:
            raise UsageError(f"there is no run {unknown[0]!r}; the runs are {', '.join(RUNS)}")


def measure(folder: Path, args: Sequence[str], answers: int) -> dict[str, ValidationResult]:
    """What the model of a run is worth, by name of the look; measured once."""

    def find() -> dict[str, Any]:
        config = read_config(args)
        actor = Actor(folder / "model", config.model)
        return {
            name: asdict(validate(actor, config, validation_episodes_of(config, answers), images, temperature))
            for name, images, temperature in LOOKS
        }

    return {name: ValidationResult(**one) for name, one in once(folder / f"measured_{answers}.json", find).items()}


def measure_novel(folder: Path, cold: Sequence[str], after: Sequence[str], answers: int) -> ValidationResult | None:
    """What the model of a run is worth on those held-out positions that never came up in training, sampled.

    Args:
        folder: Of the run.
        cold: Options of the cold start.
        after: Options of the run.
        answers: Held-out positions, of which these are some.

    Returns:
        None if all came up.
    """

    def find() -> dict[str, Any] | None:
        config = read_config(cold)
        if not (episodes := novel(validation_episodes_of(config, answers), cold, after)):
            return None
        return asdict(validate(Actor(folder / "model", config.model), config, episodes, "true", 1.0))

    plain = once(folder / f"novel_{answers}.json", find)
    return None if plain is None else ValidationResult(**plain)


def measure_chance(folder: Path, cold: Sequence[str], answers: int) -> tuple[float, float]:
    """What random answers, and the best constant one, are worth on the held-out positions of a seed.

    Args:
        folder: Of the cold start.
        cold: Its options.
        answers: Held-out positions.
    """
    random, constant = once(
        folder / f"chance_{answers}.json", lambda: without_looking(validation_episodes_of(read_config(cold), answers))
    )
    return random, constant


def validation_episodes_of(config: TrainConfig, count: int) -> list[EpisodeRollout]:
    """At held-out positions, not yet played."""
    curriculum = config.make_curriculum()
    return validation_episodes(config, curriculum, curriculum.begin(), count)


def run_seed(options: Options, seed: int) -> list[Trained]:
    """All runs of a seed."""
    shared = ["--preset", "tiny", "--seed", str(seed), "--evaluation.episodes", "0", "--evaluation.states", "0"]
    # Single answers are measured, not episodes: no prompt says that an answer was not played.
    shared += ["--record-interval", "0", "--sft.random-turns", "0", *TASKS[options.task].args]
    trained = []
    for blank in [False, True] if seed in options.seeds[: options.blank] else [False]:
        name = f"{options.task}-{seed}{'-blank' if blank else ''}"
        # Without eyes little is learned in the cold start, which is no reason to stop here.
        grey = ["--blank", "--sft.gate", "0"] if blank else []
        cold = options.output_dir / f"{name}-cold"
        minutes = train(cold, *shared, *grey, "--steps", "0")
        before = measure(cold, shared, options.answers)
        chance = measure_chance(cold, shared, options.answers)
        for run in options.runs[:1] if blank else options.runs:
            folder = options.output_dir / f"{name}-{run.lower().replace(', ', '-').replace(' ', '-')}"
            go_on = ["--sft.steps", "0", "--model", str(cold / "model"), *RUNS[run]]
            more = train(folder, *shared, *grey, *go_on)
            after = measure(folder, shared, options.answers)
            unseen = measure_novel(folder, shared, [*shared, *go_on], options.answers)
            curve = read_curve(folder / "curve.jsonl")
            label = f"{run}, blank" if blank else run
            trained.append(Trained(label, seed, minutes, more, chance, before, after, unseen, curve))
    return trained


def main() -> None:
    """The command line."""
    options = parse_options(Options, None, prog="python -m benchmarks.learning")
    torch.set_num_threads(1)
    options = replace(options, output_dir=options.output_dir.resolve())
    pages = OutputFolder(options.pages)
    pages.check(pages.folder / f"{options.task}.png", pages.folder / f"{options.task}.md")
    options.output_dir.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        trained = [one for found in pool.map(lambda seed: run_seed(options, seed), options.seeds) for one in found]
    page = write_page(options.pages, options.task, TASKS[options.task], sys.argv[1:], trained)
    make_console().print(f"page    {page}", soft_wrap=True)


if __name__ == "__main__":
    with reporting_errors():
        main()
