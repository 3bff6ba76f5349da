"""Convert turns of episodes to EasyR1 batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from verl.protocol import DataProto
from verl.utils.dataset import collate_fn
from verl.workers.config import WorkerConfig

from training.easyr1.rollout_worker import Place, Request, StepResult
from vlmgym.policies.base import Reply

GENERATED = ("prompts", "responses", "input_ids", "attention_mask", "response_mask", "position_ids")
"""Tensors that the rollout of EasyR1 returns per response."""


def prompts_of(asked: Sequence[Request], meta: dict[str, Any]) -> DataProto:
    """Build a batch of prompts for `generate_sequences`.

    Args:
        asked: The prompts.
        meta: Image limits and sampling parameters.
    """
    return DataProto.from_single_dict(collate_fn([one.features for one in asked]), meta_info=meta)


def judged_rows(asked: Sequence[Request], meta: dict[str, Any]) -> DataProto:
    """Build a batch of prompts for the critic, with one-token responses; values precede the response.

    Args:
        asked: Prompts, one per episode.
        meta: Image limits.
    """
    rows = prompts_of(asked, meta)
    one = torch.ones(len(asked), 1, dtype=torch.int64)
    places = rows.batch["position_ids"]
    more = {"input_ids": one, "attention_mask": one, "position_ids": places[..., -1:] + 1}
    tensors = {key: torch.cat([rows.batch[key], added], -1) for key, added in more.items()}
    uids = _objects([f"{judged.row} {judged.copy} beyond" for judged in asked])
    return DataProto.from_dict(
        tensors={**tensors, "responses": one, "response_mask": one},
        non_tensors={"uid": uids, "multi_modal_data": rows.non_tensor_batch["multi_modal_data"]},
        meta_info=meta,
    )


def replies_of(generated: DataProto, tokenizer: Any, end: Sequence[int]) -> list[Reply]:
    """Decode the responses.

    Args:
        generated: Batch from the rollout.
        tokenizer: Tokenizer of the model.
        end: End-of-response tokens.
    """
    lengths = generated.batch["response_mask"].sum(-1).tolist()
    prompts = (generated.batch["attention_mask"].sum(-1) - generated.batch["response_mask"].sum(-1)).tolist()
    replies = []
    for tokens, length, prompt in zip(generated.batch["responses"].tolist(), lengths, prompts):
        said = tokens[: int(length)]
        text = tokenizer.decode(said, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        reason = "stop" if said and said[-1] in end else "length"
        replies.append(Reply(text, prompt_tokens=int(prompt), completion_tokens=len(said), finish_reason=reason))
    return replies


def turn_rows(asked: Sequence[Request], copies: int, generated: DataProto, played: Sequence[StepResult]) -> DataProto:
    """Build the batch rows of played turns.

    Args:
        asked: Prompts; those shared by a group were answered `copies` times.
        copies: Group size.
        generated: Responses.
        played: Results of the turns.

    Returns:
        A batch with rewards at the last response token (`token_level_scores`) and, per row, `uid` (equal for equal
        prompts, whose images EasyR1 processes once), `row`, `copy`, `turn`, `anchor` and `live`.
    """
    scores = torch.zeros_like(generated.batch["responses"], dtype=torch.float32)
    lengths = generated.batch["response_mask"].sum(-1).long()
    last = (lengths - 1).clamp(min=0)
    total = torch.tensor([one.turn.reward.total for one in played], dtype=torch.float32)
    scores[torch.arange(len(played)), last] = total
    images, uids = [], []
    for one in asked:
        times = copies if one.copy is None else 1
        images += [one.features["multi_modal_data"]] * times
        uids += [f"{one.row}" if one.copy is None else f"{one.row} {one.copy}"] * times
    return DataProto.from_dict(
        tensors={**{key: generated.batch[key] for key in GENERATED}, "token_level_scores": scores},
        non_tensors={
            "multi_modal_data": _objects(images),
            "uid": _objects([f"{uid} {one.turn.turn}" for uid, one in zip(uids, played)]),
            "row": _objects([one.row for one in played]),
            "copy": _objects([one.copy for one in played]),
            "turn": _objects([one.turn.turn for one in played]),
            "anchor": _objects([one.anchor for one in played]),
            "live": _objects([True] * len(played)),
        },
    )


def places_of(asked: Sequence[Request], copies: int) -> list[Place]:
    """Return the episode of each response, in order."""
    return [(one.row, copy) for one in asked for copy in (range(copies) if one.copy is None else (one.copy,))]


def fill(batch: DataProto, multiple: int, seed: int) -> DataProto:
    """Pad a batch to a multiple of a number of rows and shuffle it.

    Padding rows repeat the shortest row with an empty response mask, so they do not affect token-mean losses. They are
    spread evenly.

    Args:
        batch: Rows.
        multiple: Divisor of the number of rows.
        seed: Seed of the shuffle.
    """
    missing = -len(batch) % multiple
    if missing:
        shortest = int(batch.batch["attention_mask"].sum(-1).argmin())
        filler = batch[np.full(missing, shortest)]
        filler.batch = filler.batch.clone()
        for key in ("response_mask", "token_level_scores"):
            filler.batch[key].zero_()
        filler.non_tensor_batch["live"] = _objects([False] * missing)
        batch = DataProto.concat([batch, filler])
    order = np.random.default_rng(seed).permutation(len(batch))
    return batch[order]


def rows_multiple(worker: WorkerConfig, gpus: int, critic: bool) -> int:
    """Return the required divisor of the number of rows: whole minibatches and whole forward passes per GPU.

    Args:
        worker: Worker configuration of EasyR1, before batches are multiplied by the number of responses.
        gpus: Number of GPUs.
        critic: True if a critic is trained.
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
