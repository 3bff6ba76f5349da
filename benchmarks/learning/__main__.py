"""Measure what a tiny model learns, and whether it uses the image.

    .venv-train/bin/python -m benchmarks.learning                       # 3 seeds, GRPO and PPO, 2048 on 4x4
    .venv-train/bin/python -m benchmarks.learning --task shisensho      # tasks: benchmarks/learning/tasks.py

For each seed, a tiny model is initialised and trained by SFT once; each algorithm continues from it. Models are
measured in validation states, with sampling at temperature 1 and with greedy decoding. There are two kinds of controls:
the trained model sees grey images or images of other states, and another model is trained on grey images with the same
commands. Some small boards occur in both training and validation, so models are also measured only on boards that did
not occur in training. Writes docs/learning/TASK.md and its image.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from vlmgym.errors import UsageError
from vlmgym.pages.training import read_curve
from vlmgym.terminal import parse_options, reporting_errors
from vlmgym.training.config import TrainConfig, read_config
from vlmgym.training.engine.actor import Actor
from vlmgym.training.states import EpisodeRollout
from vlmgym.training.validation import Images, ValidationResult, validate, validation_episodes

from .chance import without_looking
from .novel import novel
from .page import Trained, write_page
from .running import once, train
from .tasks import TASKS

CONDITIONS: tuple[tuple[str, Images, float], ...] = (
    ("sampled", "true", 1.0),
    ("greedy", "true", 0.0),
    ("blank", "blank", 1.0),
    ("shuffled", "shuffled", 1.0),
)
"""Name of each condition, images shown to the model, and sampling temperature (0 is greedy)."""
RUNS: dict[str, list[str]] = {
    "GRPO": ["--algorithm", "grpo"],
    "PPO": ["--algorithm", "ppo"],
    "PPO over tokens": ["--algorithm", "ppo", "--settings", "ppo.gae_over=tokens", "ppo.lam=1"],
    "PPO over tokens, lambda 0.95": ["--algorithm", "ppo", "--settings", "ppo.gae_over=tokens"],
}
"""Options of the algorithms and their variants."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train, measure and write a page."""

    task: str = "4x4"
    """A task of benchmarks/learning/tasks.py."""
    seeds: tuple[int, ...] = (10, 11, 12)
    """Training seeds. The page says whether settings were chosen with them."""
    runs: tuple[str, ...] = ("GRPO", "PPO")
    """Algorithms: GRPO, PPO, "PPO over tokens", "PPO over tokens, lambda 0.95"."""
    blank: int = 1
    """Number of seeds for which the first algorithm also trains a model on grey images."""
    answers: int = 512
    """Number of validation states per measurement."""
    jobs: int = 2
    """Seeds to run in parallel."""
    output_dir: Path = Path("logs/learning")
    """Folder of all runs; finished runs are not repeated."""
    pages: Path = Path("docs/learning")
    """Folder of the page."""

    def __post_init__(self) -> None:
        if min(self.jobs, self.answers) < 1 or not self.seeds or not self.runs:
            raise UsageError("seeds, runs, jobs and answers must not be empty or 0")
        if self.task not in TASKS:
            raise UsageError(f"unknown task {self.task!r}, choose from: {', '.join(TASKS)}")
        if unknown := [run for run in self.runs if run not in RUNS]:
            raise UsageError(f"unknown run {unknown[0]!r}, choose from: {', '.join(RUNS)}")


def measure(folder: Path, args: Sequence[str], answers: int) -> dict[str, ValidationResult]:
    """Return the validation results of a run's model by condition; measure only if there is no results file."""

    def find() -> dict[str, Any]:
        config = read_config(args)
        actor = Actor(folder / "model", config.model)
        return {
            name: asdict(validate(actor, config, validation_episodes_of(config, answers), images, temperature))
            for name, images, temperature in CONDITIONS
        }

    return {name: ValidationResult(**facts) for name, facts in once(folder / f"measured_{answers}.json", find).items()}


def measure_novel(
    folder: Path, sft_args: Sequence[str], rl_args: Sequence[str], answers: int
) -> ValidationResult | None:
    """Return the validation result of a run's model in states that did not occur in training.

    Args:
        folder: Folder of the run.
        sft_args: Options of the SFT run.
        rl_args: Options of the RL run.
        answers: Number of validation states before those that occurred in training are removed.

    Returns:
        The result; None if all states occurred in training.
    """

    def find() -> dict[str, Any] | None:
        config = read_config(sft_args)
        if not (episodes := novel(validation_episodes_of(config, answers), sft_args, rl_args)):
            return None
        return asdict(validate(Actor(folder / "model", config.model), config, episodes, "true", 1.0))

    plain = once(folder / f"novel_{answers}.json", find)
    return None if plain is None else ValidationResult(**plain)


def measure_chance(folder: Path, sft_args: Sequence[str], answers: int) -> tuple[float, float]:
    """Return the mean rewards of random answers and of the best constant answer in the validation states of a seed.

    Args:
        folder: Folder of the SFT run.
        sft_args: Options of the SFT run.
        answers: Number of validation states.
    """
    random, constant = once(
        folder / f"chance_{answers}.json",
        lambda: without_looking(validation_episodes_of(read_config(sft_args), answers)),
    )
    return random, constant


def validation_episodes_of(config: TrainConfig, count: int) -> list[EpisodeRollout]:
    """Start `count` episodes, each in a validation state."""
    curriculum = config.make_curriculum()
    return validation_episodes(config, curriculum, curriculum.begin(), count)


def run_seed(options: Options, seed: int) -> list[Trained]:
    """Train and measure all algorithms for a seed."""
    shared = ["--preset", "single_moves", "--seed", str(seed), "--evaluation.episodes", "0", "--evaluation.states", "0"]
    # Only single answers are measured, whose prompts never report a rejected answer, so SFT needs no random turns.
    shared += ["--record-interval", "0", "--settings", "sft.random_turns=0", *TASKS[options.task].args]
    trained = []
    for blank in [False, True] if seed in options.seeds[: options.blank] else [False]:
        name = f"{options.task}-{seed}{'-blank' if blank else ''}"
        # Without images, SFT learns too little for its gate, which would stop the run.
        grey = ["--control", "blank", "--settings", "sft.gate=0"] if blank else []
        sft = options.output_dir / f"{name}-cold"
        minutes = train(sft, *shared, *grey, "--steps", "0")
        before = measure(sft, shared, options.answers)
        chance = measure_chance(sft, shared, options.answers)
        for run in options.runs[:1] if blank else options.runs:
            folder = options.output_dir / f"{name}-{run.lower().replace(', ', '-').replace(' ', '-')}"
            rl_args = ["--sft.steps", "0", "--model", str(sft / "model"), *RUNS[run]]
            more = train(folder, *shared, *grey, *rl_args)
            after = measure(folder, shared, options.answers)
            unseen = measure_novel(folder, shared, [*shared, *rl_args], options.answers)
            curve = read_curve(folder / "curve.jsonl")
            label = f"{run}, blank" if blank else run
            trained.append(Trained(label, seed, minutes, more, chance, before, after, unseen, curve))
    return trained


def main() -> None:
    """Run the benchmark."""
    options = parse_options(Options, None, prog="python -m benchmarks.learning")
    torch.set_num_threads(1)
    options = replace(options, output_dir=options.output_dir.resolve())
    options.output_dir.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        trained = [*chain.from_iterable(pool.map(lambda seed: run_seed(options, seed), options.seeds))]
    write_page(options.pages, options.task, TASKS[options.task], sys.argv[1:], trained)


if __name__ == "__main__":
    with reporting_errors():
        main()
