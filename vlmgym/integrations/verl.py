"""Train on whole episodes with verl; docs/integrations/verl.md."""

from __future__ import annotations

import asyncio
import math
from typing import Any
from uuid import uuid4

from vlmgym import Episode, Row
from vlmgym.errors import UsageError, importing
from vlmgym.integrations import restore_row

with importing("vlmgym.integrations.verl", "verl"):
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register
    from verl.utils.profiler import simple_timer
    from verl.utils.rollout_trace import rollout_trace_op

NAME = "vlmgym"


@register(NAME)
class GameAgentLoop(AgentLoopBase):
    """Plays an episode as one conversation: each turn appends the model's response, then the next user message with its
    images.

    Args:
        response_tokens: Maximum number of tokens per response. Default: the remainder of `data.max_response_length`.
    """

    def __init__(self, *args: Any, response_tokens: int | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._response_tokens = response_tokens

    @rollout_trace_op
    async def run(self, sampling_params: dict[str, Any], **columns: Any) -> AgentLoopOutput:
        """Play the episode of a row.

        Raises:
            UsageError: The row has no snapshot.
        """
        snapshot = (columns.get("extra_info") or {}).get("snapshot")
        if snapshot is None:
            raise UsageError("the dataset has no snapshots: make its rows with vlmgym.integrations.verl.to_verl")
        episode = await asyncio.to_thread(Episode.restore, snapshot)
        messages = await asyncio.to_thread(episode.messages, "pil")
        images = _images(messages)
        self._assert_mm_supported(bool(images))
        tokens = await self.ct_build_initial_tokens(messages, images=images)
        room = self.rollout_config.response_length
        mask: list[int] = []
        logprobs: list[float] | None = None
        metrics: dict[str, Any] = {"num_preempted": 0}
        request = uuid4().hex
        rewards: list[float] = []
        extra: dict[str, Any] = {}
        while True:
            limit = min(self._response_tokens or room, room - len(mask))
            with simple_timer("generate_sequences", metrics):
                output = await self.server_manager.generate(
                    request_id=request,
                    prompt_ids=tokens,
                    sampling_params={**sampling_params, "max_tokens": limit},
                    image_data=images or None,
                )
            metrics["num_preempted"] += output.num_preempted or 0
            extra.update(output.extra_fields)
            if output.log_probs and logprobs is None:
                logprobs = []
            merged, mask, logprobs = await self.ct_merge_assistant_token(
                tokens, output.token_ids, mask, logprobs, assistant_logprobs=output.log_probs or None
            )
            tokens = merged.token_ids
            response = self.tokenizer.decode(output.token_ids, skip_special_tokens=True)
            scored = await asyncio.to_thread(episode.respond, response)
            rewards.append(scored.total)
            if episode.done:
                break
            before = [*messages, {"role": "assistant", "content": response}]
            turn = (await asyncio.to_thread(episode.messages, "pil"))[-1]
            merged, longer, padded = await self.ct_merge_context_msg(before, [*before, turn], tokens, mask, logprobs)
            if len(longer) >= room:
                break  # An image must never be cut: verl would pair its features with the wrong tokens.
            messages, images = [*before, turn], [*images, *_images([turn])]
            tokens, mask, logprobs = merged.token_ids, longer, padded
        # verl needs the same keys from all episodes
        accuracies = {name: episode.accuracies.get(name, math.nan) for name in Episode.ACCURACIES}
        facts = {"score": episode.score, "finished": float(episode.done), **episode.outcomes, **accuracies}
        return AgentLoopOutput(
            prompt_ids=tokens[: len(tokens) - len(mask)],
            response_ids=tokens[len(tokens) - len(mask) :],
            response_mask=mask,
            response_logprobs=logprobs,
            multi_modal_data={"images": images} if images else {},
            reward_score=sum(rewards),
            num_turns=2 * episode.turn,
            metrics=metrics,
            extra_fields={**extra, "turn_scores": rewards, "tool_rewards": [], "reward_extra_info": facts},
        )


def to_verl(rows: list[Row]) -> list[dict[str, Any]]:
    """Convert rows of `vlmgym.make_dataset` to the columns that verl reads from a Parquet file.

    Raises:
        UsageError: The prompts are not chats and repeat earlier turns, which the conversation already keeps.
    """
    for row in rows:
        restore_row(row["snapshot"])
    return [
        {
            "data_source": row["game"],
            "agent_name": NAME,
            "prompt": row["prompt"],  # only used to filter by length: the agent loop makes the prompt with images
            "reward_model": {"style": "rule", "ground_truth": ""},
            "extra_info": {"index": index, "snapshot": row["snapshot"]},
        }
        for index, row in enumerate(rows)
    ]


def _images(messages: list[dict[str, Any]]) -> list[Any]:
    return [part["image"] for message in messages for part in message["content"] if part["type"] == "image"]
