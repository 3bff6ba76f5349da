"""Rollout workers, batches, advantages and the prompt stream."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from verl.protocol import DataProto
from verl.trainer import core_algos, metrics, ray_trainer

from tests.broken_game import Broken
from tests.easyr1_cpu.rollout_workers import SECTION, a_prompt, encoder_of, worker_of
from vlmgym.curriculum import Pick
from vlmgym.errors import EpisodeError, UsageError
from vlmgym.policies.base import Reply
from vlmgym.sandbox import registry
from vlmgym.training.easyr1.batch import (
    ROLLOUT_LOG_PROBS,
    compute_advantages,
    decode_replies,
    episode_advantages,
    mismatch_metrics,
    pad_and_shuffle,
    real_rows,
    response_batch,
    response_ids,
    rows_multiple,
    turn_batch,
    without_failed,
)
from vlmgym.training.easyr1.episodes import ENGINE_STEPS, EnginePool, PromptStream, RolloutWorker
from vlmgym.training.easyr1.settings import Section
from vlmgym.training.easyr1.trainer import compute_metrics

OPTIONS: dict[str, Any] = {"step_weight": 1.0, "stock": ray_trainer.compute_advantage, "bootstrap_values": dict}
"""Arguments of `compute_advantages` for batches without truncated episodes."""
RIGHT = "<perception></perception><think></think><answer>{}</answer>"


# Turns and batches ----------------------------------------------------------------------------------------------------


def generated_of(requests: list[Any], times: int, responses: list[str], tokenizer: Any, length: int = 60) -> DataProto:
    """Build the output of a rollout from these responses, each followed by an end token."""
    rows = [[*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id] for text in responses]
    sampled = iter([(row, [0.0] * len(row)) for row in rows])
    complete = [(request, [*itertools.islice(sampled, times)]) for request in requests]
    return response_batch(complete, length, tokenizer.pad_token_id, [tokenizer.eos_token_id])


class Engines:
    """Four workers of vLLM, two per engine; in each turn, another of three episodes has a response of 500 tokens."""

    world_size = 4

    def __init__(self) -> None:
        self.left: list[dict[str, int]] = [{} for _ in range(self.world_size)]
        self.turns: Counter[str] = Counter()
        self.steps = 0

    def generate(self, calls: list[Any]) -> list[Any]:
        """Take the steps, and return the complete responses of each worker."""
        assert [calls[0], calls[2]] == [calls[1], calls[3]]
        for left, (prompts, _, _) in zip(self.left, calls):
            for key, _, _ in prompts:
                episode = key.split()[0]
                left[key] = 500 if self.turns[episode] == int(episode) else 20
        self.turns.update(key.split()[0] for prompts, _, _ in calls[::2] for key, _, _ in prompts)
        taken = min(calls[0][1], max(tokens for left in self.left for tokens in left.values()))
        self.steps += taken
        outputs = [[(key, [([1], [0.0])]) for key, tokens in left.items() if tokens <= taken] for left in self.left]
        self.left = [{key: n - taken for key, n in left.items() if n > taken} for left in self.left]
        return outputs


def test_a_long_response_delays_no_other_episode(qwen3: Path) -> None:
    worker, group, played = worker_of(qwen3), Engines(), Counter[int]()
    engines, requests = EnginePool(group, 2), worker.start(picks_of(0, 1, 2), 1)
    while requests or engines:
        complete = engines.generate(requests, 1, {})
        ids = response_ids([request for request, _ in complete], 1)
        results = worker.play([(episode, Reply("<answer>up</answer>")) for episode in ids])
        played.update(result.prompt_id for result in results)
        requests = [result.next for result in results if result.next is not None]
    assert played == {0: 3, 1: 3, 2: 3}
    assert group.steps <= 500 + 2 * 20 + 3 * ENGINE_STEPS, "together, the turns would take 3 x 500 steps"


def picks_of(*prompt_ids: int) -> list[tuple[int, Pick]]:
    curriculum = SECTION.make_curriculum()
    return list(curriculum.picks(curriculum.begin(), 0, prompt_ids).items())


def played_turns(qwen3: Path) -> list[DataProto]:
    """Play two groups of two episodes for three turns. All responses are `up`, except in one episode."""
    worker, turns = worker_of(qwen3), []
    tokenizer = worker.encoder.tokenizer
    requests = worker.start(picks_of(4, 7), 2)
    while requests:
        times = 2 if requests[0].sample_idx is None else 1
        ids = response_ids(requests, 2)
        responses = ["nothing" if episode_id == (7, 1) else RIGHT.format("up") for episode_id in ids]
        generated = generated_of(requests, times, responses, tokenizer)
        replies = decode_replies(generated, tokenizer, [tokenizer.eos_token_id])
        assert [reply.text for reply in replies] == responses
        assert {reply.finish_reason for reply in replies} == {"stop"}
        results = worker.play(list(zip(ids, replies)))
        turns.append(turn_batch(requests, 2, generated, results))
        requests = [result.next for result in results if result.next is not None]
    return turns


def test_turn_batches_have_uids_and_last_token_rewards(qwen3: Path) -> None:
    first, second, third = played_turns(qwen3)
    assert [len(turn) for turn in (first, second, third)] == [4, 4, 4]
    assert first.non_tensor_batch["uid"].tolist() == ["4 1", "4 1", "7 1", "7 1"]
    assert second.non_tensor_batch["uid"].tolist() == ["4 0 2", "4 1 2", "7 0 2", "7 1 2"]
    states = first.non_tensor_batch["state_key"]
    assert states[0] == states[1] != states[2], "a group shares its initial state"
    assert second.non_tensor_batch["state_key"][0] == second.non_tensor_batch["state_key"][1], "and its randomness"
    scores, mask = first.batch["token_level_scores"], first.batch["response_mask"]
    last = mask.sum(-1) - 1
    assert not scores.scatter(1, last[:, None], 0.0).any(), "rewards are at the last token"


def test_finished_episodes_are_returned_once(qwen3: Path) -> None:
    worker = worker_of(qwen3)
    requests = worker.start(picks_of(4), 2)
    for _ in range(3):
        worker.play([((4, 0), Reply("nothing")), ((4, 1), Reply(RIGHT.format("up")))])
    found = worker.finish(2)
    facts = [(one.prompt_id, one.sample_idx, len(one.record.turns), one.record.seed) for one in found]
    assert facts == [(4, 0, 3, 8), (4, 1, 3, 9)]
    assert len(requests) == 1
    assert worker.finish(2) == []
    assert [one.prompt_id for one in worker.start_validation([0, 1])] == [0, 1]
    for _ in range(SECTION.validation.max_turns):
        worker.play([((prompt_id, 0), Reply("nothing")) for prompt_id in (0, 1)])
    assert worker.finish(None)[1].record.seed == 1_000_001


def test_a_prompt_that_is_too_long_ends_its_episode(qwen3: Path) -> None:
    """Feedback on an invalid response makes the second prompt of one episode too long."""
    worker = worker_of(qwen3)
    (request,) = worker.start(picks_of(4), 2)
    worker.encoder.max_prompt_length = int(request.features["attention_mask"].sum())
    invalid, valid = worker.play([((4, 0), Reply("nothing")), ((4, 1), Reply(RIGHT.format("up")))])
    assert (invalid.turn, invalid.next) == (None, None)
    assert valid.next is not None
    ended, running = worker.episodes.values()
    assert (ended.observation.status, running.observation.status) == ("error", None)
    assert "data.max_prompt_length" in str(ended.observation.end)


def test_bootstrap_requests(qwen3: Path) -> None:
    """The limit of three turns truncates one of two episodes; the other one is still running."""
    worker = worker_of(qwen3)
    worker.start(picks_of(4, 7), 1)
    for turn in range(3):
        worker.play([((4, 0), Reply("nothing"))])
        assert len(worker.bootstrap_requests()) == (turn == 2)
    ((episode_id, request),) = worker.bootstrap_requests()
    assert (episode_id, request.prompt_id, request.sample_idx) == ((4, 0), 4, 0)
    observation = worker.episodes[4, 0].observation_after_limit()
    expected = worker.encoder.encode(observation.prompt, observation.images)
    assert torch.equal(request.features["input_ids"], expected["input_ids"])


def test_padding_rows_have_no_effect(qwen3: Path) -> None:
    batch = DataProto.concat(played_turns(qwen3))
    padded = pad_and_shuffle(batch, 8, seed=0)
    assert len(padded) == 16
    padding = torch.from_numpy(padded.non_tensor_batch["padding"].astype(bool))
    assert padding.sum() == 4
    assert not padded.batch["response_mask"][padding].any()
    assert not padded.batch["token_level_scores"][padding].any()
    columns = batch.non_tensor_batch
    after = padded[real_rows(padded)].non_tensor_batch
    assert sorted(zip(after["uid"], after["sample_idx"])) == sorted(zip(columns["uid"], columns["sample_idx"]))
    again = pad_and_shuffle(batch, 8, seed=0)
    assert again.non_tensor_batch["uid"].tolist() == padded.non_tensor_batch["uid"].tolist()
    padded.batch["token_level_rewards"] = padded.batch["token_level_scores"]
    found = compute_advantages(padded, "grpo", 1.0, 1.0, **OPTIONS)
    assert not found.batch["advantages"][padding].any()
    means = compute_metrics(found)
    expected = batch.batch["token_level_scores"].sum(-1).mean()
    assert means["critic/score/mean"] == pytest.approx(float(expected))
    assert set(means) == set(metrics.compute_data_metrics(found))


@pytest.mark.parametrize(("dynamic", "multiple"), [(True, 24), (False, 72)])
def test_required_number_of_rows(dynamic: bool, multiple: int) -> None:
    part = SimpleNamespace(global_batch_size=6, dynamic_batching=dynamic, micro_batch_size_per_device_for_experience=9)
    worker = SimpleNamespace(actor=part, critic=part, rollout=SimpleNamespace(n=4))
    assert rows_multiple(worker, 8, critic=False) == multiple


def test_failed_episodes_leave_the_batch(qwen3: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every move up fails, and some initial states; a group needs two episodes that did not fail."""
    monkeypatch.setitem(registry._registered, "broken-v0", Broken)
    games = [{"game": "broken", "overrides": {"size": 128}}]
    section = Section.read(
        {"games": games, "play": {"max_turns": 2}, "states": {"moves": (0, 0)}, "rollout_workers": 0}
    )
    worker, curriculum = RolloutWorker(section, encoder_of(qwen3, 600), 0, "tiny"), section.make_curriculum()
    requests = worker.start(list(curriculum.picks(curriculum.begin(), 0, range(12)).items()), 3)
    started, turns = [request.prompt_id for request in requests], []
    assert 0 < len(started) < 12
    tokenizer, alone = worker.encoder.tokenizer, started[0]
    while requests:
        ids = response_ids(requests, 3)
        moves = ["up" if prompt_id == alone and sample_idx else "nothing" for prompt_id, sample_idx in ids]
        moves = [move if episode_id != (started[1], 2) else "up" for episode_id, move in zip(ids, moves)]
        times = 3 if requests[0].sample_idx is None else 1
        generated = generated_of(requests, times, [f"<answer>{move}</answer>" for move in moves], tokenizer)
        results = worker.play(list(zip(ids, decode_replies(generated, tokenizer, [tokenizer.eos_token_id]))))
        turns.append(turn_batch(requests, 3, generated, results))
        requests = [result.next for result in results if result.next is not None]
    episodes = worker.finish(3)
    failed = {(episode.prompt_id, episode.sample_idx) for episode in episodes if episode.failed}
    assert failed == {(alone, 1), (alone, 2), (started[1], 2)}
    batch = without_failed(DataProto.concat(turns), failed, 2)
    assert {*batch.non_tensor_batch["prompt_id"]} == {*started[1:]}
    assert len(batch) == 2 * (3 * len(started[1:]) - 1)
    ended = next(episode.record for episode in episodes if episode.failed)
    assert (ended.score, "broken step" in ended.end_reason) == (None, True)


def test_prompts_with_special_tokens_are_rejected(qwen3: Path) -> None:
    _, images = a_prompt()
    with pytest.raises(EpisodeError, match=r"the prompt contains <\|image_pad\|>, a special token of the model"):
        encoder_of(qwen3).encode("What is <|image_pad|>?", images)


# Advantages -----------------------------------------------------------------------------------------------------------


def rows_of(rewards: list[float], prompts: list[int], samples: list[int], turns: list[int], states: str) -> DataProto:
    """Build rows of two tokens, with the reward at the second token."""
    count = len(rewards)
    scores = torch.zeros(count, 3)
    scores[:, 1] = torch.tensor(rewards)
    mask = torch.tensor([[1, 1, 0]] * count)
    columns = {"prompt_id": prompts, "sample_idx": samples, "turn": turns, "state_key": list(states)}
    columns |= {"padding": [False] * count, "uid": [str(prompt_id) for prompt_id in prompts]}
    return DataProto.from_dict(
        tensors={"token_level_rewards": scores, "response_mask": mask},
        non_tensors={key: np.array(values, dtype=object) for key, values in columns.items()},
    )


@pytest.mark.parametrize("estimator", ["grpo", "rloo"])
def test_advantages_of_single_turns_equal_those_of_easyr1(estimator: str) -> None:
    data = rows_of([1.0, 0.0, 2.0, 4.0], [0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 1], "aabb")
    ours = compute_advantages(data, estimator, 1.0, 1.0, **OPTIONS).batch["advantages"].clone()
    theirs = ray_trainer.compute_advantage(data, estimator).batch["advantages"]
    torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=0)
    assert ours[:, 0].abs().min() > 0.5
    assert not ours[:, 2].any()


def test_advantages_of_episodes() -> None:
    # Episode 0 earns 1 + 1 in the states a, b; episode 1 earns 0 + 0 in a, b.
    data = rows_of([1.0, 1.0, 0.0, 0.0], [0] * 4, [0, 0, 1, 1], [1, 2, 1, 2], "abab")
    half, near = 0.5**0.5, partial(pytest.approx, abs=1e-3)
    assert episode_advantages(data, 0.5, 0.0).tolist() == near([half, half, -half, -half])
    assert episode_advantages(data, 0.5, 1.0).tolist() == near([2 * half, 2 * half, -2 * half, -2 * half])
    # A state that only one of the episodes reached has nothing to be compared with.
    data = rows_of([1.0, 1.0, 0.0, 0.0], [0] * 4, [0, 0, 1, 1], [1, 2, 1, 2], "abac")
    assert episode_advantages(data, 0.5, 1.0).tolist() == near([2 * half, half, -2 * half, -half])
    shuffled = data[np.array([3, 0, 2, 1])]
    assert episode_advantages(shuffled, 0.5, 1.0).tolist() == near([-half, 2 * half, -2 * half, half])


@pytest.mark.parametrize("left", [0.0, 0.5])
def test_gae_over_tokens_of_an_episode(left: float) -> None:
    """The episode ends with the bootstrap value `left`."""
    data = rows_of([1.0, 2.0], [0, 0], [1, 1], [1, 2], "ab")
    data.batch["values"] = torch.tensor([[0.1, 0.2, 0.0], [0.3, 0.4, 0.0]])
    found = compute_advantages(
        data, "gae", 0.9, 0.8, **{**OPTIONS, "bootstrap_values": lambda: {(0, 0): 9.0, (0, 1): left}}
    )
    rewards, values = [0.0, 1.0, 0.0, 2.0], [0.1, 0.2, 0.3, 0.4]
    expected, later = [0.0] * 4, 0.0
    for t in reversed(range(4)):
        delta = rewards[t] + 0.9 * (values[t + 1] if t < 3 else left) - values[t]
        later = expected[t] = delta + 0.9 * 0.8 * later
    returns = found.batch["returns"][:, :2].flatten()
    assert returns.tolist() == pytest.approx([a + v for a, v in zip(expected, values)], abs=1e-5)
    advantages = found.batch["advantages"][:, :2].flatten()
    assert float(advantages.mean()) == pytest.approx(0.0, abs=1e-5)
    assert np.argsort(advantages.numpy()).tolist() == np.argsort(expected).tolist()
    assert not found.batch["advantages"][:, 2].any()


def test_advantages_with_bfloat16_values() -> None:
    """Advantages are computed in float32, even from bfloat16 values, which have only three digits."""
    data = rows_of([1.0, 2.0], [0, 1], [0, 0], [1, 1], "ab")
    data.batch["values"] = torch.tensor([[0.5, 0.25, 0.0], [0.5, 0.125, 0.0]], dtype=torch.bfloat16)
    found = compute_advantages(data, "gae", 0.999, 1.0, **OPTIONS)
    assert found.batch["returns"][:, 0].tolist() == pytest.approx([0.999, 1.998], abs=1e-6)


def test_gae_of_one_row_equals_easyr1() -> None:
    data = rows_of([1.5], [0], [0], [1], "a")
    data.batch["response_mask"][:] = 1  # EasyR1's function is wrong after the end of a response
    data.batch["values"] = torch.tensor([[0.1, 0.2, 0.3]])
    found = compute_advantages(data, "gae", 0.9, 0.8, **OPTIONS)
    theirs = core_algos.compute_gae_advantage_return(
        data.batch["token_level_rewards"], data.batch["values"], data.batch["response_mask"], 0.9, 0.8
    )
    assert torch.allclose(found.batch["returns"], theirs[1])


def test_truncated_importance_sampling() -> None:
    """The trainer gives the tokens of the first row 4 and 1/2 times the probability that vLLM gave them."""
    data = rows_of([1.0, 0.0], [0, 0], [0, 1], [1, 1], "aa")
    ratios = torch.tensor([[4.0, 0.5, 1000.0], [1.0, 1.0, 1000.0]])  # the last token is not part of the response
    data.batch[ROLLOUT_LOG_PROBS] = torch.full((2, 3), -1.5)
    data.batch["old_log_probs"] = ratios.log() - 1.5
    measured = mismatch_metrics(data)
    assert measured["mismatch/kl"] == pytest.approx((3 - np.log(4) - 0.5 + np.log(2)) / 4)
    assert measured["mismatch/max_ratio"] == pytest.approx(4)
    assert measured["mismatch/ess"] == pytest.approx(6.5**2 / 18.25 / 4)
    plain = compute_advantages(data, "grpo", 1.0, 1.0, **OPTIONS).batch["advantages"].clone()
    weighed = compute_advantages(data, "grpo", 1.0, 1.0, importance_cap=2.0, **OPTIONS).batch
    assert torch.allclose(weighed["advantages"], plain * torch.tensor([[2.0, 0.5, 0.0], [1.0, 1.0, 0.0]]))
    assert torch.allclose(weighed["returns"], plain), "returns are targets of the critic"
    for limit, kept in ((1.9, 0.0), (2.1, 1.0)):  # the first response has a ratio of 2
        masked = compute_advantages(data, "grpo", 1.0, 1.0, response_ratio_limit=limit, **OPTIONS).batch["advantages"]
        assert torch.allclose(masked, plain * torch.tensor([[kept], [1.0]]))


# Prompt stream --------------------------------------------------------------------------------------------------------


def test_prompt_stream_resumes() -> None:
    curriculum = SECTION.make_curriculum()
    whole = PromptStream(curriculum, 3, 4)
    steps = iter(whole)
    first = [next(steps) for _ in range(2)]
    saved = whole.state_dict()
    again = PromptStream(curriculum, 3, 4)
    again.load_state_dict(saved)
    assert [list(rows) for rows in first] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert next(iter(again)) == next(steps) == range(8, 12)
    with pytest.raises(UsageError, match=r"data\.seed=3, but this run has data\.seed=4"):
        PromptStream(curriculum, 4, 4).load_state_dict(saved)


def test_stages_change_inside_a_batch_and_resume() -> None:
    stages = [{"name": "one", "episodes": 3}, {"name": "two"}]
    later = [{"name": "one", "steps": 1}, {"name": "two"}]
    games = [{"game": "2048", "stages": stages}, {"game": "swap", "by": "step", "stages": later}]
    curriculum = Section.read({"games": games}).make_curriculum()

    def take(stream: PromptStream, steps: int) -> list[list[str]]:
        batches = []
        for prompt_ids in itertools.islice(stream, steps):
            picks = stream.picks(prompt_ids)
            batches.append([f"{pick.entry} {pick.stage}" for pick in picks.values()])
            for pick in picks.values():
                stream.progress = curriculum.after(stream.progress, pick, 0.0)
            stream.progress = curriculum.at_step(stream.progress, stream.progress.steps + 1)
        return batches

    whole, first, again = (PromptStream(curriculum, 0, 6) for _ in range(3))
    batches = take(whole, 3)
    assert [pick for batch in batches for pick in batch if pick.startswith("0")][:4] == ["0 one"] * 3 + ["0 two"]
    assert {pick for pick in batches[0] if pick.startswith("1")} == {"1 one"}
    assert {pick for batch in batches[1:] for pick in batch if pick.startswith("1")} == {"1 two"}
    before = take(first, 1)
    again.load_state_dict(first.state_dict())
    assert before + take(again, 2) == batches


def test_initial_states_depend_on_seed_and_prompt_id(qwen3: Path) -> None:
    def start(worker: RolloutWorker, prompt_ids: list[int]) -> list[tuple[int, bytes]]:
        requests = worker.start(picks_of(*prompt_ids), 1)
        return [(one.prompt_id, one.features["multi_modal_data"]["images"][0]["bytes"]) for one in requests]

    worker = worker_of(qwen3)
    some = start(worker, [5, 6])
    assert start(worker_of(qwen3), [6, 5]) == some[::-1]
    assert start(RolloutWorker(SECTION, worker.encoder, 1, "tiny"), [5]) != some[:1]


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({}, "games or curriculum must be set"),
        ({"games": [{"game": "chess"}]}, "unknown game 'chess'"),
        ({"curriculum": "three-games", "nothing": 1}, "nothing: extra inputs are not permitted"),
    ],
)
def test_invalid_sections(section: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Section.read(section).make_curriculum()
