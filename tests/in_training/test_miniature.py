"""Runs, whole games, demonstrations and results page of benchmarks.miniature."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.miniature.cells import Cell
from benchmarks.miniature.games import G1, GAMES, run_args
from benchmarks.miniature.page import write_page
from benchmarks.miniature.play import play_games
from tests.in_training.runs import QUICK, SMALL
from tests.in_training.tiny import make_actor
from vlmgym import make_game
from vlmgym.errors import UsageError
from vlmgym.rollout.states import FIRST_VALIDATION_SEED, StateConfig, sample_state
from vlmgym.sandbox.core.episode import Episode
from vlmgym.training.config import read_config
from vlmgym.training.engine.actor import Actor
from vlmgym.training.tiny_vlm import train_tokenizer

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "learning" / "whole_games"


@pytest.mark.parametrize("game", GAMES)
def test_options_of_every_run_are_valid(game: str) -> None:
    for run in GAMES[game].runs:
        config = read_config(run_args(game, 3, run))
        (played,) = config.make_curriculum().games
        assert played.name == game
        assert (config.steps == 0) == (config.sft.steps > 0)


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


def test_results_measured_with_other_options_are_not_reused(tmp_path: Path) -> None:
    cell = Cell("2048", 0, "SFT only")
    shutil.copy(RESULTS / f"{cell.name}.json", tmp_path)
    cell.measure(tmp_path / "runs", tmp_path, 200)
    with pytest.raises(UsageError, match="other options"):
        cell.measure(tmp_path / "runs", tmp_path, 100)
    other = Cell("2048", 1, "SFT only")
    shutil.copy(RESULTS / f"{cell.name}.json", tmp_path / f"{other.name}.json")
    with pytest.raises(UsageError, match="other options"):
        other.measure(tmp_path / "runs", tmp_path, 200)


def test_last_running_game_gets_shuffled_images_of_an_ended_one(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    actor, config = make_actor(model), read_config([*QUICK, *SMALL, "--model", str(model)])
    (game,) = config.make_curriculum().games
    first, second = (game.draw(Episode(game, FIRST_VALIDATION_SEED + seed).state) for seed in (0, 1))
    shown: list[Any] = []
    encode = actor.encoder.encode

    def recording(text: str, images: Any) -> Any:
        shown.append(images)
        return encode(text, images)

    ended = type(game).ended
    start = Episode(game, FIRST_VALIDATION_SEED + 1).state
    legal = game.answer.format(game.best_action(start))
    running: list[int] = []

    def ended_early(self: Any, state: Any) -> str | None:
        moved = state.variation_seed == start.variation_seed and state.board != start.board
        return "over" if moved else ended(self, state)

    def generate(self: Actor, prompts: Any, *_: Any) -> list[list[int]]:
        running.append(len(prompts))
        return [self.encoder.tokens(text) for text in ("nonsense", f"<answer>{legal}</answer>")[: len(prompts)]]

    monkeypatch.setattr(actor.encoder, "encode", recording)
    monkeypatch.setattr(Actor, "generate", generate)
    monkeypatch.setattr(type(game), "ended", ended_early)
    play_games(actor, config, 3, 2, "shuffled")
    assert running == [2, 1, 1]
    assert all(
        np.array_equal(one, other) for one, other in zip(shown, [[second], [first], [second], [second]], strict=True)
    )


def test_whole_games_show_the_images_of_a_control(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    actor, config = make_actor(model), read_config([*QUICK, *SMALL, "--model", str(model)])
    (game,) = config.make_curriculum().games
    shown: list[Any] = []
    encode = actor.encoder.encode

    def recording(text: str, images: Any) -> Any:
        shown.extend(images)
        return encode(text, images)

    monkeypatch.setattr(actor.encoder, "encode", recording)
    monkeypatch.setattr(Actor, "generate", lambda self, prompts, *_: [self.encoder.tokens("nonsense") for _ in prompts])
    found = {images: play_games(actor, config, 2, 2, images) for images in ("true", "blank", "shuffled")}
    first, second = (game.draw(Episode(game, FIRST_VALIDATION_SEED + seed).state) for seed in (0, 1))
    grey = np.full_like(first, 128)
    expected = 2 * [first, second] + 4 * [grey] + 2 * [second, first]
    assert all(np.array_equal(one, other) for one, other in zip(shown, expected, strict=True))
    assert found["true"] == {
        "score": [0, 0], "turns": [2, 2], "played": [0, 0], "actions": [None, None], "perception": 0, "format": 0,
        "illegal": 0, "unparsable": 1,
    }  # fmt: skip


def test_page_reports_results_and_what_is_missing(tmp_path: Path) -> None:
    results = tmp_path / "whole_games"
    results.mkdir()
    games = {
        "score": [900.0, 950.0],
        "turns": [100, 100],
        "played": [99, 100],
        "actions": [0, None],
        "perception": 0.9,
        "format": 1.0,
    }
    games |= {"illegal": 0.05, "unparsable": 0.01}
    (results / "2048-policies.json").write_text(json.dumps({"random": {**games, "score": [600.0, 700.0]}}))
    curve = [{"step": step, "perception": 0.5, "reward": 0.1} for step in (1, 2)]
    cell = Cell("2048", 0, G1)
    (results / f"{cell.name}.json").write_text(
        json.dumps({"minutes": 2.0, "true": games, "blank": games, "shuffled": games, "curve": curve})
    )
    page = write_page(results).read_text(encoding="utf-8")
    assert "| G1, GRPO | 0 | 925 (607 to 1243) | 6.0% | 90.0% | 100.0% | 2.0 |" in page
    assert "| random |  | 650 (15 to 1285) |" in page
    assert "| 2048 on 4x4 | G1, GRPO | 1, 2 |" in page
    assert "PPO | 1" not in page
