"""Positions, turns, batches, and what is learned from them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from ray.exceptions import RayTaskError
from verl.protocol import DataProto
from verl.trainer import core_algos, metrics, ray_trainer

from tests.easyr1_cpu.rollout_workers import SECTION, worker_of
from training.easyr1 import patches
from training.easyr1.advantages import advantages_of, episode_advantages
from training.easyr1.batch import fill, places_of, replies_of, rows_multiple, turn_rows
from training.easyr1.prompt_stream import PromptStream
from training.easyr1.rollout_worker import RolloutWorker
from training.easyr1.section import Section
from training.easyr1.worker_pool import WorkerPool
from vlmgym.errors import UsageError
from vlmgym.policies.base import Reply

GIVEN: dict[str, Any] = {"step_weight": 1.0, "stock": ray_trainer.compute_advantage, "beyond": dict}
"""To `advantages_of`, besides what EasyR1 gives; no episode was cut off."""
RIGHT = "<perception></perception><think></think><answer>{}</answer>"


# Turns and batches ----------------------------------------------------------------------------------------------------


def generated_of(asked: list[Any], times: int, responses: list[str], tokenizer: Any, length: int = 60) -> DataProto:
    """What a rollout gives for these responses, with an end each."""
    rows = [[*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id] for text in responses]
    ids = torch.tensor([row + [tokenizer.pad_token_id] * (length - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
    prompts = torch.stack([one.features["input_ids"] for one in asked]).repeat_interleave(times, 0)
    known = torch.stack([one.features["attention_mask"] for one in asked]).repeat_interleave(times, 0)
    return DataProto.from_dict(
        tensors={
            "prompts": prompts,
            "responses": ids,
            "input_ids": torch.cat([prompts, ids], 1),
            "attention_mask": torch.cat([known, mask], 1),
            "response_mask": mask,
            "position_ids": torch.zeros(len(ids), 4, prompts.shape[1] + length, dtype=torch.int64),
        }
    )


def played_turns(qwen3: Path) -> list[DataProto]:
    """Two rows of two episodes, three turns each; every answer is `up` but for one that is unparsable."""
    table, turns = worker_of(qwen3), []
    tokenizer = table.encoder.tokenizer
    asked = table.start([4, 7], 2, table.curriculum.begin())
    while asked:
        times = 2 if asked[0].copy is None else 1
        places = places_of(asked, 2)
        said = ["nothing" if place == (7, 1) else RIGHT.format("up") for place in places]
        generated = generated_of(asked, times, said, tokenizer)
        replies = replies_of(generated, tokenizer, [tokenizer.eos_token_id])
        assert [reply.text for reply in replies] == said
        assert {reply.finish_reason for reply in replies} == {"stop"}
        played = table.play(list(zip(places, replies)))
        turns.append(turn_rows(asked, 2, generated, played))
        asked = [one.next for one in played if one.next is not None]
    return turns


def test_turns(qwen3: Path) -> None:
    first, second, third = played_turns(qwen3)
    assert [len(turn) for turn in (first, second, third)] == [4, 4, 4]
    assert first.non_tensor_batch["uid"].tolist() == ["4 1", "4 1", "7 1", "7 1"]
    assert second.non_tensor_batch["uid"].tolist() == ["4 0 2", "4 1 2", "7 0 2", "7 1 2"]
    anchors = first.non_tensor_batch["anchor"]
    assert anchors[0] == anchors[1] != anchors[2], "the episodes of a row begin at one position"
    assert second.non_tensor_batch["anchor"][0] == second.non_tensor_batch["anchor"][1], "and have the same chance"
    scores, mask = first.batch["token_level_scores"], first.batch["response_mask"]
    last = mask.sum(-1) - 1
    assert not scores.scatter(1, last[:, None], 0.0).any(), "the reward is at the last token"


def test_records_of_what_was_played(qwen3: Path) -> None:
    table = worker_of(qwen3)
    asked = table.start([4], 2, table.curriculum.begin())
    for _ in range(3):
        table.play([((4, 0), Reply("nothing")), ((4, 1), Reply(RIGHT.format("up")))])
    found = table.finish(2)
    assert [(one.row, one.copy, one.turns, one.game) for one in found] == [(4, 0, 3, "2048-v0"), (4, 1, 3, "2048-v0")]
    assert len(asked) == 1
    assert '"seed":8' in found[0].record
    assert '"seed":9' in found[1].record
    assert table.finish(2) == []
    held_out = table.start_validation([0, 1])
    assert [one.row for one in held_out] == [0, 1]
    for _ in range(SECTION.validation.turns):
        table.play([((row, 0), Reply("nothing")) for row in (0, 1)])
    assert '"seed":1000001' in table.finish(None)[1].record


@pytest.mark.parametrize("cause", [UsageError("a prompt is too long"), KeyError("row")])
def test_a_mistake_at_a_table_of_another_process_is_told_in_its_own_words(
    monkeypatch: pytest.MonkeyPatch, cause: Exception
) -> None:
    def fail(_: Any) -> None:
        raise RayTaskError("start", "a traceback", cause).as_instanceof_cause()

    players = WorkerPool(SECTION, None, 0, "tiny")
    monkeypatch.setattr(players, "_apart", True)
    monkeypatch.setattr(players, "_call", lambda *_: None)
    monkeypatch.setattr("ray.get", fail)
    with pytest.raises(type(cause)) as raised:
        players.finish(1)
    assert ("traceback" in str(raised.value)) == isinstance(cause, KeyError)


def test_what_is_beyond_the_limit_of_turns(qwen3: Path) -> None:
    """Of two episodes the limit of three turns cuts one off; the other is not over."""
    table = worker_of(qwen3)
    table.start([4, 7], 1, table.curriculum.begin())
    for turn in range(3):
        table.play([((4, 0), Reply("nothing"))])
        assert len(table.bootstrap_requests()) == (turn == 2)
    ((place, asked),) = table.bootstrap_requests()
    assert (place, asked.row, asked.copy) == ((4, 0), 4, 0)
    episode = table.episodes[4, 0]
    left = table.encoder.encode(episode.bootstrap_observation().prompt, episode.bootstrap_observation().images)
    assert torch.equal(asked.features["input_ids"], left["input_ids"])


def test_filling_rows_teach_nothing(qwen3: Path) -> None:
    batch = DataProto.concat(played_turns(qwen3))
    filled = fill(batch, 8, seed=0)
    assert len(filled) == 16
    live = filled.non_tensor_batch["live"].astype(bool)
    assert live.sum() == 12
    assert not filled.batch["response_mask"][torch.from_numpy(~live)].any()
    assert not filled.batch["token_level_scores"][torch.from_numpy(~live)].any()
    facts = batch.non_tensor_batch
    after = filled[np.flatnonzero(live)].non_tensor_batch
    assert sorted(zip(after["uid"], after["copy"])) == sorted(zip(facts["uid"], facts["copy"]))
    assert fill(batch, 8, seed=0).non_tensor_batch["uid"].tolist() == filled.non_tensor_batch["uid"].tolist()
    filled.batch["token_level_rewards"] = filled.batch["token_level_scores"]
    learned = advantages_of(filled, "grpo", 1.0, 1.0, **GIVEN)
    assert not learned.batch["advantages"][torch.from_numpy(~live)].any()
    means = patches.metrics_of_live_rows(learned)
    expected = batch.batch["token_level_scores"].sum(-1).mean()
    assert means["critic/score/mean"] == pytest.approx(float(expected))
    assert set(means) == set(metrics.compute_data_metrics(learned))


@pytest.mark.parametrize(("dynamic", "multiple"), [(True, 24), (False, 72)])
def test_rows_of_a_batch(dynamic: bool, multiple: int) -> None:
    part = SimpleNamespace(global_batch_size=6, dynamic_batching=dynamic, micro_batch_size_per_device_for_experience=9)
    worker = SimpleNamespace(actor=part, critic=part, rollout=SimpleNamespace(n=4))
    assert rows_multiple(worker, 8, critic=False) == multiple


# Advantages -----------------------------------------------------------------------------------------------------------


def rows_of(rewards: list[float], rows: list[int], copies: list[int], turns: list[int], anchors: str) -> DataProto:
    """Rows of two tokens with the reward at the second."""
    count = len(rewards)
    scores = torch.zeros(count, 3)
    scores[:, 1] = torch.tensor(rewards)
    mask = torch.tensor([[1, 1, 0]] * count)
    facts = {"row": rows, "copy": copies, "turn": turns, "anchor": list(anchors), "live": [True] * count}
    facts["uid"] = [str(row) for row in rows]
    return DataProto.from_dict(
        tensors={"token_level_rewards": scores, "response_mask": mask},
        non_tensors={key: np.array(values, dtype=object) for key, values in facts.items()},
    )


def test_single_answers_are_left_to_easyr1() -> None:
    data = rows_of([1.0, 0.0, 2.0, 4.0], [0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 1], "aabb")
    ours = advantages_of(data, "grpo", 1.0, 1.0, **GIVEN)
    half = 0.5**0.5
    assert ours.batch["advantages"][:, 0].tolist() == pytest.approx([half, -half, -half, half], abs=1e-4)
    assert not ours.batch["advantages"][:, 2].any()


def test_advantages_of_episodes() -> None:
    # Episode 0 earns 1 + 1 from the positions a, b; episode 1 earns 0 + 0 from a, b.
    data = rows_of([1.0, 1.0, 0.0, 0.0], [0] * 4, [0, 0, 1, 1], [1, 2, 1, 2], "abab")
    half, near = 0.5**0.5, partial(pytest.approx, abs=1e-3)
    assert episode_advantages(data, 0.5, 0.0).tolist() == near([half, half, -half, -half])
    assert episode_advantages(data, 0.5, 1.0).tolist() == near([2 * half, 2 * half, -2 * half, -2 * half])
    # At a position that only one of them came to, there is nothing to compare with.
    data = rows_of([1.0, 1.0, 0.0, 0.0], [0] * 4, [0, 0, 1, 1], [1, 2, 1, 2], "abac")
    assert episode_advantages(data, 0.5, 1.0).tolist() == near([2 * half, half, -2 * half, -half])
    shuffled = data[np.array([3, 0, 2, 1])]
    assert episode_advantages(shuffled, 0.5, 1.0).tolist() == near([-half, 2 * half, -2 * half, half])


@pytest.mark.parametrize("left", [0.0, 0.5])
def test_gae_runs_over_the_tokens_of_an_episode(left: float) -> None:
    """The critic expects something of the position at which it was cut off."""
    data = rows_of([1.0, 2.0], [0, 0], [1, 1], [1, 2], "ab")
    data.batch["values"] = torch.tensor([[0.1, 0.2, 0.0], [0.3, 0.4, 0.0]])
    found = advantages_of(data, "gae", 0.9, 0.8, **{**GIVEN, "beyond": lambda: {(0, 0): 9.0, (0, 1): left}})
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


def test_advantages_are_more_exact_than_what_a_critic_says_on_gpus() -> None:
    """There values are bfloat16, which has three digits."""
    data = rows_of([1.0, 2.0], [0, 1], [0, 0], [1, 1], "ab")
    data.batch["values"] = torch.tensor([[0.5, 0.25, 0.0], [0.5, 0.125, 0.0]], dtype=torch.bfloat16)
    found = advantages_of(data, "gae", 0.999, 1.0, **GIVEN)
    assert found.batch["returns"][:, 0].tolist() == pytest.approx([0.999, 1.998], abs=1e-6)


def test_gae_of_one_row_is_easyr1s() -> None:
    data = rows_of([1.5], [0], [0], [1], "a")
    data.batch["response_mask"][:] = 1  # EasyR1's fails after the end of a response
    data.batch["values"] = torch.tensor([[0.1, 0.2, 0.3]])
    found = advantages_of(data, "gae", 0.9, 0.8, **GIVEN)
    theirs = core_algos.compute_gae_advantage_return(
        data.batch["token_level_rewards"], data.batch["values"], data.batch["response_mask"], 0.9, 0.8
    )
    assert torch.allclose(found.batch["returns"], theirs[1])


# Rows ----------------------------------------------------------------------------------------------


def test_rows_go_on_after_a_checkpoint() -> None:
    curriculum = SECTION.make_curriculum()
    whole = PromptStream(curriculum, 3, 4)
    steps = iter(whole)
    first = [next(steps) for _ in range(2)]
    saved = whole.state_dict()
    again = PromptStream(curriculum, 3, 4)
    again.load_state_dict(saved)
    assert [list(rows) for rows in first] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert next(iter(again)) == next(steps) == range(8, 12)
    with pytest.raises(UsageError, match=r"data\.seed=3, not 4"):
        PromptStream(curriculum, 4, 4).load_state_dict(saved)


def test_positions_are_functions_of_seed_and_row(qwen3: Path) -> None:
    def asked(table: RolloutWorker, rows: list[int]) -> list[tuple[int, bytes]]:
        found = table.start(rows, 1, table.curriculum.begin())
        return [(one.row, one.features["multi_modal_data"]["images"][0]["bytes"]) for one in found]

    table = worker_of(qwen3)
    some = asked(table, [5, 6])
    assert asked(worker_of(qwen3), [6, 5]) == some[::-1]
    other = RolloutWorker(SECTION, table.encoder, 1, "tiny")
    assert asked(other, [5]) != some[:1]


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({}, "vlmgym: name either games or a curriculum"),
        ({"games": [{"game": "chess"}]}, "unknown game 'chess'"),
        ({"curriculum": "geospot", "nothing": 1}, "nothing: extra inputs are not permitted"),
        ({"curriculum": "geospot", "states": {"moves": [5, 1]}}, "moves must be a minimum and a maximum"),
        ({"curriculum": "geospot", "reward": {"shaping": "cubic"}}, "shaping"),
    ],
)
def test_sections_that_are_not_accepted(section: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Section.read(section).make_curriculum()
