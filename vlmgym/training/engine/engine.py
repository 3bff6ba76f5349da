"""The interface between training and the model: compute log-probabilities, take gradient steps.

Nothing outside this package deals with batches of tensors, padding or devices.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from vlmgym.training.algorithm import Batch, DivergedError, Floats
from vlmgym.training.config import RolloutConfig
from vlmgym.training.engine.actor import Actor, LogProbs, TeacherActor, deduplicate
from vlmgym.training.engine.encoding import TrainSample
from vlmgym.training.engine.processes import ALONE, Processes

MIN_FILL = 0.9
"""Minimum fraction of each row of a micro-batch that is not padding. A lower minimum would waste time on padding, a
higher one would need more forward passes."""
MIN_FILL_SHARED = 0.75
"""The same for samples that share prompts; lower, because each forward pass computes its shared prompts again."""
MAX_LOSS = 1e3
"""Training stops if the loss exceeds this. Advantages are of order 1, so a healthy loss is near 0."""
Loss = Callable[[LogProbs, Batch], tuple[torch.Tensor, dict[str, torch.Tensor]]]
"""Loss of a batch and metrics; see `Algorithm.loss`."""


class Engine:
    """The model in training, with a copy in each process of the run."""

    def __init__(
        self, actor: Actor, rollout: RolloutConfig, micro_batch_size: int, processes: Processes = ALONE
    ) -> None:
        self.actor, self.rollout, self.micro_batch_size, self.processes = actor, rollout, micro_batch_size, processes
        self.reference: Actor | None = None
        """Frozen copy of the model for the KL penalty."""
        self.teacher: TeacherActor | None = None
        """Frozen model that scores each token of responses."""

    def infer(self, samples: Sequence[TrainSample], actor: Actor | None = None) -> tuple[list[Floats], list[Floats]]:
        """Compute each sample's log-probabilities and values, without gradients; without a critic, return no values.

        `actor` is this process's model by default.
        """
        actor = actor or self.actor
        logprobs: dict[int, Floats] = {}
        values: dict[int, Floats] = {}
        for indices in micro_batches(samples, self.micro_batch_size, share=actor.shares_prompts):
            with torch.no_grad():
                out = actor.compute_logprobs([samples[index] for index in indices], self.rollout.temperature)
            for row, index in enumerate(indices):
                length = len(samples[index].response)
                logprobs[index] = out.logprobs[row, :length].double().cpu().numpy()
                if out.values is not None:
                    values[index] = out.values[row, :length].double().cpu().numpy()
        return [logprobs[index] for index in sorted(logprobs)], [values[index] for index in sorted(values)]

    def frozen_copy(self) -> Actor:
        """Copy the model in its present state; weights that are not trained are shared."""
        shared = {id(weight): weight for weight in self.actor.parameters() if not weight.requires_grad}
        frozen: Actor = copy.deepcopy(self.actor, shared).requires_grad_(False)
        return frozen

    def ask_teacher(self, samples: Sequence[TrainSample], temperature: float) -> torch.Tensor | None:
        """Return the teacher's `distributions` for the responses of samples; None if they have no prompt for it."""
        prompts = [sample.teacher_prompt for sample in samples if sample.teacher_prompt is not None]
        if self.teacher is None or not prompts:
            return None
        read = [TrainSample(prompt, sample.response) for prompt, sample in zip(prompts, samples, strict=True)]
        return self.teacher.actor.distributions(read, temperature)

    def make_optimizer(self, lr: float, critic_lr: float, **options: Any) -> torch.optim.Optimizer:
        """Create AdamW for the model and its critic; the learning rates are `peak_lr` of the parameter groups."""
        body = [parameter for parameter in self.actor.model.parameters() if parameter.requires_grad]
        groups: list[dict[str, Any]] = [{"params": body, "peak_lr": lr}]
        if self.actor.critic is not None:
            groups.append({"params": list(self.actor.critic.parameters()), "peak_lr": critic_lr})
        return torch.optim.AdamW(groups, lr=lr, fused=True, **options)

    def step(
        self,
        optimizer: torch.optim.Optimizer,
        samples: Sequence[TrainSample],
        loss: Loss,
        rate: float,
        *,
        further: tuple[Sequence[TrainSample], Loss] | None = None,
        loss_over: str = "tokens",
        temperature: float | None = None,
        entropy_grad: bool = False,
        max_grad_norm: float = 1.0,
        split: int | None = None,
    ) -> dict[str, float]:
        """Take a gradient step on samples, which must be the same in all processes; each computes a share of it.

        Args:
            optimizer: Optimiser of the model, from `make_optimizer`.
            samples: Minibatch.
            loss: Loss of a micro-batch.
            rate: Learning rate, as a fraction of the peak learning rates.
            further: Other samples, and a loss to add, whose weights make a mean over the tokens of these samples.
            loss_over: Averaging of the loss; see `UpdateConfig`.
            temperature: Temperature of the log-probabilities; the one of rollouts by default.
            entropy_grad: Whether the loss has an entropy bonus.
            max_grad_norm: Maximum norm of the gradient, which is scaled down to it.
            split: Number of the first samples whose gradient is compared with that of the others, as `gradient_cosine`.

        Returns:
            Means over the minibatch of the loss and its metrics; grad_norm, and gradient_cosine if measured.

        Raises:
            DivergedError: The loss or the gradient is not finite, or the loss is too large.
        """
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        temperature = self.rollout.temperature if temperature is None else temperature
        make_batch = BatchMaker(samples, loss_over, self.rollout.max_tokens)
        added = [] if further is None else [(*further, BatchMaker(further[0], "tokens", self.rollout.max_tokens))]

        def accumulate(*terms: tuple[Sequence[TrainSample], Loss, BatchMaker]) -> list[dict[str, float]]:
            """Add the gradients of terms to those of the parameters; return the metrics of each micro-batch."""
            parts = []
            for samples, loss, make_batch in terms:
                size = min(self.micro_batch_size, -(-len(samples) // self.processes.size))
                batches = micro_batches(samples, size, share=self.actor.shares_prompts)
                for indices in batches[self.processes.rank :: self.processes.size]:
                    part = [samples[index] for index in indices]
                    teacher = self.ask_teacher(part, temperature)
                    out = self.actor.compute_logprobs(part, temperature, entropy_grad=entropy_grad, teacher=teacher)
                    total, metrics = loss(out, make_batch(part, out))
                    total.backward()
                    parts.append({name: float(value.detach()) for name, value in {**metrics, "loss": total}.items()})
            parts = self.processes.gather(parts)
            self.processes.sum_gradients(parameters)
            return parts

        measured = {}
        if split is not None:
            parts = accumulate((samples[:split], loss, make_batch))
            first = [parameter.grad for parameter in parameters]
            optimizer.zero_grad()
            parts += accumulate((samples[split:], loss, make_batch), *added)
            measured["gradient_cosine"] = add_gradients(parameters, first)
        else:
            parts = accumulate((samples, loss, make_batch), *added)
        names = dict.fromkeys(name for part in parts for name in part)
        sums = {name: sum(part.get(name, 0.0) for part in parts) for name in names}
        if not math.isfinite(sums["loss"]):
            raise DivergedError(f"the loss is {sums['loss']}")
        if abs(sums["loss"]) > MAX_LOSS:
            raise DivergedError(f"the loss is {sums['loss']:.3g}, above {MAX_LOSS:g}")
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm))
        if not math.isfinite(norm):
            raise DivergedError("the gradient is not finite")
        for group in optimizer.param_groups:
            group["lr"] = rate * group["peak_lr"]
        optimizer.step()
        optimizer.zero_grad()
        return {**sums, "grad_norm": norm, **measured}


def add_gradients(parameters: Sequence[torch.nn.Parameter], others: Sequence[torch.Tensor | None]) -> float:
    """Add other gradients to those of parameters; return the cosine between the two before, 0 if one is 0."""
    products = torch.zeros(3, dtype=torch.float64)
    for parameter, other in zip(parameters, others):
        if parameter.grad is None or other is None:
            parameter.grad = other if parameter.grad is None else parameter.grad
            continue
        pairs = ((parameter.grad, other), (parameter.grad, parameter.grad), (other, other))
        products += torch.stack([(a.float() * b.float()).sum().double().cpu() for a, b in pairs])
        parameter.grad += other
    dot, *squares = products.tolist()
    norms = math.sqrt(squares[0] * squares[1])
    return dot / norms if norms else 0.0


class BatchMaker:
    """Makes the micro-batches of a minibatch, whose weights add up to those of a mean over the minibatch."""

    def __init__(self, samples: Sequence[TrainSample], loss_over: str, max_tokens: int) -> None:
        self.loss_over, self.max_tokens = loss_over, max_tokens
        self.responses, self.tokens = len(samples), sum(len(sample.response) for sample in samples)
        self.targets = sum(int((~np.isnan(sample.returns)).sum()) for sample in samples if sample.returns is not None)

    def __call__(self, samples: Sequence[TrainSample], out: LogProbs) -> Batch:
        """Pad the targets of some samples, of which `out` has the log-probabilities before the update."""

        def pad(name: str) -> torch.Tensor | None:
            rows = [getattr(sample, name) for sample in samples]
            return None if rows[0] is None else padded(rows, out.logprobs.device)

        old_logprobs, advantages, returns = pad("old_logprobs"), pad("advantages"), pad("returns")
        value_weights = None
        if returns is not None:
            value_weights = (~returns.isnan() & out.mask) / self.targets
            returns = returns.nan_to_num()
        return Batch(
            weights=self.weights(out.mask),
            token_weights=out.mask / self.tokens,
            advantages=torch.zeros_like(out.logprobs) if advantages is None else advantages,
            old_logprobs=out.logprobs.detach() if old_logprobs is None else old_logprobs,
            ref_logprobs=pad("ref_logprobs"),
            old_values=pad("old_values"),
            returns=returns,
            value_weights=value_weights,
        )

    def weights(self, mask: torch.Tensor) -> torch.Tensor:
        """Return the weight of each token in the loss, with the shape of `mask`."""
        if self.loss_over == "tokens":
            return mask / self.tokens
        if self.loss_over == "responses":
            return mask / mask.sum(dim=1, keepdim=True) / self.responses
        return mask / (self.responses * self.max_tokens)


def padded(rows: Iterable[Floats | None], device: torch.device) -> torch.Tensor:
    """Stack arrays of different lengths into a float32 tensor, padded with zeros on the right."""
    return pad_sequence([torch.as_tensor(row, dtype=torch.float32) for row in rows], True).to(device)


def micro_batches(samples: Sequence[TrainSample], max_size: int, *, share: bool = True) -> list[list[int]]:
    """Group samples of similar length into forward passes, with equal prompts adjacent; return their indices.

    Samples are sorted by length, longest first. If samples `share` prompts, these and the responses are padded
    separately, so samples are sorted by the length of the prompt, then of the response.
    """
    unique, prompts = deduplicate([sample.prompt for sample in samples])
    shared = share and len(unique) < len(samples)
    parts = [(len(sample.prompt.ids), len(sample.response)) for sample in samples]
    lengths: list[tuple[int, ...]] = [*parts] if shared else [(sum(sizes),) for sizes in parts]
    min_fill = MIN_FILL_SHARED if shared else MIN_FILL
    batches: list[list[int]] = []
    for index in sorted(range(len(samples)), key=lambda i: (-lengths[i][0], prompts[i], -lengths[i][-1])):
        joined = [*batches[-1], index] if batches else []
        padded_length = sum(max(sizes) for sizes in zip(*(lengths[i] for i in joined)))
        if 1 < len(joined) <= max_size and min(sum(lengths[i]) for i in joined) >= min_fill * padded_length:
            batches[-1] = joined
        else:
            batches.append([index])
    return batches
