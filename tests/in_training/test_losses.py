"""What is learned from responses: losses and gradients against TRL and plain formulas, advantages against loops."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import AutoProcessor
from trl import GRPOConfig, GRPOTrainer

from tests.in_training.tiny import ALIKE, make_actor, make_checkpoint, samples
from training.core.advantages import discounted_returns
from training.local.actor import Actor, Sample
from training.local.cold_start import ColdStartConfig, cold_start, supervised_step
from training.local.encoding import Encoded, Encoder
from training.local.errors import TrainingError
from training.local.grpo import GrpoConfig, grpo_advantages
from training.local.micro_batches import FILLED, micro_batches
from training.local.ppo import PpoConfig, explained_variance, ppo_advantages, ppo_lessons
from training.local.rollout import Answer
from training.local.update import (
    Lesson,
    UpdateConfig,
    Weights,
    kl_estimate,
    learn,
    padded,
    policy_loss,
    token_weights,
    value_loss,
)

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


def lessons_of(actor: Actor, *, critic: bool = False) -> list[Lesson]:
    """Lessons whose probabilities have moved: some by more than is counted, in both directions."""
    rng = np.random.default_rng(1)
    some = samples(actor, LENGTHS)
    with torch.no_grad():
        logprobs = actor.measure(some, TEMPERATURE).logprobs.double().numpy()
    lessons = []
    for row, sample in enumerate(some):
        length = len(sample.response)
        now = logprobs[row, :length]
        returns = rng.normal(size=length)
        returns[1:][rng.random(length - 1) < 0.5] = np.nan
        lessons.append(
            Lesson(
                sample,
                np.full(length, rng.normal()),
                logprobs=now + rng.normal(0, 0.3, length),
                values=rng.normal(0, 0.3, length) if critic else None,
                returns=returns if critic else None,
                reference=now + rng.normal(0, 0.5, length),
            )
        )
    return lessons


class Kept(torch.optim.SGD):
    """An optimizer that keeps the gradients of each step, and changes nothing."""

    def __init__(self, actor: Actor) -> None:
        super().__init__(actor.parameters(), lr=0.0)
        self.steps: list[Gradients] = []
        self._named = dict(actor.named_parameters())

    def step(self, closure: Any = None) -> None:
        named = self._named.items()
        self.steps.append({name: parameter.grad.clone() for name, parameter in named if parameter.grad is not None})


def gradients_of(actor: Actor, lessons: Sequence[Lesson], config: UpdateConfig, weights: Weights) -> tuple[float, Any]:
    """The loss of one update, and the gradient by name of the parameter."""
    kept = Kept(actor)
    facts = learn(
        actor,
        kept,
        lessons,
        config,
        weights,
        temperature=TEMPERATURE,
        max_tokens=MAX_TOKENS,
        rng=np.random.default_rng(0),
    )
    (gradients,) = kept.steps
    return facts["loss"], gradients


def update_config(**more: Any) -> UpdateConfig:
    return UpdateConfig(**{"clip_low": LOW, "clip_high": HIGH, "grad_norm": 1e9, **more})


def assert_alike(ours: Gradients, theirs: Gradients) -> None:
    """Equal in each parameter, to 1e-5 of the length of the whole gradient."""
    assert set(ours) == set(theirs)
    length = torch.cat([gradient.flatten() for gradient in theirs.values()]).norm()
    assert length > 1e-3
    for name, gradient in theirs.items():
        assert (ours[name] - gradient).norm() <= ALIKE * length, name


# Against TRL ----------------------------------------------------------------------------------------------------------


def trl_gradients(
    checkpoint: Path, out: Path, encoder: Encoder, loss_type: str, lessons: Sequence[Lesson]
) -> tuple[float, Gradients]:
    """The loss of TRL's own trainer on these lessons, and its gradient."""
    config = GRPOConfig(
        output_dir=str(out),
        loss_type=loss_type,
        beta=KL,
        use_bias_correction_kl=False,  # as the paper has it, and EasyR1
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
    batch = trl_batch(encoder, [lesson.sample for lesson in lessons])
    batch |= {
        "advantages": torch.tensor([lesson.advantages[0] for lesson in lessons], dtype=torch.float32),
        "old_per_token_logps": padded([lesson.logprobs for lesson in lessons], device),
        "ref_per_token_logps": padded([lesson.reference for lesson in lessons], device),
    }
    trainer.model.train()
    loss = trainer._compute_loss(trainer.model, batch)
    loss.backward()
    named = trainer.model.named_parameters()
    return loss.item(), {f"model.{name}": one.grad for name, one in named if one.grad is not None}


def trl_batch(encoder: Encoder, some: Sequence[Sample]) -> dict[str, Any]:
    """Prompts padded on the left, responses on the right, as TRL has them."""

    def pad(rows: Sequence[torch.Tensor], side: str) -> torch.Tensor:
        return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_side=side)

    prompts, responses = [sample.prompt.ids for sample in some], [torch.tensor(sample.response) for sample in some]
    return {
        "prompt_ids": pad(prompts, "left"),
        "prompt_mask": pad([torch.ones_like(ids) for ids in prompts], "left"),
        "completion_ids": pad(responses, "right"),
        "completion_mask": pad([torch.ones_like(ids) for ids in responses], "right"),
        "pixel_values": encoder.pixel_values(torch.cat([sample.prompt.patches for sample in some])),
        "image_grid_thw": torch.cat([sample.prompt.grids for sample in some]),
        "num_images": [len(sample.prompt.grids) for sample in some],
    }


@pytest.mark.parametrize(
    ("loss_type", "loss_over"), [("bnpo", "tokens"), ("grpo", "responses"), ("dr_grpo", "constant")]
)
def test_loss_and_gradients_of_grpo_are_those_of_trl(
    checkpoint: Path, tmp_path: Path, loss_type: str, loss_over: Any
) -> None:
    actor = make_actor(checkpoint)
    actor.never = []  # TRL draws tokens of images, too
    lessons = lessons_of(actor)
    loss, gradients = trl_gradients(checkpoint, tmp_path, actor.encoder, loss_type, lessons)
    for micro_batch in (64, 2):
        config = update_config(loss_over=loss_over, micro_batch=micro_batch)
        ours, mine = gradients_of(actor, lessons, config, Weights(kl=KL))
        assert ours == pytest.approx(loss, abs=ALIKE)
        assert_alike(mine, gradients)


# Against formulas -----------------------------------------------------------------------------------------------------


def plain_loss(actor: Actor, lessons: Sequence[Lesson], loss_over: str, weights: Weights) -> torch.Tensor:
    """The loss by its definition, token by token, response by response."""
    tokens = sum(len(lesson.sample.response) for lesson in lessons)
    policy, value, asked = torch.zeros(()), torch.zeros(()), 0
    for lesson in lessons:
        measured = actor.measure([lesson.sample], TEMPERATURE, learn_entropy=True)
        length = len(lesson.sample.response)
        share = {"tokens": tokens, "responses": length * len(lessons), "constant": len(lessons) * MAX_TOKENS}[loss_over]
        old, reference = cast(Any, lesson.logprobs), cast(Any, lesson.reference)
        before, returns = cast(Any, lesson.values), cast(Any, lesson.returns)
        for t in range(length):
            logprob, advantage = measured.logprobs[0, t], lesson.advantages[t]
            ratio = (logprob - old[t]).exp()
            beyond = ratio.item() > 1 + HIGH if advantage > 0 else ratio.item() < 1 - LOW
            loss = -advantage * (torch.tensor(1 + HIGH if advantage > 0 else 1 - LOW) if beyond else ratio)
            r = (reference[t] - logprob).exp()
            loss = loss - weights.entropy * measured.entropy[0, t] + weights.kl * (r - 1 - r.log())
            policy = policy + loss / share
            if measured.values is not None and not np.isnan(returns[t]):
                now = measured.values[0, t]
                near = before[t] + (now - before[t]).clamp(-weights.value_clip, weights.value_clip)
                value = value + 0.5 * torch.max((now - returns[t]) ** 2, (near - returns[t]) ** 2)
                asked += 1
    return policy + weights.value * value / max(1, asked)


@pytest.mark.parametrize("loss_over", ["tokens", "responses", "constant"])
def test_loss_and_gradients_of_ppo_are_those_of_its_definition(checkpoint: Path, loss_over: Any) -> None:
    actor = make_actor(checkpoint, critic=True)
    lessons = lessons_of(actor, critic=True)
    weights = Weights(value=0.7, value_clip=0.2, entropy=0.05, kl=KL)
    expected = plain_loss(actor, lessons, loss_over, weights)
    expected.backward()
    named = actor.named_parameters()
    gradients = {name: one.grad.clone() for name, one in named if one.grad is not None}
    actor.zero_grad()
    for micro_batch in (64, 2, 1):
        config = update_config(loss_over=loss_over, micro_batch=micro_batch)
        loss, mine = gradients_of(actor, lessons, config, weights)
        assert loss == pytest.approx(expected.item(), abs=ALIKE)
        assert_alike(mine, gradients)


def test_advantages_stop_counting_where_probabilities_have_moved_too_far() -> None:
    ratios, advantages = torch.tensor([0.5, 0.9, 1.0, 1.2, 1.5] * 2), torch.tensor([1.0] * 5 + [-1.0] * 5)
    logprobs = ratios.log().requires_grad_()
    losses = policy_loss(logprobs, torch.zeros(10), advantages, LOW, HIGH)
    expected = torch.tensor([-0.5, -0.9, -1.0, -1.2, -1.28, 0.8, 0.9, 1.0, 1.2, 1.5])
    torch.testing.assert_close(losses.detach(), expected)
    losses.sum().backward()
    counts = torch.tensor([1, 1, 1, 1, 0, 0, 1, 1, 1, 1])
    torch.testing.assert_close(logprobs.grad, -advantages * ratios * counts)


def test_a_value_that_has_moved_far_towards_its_return_is_not_moved_on() -> None:
    values = torch.tensor([0.1, 0.5, -0.5], requires_grad=True)
    returns = torch.ones(3)
    torch.testing.assert_close(value_loss(values, torch.zeros(3), returns, 0.0).detach(), 0.5 * (values - 1) ** 2)
    losses = value_loss(values, torch.zeros(3), returns, 0.2)
    torch.testing.assert_close(losses.detach(), 0.5 * torch.tensor([0.9, 0.8, 1.5]) ** 2)
    losses.sum().backward()
    torch.testing.assert_close(values.grad, torch.tensor([-0.9, 0.0, -1.5]))


def test_the_estimate_of_a_divergence_is_right_on_average_and_never_negative() -> None:
    generator = torch.Generator().manual_seed(0)
    policy, reference = torch.randn(2, 100, 7, dtype=torch.float64, generator=generator).log_softmax(-1)
    estimates = kl_estimate(policy, reference)
    assert estimates.min() >= 0
    exact = (policy.exp() * (policy - reference)).sum(-1)
    torch.testing.assert_close((policy.exp() * estimates).sum(-1), exact)


@pytest.mark.parametrize("loss_over", ["tokens", "responses", "constant"])
def test_the_weights_of_tokens_are_a_mean(loss_over: Any) -> None:
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]], dtype=torch.bool)
    found = token_weights(mask, UpdateConfig(loss_over=loss_over), responses=2, tokens=4, max_tokens=8)
    each = {"tokens": (1 / 4, 1 / 4), "responses": (1 / 6, 1 / 2), "constant": (1 / 16, 1 / 16)}[loss_over]
    torch.testing.assert_close(found, torch.tensor([[each[0]] * 3 + [0], [each[1], 0, 0, 0]]))


# Updates --------------------------------------------------------------------------------------------------------------


def prompts_of(lengths: Sequence[int]) -> list[Encoded]:
    """Prompts of which nothing counts but how long they are."""
    nothing = torch.zeros(0)
    return [Encoded(torch.zeros(length), nothing, nothing, length) for length in lengths]


@pytest.mark.parametrize("most", [1, 3, 64])
def test_each_sample_goes_through_the_model_once_beside_others_of_about_its_length(most: int) -> None:
    def filled(places: Sequence[int]) -> float:
        lengths = [(len(some[place].prompt.ids), len(some[place].response)) for place in places]
        return min(map(sum, lengths)) / (max(prompt for prompt, _ in lengths) + max(said for _, said in lengths))

    rng = np.random.default_rng(0)
    for _ in range(20):
        prompts = prompts_of(rng.integers(1, 200, 12).tolist())
        some = [Sample(prompts[asked], [0] * said) for asked, said in zip(*rng.integers(1, [[12], [90]], (2, 40)))]
        batches = micro_batches(some, most)
        assert sorted(place for places in batches for place in places) == list(range(len(some)))
        assert all(len(places) <= most and filled(places) >= FILLED for places in batches)
        for before, after in pairwise(batches):
            assert len(before) == most or filled([*before, after[0]]) < FILLED, "one pass would have done for both"
    assert micro_batches([], most) == []


def test_answers_to_one_prompt_go_through_the_model_together() -> None:
    prompts = prompts_of([90, 100, 90])
    some = [Sample(prompts[number % 3], [0] * (10 + number)) for number in range(12)]
    together = [{id(some[place].prompt) for place in places} for places in micro_batches(some, 4)]
    assert sorted(map(len, together)) == [1, 1, 1]


def test_each_lesson_is_in_one_minibatch_of_each_epoch(actor: Actor) -> None:
    lessons = lessons_of(actor)[:4]
    for number, lesson in enumerate(lessons):
        lesson.advantages = np.full_like(lesson.advantages, 10.0**number)
        lesson.logprobs = None
    kept = Kept(actor)
    facts = learn(
        actor,
        kept,
        lessons,
        update_config(loss_over="responses"),
        Weights(),
        temperature=TEMPERATURE,
        max_tokens=MAX_TOKENS,
        epochs=3,
        minibatches=2,
        rng=np.random.default_rng(0),
    )
    assert len(kept.steps) == 6
    # Where nothing has moved, the loss of a response is -advantage, so that the mean tells all of them apart.
    assert facts["loss"] == pytest.approx(-1111 / 4)
    assert facts["clipped"] == 0
    assert facts["moved"] == pytest.approx(0, abs=ALIKE)
    lengths = {round(torch.cat([g.flatten() for g in step.values()]).norm().item(), 3) for step in kept.steps}
    assert len(lengths) > 2, "minibatches are the same in all epochs"


def test_a_gradient_is_made_no_longer_than_it_may_be(actor: Actor) -> None:
    lessons = lessons_of(actor)
    _, whole = gradients_of(actor, lessons, update_config(), Weights())
    kept = Kept(actor)
    place = {"temperature": TEMPERATURE, "max_tokens": MAX_TOKENS, "rng": np.random.default_rng(0)}
    facts = learn(actor, kept, lessons, update_config(grad_norm=1e-3), Weights(), **cast(Any, place))
    length = torch.cat([g.flatten() for g in whole.values()]).norm().item()
    assert facts["grad_norm"] == pytest.approx(length, rel=1e-4)
    short = torch.cat([g.flatten() for g in kept.steps[0].values()]).norm().item()
    assert short == pytest.approx(1e-3, rel=1e-3)


def test_a_loss_that_is_no_number_changes_nothing(actor: Actor) -> None:
    lessons = lessons_of(actor)
    lessons[2].advantages[3] = np.inf
    kept = Kept(actor)
    place = {"temperature": TEMPERATURE, "max_tokens": MAX_TOKENS, "rng": np.random.default_rng(0)}
    with pytest.raises(TrainingError, match=r"the loss is .*: lower --update.lr"):
        learn(actor, kept, lessons, update_config(micro_batch=1), Weights(), **cast(Any, place))
    assert not kept.steps


def test_a_loss_that_is_too_large_changes_nothing(actor: Actor) -> None:
    lessons = lessons_of(actor)
    assert lessons[2].logprobs is not None
    lessons[2].advantages[3], lessons[2].logprobs[3] = -1.0, lessons[2].logprobs[3] - 12  # e^12 likelier than before
    kept = Kept(actor)
    place = {"temperature": TEMPERATURE, "max_tokens": MAX_TOKENS, "rng": np.random.default_rng(0)}
    with pytest.raises(TrainingError, match=r"the loss of the policy is .*, beyond 1000: lower --update.lr"):
        learn(actor, kept, lessons, update_config(), Weights(), **cast(Any, place))
    assert not kept.steps
    learn(actor, kept, lessons, update_config(loss_limit=1e6), Weights(), **cast(Any, place))
    assert kept.steps


# Cold start -----------------------------------------------------------------------------------------------------------


def test_parts_of_a_batch_add_up_to_its_gradient(actor: Actor) -> None:
    some = samples(actor, LENGTHS)
    found = []
    for micro_batch in (64, 2, 1):
        actor.zero_grad()
        loss = supervised_step(actor, some, micro_batch)
        found.append((loss, {name: one.grad.clone() for name, one in actor.named_parameters() if one.grad is not None}))
    with torch.no_grad():
        measured = actor.measure(some)
    assert found[0][0] == pytest.approx(float(-measured.logprobs.sum() / measured.mask.sum()), abs=ALIKE)
    for loss, gradients in found[1:]:
        assert loss == pytest.approx(found[0][0], abs=ALIKE)
        assert_alike(gradients, found[0][1])


def test_each_batch_of_a_cold_start_is_learned_once(actor: Actor) -> None:
    batches = [[sample] for sample in samples(actor, LENGTHS)]
    losses: list[float] = []
    still = ColdStartConfig(steps=len(batches), lr=1e-12, check_every=1)
    taken = cold_start(actor, still, 8, batches, lambda: 0.0, lambda step, loss: losses.append(loss))
    assert taken == len(batches)
    with torch.no_grad():
        wanted = [-float(actor.measure(batch).logprobs.mean()) for batch in batches]
    assert losses == pytest.approx(wanted, abs=ALIKE)


# Advantages -----------------------------------------------------------------------------------------------------------


def answers_of(episodes: Sequence[tuple[int, int, Sequence[float]]]) -> list[Answer]:
    """Answers of episodes: row, copy and the rewards of the turns."""
    nothing = cast(Any, None)
    return [Answer(row, copy, nothing, reward, nothing) for row, copy, rewards in episodes for reward in rewards]


@pytest.mark.parametrize("scale", [True, False])
def test_an_answer_is_compared_with_what_its_group_earns_from_the_same_turn_on(scale: bool) -> None:
    episodes = [(0, 0, [1.0, 0.0, 2.0]), (0, 1, [0.5]), (0, 2, [0.0, 3.0]), (1, 0, [1.0]), (1, 1, [1.0, 4.0])]
    gamma = 0.9
    found = grpo_advantages(answers_of(episodes), GrpoConfig(scale=scale, gamma=gamma))
    expected = []
    for row, _, rewards in episodes:
        for turn in range(len(rewards)):
            group = [
                sum(reward * gamma ** (later - turn) for later, reward in enumerate(others) if later >= turn)
                for other, _, others in episodes
                if other == row
            ]
            mine = sum(reward * gamma ** (later - turn) for later, reward in enumerate(rewards) if later >= turn)
            better = mine - np.mean(group)
            expected.append(better / (np.std(group, ddof=1) + 1e-4) if scale else better)
    np.testing.assert_allclose(found, expected)


EPISODES = [(0, 0, [1.0, -0.5, 2.0]), (1, 0, [0.3]), (2, 0, [0.0, 0.7])]
TOKENS = [3, 1, 4, 2, 5, 1]
"""Tokens of the answers of these episodes."""
BEYOND = {(0, 0): 0.6, (2, 0): -1.1}
"""What the critic expects after those that were cut off."""


def critic_says() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=tokens) for tokens in TOKENS]


def generalised(
    rewards: Sequence[float], values: Sequence[float], beyond: float, keep: Sequence[float], lam: Sequence[float]
) -> Any:
    """Advantages by their definition, where discount and lambda of each step are its own."""
    following = [*values[1:], beyond]
    deltas = [r + g * after - v for r, g, after, v in zip(rewards, keep, following, values)]
    return [
        sum(np.prod([keep[j] * lam[j] for j in range(t, k)]) * deltas[k] for k in range(t, len(deltas)))
        for t in range(len(deltas))
    ]


def test_advantages_over_turns_are_their_definition() -> None:
    config, values = PpoConfig(over="turns", gamma=0.9, lam=0.8), critic_says()
    advantages, returns = ppo_advantages(answers_of(EPISODES), values, BEYOND, config)
    place = 0
    for row, copy, rewards in EPISODES:
        turns, beyond = len(rewards), BEYOND.get((row, copy), 0.0)
        judged = [each[0] for each in values[place : place + turns]]
        for turn, expected in enumerate(generalised(rewards, judged, beyond, [0.9] * turns, [0.8] * turns)):
            np.testing.assert_allclose(advantages[place + turn], np.full(TOKENS[place + turn], expected))
            assert returns[place + turn][0] == pytest.approx(expected + judged[turn])
            assert np.isnan(returns[place + turn][1:]).all()
        place += turns


def test_advantages_over_tokens_are_their_definition() -> None:
    config = PpoConfig(over="tokens", gamma=0.9, lam=0.8, token_gamma=0.99, token_lam=0.95)
    values = critic_says()
    advantages, returns = ppo_advantages(answers_of(EPISODES), values, BEYOND, config)
    place = 0
    for row, copy, rewards in EPISODES:
        lengths = TOKENS[place : place + len(rewards)]
        flat = list(np.concatenate(values[place : place + len(rewards)]))
        earned = [x for reward, n in zip(rewards, lengths) for x in [*[0.0] * (n - 1), reward]]
        keep = [x for n in lengths for x in [*[0.99] * (n - 1), 0.9]]  # from an answer's last token a turn passes
        lam = [x for n in lengths for x in [*[0.95] * (n - 1), 0.8]]
        expected = generalised(earned, flat, BEYOND.get((row, copy), 0.0), keep, lam)
        np.testing.assert_allclose(np.concatenate(advantages[place : place + len(rewards)]), expected)
        sums = np.add(expected, flat)
        np.testing.assert_allclose(np.concatenate(returns[place : place + len(rewards)]), sums)
        place += len(rewards)


@pytest.mark.parametrize(("over", "asked"), [("turns", [1] * 6), ("tokens", TOKENS)])
def test_a_critic_is_judged_by_what_was_earned_whatever_lambda(over: Any, asked: list[int]) -> None:
    episodes = [(0, 0, [1.0, -0.5, 2.0]), (1, 0, [0.3, 1.1]), (2, 0, [0.0])]
    to_come = [x for _, _, rewards in episodes for x in discounted_returns(rewards, 0.9)]
    guess = [1.0, 0.5, 0.8, 0.2, 2.0, 0.4]
    values = [np.full(tokens, value) for tokens, value in zip(TOKENS, guess)]
    config = PpoConfig(over=over, gamma=0.9, lam=0.0, token_lam=0.0)
    _, facts = ppo_lessons(answers_of(episodes), values, values, {}, config)
    earned, missed = np.repeat(to_come, asked), np.repeat(np.subtract(to_come, guess), asked)
    assert facts["explained"] == pytest.approx(1 - np.var(missed) / np.var(earned))


def test_what_a_critic_can_tell_is_measured() -> None:
    critic: Any = importlib.import_module("benchmarks.critic")
    rng = np.random.default_rng(0)
    episodes = np.repeat(np.arange(80), 10)
    told, noise = rng.normal(size=(800, 3)), rng.normal(size=(800, 3))
    luck = np.repeat(rng.normal(size=80), 10)  # of an episode, which no other episode tells
    returns = told[:, 0] - told[:, 1] + luck
    assert 0.5 < explained_variance(critic.estimated(told, returns, episodes), returns) < 0.75  # of 3 parts 1 is luck
    assert explained_variance(critic.estimated(noise, returns, episodes), returns) < 0.02
    actions = (rng.random((800, 1)) < 0.5).astype(np.float64)
    ((effect, error),) = critic.effects(returns + 0.5 * actions[:, 0], actions, told, episodes)
    assert 0.03 < error < 0.12
    assert abs(effect - 0.5) < 3 * error
