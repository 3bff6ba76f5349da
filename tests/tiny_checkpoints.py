"""Script for .venv-serve: make and run tiny checkpoints, and print facts for the tests as JSON."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from vlmgym.errors import UsageError
from vlmgym.sandbox.registry import make_game
from vlmgym.training.config import Kind, TinySize
from vlmgym.training.tiny_vlm import CLASSES, make_tiny_vlm

NEW_TOKENS = 8


def digests(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}


def facts(kind: Kind, out: Path) -> dict[str, Any]:
    size = TinySize(tied=False)
    for name, seed in {"first": 0, "same seed": 0, "other seed": 1}.items():
        make_tiny_vlm(kind, out / name, seed=seed, size=size)
    processor = AutoProcessor.from_pretrained(out / "first")
    model = AutoModelForImageTextToText.from_pretrained(out / "first")
    game = make_game("2048", size=128)
    state = game.start(np.random.default_rng(0))
    content = [{"type": "image"}, {"type": "text", "text": game.prompt(state)}]
    messages = [{"role": "user", "content": content}]
    prompt = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    batch = processor(text=[prompt], images=[Image.fromarray(game.images(state)[0])], return_tensors="pt")
    with torch.no_grad():
        generated = model.generate(**batch, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS)
    response = game.respond(state, game.best_action(state))
    tokens = processor.tokenizer.encode(response)
    return {
        "files": {name: digests(out / name) for name in ("first", "same seed", "other seed")},
        "class": type(model).__name__,
        "parameters": model.num_parameters(),
        "image tokens": int((batch["input_ids"] == model.config.image_token_id).sum()),
        "prompt tokens": batch["input_ids"].shape[1],
        "generated": generated[0, batch["input_ids"].shape[1] :].tolist(),
        "response": response,
        "response tokens": len(tokens),
        "response again": processor.tokenizer.decode(tokens, skip_special_tokens=True),
    }


def refusals(out: Path) -> Iterator[str]:
    """Yield the errors for invalid sizes and folders."""
    (out / "file").write_text("")
    for name, hidden, vocabulary in [("never", 50, 1024), ("never", 64, 100), ("file", 64, 1024)]:
        try:
            make_tiny_vlm("qwen3_vl", out / name, size=TinySize(hidden=hidden, vocabulary=vocabulary))
        except UsageError as error:
            yield str(error)


if __name__ == "__main__":
    root = Path(sys.argv[1])
    kinds = {kind: facts(kind, root / kind) for kind in CLASSES}
    print(json.dumps({"kinds": kinds, "refusals": list(refusals(root)), "folders": [p.name for p in root.iterdir()]}))
