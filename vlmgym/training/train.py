"""Train a Qwen-VL on games on one machine: supervised fine-tuning, then GRPO, PPO, distillation or DAgger.

    vlmgym train --preset tiny --algorithm grpo

States, tokens and minibatches are pure functions of the config and its seed, so a run resumed from a checkpoint gives
the same results as one that was never interrupted. `trainer.py` implements the training steps.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from vlmgym.curriculum.schedule import describe
from vlmgym.evaluation.live_log import begin_wandb, check_loggers
from vlmgym.pages.training import read_curve
from vlmgym.policies.checkpoint import resolve_checkpoint
from vlmgym.runs.files import output_folder, replace_file, replace_folder
from vlmgym.terminal import check_interrupts, make_console
from vlmgym.training.algorithm import DivergedError, TrainingError
from vlmgym.training.config import TrainConfig
from vlmgym.training.curves import Curves, SftProgress, StepProgress, draw_comparison
from vlmgym.training.engine.checkpoint import drop_old_checkpoints, last_checkpoint
from vlmgym.training.engine.processes import Processes
from vlmgym.training.evaluation import (
    baseline_scores,
    check_evaluation,
    comparison_table,
    describe_scores,
    evaluate_model,
    label_arms,
)
from vlmgym.training.records import begin_rollout_records, set_aside, write_result
from vlmgym.training.run import TrainingRun
from vlmgym.training.sft import check_games
from vlmgym.training.signal import describe_signal
from vlmgym.training.trainer import Trainer

OUT_OF_MEMORY = (
    "out of memory: lower --update.micro-batch-size, --rollout.batch-size or --processes, or add "
    "--gradient-checkpointing, also with --resume; or start again with a lower --rollout.max-tokens or --size, or with "
    "--lora 64 and --dtype bfloat16"
)
OUT_OF_MEMORY_MESSAGES = ("can't allocate memory", "CUDA error: out of memory", "STATUS_ALLOC_FAILED")
"""Parts of the RuntimeError messages when torch runs out of memory on a CPU, on a GPU and in cuBLAS."""


def run_training(run: TrainingRun, config: TrainConfig) -> None:
    """Train, or only check the settings."""
    check_loggers(wandb=config.wandb)
    curriculum = config.make_curriculum()
    check_evaluation(config, curriculum)
    check_games(config, curriculum)
    if config.model.model is not None:
        resolve_checkpoint(config.model.model, "training")
    if (teacher := config.method.teacher_model) is not None and teacher.checkpoint is not None:
        resolve_checkpoint(teacher.checkpoint, "distillation")
    console = make_console()
    if config.check:
        schedule = describe(curriculum, config.prompts, config.steps, config.play.max_turns)
        for line in (*schedule, "no problems found"):
            console.print(line, soft_wrap=True)
        return
    console.print(f"run     {run.folder}", soft_wrap=True)
    try:
        with output_folder(run.folder, run.config.name):
            if config.resume is None:
                run.begin(config)
            with wandb_run(config.wandb, run) as wandb, memory_errors():
                result = train(config, run, make_console(stderr=True), wandb)
    except (TrainingError, KeyboardInterrupt) as error:
        last = last_checkpoint(run.checkpoints) or last_checkpoint(run.sft)
        if isinstance(error, DivergedError):  # resuming would repeat it
            precision = "" if config.model.dtype == "float32" else ", or use --dtype float32"
            checkpoint = f"the last checkpoint is {last}" if last else "there is no checkpoint yet"
            hint = f"lower the learning rate{precision}; {checkpoint}"
        else:
            start = "continues from the last checkpoint" if last else "starts again, as there is no checkpoint yet"
            hint = f"--resume {run.folder} {start}"
        error.args = (f"{str(error) or 'interrupted'}; {hint}",)
        raise
    if config.evaluation.states:
        for line in comparison_table(result["validation"], config.algorithm):
            console.print(line, soft_wrap=True)
    if config.evaluation.episodes:
        count, turns = config.evaluation.episodes, config.evaluation.max_turns
        console.print(f"mean score of {count} whole episodes of up to {turns} turns (95% interval):", soft_wrap=True)
        console.print(f"  random play  {describe_scores(baseline_scores(config, curriculum))}", soft_wrap=True)
        for title, validation in label_arms(result["validation"], config.algorithm).items():
            console.print(f"  {title:12} {describe_scores(validation['episodes'])}", soft_wrap=True)
    for name, path in result["paths"].items():
        console.print(f"{name:11}{path}", soft_wrap=True)


def train(config: TrainConfig, run: TrainingRun, console: Console, wandb: Any = None) -> dict[str, Any]:
    """Train from the start, or resume from a checkpoint; return the contents of `result.json`.

    Raises `SftError` if supervised fine-tuning misses its gate, and `TrainingError` if training cannot continue; the
    last checkpoint remains valid then.
    """
    start = time.perf_counter()
    processes = Processes(size=config.num_processes)
    trainer = Trainer(config, run, processes=processes)
    run.write_config(config)
    with processes.running(partial(Trainer, config, run, trainer.curriculum)):
        fine_tune(trainer, console)
        before = evaluate_once(trainer, run.before, run.before_result, console)
        control = train_control(trainer, console)
        if (checkpoint := run.checkpoint or last_checkpoint(run.checkpoints)) is not None:
            trainer.load(checkpoint)
            console.print(f"resuming after step {trainer.step}")
            if run.checkpoint is not None and (aside := set_aside(run.folder, trainer.step)) is not None:
                console.print(f"later steps were moved to {aside}", soft_wrap=True)
        policy, episodes = trainer.policy_record(), config.steps * config.batch_size
        begin_rollout_records(run.rollouts, trainer.curriculum, policy, config.play, config.reward, episodes)
        with Curves(run.folder, wandb, after=trainer.step) as curves, StepProgress(console, config.steps) as progress:
            progress.show(trainer.step, {})
            while trainer.step < config.steps:
                check_interrupts()
                row = trainer.take_step()
                curves.add(row)
                progress.show(trainer.step, row)
                if trainer.errors:
                    count = f"{len(trainer.errors)} of {config.batch_size} episodes of step {trainer.step}"
                    console.print(f"{count} ended as errors, the first: {trainer.errors[0]}", soft_wrap=True)
                if trainer.step % config.checkpoint_interval == 0 or trainer.step == config.steps:
                    trainer.save(run.checkpoints)
                    drop_old_checkpoints(run.checkpoints, config.keep_checkpoints)
            for line in describe_signal(curves.rows, config.group_size):
                console.print(line, soft_wrap=True)
        with replace_folder(run.model) as part:
            trainer.actor.save(part)
            trainer.trained_record().write(part)
        after = evaluate_model(trainer, run.after, console)
        if control is not None and config.evaluation.states:
            results = label_arms({"before": before, "control": control, "after": after}, config.algorithm)
            progress_of_arms = {"more SFT": read_curve(run.control_curve), config.algorithm.upper(): curves.rows}
            replace_file(run.comparison, draw_comparison(progress_of_arms, results))
    return write_result(
        run.folder,
        rewards=trainer.rewards,
        steps=trainer.step,
        episodes=trainer.step * config.batch_size,
        validation={"before": before, **({} if control is None else {"control": control}), "after": after},
        seconds=time.perf_counter() - start,
        paths={
            "model": run.model,
            "checkpoint": last_checkpoint(run.checkpoints) or run.checkpoints,
            "metrics": run.folder / "curve.jsonl",
            "curve": run.folder / "curve.png",
            "comparison": run.comparison,
            "rollouts": run.rollouts,
            "report": run.after / "report.html",
        },
    )


def fine_tune(trainer: Trainer, console: Console) -> None:
    """Run supervised fine-tuning, or load its checkpoint if it is already done.

    Then keep copies of the model that are compared with it later.
    """
    run, config = trainer.run, trainer.config
    if (checkpoint := last_checkpoint(run.sft)) is not None:
        trainer.load(checkpoint)
    elif config.sft.steps:
        with SftProgress(console, config.sft.steps) as progress:
            summary = trainer.fine_tune(progress=progress)
        console.print(summary, soft_wrap=True)
    if checkpoint is None and (config.sft.steps or config.sft.control_steps):
        trainer.save(run.sft)
    trainer.keep_reference()


def evaluate_once(trainer: Trainer, folder: Path, path: Path, console: Console) -> dict[str, Any]:
    """Evaluate the model, or read the result if the run already has one."""
    if not path.exists():
        replace_file(path, json.dumps(evaluate_model(trainer, folder, console)).encode())
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def train_control(trainer: Trainer, console: Console) -> dict[str, Any] | None:
    """Evaluate a model that continues supervised fine-tuning, and return to its start; None without a control."""
    run, steps = trainer.run, trainer.config.sft.control_steps
    if not steps:
        return None
    if not run.control_result.exists():
        with SftProgress(console, steps) as progress:
            summary = trainer.fine_tune(True, progress=progress)
        console.print(summary, soft_wrap=True)
    result = evaluate_once(trainer, run.control, run.control_result, console)
    trainer.load(run.sft / "step_000000")
    return result


def wandb_run(project: str | None, run: TrainingRun) -> AbstractContextManager[Any]:
    """Start or resume the Weights & Biases run of a training run, as a context; without a project, it yields None.

    Raises:
        UsageError: Weights & Biases rejects the run.
    """
    if project is None:
        return nullcontext()
    config = json.loads(run.config.read_text(encoding="utf-8"))
    wandb: AbstractContextManager[Any] = begin_wandb(project, run.folder, run.wandb, config)
    return wandb


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turn out-of-memory errors into a `TrainingError` that suggests options to change."""
    try:
        yield
    except (torch.cuda.OutOfMemoryError, MemoryError):
        raise TrainingError(OUT_OF_MEMORY) from None
    except RuntimeError as error:
        if any(message in str(error) for message in OUT_OF_MEMORY_MESSAGES):
            raise TrainingError(OUT_OF_MEMORY) from None
        raise
