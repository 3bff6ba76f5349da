"""Convert the turns of an episode to rows of training data with images; runs in worker processes.

A row contains a turn's prompt as the model saw it, and the model's response. In a chat, a row contains the conversation
up to a response, and is dropped if the next row continues that conversation. Every response in a separate message has
passed the filters; prompts may quote earlier responses that have not.

Formats:
    sharegpt: LLaMA-Factory's multimodal format (see its data/README.md): text with `<image>` placeholders, and a list
        of image files.
    hf: a Hugging Face ImageFolder (`metadata.jsonl`, whose `file_names` become the column `images`), with messages
        in content parts, as TRL's SFTTrainer and the chat templates of vision-language models expect.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from vlmgym.errors import UsageError
from vlmgym.runs.files import writing
from vlmgym.runs.record import EpisodeRecord, TurnRecord, recorded_states
from vlmgym.runs.store import StoredEpisode
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.prompt import CONTROLS, Message, chat_messages
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.sandbox.drawing.encode import encode_png

Format = Literal["sharegpt", "hf"]

IMAGES = "images"
"""Image folder in an export."""

PLACEHOLDERS = ("<image>", "<video>", "<audio>")
"""Placeholders that trainers replace with media. A turn whose own text contains one is left out, because there is no
media to put in its place."""


@dataclass(frozen=True)
class TurnFilter:
    """Filter for turns: outcome, total reward, and no media placeholders in the text."""

    outcomes: frozenset[Outcome]
    min_reward: float | None

    def reason_to_skip(self, turn: TurnRecord) -> str | None:
        """Return the reason to leave out a turn, or None to keep it."""
        if turn.outcome not in self.outcomes:
            return turn.outcome.value
        if self.min_reward is not None and not turn.reward.total >= self.min_reward:
            return "below min_reward"
        if any(
            placeholder in text
            for placeholder in PLACEHOLDERS
            for text in (turn.system or "", turn.prompt, turn.response)
        ):
            return f"contains {', '.join(PLACEHOLDERS[:-1])} or {PLACEHOLDERS[-1]}"
        return None


@dataclass
class Rows:
    """Rows of an episode.

    Attributes:
        lines: JSON of each row.
        left_out: Number of turns left out, by reason.
    """

    lines: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def export_episode(stored: StoredEpisode, turns: TurnFilter, format_: str, folder: Path) -> Rows:
    """Return the rows of an episode, and write its images that are not in the export folder yet."""
    record = stored.read()
    game, prompts = record.game.game(), record.prompts
    if prompts.images != "true":
        raise UsageError(f"cannot export {stored.location}: the policy was shown {CONTROLS[prompts.images]}")
    rows, before, count = Rows(), tuple[Message, ...](), len(game.image_shapes)
    drawn: dict[str, list[str]] = {}

    def images_of(state: Any) -> list[str]:
        key = json.dumps(game.to_record(state))
        if key not in drawn:
            drawn[key] = [_store(image, folder) for image in prompts.draw(game, state, record.seed)]
        return drawn[key]

    with stored.named():
        states = recorded_states(game, record)
    for i, turn in enumerate(record.turns):
        if (reason := turns.reason_to_skip(turn)) is not None:
            rows.left_out[reason] += 1
            continue
        past = prompts.window(record.turns[:i])
        if turn.system is not None and any(map(turns.reason_to_skip, past)):
            rows.left_out["follows a turn that is left out"] += 1
            continue
        earlier = [(past_turn.prompt, past_turn.response) for past_turn in past]
        prompt = prompts.messages(count, turn.system, earlier, turn.prompt)
        messages = (*prompt, Message("assistant", turn.response))
        shown = prompts.shown_states(prompts.window(states[:i]), states[i])
        if prompts.goal_image:
            shown.insert(0, game.goal(states[i]))
        names = [name for state in shown for name in images_of(state)]
        if turn.system is not None and before and messages[: len(before)] == before:
            rows.lines.pop()  # this row begins with the whole conversation of the previous row
        before = messages
        rows.lines.append(json.dumps(FORMATS[format_](names, messages) | _facts(record, turn)))
    return rows


def _sharegpt(names: Sequence[str], messages: Sequence[Message]) -> dict[str, Any]:
    written = [
        {"role": message.role, "content": PLACEHOLDERS[0] * message.images + message.text} for message in messages
    ]
    return {"messages": written, "images": names}


def _hf(names: Sequence[str], messages: Sequence[Message]) -> dict[str, Any]:
    written = chat_messages(messages, names, lambda _: {"type": "image"})
    return {**({"file_names": names} if names else {}), "messages": written}


FORMATS: dict[str, Callable[[Sequence[str], Sequence[Message]], dict[str, Any]]] = {"sharegpt": _sharegpt, "hf": _hf}


def _facts(record: EpisodeRecord, turn: TurnRecord) -> dict[str, Any]:
    """Return metadata columns, which trainers ignore."""
    return {
        "game": record.game.id,
        "seed": record.seed,
        "turn": turn.turn,
        "outcome": turn.outcome.value,
        "reward": turn.reward.total,
        "score": record.score,
    }


def _store(image: ImageArray, folder: Path) -> str:
    """Write an image to a file named by its content, unless there is one; return its path relative to the folder."""
    png = encode_png(image)
    digest = sha256(png).hexdigest()[:32]
    name = f"{IMAGES}/{digest[:2]}/{digest}.png"
    path = folder / name
    if not path.exists():
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}")  # another process may be writing the same image
            part.write_bytes(png)
            part.replace(path)
    return name
