"""Jigsaw: the fewest swaps, the score, and pictures whose patches fit together."""

from __future__ import annotations

from collections import deque
from itertools import combinations, permutations

import numpy as np
import pytest

from vlmgym import make_game
from vlmgym.errors import IllegalAction, StateError
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.games.jigsaw.game import Jigsaw, JigsawConfig, JigsawState

RNG = np.random.default_rng(0)


def fewest_swaps(count: int) -> dict[tuple[int, ...], int]:
    """Breadth-first search from the whole picture."""
    whole = tuple(range(count))
    found, waiting = {whole: 0}, deque([whole])
    while waiting:
        at = waiting.popleft()
        for one, other in combinations(range(count), 2):
            after = list(at)
            after[one], after[other] = at[other], at[one]
            if found.setdefault(tuple(after), found[at] + 1) == found[at] + 1 and tuple(after) not in waiting:
                waiting.append(tuple(after))
    return found


def test_the_oracle_needs_the_fewest_swaps() -> None:
    game, fewest = Jigsaw(JigsawConfig(rows=1, columns=5)), fewest_swaps(5)
    for patches in permutations(range(5)):
        state, swaps = JigsawState((patches,), 0), 0
        while (action := game.best_action(state)) is not None:
            state, swaps = game.step(state, action, RNG).state, swaps + 1
        assert game.ended(state)
        assert swaps == fewest[patches]


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_a_restored_picture_scores_one(level: int) -> None:
    game = make_game("jigsaw", reasoning=level)
    episode = Episode(game, 3)
    assert game.metrics(episode.state, ()) == {"in place": 0.0}
    assert len(set(sum(episode.state.board, ()))) == game.config.rows * game.config.columns
    while episode.ended is None:
        legal, action = game.legal_actions(episode.state) or (), game.best_action(episode.state)
        assert action is not None
        assert {action, (*action[2:], *action[:2])} <= set(legal)
        episode.act(action)
    assert episode.score == pytest.approx(1)
    assert game.metrics(episode.state, ()) == {"in place": 1.0}


def test_only_the_whole_picture_is_smooth_across_edges() -> None:
    game = Jigsaw(JigsawConfig(size=320))
    start = game.start(np.random.default_rng(5))

    def steps(state: JigsawState) -> float:
        box, image = game.painter.geometry, game.images(state)[0].astype(int)
        lefts = [box.left + column * box.pitch for column in range(3)]
        rows = slice(box.top, box.top + box.cell)
        return float(np.mean([np.abs(image[rows, left - box.gap - 1] - image[rows, left]) for left in lefts[1:]]))

    state = start
    while (action := game.best_action(state)) is not None:
        state = game.step(state, action, RNG).state
    assert 2 * steps(state) < steps(start)


def test_bad_swaps_and_states() -> None:
    game = Jigsaw()
    state = game.start(np.random.default_rng(0))
    with pytest.raises(IllegalAction, match="given twice"):
        game.step(state, (1, 1, 1, 1), RNG)
    whole = JigsawState(((0, 1, 2), (3, 4, 5), (6, 7, 8)), 0)
    with pytest.raises(IllegalAction, match="the picture is whole"):
        game.step(whole, (0, 0, 1, 1), RNG)
    for bad in (JigsawState(whole.board[:2], 0), JigsawState((whole.board[0],) * 3, 0), JigsawState(whole.board, -1)):
        with pytest.raises(StateError, match="invalid state of jigsaw"):
            game.from_json(game.to_json(bad))
