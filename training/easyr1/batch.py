"""Turns of episodes as the rows of EasyR1's batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from verl.protocol import DataProto
from verl.utils.dataset import collate_fn
from verl.workers.config import WorkerConfig

from training.easyr1.table import Asked, Place, Played
from vlmgym.policies.base import Reply

GENERATED = ("prompts", "responses", "input_ids", "attention_mask", "response_mask", "position_ids")
"""What EasyR1's rollout gives for each response."""


def prompts_of(asked: Sequence[Asked], meta: dict[str, Any]) -> DataProto:
    """Prompts as `generate_sequences` takes them.

    Args:
        asked: The prompts.
        meta: Limits of images, and sampling parameters.
    """
    return DataProto.from_single_dict(collate_fn([one.features for one in asked]), meta_info=meta)


def judged_rows(asked: Sequence[Asked], meta: dict[str, Any]) -> DataProto:
    """Prompts as the critic takes them, with a response of one token: what it expects stands before that.

    Args:
        asked: The prompts, each of one episode.
        meta: Limits of images.
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
    """What the model said.

    Args:
        generated: Of the rollout.
        tokenizer: Of the model.
        end: Tokens that end a response.
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


def turn_rows(asked: Sequence[Asked], copies: int, generated: DataProto, played: Sequence[Played]) -> DataProto:
    """The rows of turns that were just played.

    Args:
        asked: The prompts; those that all episodes of a row share were answered `copies` times.
        copies: Episodes of a row.
        generated: The responses.
        played: What became of them.

    Returns:
        A batch with the reward of each turn at the last token of its response (`token_level_scores`), and per row `uid`
        (equal for equal prompts: EasyR1 processes the images of equal uids once), `row`, `copy`, `turn`, `anchor` and
        `live`.
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


def places_of(asked: Sequence[Asked], copies: int) -> list[Place]:
    """Which episodes a batch of responses is for, in its order."""
    return [(one.row, copy) for one in asked for copy in (range(copies) if one.copy is None else (one.copy,))]


def fill(batch: DataProto, multiple: int, seed: int) -> DataProto:
    """Rows up to a multiple of a number, in a random order.

    Episodes have any number of turns, and minibatches have equal numbers of rows. The rows that are added are the
    shortest one again, with an empty response mask, so that they add nothing to a loss that is a mean over tokens;
    they are spread evenly.

    Args:
        batch: The rows.
        multiple: Rows of a minibatch, and of all GPUs.
        seed: Decides the order.
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
    """Of what number of rows a batch is a multiple: whole minibatches, and whole forward passes of each GPU.

    Args:
        worker: EasyR1's configuration, before its workers multiply batches by the number of responses.
        gpus: How many.
        critic: Whether there is one.
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
