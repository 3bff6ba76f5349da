"""The OpenAI chat API in data: what a request holds, and what a server's body says."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

from vlmgym.errors import one_line, truncate
from vlmgym.policies.base import Reply
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.rendering.encode import encode_jpeg, encode_png

ImageFormat = Literal["png", "jpeg"]
Detail = Literal["auto", "low", "high"]

MAX_TEXT = 1_000_000
"""Characters of a response that are read: several times what today's models can say."""
TRUNCATED = f"cut after {MAX_TEXT:,} characters"
"""Finish reason of a response that was longer."""
MAX_MESSAGE = 300
"""Characters of a server's error message that are shown."""
MAX_WORD = 60
"""Characters of a finish reason."""
MAX_MODEL = 200
"""Characters of a model's name."""
FAILURE_REASONS = ("abort", "error")
"""Finish reasons by which vLLM and OpenRouter say that they failed, not that the model ended."""


class InvalidCompletion(Exception):
    """A body is not the completion of a model; the message says what it is instead."""


def image_url(format: ImageFormat, image: ImageArray) -> str:
    """An image as a data URL.

    Args:
        format: `png` is exact; `jpeg` is smaller for noisy images only.
        image: uint8 RGB of shape (height, width, 3).
    """
    file = encode_png(image) if format == "png" else encode_jpeg(image)
    return f"data:image/{format};base64,{base64.b64encode(file).decode()}"


def user_message(urls: Sequence[str], text: str, detail: Detail) -> dict[str, Any]:
    """One message of the user: the images, then the text, the order in which most models were trained."""
    shown: list[dict[str, Any]] = []
    for url in urls:
        image = {"url": url} if detail == "auto" else {"url": url, "detail": detail}
        shown.append({"type": "image_url", "image_url": image})
    return {"role": "user", "content": [*shown, {"type": "text", "text": text}]}


def read_completion(body: bytes, redact: Callable[[str], str]) -> Reply:
    """What the model said, from the body of a chat completion.

    A refusal is a response, and so is silence with a reason (`length`, `content_filter`). Of a response and of hidden
    reasoning, `MAX_TEXT` characters are read, as if the model had been limited to them; `TRUNCATED` says so.

    Args:
        body: JSON as the server sent it.
        redact: Takes secrets out of a text.

    Raises:
        InvalidCompletion: It is no completion.
    """
    data = _json(body)
    if not isinstance(data, dict):
        raise InvalidCompletion("the body is not a JSON object")
    if data.get("error"):
        raise InvalidCompletion(f"an error as an answer: {error_message(body, redact)}")
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices:
        raise InvalidCompletion("there are no choices in the answer")
    choice = choices[0] if isinstance(choices[0], dict) else {}
    message = choice.get("message")
    if not isinstance(message, dict):
        raise InvalidCompletion("there is no message in the answer")
    (content, thinking), refusal = _content(message), _text(message, "refusal")
    finish_reason = _text(choice, "finish_reason")
    if finish_reason in FAILURE_REASONS:
        raise InvalidCompletion(f"the server broke off: finish_reason is {finish_reason}")
    if content is None and refusal is None and finish_reason is None:
        raise InvalidCompletion("there is no content in the answer")
    text = redact(content or refusal or "")
    thought = _text(message, "reasoning_content") or _text(message, "reasoning") or thinking
    usage = data.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    if len(text) > MAX_TEXT:
        text, finish_reason = text[:MAX_TEXT], TRUNCATED
    return Reply(
        text,
        prompt_tokens=_count(counts.get("prompt_tokens")),
        completion_tokens=_count(counts.get("completion_tokens")),
        finish_reason=None if finish_reason is None else printable(redact(finish_reason), MAX_WORD),
        reasoning=None if thought is None else truncate(redact(thought), MAX_TEXT),
        model=printable(redact(model), MAX_MODEL) or None if isinstance(model := data.get("model"), str) else None,
    )


def error_message(body: bytes, redact: Callable[[str], str]) -> str:
    """What a server's body says went wrong, in one printable line without secrets."""
    try:
        said = _json(body)
    except InvalidCompletion:
        said = body.decode(errors="replace")
    for name in ("error", "message", "detail"):
        if isinstance(said, dict) and said.get(name):
            said = said[name]
    text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    return printable(redact(text), MAX_MESSAGE) or "no message"


def printable(text: str, longest: int) -> str:
    """A text for a terminal: one line, no control characters, no lone surrogates, not too long."""
    return truncate(one_line(text[: 10 * longest]), longest)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidCompletion("the body is not JSON") from None


def _text(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidCompletion(f"the {name} of the answer is not a text")
    return value


def _content(message: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return response and thinking of a message, whose content is a text or a list of parts of both kinds."""
    parts = message.get("content")
    if not isinstance(parts, list) or not parts:
        return _text(message, "content"), None
    response, thinking = "", ""
    for part in parts:
        if isinstance(part, dict) and part.get("type") == "thinking":
            inner = part.get("thinking")  # parts in turn, as Mistral sends it, or a text
            thinking += "".join(map(_words, inner)) if isinstance(inner, list) else _text(part, "thinking") or ""
        else:
            response += _words(part)
    return response, thinking or None


def _words(part: Any) -> str:
    """Return the words of a part of a content: a text, or a reference, which has none."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "reference":
        return ""
    if kind != "text" or not isinstance(part.get("text"), str):
        raise InvalidCompletion("a part of the content of the answer is neither text nor thinking")
    words: str = part["text"]
    return words


def _count(value: Any) -> int | None:
    """A number of tokens, if it is one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None
