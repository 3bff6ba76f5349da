"""Request messages and response bodies of the OpenAI chat API."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from vlmgym.errors import one_line, truncate
from vlmgym.policies.base import Reply
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.prompt import Message, chat_messages
from vlmgym.sandbox.drawing.encode import encode_jpeg, encode_png

ImageFormat = Literal["png", "jpeg"]
Detail = Literal["auto", "low", "high"]

MAX_TEXT = 1_000_000
"""Maximum characters of a response, several times more than current models generate."""
TRUNCATED = f"truncated to {MAX_TEXT:,} characters"
"""Finish reason of responses longer than `MAX_TEXT`."""
MAX_MESSAGE = 300
"""Maximum characters of a server's error message."""
MAX_REASON = 60
"""Maximum characters of a finish reason."""
MAX_MODEL = 200
"""Maximum characters of a model name."""
FAILURE_REASONS = ("abort", "error")
"""Finish reasons with which vLLM and OpenRouter report a failure."""


class InvalidCompletion(Exception):
    """The response body is not a valid chat completion."""


def image_url(format: ImageFormat, image: ImageArray) -> str:
    """Encode an image as a data URL."""
    file = encode_png(image) if format == "png" else encode_jpeg(image)
    return f"data:image/{format};base64,{base64.b64encode(file).decode()}"


def image_part(detail: Detail, url: str) -> dict[str, Any]:
    """Return the content part for an image."""
    return {"type": "image_url", "image_url": {"url": url} if detail == "auto" else {"url": url, "detail": detail}}


def request_messages(
    conversation: str | Sequence[Message], images: Sequence[str], detail: Detail
) -> list[dict[str, Any]]:
    """Return the messages of a request; a message without images has a string as content, which all servers accept."""
    messages = chat_messages(conversation, images, partial(image_part, detail))
    for message in messages:
        if len(message["content"]) == 1:
            message["content"] = message["content"][0]["text"]
    return messages


def read_completion(body: bytes, redact: Callable[[str], str]) -> Reply:
    """Read the reply from the body of a chat completion.

    Refusals and empty text count as responses; missing text counts as empty if there is a finish reason (`length`,
    `content_filter`). Response and reasoning are truncated to `MAX_TEXT` characters; the finish reason of a truncated
    response is `TRUNCATED`. `redact` removes secrets from a string.

    Raises:
        InvalidCompletion: The body is not a completion, or reports an error.
    """
    data = _json(body)
    if not isinstance(data, dict):
        raise InvalidCompletion("the body is not a JSON object")
    if data.get("error"):
        raise InvalidCompletion(f"the response is an error: {error_message(body, redact)}")
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices:
        raise InvalidCompletion("the response has no choices")
    choice = choices[0] if isinstance(choices[0], dict) else {}
    message = choice.get("message")
    if not isinstance(message, dict):
        raise InvalidCompletion("the response has no message")
    (content, thinking), refusal = _content(message), _text(message, "refusal")
    finish_reason = _text(choice, "finish_reason")
    if finish_reason in FAILURE_REASONS:
        raise InvalidCompletion(f"generation failed: finish_reason is {finish_reason}")
    if content is None and refusal is None and finish_reason is None:
        raise InvalidCompletion("the response has no content")
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
        finish_reason=None if finish_reason is None else printable(redact(finish_reason), MAX_REASON),
        reasoning=None if thought is None else truncate(redact(thought), MAX_TEXT),
        model=printable(redact(model), MAX_MODEL) or None if isinstance(model := data.get("model"), str) else None,
    )


def error_message(body: bytes, redact: Callable[[str], str]) -> str:
    """Extract the error message from a response body, as one printable line without secrets."""
    try:
        found = _json(body)
    except InvalidCompletion:
        found = body.decode(errors="replace")
    for name in ("error", "message", "detail"):
        if isinstance(found, dict) and found.get(name):
            found = found[name]
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return printable(redact(text), MAX_MESSAGE) or "no message"


def printable(text: str, max_length: int) -> str:
    """Format text as one printable line of at most `max_length` characters."""
    return truncate(one_line(text[: 10 * max_length]), max_length)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidCompletion("the body is not JSON") from None


def _text(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidCompletion(f"{name} of the response is not a string")
    return value


def _content(message: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return the response and reasoning in a message, whose content is a string or a list of parts."""
    parts = message.get("content")
    if not isinstance(parts, list) or not parts:
        return _text(message, "content"), None
    response, thinking = "", ""
    for part in parts:
        if isinstance(part, dict) and part.get("type") == "thinking":
            inner = part.get("thinking")  # Mistral sends a list of parts, others a string
            thinking += "".join(map(_part_text, inner)) if isinstance(inner, list) else _text(part, "thinking") or ""
        else:
            response += _part_text(part)
    return response, thinking or None


def _part_text(part: Any) -> str:
    """Return the text of a content part; empty for references."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "reference":
        return ""
    if kind != "text" or not isinstance(part.get("text"), str):
        raise InvalidCompletion("the response has a content part that is neither text nor thinking")
    text: str = part["text"]
    return text


def _count(value: Any) -> int | None:
    """Return a token count, or None if it is missing or invalid."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None
