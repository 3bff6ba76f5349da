"""Batches of EasyR1: encoded prompts, turns of episodes, and their advantages."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from verl.protocol import DataProto
from verl.trainer.config import DataConfig
from verl.utils import torch_functional as VF
from verl.utils.dataset import RLHFDataset, collate_fn
from verl.utils.tokenizer import get_processor, get_tokenizer
from verl.workers.config import ModelConfig, WorkerConfig

from vlmgym.errors import EpisodeError, UsageError
from vlmgym.policies.base import Reply
from vlmgym.policies.checkpoint import SpecialTokens, error_text
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.prompt import Message, chat_messages
from vlmgym.sandbox.drawing.encode import encode_png
from vlmgym.training.algorithm import Floats, discounted_returns, gae, normalise_groups, whiten
from vlmgym.training.easyr1.episodes import EpisodeId, Request, Sampled, StepResult
from vlmgym.training.easyr1.settings import BROKEN, check_model

FEATURES = ("input_ids", "attention_mask", "position_ids", "raw_prompt_ids", "multi_modal_data")
"""Fields of an encoded prompt; see `PromptEncoder.encode`."""


def load_processors(model: ModelConfig, data: DataConfig) -> tuple[Any, Any]:
    """Load a model's tokenizer and processor as EasyR1 does; raise `UsageError` unless the model accepts images."""
    check_model(model.model_path)
    options = {"override_chat_template": data.override_chat_template, "trust_remote_code": model.trust_remote_code}
    try:
        tokenizer = get_tokenizer(model.model_path, use_fast=True, **options)
        processor = get_processor(model.model_path, use_fast=True, **options)
    except (ImportError, *BROKEN) as error:
        raise UsageError(f"cannot load the processor of the model {model.model_path}: {error_text(error)}") from None
    if processor is None or not hasattr(processor, "image_processor"):
        raise UsageError(f"the model {model.model_path} does not accept images: use a Qwen-VL")
    return tokenizer, processor


class PromptEncoder(RLHFDataset):
    """Encodes prompts and images with EasyR1's dataset class, without a data file."""

    def __init__(self, tokenizer: Any, processor: Any, data: DataConfig) -> None:
        """Set the attributes of `RLHFDataset` without loading a file."""
        self.tokenizer, self.processor = tokenizer, processor
        self.prompt_key, self.answer_key = data.prompt_key, data.answer_key
        self.image_key, self.video_key = data.image_key, data.video_key
        self.image_dir, self.video_fps, self.format_prompt = None, data.video_fps, None
        self.min_pixels, self.max_pixels = data.min_pixels, data.max_pixels
        self.max_prompt_length = data.max_prompt_length
        self._special_tokens = SpecialTokens(tokenizer)
        self.truncation = "error"  # the default would cut image tokens

    def _build_messages(self, example: dict[str, Any]) -> list[dict[str, Any]]:
        """Put images before the text, as in evaluation, so that `<image>` in the text has no special meaning."""
        return chat_messages(example[self.prompt_key], example[self.image_key], lambda _: {"type": "image"})

    def encode(self, prompt: str | Sequence[Message], images: Sequence[ImageArray]) -> dict[str, Any]:
        """Encode a prompt.

        Raises:
            EpisodeError: The prompt exceeds data.max_prompt_length, or has a special token of the model.

        Returns:
            input_ids and attention_mask (int64, shape (max_prompt_length,), padded on the left), position_ids (int64,
            shape (4, max_prompt_length): text, time, height and width for mrope), raw_prompt_ids (a list of tokens with
            one per image, as vLLM expects), multi_modal_data (images as PNG files, which are small to transfer).
        """
        self._special_tokens.check(prompt)
        files = [{"bytes": encode_png(image)} for image in images]
        self.dataset = [{self.prompt_key: prompt, self.image_key: files, self.answer_key: ""}]
        try:
            encoded: dict[str, Any] = self[0]
        except RuntimeError as error:
            if "longer than" not in str(error):
                raise
            raise EpisodeError(
                f"a prompt has more tokens than data.max_prompt_length={self.max_prompt_length} ({error}): raise it, "
                "use smaller images (the game's size), or shorten play.history"
            ) from None
        return {name: encoded[name] for name in FEATURES}


ROLLOUT_LOG_PROBS = "rollout_log_probs"
"""Tensor of the log-probabilities with which response tokens were sampled; see worker.py."""
GENERATED = (
    *("prompts", "responses", "input_ids", "attention_mask", "response_mask", "position_ids"),
    ROLLOUT_LOG_PROBS,
)
"""Tensors that a rollout returns, with one row per response."""


def prompt_batch(requests: Sequence[Request], meta: dict[str, Any]) -> DataProto:
    """Build a batch of prompts; `meta` has image limits."""
    return DataProto.from_single_dict(collate_fn([request.features for request in requests]), meta_info=meta)


def critic_batch(requests: Sequence[Request], meta: dict[str, Any]) -> DataProto:
    """Build a batch of prompts for the critic, each with a dummy response of one token.

    The critic estimates the value of a token before it sees the token, so any token will do.
    """
    batch = prompt_batch(requests, meta)
    ones = torch.ones(len(requests), 1, dtype=torch.int64)
    positions = batch.batch["position_ids"]
    response = {"input_ids": ones, "attention_mask": ones, "position_ids": positions[..., -1:] + 1}
    tensors = {key: torch.cat([batch.batch[key], column], -1) for key, column in response.items()}
    uids = np.array([f"{request.key} bootstrap" for request in requests], dtype=object)
    return DataProto.from_dict(
        tensors={**tensors, "responses": ones, "response_mask": ones},
        non_tensors={"uid": uids, "multi_modal_data": batch.non_tensor_batch["multi_modal_data"]},
        meta_info=meta,
    )


def response_batch(
    requests: Sequence[tuple[Request, Sequence[Sampled]]], length: int, pad: int, end_tokens: Sequence[int]
) -> DataProto:
    """Build the rows of requests with their responses, padded to `length` tokens, as EasyR1's `vLLMRollout` does."""
    rows = [request.features for request, responses in requests for _ in responses]
    sampled = [response for _, responses in requests for response in responses]
    prompts, mask, positions = (
        torch.stack([features[key] for features in rows]) for key in ("input_ids", "attention_mask", "position_ids")
    )
    responses = VF.pad_2d_list_to_length([tokens for tokens, _ in sampled], pad, max_length=length)
    response_mask = VF.get_response_mask(responses, [*end_tokens], mask.dtype)
    later = positions[..., -1:] + torch.arange(1, length + 1)
    return DataProto.from_dict(
        tensors={
            "prompts": prompts,
            "responses": responses,
            "input_ids": torch.cat([prompts, responses], -1),
            "attention_mask": torch.cat([mask, response_mask], -1),
            "response_mask": response_mask,
            "position_ids": torch.cat([positions, later], -1),
            ROLLOUT_LOG_PROBS: VF.pad_2d_list_to_length([logprobs for _, logprobs in sampled], 0.0, max_length=length),
        }
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
        A batch with one row per response, except of episodes that ended with an error. `token_level_scores` has the
        reward at the last response token. Other columns are `prompt_id`, `sample_idx`, `turn`, `state_key`, `padding`,
        and `uid`, which is the same for responses to the same prompt, so that EasyR1 processes its images once.
    """
    answered = [request for request in requests for _ in request.episodes(group_size)]
    rows = [row for row, result in enumerate(results) if result.turn is not None]
    turns = [result.turn for result in results if result.turn is not None]
    generated, results = generated[np.array(rows, dtype=int)], [results[row] for row in rows]
    scores = torch.zeros_like(generated.batch["responses"], dtype=torch.float32)
    last = (generated.batch["response_mask"].sum(-1).long() - 1).clamp(min=0)
    scores[torch.arange(len(rows)), last] = torch.tensor([turn.reward.total for turn in turns])
    columns = {
        "multi_modal_data": [answered[row].features["multi_modal_data"] for row in rows],
        "uid": [f"{answered[row].key} {turn.turn}" for row, turn in zip(rows, turns)],
        "prompt_id": [result.prompt_id for result in results],
        "sample_idx": [result.sample_idx for result in results],
        "turn": [turn.turn for turn in turns],
        "state_key": [json.dumps(turn.state, sort_keys=True) for turn in turns],
        "padding": [False] * len(rows),
    }
    return DataProto.from_dict(
        tensors={**{key: generated.batch[key] for key in GENERATED}, "token_level_scores": scores},
        non_tensors={name: np.fromiter(values, dtype=object) for name, values in columns.items()},
    )


def response_ids(requests: Sequence[Request], group_size: int) -> list[EpisodeId]:
    """Return the id of each response's episode, in order."""
    return [episode_id for request in requests for episode_id in request.episodes(group_size)]


def without_failed(batch: DataProto, failed: Collection[EpisodeId], group_size: int) -> DataProto:
    """Drop the rows of failed episodes, and groups of which fewer than `group_size` episodes remain."""
    ids = [*zip(batch.non_tensor_batch["prompt_id"], batch.non_tensor_batch["sample_idx"])]
    sizes = Counter(prompt_id for prompt_id, _ in set(ids).difference(failed))
    rows = [row for row, (prompt_id, idx) in enumerate(ids) if (prompt_id, idx) not in failed]
    return batch[np.array([row for row in rows if sizes[ids[row][0]] >= group_size], dtype=int)]


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
        padding.non_tensor_batch["padding"] = np.full(missing, True, dtype=object)
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


MISMATCH = "mismatch/"
"""Prefix of the metrics of `mismatch_metrics`."""
BootstrapValues = Callable[[], Mapping[EpisodeId, float]]
"""Function that returns the bootstrap value of each truncated episode."""


def compute_advantages(
    data: DataProto,
    adv_estimator: str,
    gamma: float,
    lam: float,
    *,
    step_weight: float,
    importance_cap: float | None = None,
    response_ratio_limit: float | None = None,
    stock: Callable[..., DataProto],
    bootstrap_values: BootstrapValues,
) -> DataProto:
    """Add `advantages` and `returns` to a batch and return it, like `verl.trainer.ray_trainer.compute_advantage`.

    PPO (`gae`) uses GAE over all tokens of an episode, and bootstraps from the critic if the episode was truncated.
    `grpo` normalises returns within groups as local training does, and uses GiGPO (`episode_advantages`) if any episode
    of the batch has several turns. Other estimators, all for single turns, are EasyR1's own.

    Args:
        data: Batch from `turn_batch`, with `token_level_rewards` and, for PPO, `values`.
        adv_estimator: EasyR1's setting `algorithm.adv_estimator`.
        gamma: Discount factor, per token for PPO and per turn for GiGPO.
        lam: Lambda of GAE.
        step_weight: Weight of the step-level advantage of GiGPO.
        importance_cap: Largest ratio by which `importance_ratios` weighs the advantage of a token; None for no weights.
        response_ratio_limit: Limit of `responses_within`, beyond which advantages become 0; None for no limit.
        stock: EasyR1's own `compute_advantage`.
        bootstrap_values: Called only for PPO.
    """
    rows = real_rows(data)
    part = data[rows]
    if adv_estimator == "gae":
        advantages, returns = _token_gae(part, gamma, lam, bootstrap_values())
    elif adv_estimator == "grpo":
        has_episodes = any(turn > 1 for turn in part.non_tensor_batch["turn"])
        per_row = torch.from_numpy(episode_advantages(part, gamma, step_weight if has_episodes else 0.0)).float()
        advantages = returns = per_row.unsqueeze(-1) * part.batch["response_mask"]
    else:
        part = stock(part, adv_estimator=adv_estimator, gamma=gamma, lam=lam)
        advantages, returns = part.batch["advantages"], part.batch["returns"]
    if importance_cap is not None:  # all losses of EasyR1 are proportional to the advantage
        advantages = advantages * importance_ratios(part).clamp(max=importance_cap)
    if response_ratio_limit is not None:
        advantages = advantages * responses_within(part, response_ratio_limit).unsqueeze(-1)
    for name, values in (("advantages", advantages), ("returns", returns)):
        padded = torch.zeros_like(data.batch["token_level_rewards"])
        padded[torch.from_numpy(rows)] = values.to(padded.dtype)
        data.batch[name] = padded
    return data


def importance_ratios(data: DataProto) -> torch.Tensor:
    """Return the probability ratio of trainer and vLLM for each response token, shape (rows, tokens).

    Both have the same weights, but compute with different kernels and precisions. Therefore, responses are slightly
    off-policy, which truncated importance sampling corrects (Yao et al. 2025, "Your Efficient RL Framework Secretly
    Brings You Off-Policy RL Training", https://fengyao.notion.site/off-policy-rl).
    """
    ratios: torch.Tensor = (data.batch["old_log_probs"] - data.batch[ROLLOUT_LOG_PROBS]).float().exp()
    return ratios


def responses_within(data: DataProto, limit: float) -> torch.Tensor:
    """Return which responses have a probability ratio from 1 / limit to limit, as a boolean tensor, shape (rows,).

    The ratio of a response is the product of the `importance_ratios` of its tokens. One token that vLLM computes very
    differently spoils a whole response, which a cap of the token's own ratio does not prevent.
    """
    log_ratios = (data.batch["old_log_probs"] - data.batch[ROLLOUT_LOG_PROBS]).float() * data.batch["response_mask"]
    within: torch.Tensor = log_ratios.sum(-1).abs() <= math.log(limit)
    return within


def mismatch_metrics(data: DataProto, prefix: str = MISMATCH) -> dict[str, float]:
    """Measure how much the log-probabilities of trainer and vLLM differ.

    Returns:
        `kl`: KL divergence of the trainer's distribution from vLLM's, in nats per token (the estimator k3 of
        http://joschu.net/blog/kl-approx.html); `max_ratio`: largest of the `importance_ratios`; `ess`: effective sample
        size with the ratios as weights, as a fraction of the response tokens.
    """
    ratios = importance_ratios(data)[data.batch["response_mask"].bool()].double()
    return {
        f"{prefix}kl": float((ratios - 1 - ratios.log()).mean()),
        f"{prefix}max_ratio": float(ratios.max()),
        f"{prefix}ess": float(ratios.sum() ** 2 / (ratios**2).sum() / len(ratios)),
    }


def episode_advantages(data: DataProto, gamma: float, step_weight: float) -> Floats:
    """Compute the GiGPO advantage of each row: the episode-level one plus `step_weight` times the step-level one.

    Feng et al. 2025, "Group-in-Group Policy Optimization" (https://arxiv.org/abs/2505.10978), sections 4.1 to 4.3. The
    episode-level advantage is the return of the episode, normalised within its group. The step-level advantage is the
    discounted return from a turn on, normalised over all turns of the group that start from the same state. `gamma`
    discounts per turn. The batch must not contain padding.
    """
    columns = data.non_tensor_batch
    rewards = data.batch["token_level_rewards"].sum(-1).double().numpy()
    episodes = _episode_rows(data)
    totals = {episode: float(rewards[rows].sum()) for episode, rows in episodes.items()}
    normalised = dict(zip(totals, normalise_groups(list(totals.values()), [prompt_id for prompt_id, _ in totals])))
    advantages = np.array([normalised[episode] for episode in zip(columns["prompt_id"], columns["sample_idx"])])
    returns = np.zeros(len(data))
    for rows in episodes.values():
        returns[rows] = discounted_returns(rewards[rows], gamma)
    same_state = list(zip(columns["prompt_id"], columns["state_key"]))
    return advantages + step_weight * normalise_groups(returns, same_state)


def _token_gae(
    data: DataProto, gamma: float, lam: float, bootstrap_values: Mapping[EpisodeId, float]
) -> tuple[torch.Tensor, torch.Tensor]:
    mask = data.batch["response_mask"].bool()
    rewards, values = data.batch["token_level_rewards"], data.batch["values"]
    advantages, returns = torch.zeros_like(rewards), torch.zeros_like(rewards)  # values are bfloat16 on GPUs
    for episode, indices in _episode_rows(data).items():
        rows = torch.tensor(indices)
        tokens = mask[rows]
        args = (rewards[rows][tokens].double().numpy(), values[rows][tokens].double().numpy())
        estimates = gae(*args, gamma, lam, bootstrap_values.get(episode, 0.0))
        for whole, numbers in zip((advantages, returns), estimates):
            part = whole[rows]
            part[tokens] = torch.from_numpy(numbers).to(whole.dtype)
            whole[rows] = part
    advantages[mask] = torch.from_numpy(whiten(advantages[mask].double().numpy())).to(advantages.dtype)
    return advantages, returns


def _episode_rows(data: DataProto) -> dict[EpisodeId, list[int]]:
    """Return the row indices of each episode, in order of turns."""
    columns = data.non_tensor_batch
    rows: dict[EpisodeId, list[int]] = defaultdict(list)
    for row in np.argsort(columns["turn"].astype(int), kind="stable").tolist():
        rows[columns["prompt_id"][row], columns["sample_idx"][row]].append(row)
    return dict(rows)
