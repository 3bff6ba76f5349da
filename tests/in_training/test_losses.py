"""Losses and gradients, compared with TRL and plain formulas; minibatches and supervised fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from datasets import Dataset
from pydantic.dataclasses import dataclass
from transformers import AutoProcessor
from trl import GRPOConfig, GRPOTrainer

from tests.in_training.gradients import (
    LENGTHS,
    MAX_TOKENS,
    TEMPERATURE,
    Gradients,
    Recorder,
    assert_close,
    make_targets,
    make_trainer,
    norm_of,
    run_update,
)
from tests.in_training.runs import NO_EPISODES, QUICK, SMALL, curve
from tests.in_training.tiny import TOLERANCE, make_actor, make_checkpoint, make_engine, make_samples
from vlmgym.training.algorithm import Algorithm, Batch, DivergedError, Trajectory, discounted_returns, kl_estimate
from vlmgym.training.config import Kind, TrainConfig, read_config
from vlmgym.training.engine.actor import Actor, LogProbs
from vlmgym.training.engine.encoding import Encoder, TrainSample
from vlmgym.training.engine.engine import MIN_FILL, MIN_FILL_SHARED, micro_batches, padded
from vlmgym.training.engine.families import EncodedPrompt
from vlmgym.training.ppo import Ppo
from vlmgym.training.run import TrainingRun
from vlmgym.training.sft import Sft, fine_tune
from vlmgym.training.train import run_training
from vlmgym.training.trainer import permute_rewards

LOW, HIGH, KL = 0.2, 0.28, 0.3


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture
def actor(checkpoint: Path) -> Actor:
    return make_actor(checkpoint)


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
        "advantages": padded([sample.advantages for sample in samples], device)[:, 0],
        "old_per_token_logps": padded([sample.old_logprobs for sample in samples], device),
        "ref_per_token_logps": padded([sample.ref_logprobs for sample in samples], device),
    }
    trainer.model.train()
    loss = trainer._compute_loss(trainer.model, batch)
    loss.backward()
    named = trainer.model.named_parameters()
    return loss.item(), {f"model.{name}": one.grad for name, one in named if one.grad is not None}


def trl_batch(encoder: Encoder, samples: Sequence[TrainSample]) -> dict[str, Any]:
    def stack(rows: Sequence[torch.Tensor], side: str) -> torch.Tensor:
        return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_side=side)

    prompts = [sample.prompt.ids for sample in samples]
    responses = [torch.tensor(sample.response) for sample in samples]
    image = [(ids == encoder.family.image_token).long() for ids in prompts]
    return {
        "mm_token_type_ids": torch.cat(
            [stack(image, "left"), stack([torch.zeros_like(ids) for ids in responses], "right")], dim=1
        ),
        "prompt_ids": stack(prompts, "left"),
        "prompt_mask": stack([torch.ones_like(ids) for ids in prompts], "left"),
        "completion_ids": stack(responses, "right"),
        "completion_mask": stack([torch.ones_like(ids) for ids in responses], "right"),
        **encoder.family.collate_images([sample.prompt for sample in samples], torch.device("cpu")),
        "num_images": [len(sample.prompt.images["image_grid_thw"]) for sample in samples],
    }


@pytest.mark.parametrize(
    ("loss_type", "loss_over", "kind"),
    [
        ("bnpo", "tokens", "qwen3_vl"),
        ("grpo", "responses", "qwen3_vl"),
        ("dr_grpo", "constant", "qwen3_vl"),
        ("bnpo", "tokens", "qwen2_5_vl"),
        ("bnpo", "tokens", "qwen3_5"),
    ],
)
def test_grpo_gradients_equal_those_of_trl(tmp_path: Path, loss_type: str, loss_over: str, kind: Kind) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", kind)
    actor = make_actor(checkpoint)
    actor.token_bias.zero_()  # TRL samples image tokens, too
    samples = make_targets(actor)
    loss, gradients = trl_gradients(checkpoint, tmp_path, actor.encoder, loss_type, samples)
    for size in (64, 2):
        settings = (f"update.kl_coef={KL}", f"update.loss_over={loss_over}", f"update.micro_batch_size={size}")
        trainer = make_trainer(checkpoint, tmp_path, *settings)
        trainer.actor.token_bias.zero_()
        metrics, (ours,) = run_update(trainer, samples)
        assert metrics["loss"] == pytest.approx(loss, abs=TOLERANCE)
        assert_close(ours, gradients)


# Against formulas -----------------------------------------------------------------------------------------------------


def plain_loss(actor: Actor, samples: Sequence[TrainSample], config: Ppo, loss_over: str) -> Any:
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
            ratio, bound = (logprob - sample.old_logprobs[t]).exp(), 1 + config.clip * np.sign(advantage)
            clipped = ratio.item() > bound if advantage > 0 else ratio.item() < bound
            loss = -advantage * (torch.tensor(bound) if clipped else ratio)
            r = (sample.ref_logprobs[t] - logprob).exp()
            loss = loss - config.entropy_coef * out.entropy[0, t] + KL * (r - 1 - r.log())
            policy = policy + loss / count[loss_over]
            if out.values is not None and not np.isnan(sample.returns[t]):
                now, before, target = out.values[0, t], sample.old_values[t], sample.returns[t]
                near = before + (now - before).clamp(-config.value_clip, config.value_clip)
                value = value + 0.5 * torch.max((now - target) ** 2, (near - target) ** 2)
                targets += 1
    return policy + config.value_coef * value / max(1, targets)


@pytest.mark.parametrize("loss_over", ["tokens", "responses", "constant"])
def test_ppo_gradients_equal_their_definition(checkpoint: Path, tmp_path: Path, loss_over: str) -> None:
    actor = make_actor(checkpoint, critic=True)
    samples = make_targets(actor, critic=True)
    config = Ppo(entropy_coef=0.05, value_coef=0.7, value_clip=0.2, clip=0.25)
    expected = plain_loss(actor, samples, config, loss_over)
    expected.backward()
    gradients = {name: one.grad.clone() for name, one in actor.named_parameters() if one.grad is not None}
    settings = [f"ppo.{name}={getattr(config, name)}" for name in ("entropy_coef", "value_coef", "value_clip", "clip")]
    settings += ["ppo.epochs=1", "ppo.minibatches=1", f"update.kl_coef={KL}", f"update.loss_over={loss_over}"]
    for size in (64, 2, 1):
        trainer = make_trainer(checkpoint, tmp_path, *settings, f"update.micro_batch_size={size}", algorithm="ppo")
        metrics, (ours,) = run_update(trainer, samples)
        assert metrics["loss"] == pytest.approx(expected.item(), abs=TOLERANCE)
        assert_close(ours, gradients)


def test_kl_estimate_is_unbiased_and_never_negative() -> None:
    generator = torch.Generator().manual_seed(0)
    policy, reference = torch.randn(2, 100, 7, dtype=torch.float64, generator=generator).log_softmax(-1)
    estimates = kl_estimate(policy, reference)
    assert estimates.min() >= 0
    exact = (policy.exp() * (policy - reference)).sum(-1)
    torch.testing.assert_close((policy.exp() * estimates).sum(-1), exact)


# Updates --------------------------------------------------------------------------------------------------------------


def empty_prompts(lengths: Sequence[int]) -> list[EncodedPrompt]:
    return [EncodedPrompt(torch.zeros(length), {}) for length in lengths]


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


def test_each_sample_is_in_one_minibatch_of_each_epoch(checkpoint: Path, tmp_path: Path) -> None:
    trainer = make_trainer(checkpoint, tmp_path, "update.loss_over=responses", "grpo.epochs=3", "grpo.minibatches=2")
    samples = make_targets(trainer.actor)[:4]
    for number, sample in enumerate(samples):
        sample.advantages = np.full(len(sample.response), 10.0**number)
        sample.old_logprobs = sample.ref_logprobs = None
    metrics, steps = run_update(trainer, samples)
    assert len(steps) == 6
    assert metrics["loss"] == pytest.approx(-1111 / 4)  # the loss is -advantage if probabilities are unchanged
    assert metrics["clip_fraction"] == 0
    assert metrics["approx_kl"] == pytest.approx(0, abs=TOLERANCE)
    assert len({round(norm_of(step), 3) for step in steps}) > 2, "minibatches are the same in all epochs"


def test_perception_loss_is_the_mean_over_the_tokens_of_distinct_states(checkpoint: Path, tmp_path: Path) -> None:
    actor, coef = make_actor(checkpoint), 0.3
    samples = make_targets(actor)
    for sample, truth in zip(samples, ([5, 6, 7], [8], [9, 10], None, None)):
        sample.truth = truth
    samples.append(replace(samples[0]))  # the same state
    truths = [TrainSample(sample.prompt, sample.truth) for sample in samples[:3] if sample.truth]
    out = actor.compute_logprobs(truths, TEMPERATURE)
    loss = -out.logprobs.sum() / 6
    loss.backward()
    expected = {name: coef * one.grad for name, one in actor.named_parameters() if one.grad is not None}
    for size in (64, 1):
        (_, (without,)), (metrics, (gradients,)) = (
            run_update(make_trainer(checkpoint, tmp_path, f"update.micro_batch_size={size}", *settings), samples)
            for settings in ((), (f"update.perception_coef={coef}",))
        )
        assert metrics["perception_loss"] == pytest.approx(loss.item(), abs=TOLERANCE)
        assert_close({name: gradient - without[name] for name, gradient in gradients.items()}, expected)


def test_gradients_are_clipped(checkpoint: Path, tmp_path: Path) -> None:
    trainer = make_trainer(checkpoint, tmp_path)
    samples = make_targets(trainer.actor)
    _, (whole,) = run_update(trainer, samples)
    metrics, (clipped,) = run_update(make_trainer(checkpoint, tmp_path, "update.max_grad_norm=1e-3"), samples)
    assert metrics["grad_norm"] == pytest.approx(norm_of(whole), rel=1e-4)
    assert norm_of(clipped) == pytest.approx(1e-3, rel=1e-3)


def test_the_gradients_of_two_parts_are_compared(checkpoint: Path, tmp_path: Path) -> None:
    trainer = make_trainer(checkpoint, tmp_path)
    samples = make_targets(trainer.actor)
    before, (whole,) = run_update(trainer, samples)
    metrics, (_, again) = run_update(trainer, samples, split=2)
    assert metrics["loss"] == pytest.approx(before["loss"], abs=TOLERANCE)
    assert_close(again, whole)
    parts = [run_update(make_trainer(checkpoint, tmp_path), part)[1][0] for part in (samples[:2], samples[2:])]
    first, second = (torch.cat([part[name].flatten() for name in whole]) for part in parts)
    cosine = torch.nn.functional.cosine_similarity(first, second, dim=0).item()
    assert metrics["gradient_cosine"] == pytest.approx(cosine, abs=1e-4)
    assert "gradient_cosine" not in before


@pytest.mark.parametrize(("advantage", "moved", "message"), [(np.inf, 0, "loss is"), (-1.0, 12, "above 1000")])
def test_diverged_losses_change_nothing(
    checkpoint: Path, tmp_path: Path, advantage: float, moved: float, message: str
) -> None:
    trainer = make_trainer(checkpoint, tmp_path, "update.micro_batch_size=1")
    samples = make_targets(trainer.actor)
    sample: Any = samples[2]
    sample.advantages[3], sample.old_logprobs[3] = advantage, sample.old_logprobs[3] - moved
    before = {name: parameter.clone() for name, parameter in trainer.actor.named_parameters()}
    with pytest.raises(DivergedError, match=message):
        run_update(trainer, samples)
    assert all(torch.equal(parameter, before[name]) for name, parameter in trainer.actor.named_parameters())


@pytest.mark.parametrize(("over", "targets"), [("turns", [1] * 6), ("tokens", [3, 1, 4, 2, 5, 1])])
def test_critics_are_judged_by_monte_carlo_returns(over: Any, targets: list[int]) -> None:
    rewards, lengths = [[1.0, -0.5, 2.0], [0.3, 1.1], [0.0]], [[3, 1, 4], [2, 5], [1]]
    guess = iter([1.0, 0.5, 0.8, 0.2, 2.0, 0.4])
    (prompt,) = empty_prompts([1])
    episodes = [
        Trajectory(0, turns, [TrainSample(prompt, [0] * n, old_values=np.full(n, next(guess))) for n in tokens])
        for turns, tokens in zip(rewards, lengths)
    ]
    metrics = Ppo(gae_over=over, gamma=0.9, lam=0.0).targets(episodes)
    returns = np.repeat([x for each in rewards for x in discounted_returns(each, 0.9)], targets)
    values = np.repeat([1.0, 0.5, 0.8, 0.2, 2.0, 0.4], targets)
    assert metrics["explained_variance"] == pytest.approx(1 - np.var(returns - values) / np.var(returns))
    white = np.concatenate([cast(Any, sample.advantages) for episode in episodes for sample in episode.samples])
    assert (white.mean(), white.std()) == (pytest.approx(0), pytest.approx(1))


# Supervised fine-tuning -----------------------------------------------------------------------------------------------


def test_micro_batches_add_up_to_the_gradient_of_a_batch(actor: Actor) -> None:
    samples = make_samples(actor, LENGTHS)
    results = []
    for size in (64, 2, 1):
        recorder = Recorder(actor)
        metrics = make_engine(actor, size).step(recorder, samples, Sft.loss, 1.0, max_grad_norm=1e9)
        results.append((metrics["loss"], recorder.steps[0]))
    with torch.no_grad():
        out = actor.compute_logprobs(samples)
    assert results[0][0] == pytest.approx(float(-out.logprobs.sum() / out.mask.sum()), abs=TOLERANCE)
    for loss, gradients in results[1:]:
        assert loss == pytest.approx(results[0][0], abs=TOLERANCE)
        assert_close(gradients, results[0][1])


def test_each_batch_is_learned_once(actor: Actor) -> None:
    batches = [[sample] for sample in make_samples(actor, LENGTHS)]
    losses: list[float] = []
    frozen = Sft(steps=len(batches), lr=1e-12, check_interval=1)
    steps = fine_tune(make_engine(actor), frozen, batches, lambda step: 0.0, lambda step, loss: losses.append(loss))
    assert steps == len(batches)
    with torch.no_grad():
        expected = [-float(actor.compute_logprobs(batch).logprobs.mean()) for batch in batches]
    assert losses == pytest.approx(expected, abs=TOLERANCE)


# Controls -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group_size", [1, 3])
def test_permuted_rewards_stay_in_their_group_and_turn(group_size: int) -> None:
    rng = np.random.default_rng(0)
    lengths = [3, 1, 2, 2, 3, 1]
    episodes = [
        Trajectory(number // group_size, rng.random(length).tolist(), []) for number, length in enumerate(lengths)
    ]
    before = [list(episode.rewards) for episode in episodes]
    permute_rewards(episodes, rng)
    assert [len(episode.rewards) for episode in episodes] == lengths
    for group in {episode.group for episode in episodes} if group_size > 1 else {None}:
        members = [number for number, episode in enumerate(episodes) if group in (None, episode.group)]
        for turn in range(3):
            players = [number for number in members if lengths[number] > turn]
            assert sorted(before[n][turn] for n in players) == sorted(episodes[n].rewards[turn] for n in players)
    assert [episode.rewards for episode in episodes] != before


# Another algorithm ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Rloo(Algorithm):
    """REINFORCE leave-one-out (Ahmadian et al. 2024, https://arxiv.org/abs/2402.14740, section 3.2)."""

    group_size: int = 3
    """Episodes per initial state."""

    @property
    def episodes_per_state(self) -> int:
        return self.group_size

    def targets(self, episodes: Sequence[Trajectory]) -> dict[str, float]:
        """Subtract from the return of an episode the mean return of the others of its group."""
        returns = np.array([sum(episode.rewards) for episode in episodes]).reshape(-1, self.group_size)
        others = (returns.sum(axis=1, keepdims=True) - returns) / (self.group_size - 1)
        for episode, advantage in zip(episodes, (returns - others).flat):
            for sample in episode.samples:
                sample.advantages = np.full(len(sample.response), advantage)
        return {"baseline": float(others.mean())}

    def loss(self, out: LogProbs, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Compute the policy gradient loss."""
        loss = -(batch.advantages * out.logprobs * batch.weights).sum()
        return loss, {"policy_loss": loss}


@dataclass(frozen=True, kw_only=True)
class ConfigWithRloo(TrainConfig):
    """All options, and those of another algorithm."""

    rloo: Rloo = field(default_factory=Rloo)


def test_an_algorithm_is_a_class_and_a_field_of_the_config(model: Path, tmp_path: Path) -> None:
    args = [*QUICK, *SMALL, *NO_EPISODES, "--model", str(model), "--output-dir", str(tmp_path / "run")]
    config = read_config([*args, "--algorithm", "rloo", "--rloo.group-size", "6"], kind=ConfigWithRloo)
    run_training(TrainingRun.new(config), config)
    rows = curve(tmp_path / "run")
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(row["baseline"] == pytest.approx(row["reward"]) for row in rows), "a step has one group of 6"
    assert max(row["grad_norm"] for row in rows) > 0
    resumed = TrainingRun.reopen(tmp_path / "run", ["--steps", "4"], kind=ConfigWithRloo)
    run_training(*resumed)
    assert len(curve(tmp_path / "run")) == 4
