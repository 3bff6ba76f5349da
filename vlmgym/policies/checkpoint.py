"""Checkpoints (folders in Hugging Face format, or names on the Hub) and options of policies that load one."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from vlmgym.errors import InfrastructureError, UsageError, truncate
from vlmgym.policies.base import SamplingOptions
from vlmgym.sandbox.core.prompt import Message, chat_messages
from vlmgym.sandbox.core.response_format import ThinkTag, compose

DType = Literal["auto", "bfloat16", "float16", "float32"]
MAX_REASON = 400
"""Maximum characters of a library's error message."""


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions(SamplingOptions):
    """Options of a policy that loads a checkpoint."""

    model: str = ""
    """Checkpoint folder, or name on the Hugging Face Hub."""
    dtype: DType = "auto"
    """Data type of weights and activations; auto uses the checkpoint's, but vLLM reduces 32 bits to 16."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dtype not in get_args(DType):
            raise UsageError(f"dtype must be one of {', '.join(get_args(DType))}, got {self.dtype!r}")


def resolve_checkpoint(model: str, policy: str) -> str:
    """Return the absolute path of a checkpoint folder, or a name on the Hub as given. Loads nothing."""
    if not model:
        raise UsageError(f"the {policy} policy needs --model: a checkpoint folder or a name on the Hub")
    folder = Path(model).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UsageError(f"{model} is not a checkpoint: it has no config.json")
        return str(folder.absolute())
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", model):
        raise UsageError(f"no folder {model}; names on the Hub look like Qwen/Qwen3-VL-2B-Instruct")
    return model


class ChatTemplate:
    """A checkpoint's chat template, with its arguments. Warns once if it deletes parts of earlier responses."""

    def __init__(self, tokenizer: Any, options: Mapping[str, Any]) -> None:
        """`tokenizer` is a tokenizer or processor of transformers or vLLM."""
        self._tokenizer, self._options, self._checked = tokenizer, dict(options), False

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the text of messages, followed by the start of the next response."""
        self.check_history(messages)
        text: str = self._tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False, **self._options
        )
        return text

    def check_history(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Warn once if the earlier responses of messages would not reach the model in full."""
        if self._checked or all(message["role"] != "assistant" for message in messages):
            return
        self._checked = True
        tag: ThinkTag = "reasoning" if "<reasoning>" in str(messages[0]["content"]) else "think"
        words = {"perception": "7391", tag: "7392", "answer": "7393"}  # no template contains the numbers
        response = compose("7391", "7392", "7393", tag=tag)
        turns = (Message("user", "1"), Message("assistant", response), Message("user", "2"))
        text = self.render(chat_messages(turns, (), lambda _: {"type": "image"}))
        if deleted := [f"<{name}>" for name, word in words.items() if word not in text]:
            warnings.warn(
                f"the chat template deletes {' and '.join(deleted)} from earlier responses, so the model does not see "
                "them; they survive with --think-tag reasoning (config field think_tag), or with --history N instead "
                "of --chat",
                stacklevel=2,
            )


class SpecialTokens:
    """Special tokens of a model, such as `<|image_pad|>`, which a prompt cannot contain as text."""

    def __init__(self, tokenizer: Any) -> None:
        """Read the tokens of a tokenizer of transformers or vLLM."""
        added_tokens = getattr(tokenizer, "added_tokens_decoder", {}).values()
        tokens = {*tokenizer.all_special_tokens, *(token.content for token in added_tokens if token.special)}
        self._pattern = re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))) or "(?!)")

    def check(self, prompt: str | Sequence[Message]) -> None:
        """Raise `InfrastructureError` if a prompt contains a special token, as user data may."""
        texts = [str(prompt)] if isinstance(prompt, str) else [message.text for message in prompt]
        if token := next(filter(None, map(self._pattern.search, texts)), None):
            raise InfrastructureError(f"the prompt contains {token[0]}, a special token of the model")


def error_text(error: BaseException) -> str:
    """Return a library's error message as one line."""
    return truncate(" ".join(str(error).split()) or type(error).__name__, MAX_REASON)
