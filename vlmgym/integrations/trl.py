"""Train on whole episodes with TRL's GRPOTrainer; docs/integrations/trl.md.

For single moves, TRL needs no adapter: `vlmgym.make_dataset` and `vlmgym.reward_fn` are enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vlmgym import Episode, Row, Scored, score
from vlmgym.errors import EpisodeEnded, UsageError
from vlmgym.integrations import restore_row
from vlmgym.training.algorithm import TrainingError
from vlmgym.training.signal import SIGHT_INTERVAL, sight_metrics

INSTRUCTIONS = (
    "\n\nPlay turn by turn: give each response by calling the tool `respond`. It returns the next turn. "
    "Once the tool says that the episode has ended, do not call it again."
)
FEEDBACK_TOKENS = 16
"""Difference in tokens between the longest feedback and the feedback on an empty response."""


class GameEnvironment:
    """An `environment_factory` for `GRPOTrainer`: the model responds through a tool, which returns the next images.

    The dataset must come from `vlmgym.make_dataset`. Its snapshots give all rollouts of a group the same initial state
    and randomness. The reward of a rollout is the sum of `Scored.total` over its turns.

    Attributes:
        episode: The episode, for reward functions: TRL passes them the `environments`.
        turns: Results of the turns of the episode.
    """

    def __init__(self) -> None:
        self.episode: Episode | None = None
        self.turns: list[Scored[Any, Any]] = []

    def reset(self, snapshot: str | None = None, **columns: Any) -> str:
        """Start the episode of a row; return text only, because the trainer's prompt already has the images of the row.

        Raises:
            UsageError: The dataset has no snapshots.
        """
        self.episode, self.turns = restore_row(snapshot, may_repeat_turns=True), []
        return INSTRUCTIONS

    def respond(self, response: str) -> list[dict[str, Any]]:
        """
        Take the next turn.

        Args:
            response: Your response in the requested form, such as "<answer>...</answer>".

        Returns:
            The next turn, or that the episode has ended.
        """
        episode = self._running()
        if episode.done:
            raise EpisodeEnded("The episode has ended. Do not call this tool again.")
        self.turns.append(episode.respond(response))
        if episode.done:
            return [_text(f"The episode has ended: {episode.end_reason}. Do not call this tool again.")]
        content: list[dict[str, Any]] = episode.messages("pil")[-1]["content"]
        return content

    def get_reward(self) -> float:
        """Return the reward of the rollout.

        A rollout that stopped before its episode ended is scored as if it had one more, unparsable response.
        """
        episode = self._running()
        penalty = 0.0 if episode.done else score(episode.snapshot(), "").total
        return penalty + sum(scored.total for scored in self.turns)

    def _running(self) -> Episode:
        assert self.episode is not None, "the trainer resets first"
        return self.episode


def episode_limits(rows: Iterable[Row], processing_class: Any, response_tokens: int) -> dict[str, int]:
    """Return arguments of `GRPOConfig` that let whole episodes fit into a completion.

    TRL limits all tokens after the first prompt together, including image tokens, and silently drops what exceeds the
    limit.

    Args:
        rows: Rows of the dataset; one per game is enough.
        processing_class: Processor of the model.
        response_tokens: Maximum number of tokens per response, including about 30 for the tool call.

    Raises:
        UsageError: The model would not see the images of later turns, or would see earlier turns twice.
    """
    _check_template(processing_class)
    turns = longest = 0
    for row in rows:
        episode = restore_row(row["snapshot"])
        turns, messages = max(turns, episode.max_turns), episode.messages("pil")
        episode.respond("")
        if not episode.done:
            messages = episode.messages("pil")  # longer than the first messages, because they include feedback
        tokens = processing_class.apply_chat_template(
            [messages], add_generation_prompt=True, tokenize=True, return_dict=True
        )
        longest = max(longest, len(tokens["input_ids"][0]))
    return {
        "max_completion_length": turns * (longest + FEEDBACK_TOKENS + response_tokens),
        "max_tool_calling_iterations": turns,
    }


def check_sight(trainer: Any) -> None:
    """Let `trainer.train` of a `GRPOTrainer` check whether the model sees its images; call it once before.

    In the first step and every twentieth, the inputs of a forward pass go through the model twice more, without
    gradients and dropout: as they are, and with inverted colours. The metric `sight/logprob_gap` is the mean change of
    a response's log-probability in nats.

    Raises:
        TrainingError: In `trainer.train`: the model gets no images, or no log-probability depends on them.
    """
    import torch

    next_step = 0

    def check(model: Any, args: Any, inputs: dict[str, Any]) -> None:
        nonlocal next_step
        if not torch.is_grad_enabled() or trainer.state.global_step < next_step:
            return
        next_step = trainer.state.global_step + SIGHT_INTERVAL
        if inputs.get("pixel_values") is None:
            raise TrainingError("the model does not see its images: TRL passes no pixel_values to it")
        training = [module for module in model.modules() if module.training]
        with torch.no_grad():
            model.eval()
            logprobs, inverted_logprobs = (
                model.forward(**{**inputs, "pixel_values": pixels}).log_probs.sum(1)
                for pixels in (inputs["pixel_values"], -inputs["pixel_values"])
            )
        for module in training:
            module.training = True
        for name, value in sight_metrics((logprobs - inverted_logprobs).abs().tolist()).items():
            trainer._metrics["train"][name].append(value)  # TRL has no public way to log with the step's other metrics

    trainer.model.register_forward_pre_hook(check, with_kwargs=True)


def _check_template(processing_class: Any) -> None:
    """Raise `UsageError` if the chat template drops images in tool results, as some do silently."""
    call = {"type": "function", "function": {"name": "respond", "arguments": {"response": ""}}}
    before = [
        {"role": "user", "content": [_text("")]},
        {"role": "assistant", "content": [_text("")], "tool_calls": [call]},
    ]
    with_image, without = (
        processing_class.apply_chat_template([*before, {"role": "tool", "name": "respond", "content": content}])
        for content in ([{"type": "image"}, _text("")], [_text("")])
    )
    if with_image == without:
        raise UsageError(
            "the chat template does not show images that tools return: train single moves with vlmgym.reward_fn, or "
            "use a model such as Qwen3-VL"
        )


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
