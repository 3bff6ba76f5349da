"""NLVR2: data are read as documented."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from vlmgym import make_game
from vlmgym.sandbox.core.reward import score_response


def write_rows(folder: Path, labels: Sequence[object]) -> Path:
    for name, grey in (("a.png", 40), ("b.png", 200)):
        Image.new("RGB", (60, 40), (grey,) * 3).save(folder / name)
    file = folder / "rows.jsonl"
    rows = [
        {"left_image": "a.png", "right_image": "b.png", "sentence": f"Statement {i}.", "label": label}
        for i, label in enumerate(labels)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_statements_from_data(tmp_path: Path) -> None:
    file = write_rows(tmp_path, ["True", "False"])
    game = make_game("nlvr2", data=str(file), order="rows", size=100)
    for seed, truth in enumerate([True, False]):
        state = game.start_at(seed, np.random.default_rng(0))
        assert (state.statement, state.truth) == (f"Statement {seed}.", truth)
        assert "Each object is" not in game.prompt(state)
        assert state.statement in game.prompt(state)
        left, right = game.images(state)
        assert left[50, 50].tolist() == [40] * 3
        assert right[50, 50].tolist() == [200] * 3
        scored = score_response(game, state, game.respond(state, int(truth)), np.random.default_rng(0))
        assert (scored.game, scored.format, scored.perception) == (1.0, 1.0, None)
        assert game.from_json(game.to_json(state)) == state
