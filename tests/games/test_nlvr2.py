"""NLVR2: data are read as documented."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.colours import GREEN, RED, encoded, write_rows
from vlmgym import make_game
from vlmgym.sandbox.core.reward import score_response


def test_statements_from_data(tmp_path: Path) -> None:
    (tmp_path / "b.png").write_bytes(encoded(GREEN))
    images = {"left_image": "a.png", "right_image": "b.png"}
    rows = [{**images, "sentence": f"Statement {n}.", "label": str(truth)} for n, truth in enumerate((True, False))]
    game = make_game("nlvr2", data=write_rows(tmp_path, *rows), order="rows", size=100)
    for seed, truth in enumerate([True, False]):
        state = game.start_at(seed, np.random.default_rng(0))
        assert (state.statement, state.truth) == (f"Statement {seed}.", truth)
        assert "Each object is" not in game.prompt(state)
        assert state.statement in game.prompt(state)
        left, right = game.images(state)
        assert tuple(left[50, 50]) == RED
        assert tuple(right[50, 50]) == GREEN
        scored = score_response(game, state, game.respond(state, int(truth)), np.random.default_rng(0))
        assert (scored.game, scored.format, scored.perception) == (1.0, 1.0, None)
        assert game.from_json(game.to_json(state)) == state
