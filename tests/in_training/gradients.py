"""Updates of tiny models whose gradients are recorded, and their comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.in_training.tiny import TOLERANCE, make_samples
from vlmgym.training.config import read_config
from vlmgym.training.engine.actor import Actor
from vlmgym.training.engine.encoding import TrainSample
from vlmgym.training.run import TrainingRun
from vlmgym.training.trainer import Trainer

HERE = Path(__file__).parent
LENGTHS = (7, 2, 12, 4, 1)
TEMPERATURE, MAX_TOKENS = 0.8, 16
Gradients = dict[str, torch.Tensor]


def make_targets(actor: Actor, *, critic: bool = False) -> list[TrainSample]:
    """Create samples whose probabilities have changed in both directions, some beyond the clip range."""
    rng = np.random.default_rng(1)
    samples = make_samples(actor, LENGTHS)
    with torch.no_grad():
        logprobs = actor.compute_logprobs(samples, TEMPERATURE).logprobs.double().numpy()
    for row, sample in enumerate(samples):
        length = len(sample.response)
        now = logprobs[row, :length]
        returns = rng.normal(size=length)
        returns[1:][rng.random(length - 1) < 0.5] = np.nan
        sample.advantages = np.full(length, rng.normal())
        sample.old_logprobs = now + rng.normal(0, 0.3, length)
        if critic:
            sample.old_values, sample.returns = rng.normal(0, 0.3, length), returns
        sample.ref_logprobs = now + rng.normal(0, 0.5, length)
    return samples


class Recorder(torch.optim.SGD):
    """An optimiser that records gradients and changes nothing."""

    def __init__(self, actor: Actor) -> None:
        super().__init__([{"params": [*actor.parameters()], "peak_lr": 0.0}], lr=0.0)
        self.steps: list[Gradients] = []
        self._named = dict(actor.named_parameters())

    def step(self, closure: Any = None) -> None:
        named = self._named.items()
        self.steps.append({name: parameter.grad.clone() for name, parameter in named if parameter.grad is not None})


def make_trainer(checkpoint: Path, folder: Path, *settings: str, algorithm: str = "grpo") -> Trainer:
    """Create a trainer whose optimiser records gradients, without limiting their norm unless settings do."""
    args = ["--preset", str(HERE / "quick.toml"), "--model", str(checkpoint), "--algorithm", algorithm]
    common = (f"rollout.temperature={TEMPERATURE}", f"rollout.max_tokens={MAX_TOKENS}", "update.max_grad_norm=1e9")
    trainer = Trainer(read_config([*args, "--settings", *common, *settings]), TrainingRun(folder))
    trainer.optimizer = Recorder(trainer.actor)
    return trainer


def run_update(
    trainer: Trainer, samples: Sequence[TrainSample], split: int = 0
) -> tuple[dict[str, float], list[Gradients]]:
    """Update on samples; return the metrics and the gradients of each optimiser step."""
    metrics = trainer.update(samples, split)
    assert isinstance(trainer.optimizer, Recorder)
    return metrics, trainer.optimizer.steps


def norm_of(gradients: Gradients) -> float:
    return float(torch.cat([gradient.flatten() for gradient in gradients.values()]).norm())


def assert_close(ours: Gradients, theirs: Gradients) -> None:
    """Compare each parameter to within 1e-5 of the norm of the whole gradient."""
    assert set(ours) == set(theirs)
    norm = norm_of(theirs)
    assert norm > 1e-3
    for name, gradient in theirs.items():
        assert (ours[name] - gradient).norm() <= TOLERANCE * norm, name
