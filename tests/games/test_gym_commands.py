"""Gymnasium environments and questions about games on the command line, in every command that takes a game."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import pygame
import pytest
from gymnasium import spaces

from vlmgym import make_dataset, score
from vlmgym.cli.play import PlayConfig, play
from vlmgym.evaluation import read_run
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.sandbox.envs.human import Player

SMALL = ["--size", "96", "--workers", "0", "--videos", "0"]
Run = Callable[..., Any]

CURRICULUM = """\
[[entries]]
game = "gym:FrozenLake-v1"
by = "episode"
stages = [
    { name = "4x4", episodes = 2, overrides = { options = ["is_slippery=false"] } },
    { name = "8x8", overrides = { options = ["map_name=8x8"] } },
]

[[entries]]
game = "gym:Taxi-v4"
"""


def test_runs_of_environments_are_verified_rescored_reported_and_resumed(run: Run, tmp_path: Path) -> None:
    folder, again = tmp_path / "run", tmp_path / "again"
    options = ["eval", "gym:FrozenLake-v1", "--policy", "random", "--episodes", "2", "--max-turns", "5", *SMALL]
    assert run(*options, "--no-report", "--output-dir", folder).code == 0
    first = read_run(folder)
    assert run("verify", folder, "--workers", "0").code == 0
    assert run("rescore", folder, "--output-dir", again).code == 0
    assert [one.score for one in read_run(again).episodes] == [one.score for one in first.episodes]
    assert run("report", folder, "--workers", "0").code == 0
    assert "data:image/" in (folder / "report.html").read_text()
    records = folder / "episodes.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    records.write_text(lines[0])
    resumed = run(*options, "--no-report", "--resume", folder)
    assert resumed.code == 0, resumed.err
    assert [one.score for one in read_run(folder).episodes] == [one.score for one in first.episodes]
    changed = json.loads(lines[0])
    changed["score"] += 1
    records.write_text("".join([json.dumps(changed) + "\n", *lines[1:]]))
    assert run("verify", folder, "--workers", "0").code == 1


def test_curricula_mix_environments(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lakes.toml").write_text(CURRICULUM)
    options = ["--policy", "random", "--episodes", "12", "--max-turns", "3", "--workers", "0", "--videos", "0"]
    done = run("eval", "--curriculum", "lakes.toml", *options, "--no-report", "--output-dir", tmp_path / "run")
    assert done.code == 0, done.err
    played = read_run(tmp_path / "run").episodes
    assert {one.game.id for one in played} == {"gym:FrozenLake-v1", "gym:Taxi-v4"}
    lakes = [tuple(cast(Any, one.game.config["options"])) for one in played if "Lake" in one.game.id]
    assert set(lakes) == {("is_slippery=false",), ("map_name=8x8",)}


@pytest.mark.parametrize(
    ("game_id", "keys"),
    [
        ("gym:FrozenLake-v1", ["down", "right"]),
        ("gym:CartPole-v1", ["left", "right", "left"]),
        ("gym:Taxi-v4", ["up", "space"]),
    ],
)
def test_keys_play_environments(game_id: str, keys: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    made: list[Player] = []

    class Seen(Player):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr("vlmgym.sandbox.envs.human.Player", Seen)
    pygame.display.init()
    for key in [*keys, "escape"]:
        pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pygame.key.key_code(key), unicode="", mod=0))
    play(PlayConfig(game=game_id, seed=0, size=128))
    assert made[0].episode.outcomes == {Outcome.PLAYED: len(keys), Outcome.ILLEGAL: 0, Outcome.UNPARSABLE: 0}


class Dice(gymnasium.Env[Any, Any]):
    """An environment that ignores its seed."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - as in Env
    observation_space = action_space = spaces.Discrete(6)

    def __init__(self, render_mode: str) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return 0, float(np.random.default_rng().random()), False, False, {}

    def render(self) -> Any:
        return np.zeros((8, 8, 3), np.uint8)


gymnasium.register("Dice-v0", entry_point=cast(Any, Dice))


def test_evaluations_of_random_environments_are_refused_in_one_sentence(run: Run, tmp_path: Path) -> None:
    done = run("eval", "gym:Dice-v0", "--policy", "random", "--episodes", "1", *SMALL, "--output-dir", tmp_path / "run")
    assert done.code != 0
    (line,) = done.err.strip().splitlines()
    assert "Dice-v0 is not deterministic: the same seed and actions give different results" in line


def test_questions_are_evaluated_exported_and_scored(run: Run, tmp_path: Path) -> None:
    options = ["--perception", "5", "--reasoning", "1", "--episodes", "4", *SMALL, "--no-report"]
    for policy, scored in (("oracle", [1.0] * 4), ("random", None)):
        done = run("eval", "qa/maze", "--policy", policy, *options, "--output-dir", tmp_path / policy)
        assert done.code == 0, done.err
        found = [one.score for one in read_run(tmp_path / policy).episodes]
        assert scored is None or found == scored
    sft = ["--format", "sharegpt", "--output-dir", tmp_path / "sft"]
    assert run("export", tmp_path / "oracle", *sft, "--workers", "0").code == 0
    table = tmp_path / "sft" / "data.jsonl"
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    assert len(rows) == 4
    assert all("<think>" in json.dumps(row) for row in rows)
    for row in make_dataset("qa/maze", 4, perception=5, reasoning=1, size=96):
        assert score(row["snapshot"], f"<answer>{row['answer']}</answer>").total > 0
        assert score(row["snapshot"], "<answer>no such thing</answer>").game == 0
