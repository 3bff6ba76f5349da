"""Options and page of benchmarks.miniature, and what its demonstrations rely on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.demo import GRPO, MORE, PERMUTED, PPO, START
from benchmarks.miniature import GAMES, arm_args, base_args, summarise, write_page
from vlmgym import make_game
from vlmgym.evaluation import evaluate
from vlmgym.rollout.states import StateConfig, sample_state
from vlmgym.training.config import read_config
from vlmgym.training.tiny_vlm import train_tokenizer


@pytest.mark.parametrize("game", GAMES)
def test_arms_train_the_same_game_as_the_base_model(game: str) -> None:
    base = read_config(base_args(game))
    assert (base.steps, base.sft.steps) == (0, GAMES[game].base_steps)
    for arm in (GRPO, PPO, PERMUTED):
        config = read_config(arm_args(game, 3, arm))
        assert config.make_curriculum().games == base.make_curriculum().games
        assert (config.sft.steps, config.sft.accuracy, config.steps) == (0, base.sft.accuracy, 80)


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


def test_page_has_results_gains_and_what_is_missing(tmp_path: Path) -> None:
    results = tmp_path / "whole_games"
    results.mkdir()
    (game,) = read_config(base_args("swap")).make_curriculum().games
    played = {
        policy: summarise(evaluate(game, policy, 3, max_turns=5, seed=0, workers=0)) for policy in ("random", "oracle")
    }
    (results / "swap-baselines.json").write_text(json.dumps(played))

    def arm(successes: list[bool], games: dict[str, Any]) -> dict[str, Any]:
        share = float(np.mean(successes))
        states = {"successes": successes, "success": share, "success_ci": [0.0, 1.0], "perception": 0.99}
        return {"states": states, "greedy": states, "games": games}

    arms = {
        START: arm([False, False, True, False], played["random"]),
        MORE: arm([False, True, False, False], played["random"]),
        GRPO: arm([True, True, True, False], played["oracle"]),
    }
    (results / "swap-1-grpo.json").write_text(json.dumps(arms))
    page = write_page(results).read_text(encoding="utf-8")
    assert "| GRPO | 1 | 75.0% (0.0% to 100.0%) | 75.0% | 99.0% | 5.0" in page
    assert "| Swap on 5x5 | 1 | +50.0% (" in page
    assert "| Swap on 5x5 | GRPO | 0 |" in page.split("## Not run")[1]
    assert (tmp_path / "whole_games.png").stat().st_size > 1000
