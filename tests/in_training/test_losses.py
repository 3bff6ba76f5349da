"""Losses and gradients, compared with TRL and plain formulas; minibatches and supervised fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import AutoProcessor
from trl import GRPOConfig, GRPOTrainer

from tests.in_training.tiny import TOLERANCE, make_actor, make_checkpoint, make_samples
from vlmgym.training.advantages import discounted_returns
from vlmgym.training.config import PpoConfig, SftConfig, UpdateConfig
from vlmgym.training.engine.actor import Actor
from vlmgym.training.engine.encoding import EncodedPrompt, Encoder, TrainSample
from vlmgym.training.engine.processes import DivergedError
from vlmgym.training.loss import (
    MIN_FILL,
    MIN_FILL_SHARED,
    kl_estimate,
    micro_batches,
    pad,
    policy_loss,
    token_weights,
    update,
    value_loss,
)
from vlmgym.training.sft import fine_tune, sft_loss
from vlmgym.training.trainer import compute_ppo_targets

LENGTHS = (7, 2, 12, 4, 1)
TEMPERATURE, MAX_TOKENS = 0.8, 16
LOW, HIGH, KL = 0.2, 0.28, 0.3
Gradients = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture
def actor(checkpoint: Path) -> Actor:
    return make_actor(checkpoint)


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
        super().__init__(actor.parameters(), lr=0.0)
        self.steps: list[Gradients] = []
        self._named = dict(actor.named_parameters())

    def step(self, closure: Any = None) -> None:
        named = self._named.items()
        self.steps.append({name: parameter.grad.clone() for name, parameter in named if parameter.grad is not None})


def run_update(
    actor: Actor, samples: Sequence[TrainSample], config: UpdateConfig, *, epochs: int = 1, **value: Any
) -> tuple[dict[str, float], list[Gradients]]:
    """Run `update`; return its metrics and the gradients of each optimiser step."""
    recorder = Recorder(actor)
    metrics = update(
        actor,
        recorder,
        samples,
        config,
        **value,
        temperature=TEMPERATURE,
        max_tokens=MAX_TOKENS,
        epochs=epochs,
        minibatches=2 if epochs > 1 else 1,
        rng=np.random.default_rng(0),
    )
    return metrics, recorder.steps


def update_config(**options: Any) -> UpdateConfig:
    return UpdateConfig(**{"clip_low": LOW, "clip_high": HIGH, "max_grad_norm": 1e9, **options})


def norm_of(gradients: Gradients) -> float:
    return float(torch.cat([gradient.flatten() for gradient in gradients.values()]).norm())


def assert_close(ours: Gradients, theirs: Gradients) -> None:
    """Compare each parameter to within 1e-5 of the norm of the whole gradient."""
    assert set(ours) == set(theirs)
    norm = norm_of(theirs)
    assert norm > 1e-3
    for name, gradient in theirs.items():
        assert (ours[name] - gradient).norm() <= TOLERANCE * norm, name


# Against TRL ----------------------------------------------------------------------------------------------------------


def trl_gradients(
    checkpoint: Path, folder: Path, encoder: Encoder, loss_type: str, samples: Sequence[TrainSample]
) -> tuple[float, Gradients]:
    """Return the loss and the gradients that TRL's trainer computes."""
    config = GRPOConfig(
        output_dir=str(folder),
        loss_type=loss_type,
        beta=KL,
        use_bias_correction_kl=False,  # as in the paper and EasyR1
        epsilon=LOW,
        epsilon_high=HIGH,
        temperature=TEMPERATURE,
        max_completion_length=MAX_TOKENS,
        num_generations=2,
        per_device_train_batch_size=2,
        gradient_checkpointing=False,
        use_cpu=True,
        bf16=False,
        report_to="none",
    )
    trainer = GRPOTrainer(
        model=str(checkpoint),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset.from_list([{"prompt": "up"}] * 2),
        processing_class=AutoProcessor.from_pretrained(checkpoint),
    )
    trainer.current_gradient_accumulation_steps = 1
    device = torch.device("cpu")
    batch = trl_batch(encoder, samples)
    batch |= {
        "advantages": pad([sample.advantages for sample in samples], device)[:, 0],
        "old_per_token_logps": pad([sample.old_logprobs for sample in samples], device),
        "ref_per_token_logps": pad([sample.ref_logprobs for sample in samples], device),
    }
    trainer.model.train()
    loss = trainer._compute_loss(trainer.model, batch)
    loss.backward()
    named = trainer.model.named_parameters()
    return loss.item(), {f"model.{name}": one.grad for name, one in named if one.grad is not None}


def trl_batch(encoder: Encoder, samples: Sequence[TrainSample]) -> dict[str, Any]:
    def padded(rows: Sequence[torch.Tensor], side: str) -> torch.Tensor:
        return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_side=side)

    prompts = [sample.prompt.ids for sample in samples]
    responses = [torch.tensor(sample.response) for sample in samples]
    return {
        "prompt_ids": padded(prompts, "left"),
        "prompt_mask": padded([torch.ones_like(ids) for ids in prompts], "left"),
        "completion_ids": padded(responses, "right"),
        "completion_mask": padded([torch.ones_like(ids) for ids in responses], "right"),
        "pixel_values": encoder.pixel_values(torch.cat([sample.prompt.patches for sample in samples])),
        "image_grid_thw": torch.cat([sample.prompt.grids for sample in samples]),
        "num_images": [len(sample.prompt.grids) for sample in samples],
    }


@pytest.mark.parametrize(
    ("loss_type", "loss_over"), [("bnpo", "tokens"), ("grpo", "responses"), ("dr_grpo", "constant")]
)
def test_grpo_gradients_equal_those_of_trl(checkpoint: Path, tmp_path: Path, loss_type: str, loss_over: Any) -> None:
    actor = make_actor(checkpoint)
    actor.token_bias.zero_()  # TRL samples image tokens, too
    samples = make_targets(actor)
    loss, gradients = trl_gradients(checkpoint, tmp_path, actor.encoder, loss_type, samples)
    for size in (64, 2):
        config = update_config(kl_coef=KL, loss_over=loss_over, micro_batch_size=size)
        metrics, (ours,) = run_update(actor, samples, config)
        assert metrics["loss"] == pytest.approx(loss, abs=TOLERANCE)
        assert_close(ours, gradients)


# Against formulas -----------------------------------------------------------------------------------------------------


def plain_loss(actor: Actor, samples: Sequence[TrainSample], config: UpdateConfig, coef: float, clip: float) -> Any:
    """Compute the loss from its definition, token by token."""
    tokens = sum(len(sample.response) for sample in samples)
    policy, value, targets = torch.zeros(()), torch.zeros(()), 0
    for each in samples:
        sample: Any = each
        out = actor.compute_logprobs([sample], TEMPERATURE, entropy_grad=True)
        length = len(sample.response)
        count = {"tokens": tokens, "responses": length * len(samples), "constant": len(samples) * MAX_TOKENS}
        for t in range(length):
            logprob, advantage = out.logprobs[0, t], sample.advantages[t]
            ratio = (logprob - sample.old_logprobs[t]).exp()
            clipped = ratio.item() > 1 + HIGH if advantage > 0 else ratio.item() < 1 - LOW
            loss = -advantage * (torch.tensor(1 + HIGH if advantage > 0 else 1 - LOW) if clipped else ratio)
            r = (sample.ref_logprobs[t] - logprob).exp()
            loss = loss - config.entropy_coef * out.entropy[0, t] + config.kl_coef * (r - 1 - r.log())
            policy = policy + loss / count[config.loss_over]
            if out.values is not None and not np.isnan(sample.returns[t]):
                now, before, target = out.values[0, t], sample.old_values[t], sample.returns[t]
                near = before + (now - before).clamp(-clip, clip)
                value = value + 0.5 * torch.max((now - target) ** 2, (near - target) ** 2)
                targets += 1
    return policy + coef * value / max(1, targets)


@pytest.mark.parametrize("loss_over", ["tokens", "responses", "constant"])
def test_ppo_gradients_equal_their_definition(checkpoint: Path, loss_over: Any) -> None:
    actor = make_actor(checkpoint, critic=True)
    samples = make_targets(actor, critic=True)
    config = update_config(entropy_coef=0.05, kl_coef=KL, loss_over=loss_over)
    expected = plain_loss(actor, samples, config, 0.7, 0.2)
    expected.backward()
    gradients = {name: one.grad.clone() for name, one in actor.named_parameters() if one.grad is not None}
    actor.zero_grad()
    for size in (64, 2, 1):
        config = replace(config, micro_batch_size=size)
        metrics, (ours,) = run_update(actor, samples, config, value_coef=0.7, value_clip=0.2)
        assert metrics["loss"] == pytest.approx(expected.item(), abs=TOLERANCE)
        assert_close(ours, gradients)


def test_policy_loss_is_clipped() -> None:
    ratios, advantages = torch.tensor([0.5, 0.9, 1.0, 1.2, 1.5] * 2), torch.tensor([1.0] * 5 + [-1.0] * 5)
    logprobs = ratios.log().requires_grad_()
    losses = policy_loss(logprobs, torch.zeros(10), advantages, LOW, HIGH)
    expected = torch.tensor([-0.5, -0.9, -1.0, -1.2, -1.28, 0.8, 0.9, 1.0, 1.2, 1.5])
    torch.testing.assert_close(losses.detach(), expected)
    losses.sum().backward()
    counts = torch.tensor([1, 1, 1, 1, 0, 0, 1, 1, 1, 1])
    torch.testing.assert_close(logprobs.grad, -advantages * ratios * counts)


def test_value_loss_is_clipped() -> None:
    values = torch.tensor([0.1, 0.5, -0.5], requires_grad=True)
    returns = torch.ones(3)
    torch.testing.assert_close(value_loss(values, torch.zeros(3), returns, 0.0).detach(), 0.5 * (values - 1) ** 2)
    losses = value_loss(values, torch.zeros(3), returns, 0.2)
    torch.testing.assert_close(losses.detach(), 0.5 * torch.tensor([0.9, 0.8, 1.5]) ** 2)
    losses.sum().backward()
    torch.testing.assert_close(values.grad, torch.tensor([-0.9, 0.0, -1.5]))


def test_kl_estimate_is_unbiased_and_never_negative() -> None:
    generator = torch.Generator().manual_seed(0)
    policy, reference = torch.randn(2, 100, 7, dtype=torch.float64, generator=generator).log_softmax(-1)
    estimates = kl_estimate(policy, reference)
    assert estimates.min() >= 0
    exact = (policy.exp() * (policy - reference)).sum(-1)
    torch.testing.assert_close((policy.exp() * estimates).sum(-1), exact)


@pytest.mark.parametrize(
    ("loss_over", "weights"),
    [("tokens", (1 / 4, 1 / 4)), ("responses", (1 / 6, 1 / 2)), ("constant", (1 / 16, 1 / 16))],
)
def test_token_weights_form_a_mean(loss_over: Any, weights: tuple[float, float]) -> None:
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]], dtype=torch.bool)
    found = token_weights(mask, UpdateConfig(loss_over=loss_over), responses=2, tokens=4, max_tokens=8)
    torch.testing.assert_close(found, torch.tensor([[weights[0]] * 3 + [0], [weights[1], 0, 0, 0]]))


# Updates --------------------------------------------------------------------------------------------------------------


def empty_prompts(lengths: Sequence[int]) -> list[EncodedPrompt]:
    nothing = torch.zeros(0)
    return [EncodedPrompt(torch.zeros(length), nothing, nothing, length) for length in lengths]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("max_size", [1, 3, 64])
def test_micro_batches_cover_all_samples_with_similar_lengths(max_size: int, shared: bool) -> None:
    def fill(indices: Sequence[int]) -> float:
        lengths = [(len(samples[index].prompt.ids), len(samples[index].response)) for index in indices]
        apart = max(prompt for prompt, _ in lengths) + max(said for _, said in lengths)
        return min(map(sum, lengths)) / (apart if shared else max(map(sum, lengths)))

    rng, least = np.random.default_rng(0), MIN_FILL_SHARED if shared else MIN_FILL
    for _ in range(20):
        prompts = empty_prompts(rng.integers(1, 200, 40).tolist())
        index = rng.integers(0, 12, 40) if shared else range(40)
        samples = [TrainSample(prompts[i], [0] * n) for i, n in zip(index, rng.integers(1, 90, 40))]
        batches = micro_batches(samples, max_size)
        assert sorted(index for batch in batches for index in batch) == list(range(len(samples)))
        assert all(len(batch) <= max_size and fill(batch) >= least for batch in batches)
        for before, after in pairwise(batches):
            assert len(before) == max_size or fill([*before, after[0]]) < least, "one pass would have been enough"
    assert micro_batches([], max_size) == []


def test_responses_to_a_prompt_share_a_micro_batch() -> None:
    prompts = empty_prompts([90, 100, 90])
    samples = [TrainSample(prompts[number % 3], [0] * (10 + number)) for number in range(12)]
    shared = [{id(samples[index].prompt) for index in batch} for batch in micro_batches(samples, 4)]
    assert sorted(map(len, shared)) == [1, 1, 1]


def test_each_sample_is_in_one_minibatch_of_each_epoch(actor: Actor) -> None:
    samples = make_targets(actor)[:4]
    for number, sample in enumerate(samples):
        sample.advantages = np.full(len(sample.response), 10.0**number)
        sample.old_logprobs = sample.ref_logprobs = None
    metrics, steps = run_update(actor, samples, update_config(loss_over="responses"), epochs=3)
    assert len(steps) == 6
    assert metrics["loss"] == pytest.approx(-1111 / 4)  # the loss is -advantage if probabilities are unchanged
    assert metrics["clip_fraction"] == 0
    assert metrics["approx_kl"] == pytest.approx(0, abs=TOLERANCE)
    assert len({round(norm_of(step), 3) for step in steps}) > 2, "minibatches are the same in all epochs"


def test_gradients_are_clipped(actor: Actor) -> None:
    samples = make_targets(actor)
    _, (whole,) = run_update(actor, samples, update_config())
    metrics, (clipped,) = run_update(actor, samples, update_config(max_grad_norm=1e-3))
    assert metrics["grad_norm"] == pytest.approx(norm_of(whole), rel=1e-4)
    assert norm_of(clipped) == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize(("advantage", "moved", "message"), [(np.inf, 0, "loss is"), (-1.0, 12, "above 1000")])
def test_diverged_losses_change_nothing(actor: Actor, advantage: float, moved: float, message: str) -> None:
    samples = make_targets(actor)
    sample: Any = samples[2]
    sample.advantages[3], sample.old_logprobs[3] = advantage, sample.old_logprobs[3] - moved
    before = {name: parameter.clone() for name, parameter in actor.named_parameters()}
    with pytest.raises(DivergedError, match=f"{message}.*lower --update.lr"):
        run_update(actor, samples, update_config(micro_batch_size=1))
    assert all(torch.equal(parameter, before[name]) for name, parameter in actor.named_parameters())
    if moved:
        actor.zero_grad()
        assert run_update(actor, samples, update_config(max_loss=1e6))[1]


@pytest.mark.parametrize(("over", "targets"), [("turns", [1] * 6), ("tokens", [3, 1, 4, 2, 5, 1])])
def test_critics_are_judged_by_monte_carlo_returns(over: Any, targets: list[int]) -> None:
    rewards, lengths = [[1.0, -0.5, 2.0], [0.3, 1.1], [0.0]], [[3, 1, 4], [2, 5], [1]]
    guess = iter([1.0, 0.5, 0.8, 0.2, 2.0, 0.4])
    (prompt,) = empty_prompts([1])
    samples = [
        [TrainSample(prompt, [0] * length, old_values=np.full(length, next(guess))) for length in each]
        for each in lengths
    ]
    config = PpoConfig(gae_over=over, gamma=0.9, lam=0.0, token_lam=0.0)
    metrics = compute_ppo_targets(samples, rewards, [0.0] * 3, config)
    returns = np.repeat([x for each in rewards for x in discounted_returns(each, 0.9)], targets)
    values = np.repeat([1.0, 0.5, 0.8, 0.2, 2.0, 0.4], targets)
    assert metrics["explained_variance"] == pytest.approx(1 - np.var(returns - values) / np.var(returns))
    white = np.concatenate([cast(Any, sample.advantages) for each in samples for sample in each])
    assert (white.mean(), white.std()) == (pytest.approx(0), pytest.approx(1))


# Supervised fine-tuning -----------------------------------------------------------------------------------------------


def test_micro_batches_add_up_to_the_gradient_of_a_batch(actor: Actor) -> None:
    samples = make_samples(actor, LENGTHS)
    found = []
    for size in (64, 2, 1):
        actor.zero_grad()
        loss = sft_loss(actor, samples, size)
        found.append((loss, {name: one.grad.clone() for name, one in actor.named_parameters() if one.grad is not None}))
    with torch.no_grad():
        out = actor.compute_logprobs(samples)
    assert found[0][0] == pytest.approx(float(-out.logprobs.sum() / out.mask.sum()), abs=TOLERANCE)
    for loss, gradients in found[1:]:
        assert loss == pytest.approx(found[0][0], abs=TOLERANCE)
        assert_close(gradients, found[0][1])


def test_each_batch_is_learned_once(actor: Actor) -> None:
    batches = [[sample] for sample in make_samples(actor, LENGTHS)]
    losses: list[float] = []
    frozen = SftConfig(steps=len(batches), lr=1e-12, check_interval=1)
    steps = fine_tune(actor, frozen, 8, batches, lambda step: 0.0, lambda step, loss: losses.append(loss))
    assert steps == len(batches)
    with torch.no_grad():
        expected = [-float(actor.compute_logprobs(batch).logprobs.mean()) for batch in batches]
    assert losses == pytest.approx(expected, abs=TOLERANCE)
