"""Train a Qwen-VL on games in this process: cold start, then GRPO or PPO, measured before and after.

    python -m training.local.train --preset tiny --algorithm grpo

Everything follows from the configuration and its seed: which positions, which tokens, which minibatches. Nothing
depends on what was drawn before, so that a run that goes on from a checkpoint is the run that was never stopped.
What a step does is in `trainer.py`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from rich.console import Console

from training.local.checkpoint import drop_old, last_checkpoint
from training.local.config import TrainConfig, read_config
from training.local.curves import Curves, wandb_run
from training.local.demonstrations import check_demonstrations
from training.local.errors import ColdStartError, DivergedError, TrainingError
from training.local.evaluation import check_evaluation, measure
from training.local.held_out import HeldOut
from training.local.progress import ColdStartProgress, StepProgress
from training.local.run import TrainingRun
from training.local.trainer import Trainer
from vlmgym.cli.console import reporting_errors
from vlmgym.errors import UsageError
from vlmgym.evaluation.live_log import check_loggers
from vlmgym.terminal import make_console

OUT_OF_MEMORY = (
    "the memory is too small: give a lower --update.micro-batch or --rollout.batch, or --checkpointing, each also "
    "beside --resume; or begin anew with a lower --rollout.max-tokens or --size, or with --lora 64 and --dtype bfloat16"
)

OUT_OF_MEMORY_SAID = ("can't allocate memory", "CUDA error: out of memory", "STATUS_ALLOC_FAILED")
"""One of these is in what torch raises without a type of its own: on a CPU, where a GPU is full already, by cuBLAS."""


def main(args: Sequence[str] | None = None) -> None:
    """The command line."""
    with reporting_errors():
        given = sys.argv[1:] if args is None else list(args)
        config = read_config(given)
        if config.resume is not None:
            if config.output_dir is not None:
                raise UsageError("a run goes on in its own folder: leave out --output-dir beside --resume")
            run, config = TrainingRun.reopen(config.resume, given)
        check_loggers(wandb=config.wandb)
        curriculum = config.make_curriculum()
        check_evaluation(config, curriculum)
        check_demonstrations(config, curriculum)
        if config.resume is None:
            run = TrainingRun.begin(config, given)
        console = make_console()
        console.print(f"run     {run.folder}", soft_wrap=True)
        try:
            with (
                run.output.reserved(),
                withdrawn_in_vain(config, run),
                wandb_run(config.wandb, run) as wandb,
                memory_errors(),
            ):
                result = train(config, run, make_console(stderr=True), wandb)
        except (TrainingError, KeyboardInterrupt) as error:
            last = last_checkpoint(run.checkpoints) or last_checkpoint(run.cold_start)
            if isinstance(error, DivergedError):  # resumed it would come to the same, as its options stay
                where = f"the last checkpoint is {last}" if last else "there is no checkpoint yet"
            else:
                goes_on = "goes on from the last checkpoint" if last else "begins anew, as there is no checkpoint yet"
                where = f"--resume {run.folder} {goes_on}"
            error.args = (f"{str(error) or 'interrupted'}; {where}",)
            raise
        for name in ("before", "after"):
            if "states" in result[name]:
                console.print(f"{name:7} {HeldOut(**result[name]['states']).words()}", soft_wrap=True)
        for name, path in result["paths"].items():
            console.print(f"{name:9}{path}", soft_wrap=True)


def train(config: TrainConfig, run: TrainingRun, console: Console, wandb: Any = None) -> dict[str, Any]:
    """Train, from the beginning or from the last checkpoint, and return what `result.json` says.

    Args:
        config: How.
        run: Where.
        console: Where progress is shown.
        wandb: The run at Weights & Biases, or None.

    Raises:
        UsageError: An option is not accepted.
        ColdStartError: The cold start taught too little.
        TrainingError: The loss explodes, or the memory is too small; the last checkpoint is good.
    """
    began = time.perf_counter()
    trainer = Trainer(config, run)
    run.remember()  # now that they can be had
    learn_to_respond(trainer, console)
    before = measure_before(trainer, console)
    if (checkpoint := last_checkpoint(run.checkpoints)) is not None:
        trainer.load(checkpoint)
        console.print(f"going on after step {trainer.step}")
    run.begin_rollout_records(config, trainer.curriculum, trainer.player())
    log = Curves(run.folder, wandb, after=trainer.step)
    with log as curves, StepProgress(console, config.steps) as progress:
        progress.show(trainer.step, {})
        while trainer.step < config.steps:
            row = trainer.take_step()
            curves.add(row)
            progress.show(trainer.step, row)
            if trainer.step % config.checkpoint_interval == 0 or trainer.step == config.steps:
                trainer.save(run.checkpoints)
                drop_old(run.checkpoints, config.keep)
    with run.output.building(run.model) as part:
        trainer.actor.save(part)
    after = measure(trainer.actor, config, trainer.curriculum, trainer.step, run.after, console)
    written = {
        "model": run.model,
        "curve": run.folder / "curve.png",
        "rollouts": run.rollouts,
        "report": run.after / "report.html",
    }
    result = {
        "final_reward": float(np.mean(trainer.rewards)) if trainer.rewards else None,
        "total_steps": trainer.step,
        "total_episodes": trainer.step * config.rows * config.copies,
        "before": before,
        "after": after,
        "seconds": time.perf_counter() - began,
        "paths": {name: str(path) for name, path in written.items() if path.exists()},
    }
    run.output.write(run.result, (json.dumps(result, indent=1) + "\n").encode())
    return result


def learn_to_respond(trainer: Trainer, console: Console) -> None:
    """The cold start, or what was kept of it."""
    run, config = trainer.run, trainer.config
    if (cold := last_checkpoint(run.cold_start)) is not None:
        trainer.load(cold)
    elif config.cold_start.steps:
        with ColdStartProgress(console, config.cold_start.steps) as progress:
            words = trainer.learn_to_respond(progress)
        trainer.save(run.cold_start)
        console.print(words, soft_wrap=True)
    trainer.keep_reference()


def measure_before(trainer: Trainer, console: Console) -> dict[str, Any]:
    """What the model is worth before reinforcement learning, or what was found of that before."""
    run = trainer.run
    try:
        kept: dict[str, Any] = json.loads(run.measured.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # not measured yet, or not all of the file is there
        pass
    else:
        return kept
    found = measure(trainer.actor, trainer.config, trainer.curriculum, 0, run.before, console)
    run.output.write(run.measured, json.dumps(found).encode())
    return found


@contextmanager
def withdrawn_in_vain(config: TrainConfig, run: TrainingRun) -> Iterator[None]:
    """Where other options are needed and nothing has come of these, take them back, so that others can be given."""
    try:
        yield
    except (ColdStartError, DivergedError):
        run.withdraw()
        raise
    except UsageError:
        if config.resume is None:
            run.withdraw()
        raise


@contextmanager
def memory_errors() -> Iterator[None]:
    """Say what to lower when memory is used up."""
    try:
        yield
    except (torch.cuda.OutOfMemoryError, MemoryError):
        raise TrainingError(OUT_OF_MEMORY) from None
    except RuntimeError as error:
        if any(words in str(error) for words in OUT_OF_MEMORY_SAID):
            raise TrainingError(OUT_OF_MEMORY) from None
        raise


if __name__ == "__main__":
    main()
