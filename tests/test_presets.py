"""Presets match their sources."""

import numpy as np
import pytest

from vlmgym import make_game
from vlmgym.errors import UsageError
from vlmgym.evaluation import evaluate
from vlmgym.sandbox.presets import PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_presets_make_games_and_name_their_source(name: str) -> None:
    game = make_game(name)
    assert game.name == PRESETS[name].game
    assert {config_field: getattr(game.config, config_field) for config_field in PRESETS[name].overrides} == PRESETS[
        name
    ].overrides
    assert PRESETS[name].source
    (episode,) = evaluate(name, "random", 1, max_turns=1, workers=0)
    assert episode.game.game() == game


@pytest.mark.parametrize("side", [6, 12])
def test_g1_shisensho_has_four_tiles_per_kind(side: int) -> None:
    game = make_game(f"g1/shisensho-{side}x{side}")
    tiles, counts = np.unique(game.start(np.random.default_rng(0)).board, return_counts=True)
    assert set(counts) == {4}
    assert len(tiles) == side * side // 4
    assert not game.config.solvable


def test_g1_swap_has_twelve_kinds() -> None:
    assert make_game("g1/swap").config.kinds == 12


def test_config_fields_override_presets_but_levels_do_not() -> None:
    assert make_game("g1/swap", rows=7).config.rows == 7
    with pytest.raises(UsageError, match="g1/swap is a preset without difficulty levels"):
        make_game("g1/swap", reasoning=1)
