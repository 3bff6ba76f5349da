"""Options and page of benchmarks.miniature, and what its demonstrations rely on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.demo import GRPO, PERMUTED, PPO
from benchmarks.miniature import GAMES, arm_args, base_args
from vlmgym import make_game
from vlmgym.rollout.states import StateConfig, sample_state
from vlmgym.training.config import read_config
from vlmgym.training.tiny_vlm import train_tokenizer


@pytest.mark.parametrize("game", GAMES)
def test_arms_train_the_same_game_as_the_base_model(game: str) -> None:
    base = read_config(base_args(game, 0))
    assert (base.steps, base.sft.steps) == (0, GAMES[game].base_steps)
    for arm in (GRPO, PPO, PERMUTED):
        config = read_config(arm_args(game, 0, arm))
        assert config.make_curriculum().games == base.make_curriculum().games
        assert (config.sft.steps, config.sft.accuracy) == (0, base.sft.accuracy)


def test_cells_of_a_board_are_single_tokens() -> None:
    game: Any = make_game("2048")
    rng = np.random.default_rng(0)
    state, boards = game.start(rng), []
    for _ in range(60):
        boards.append(game.describe(state))
        state = game.step(state, game.rule_action(state), rng).state
    tokenizer = train_tokenizer(boards, 500, words=60)
    assert {len(tokenizer.encode(board).ids) for board in boards} == {4 * 4 + 3}
    assert all(tokenizer.decode(tokenizer.encode(board).ids) == board for board in boards)


def test_rule_mover_plays_rule_actions() -> None:
    game: Any = make_game("shisensho", reasoning=1)
    first, third = (
        game.from_json(sample_state(game, 0, 5, StateConfig(moves=(moves, moves), mover="rule")).state)
        for moves in (0, 2)
    )
    for _ in range(2):
        first = game.step(first, game.rule_action(first), np.random.default_rng(0)).state
    assert first == third
