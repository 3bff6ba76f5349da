"""Jigsaw: pictures whose patches fit together."""

from __future__ import annotations

import numpy as np

from vlmgym.sandbox.games.jigsaw import Jigsaw, JigsawConfig, JigsawState

RNG = np.random.default_rng(0)


def test_only_the_whole_picture_is_smooth_across_edges() -> None:
    game = Jigsaw(JigsawConfig(size=320))
    start = game.start(np.random.default_rng(5))

    def steps(state: JigsawState) -> float:
        box, image = game.painter.geometry, game.images(state)[0].astype(int)
        lefts = [box.left + column * box.pitch for column in range(3)]
        rows = slice(box.top, box.top + box.cell)
        return float(np.mean([np.abs(image[rows, left - box.gap - 1] - image[rows, left]) for left in lefts[1:]]))

    state = start
    assert game.metrics(state, ()) == {"in place": 0.0}
    while (action := game.best_action(state)) is not None:
        state = game.step(state, action, RNG).state
    assert game.metrics(state, ()) == {"in place": 1.0}
    assert 2 * steps(state) < steps(start)
