"""Convert turns of episodes to EasyR1 batches."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from verl.protocol import DataProto
from verl.utils.dataset import collate_fn
from verl.workers.config import WorkerConfig

from vlmgym.policies.base import Reply
from vlmgym.training.easyr1.rollout_worker import EpisodeId, Request, StepResult

GENERATED = ("prompts", "responses", "input_ids", "attention_mask", "response_mask", "position_ids")
"""Tensors that EasyR1 returns from a rollout, with one row per response."""


def prompt_batch(requests: Sequence[Request], meta: dict[str, Any]) -> DataProto:
    """Build a batch of prompts for `generate_sequences`; `meta` has image limits and sampling parameters."""
    return DataProto.from_single_dict(collate_fn([request.features for request in requests]), meta_info=meta)


def critic_batch(requests: Sequence[Request], meta: dict[str, Any]) -> DataProto:
    """Build a batch of prompts for the critic, each with a dummy response of one token.

    The critic estimates the value of a token before it sees the token, so any token will do.
    """
    batch = prompt_batch(requests, meta)
    one = torch.ones(len(requests), 1, dtype=torch.int64)
    positions = batch.batch["position_ids"]
    more = {"input_ids": one, "attention_mask": one, "position_ids": positions[..., -1:] + 1}
    tensors = {key: torch.cat([batch.batch[key], added], -1) for key, added in more.items()}
    uids = _objects([f"{request.prompt_id} {request.sample_idx} bootstrap" for request in requests])
    return DataProto.from_dict(
        tensors={**tensors, "responses": one, "response_mask": one},
        non_tensors={"uid": uids, "multi_modal_data": batch.non_tensor_batch["multi_modal_data"]},
        meta_info=meta,
    )


def decode_replies(generated: DataProto, tokenizer: Any, end_tokens: Sequence[int]) -> list[Reply]:
    """Decode generated responses into replies with token counts and finish reasons."""
    lengths = generated.batch["response_mask"].sum(-1).tolist()
    prompts = (generated.batch["attention_mask"].sum(-1) - generated.batch["response_mask"].sum(-1)).tolist()
    replies = []
    for tokens, length, prompt in zip(generated.batch["responses"].tolist(), lengths, prompts):
        response = tokens[: int(length)]
        text = tokenizer.decode(response, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        reason = "stop" if response and response[-1] in end_tokens else "length"
        replies.append(Reply(text, prompt_tokens=int(prompt), completion_tokens=len(response), finish_reason=reason))
    return replies


def turn_batch(
    requests: Sequence[Request], group_size: int, generated: DataProto, results: Sequence[StepResult]
) -> DataProto:
    """Build the batch rows of played turns; a prompt shared by a group has `group_size` responses.

    Returns:
        A batch with one row per response. `token_level_scores` has the reward at the last response token. Other columns
        are `prompt_id`, `sample_idx`, `turn`, `state_key`, `padding`, and `uid`, which is the same for responses to the
        same prompt, so that EasyR1 processes its images once.
    """
    scores = torch.zeros_like(generated.batch["responses"], dtype=torch.float32)
    last = (generated.batch["response_mask"].sum(-1).long() - 1).clamp(min=0)
    scores[torch.arange(len(results)), last] = torch.tensor([one.turn.reward.total for one in results])
    images, uids = [], []
    for request in requests:
        shared = request.sample_idx is None
        images += [request.features["multi_modal_data"]] * (group_size if shared else 1)
        uids += [f"{request.prompt_id}"] * group_size if shared else [f"{request.prompt_id} {request.sample_idx}"]
    columns = {
        "multi_modal_data": images,
        "uid": [f"{uid} {one.turn.turn}" for uid, one in zip(uids, results)],
        "prompt_id": [one.prompt_id for one in results],
        "sample_idx": [one.sample_idx for one in results],
        "turn": [one.turn.turn for one in results],
        "state_key": [json.dumps(one.turn.state, sort_keys=True) for one in results],
        "padding": [False] * len(results),
    }
    return DataProto.from_dict(
        tensors={**{key: generated.batch[key] for key in GENERATED}, "token_level_scores": scores},
        non_tensors={name: _objects(values) for name, values in columns.items()},
    )


def response_ids(requests: Sequence[Request], group_size: int) -> list[EpisodeId]:
    """Return the id of each response's episode, in order."""
    return [
        (request.prompt_id, sample_idx)
        for request in requests
        for sample_idx in (range(group_size) if request.sample_idx is None else (request.sample_idx,))
    ]


def pad_and_shuffle(batch: DataProto, multiple: int, seed: int) -> DataProto:
    """Pad a batch to a multiple of `multiple` rows, and shuffle the rows, so that GPUs get similar shares of padding.

    Padding rows repeat the shortest row with an empty response mask, so that they do not affect token-mean losses.
    """
    missing = -len(batch) % multiple
    if missing:
        shortest = int(batch.batch["attention_mask"].sum(-1).argmin())
        padding = batch[np.full(missing, shortest)]
        padding.batch = padding.batch.clone()
        for key in ("response_mask", "token_level_scores"):
            padding.batch[key].zero_()
        padding.non_tensor_batch["padding"] = _objects([True] * missing)
        batch = DataProto.concat([batch, padding])
    order = np.random.default_rng(seed).permutation(len(batch))
    return batch[order]


def real_rows(batch: DataProto) -> Any:
    """Return the indices of the rows that are not padding."""
    return np.flatnonzero(~batch.non_tensor_batch["padding"].astype(bool))


def rows_multiple(worker: WorkerConfig, gpus: int, critic: bool) -> int:
    """Return the multiple to pad the row count to, so that every GPU's minibatches and forward passes are full.

    `worker` must be the original configuration: EasyR1 later multiplies its batch sizes by the number of responses.
    """
    parts = [worker.actor, worker.critic] if critic else [worker.actor]
    multiple = gpus
    for part in parts:
        multiple = math.lcm(multiple, part.global_batch_size * worker.rollout.n)
        if not part.dynamic_batching:
            multiple = math.lcm(multiple, part.micro_batch_size_per_device_for_experience * gpus)
    return multiple


def _objects(values: Sequence[Any]) -> Any:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
