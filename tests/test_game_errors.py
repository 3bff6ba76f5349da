"""A game that fails ends its episode as an error; other episodes, the run and its results are not affected."""

import os
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.playing import without_times
from vlmgym.errors import GameError
from vlmgym.evaluation import evaluate, read_run
from vlmgym.policies import ModelPolicy, Reply
from vlmgym.rollout.states import StateConfig, sample_state
from vlmgym.sandbox import registry
from vlmgym.sandbox.answers.choice import Number
from vlmgym.sandbox.core.config import GameConfig
from vlmgym.sandbox.core.game import Game, Step

FAULT = "FRAGILE_GAME"
"""Environment variable with the fault of the game; worker processes inherit it."""
METHODS = (
    "start", "parse", "perceive", "step", "ended", "prompt", "describe", "draw", "metrics", "to_json", "check_state",
)  # fmt: skip
REWARDS = {"nan": float("nan"), "text": "a", "huge": 1e200}


@dataclass(frozen=True)
class FragileState:
    seed: int
    turn: int = 0


class Button(Number):
    """The number of a button."""

    def __init__(self):
        super().__init__(lambda config: range(3))

    def parse(self, text):
        if text == "2" and os.environ.get(FAULT) == "parse":
            raise RuntimeError("broken parse")
        return super().parse(text)


class Fragile(Game[FragileState, int]):
    """Three buttons; with a fault, the episode with seed 1 fails in its third turn."""

    name = "fragile"
    Config = GameConfig
    State = FragileState
    answer = Button()

    def _fail(self, method, state, first=2):
        if os.environ.get(FAULT) == method and state.seed == 1 and state.turn >= first:
            raise RuntimeError(f"broken {method}")
        if os.environ.get(FAULT) == f"exit {method}" and state.seed == 1 and state.turn >= first:
            sys.exit(3)

    def start(self, rng):
        return FragileState(0)

    def start_at(self, seed, rng):
        state = FragileState(seed)
        self._fail("start", state, 0)
        return state

    def legal_actions(self, state):
        return (0, 1, 2)

    def step(self, state, action, rng):
        self._fail("step", state)
        reward = 1.0
        if state == FragileState(1, 2):
            reward = REWARDS.get(os.environ.get(FAULT), reward)
        return Step(replace(state, turn=state.turn + 1), reward)

    def ended(self, state):
        self._fail("ended", state)
        return True if os.environ.get(FAULT) == "ending" and state == FragileState(1, 2) else None

    def to_json(self, state):
        self._fail("to_json", state)
        return super().to_json(state)

    def check_state(self, state):
        self._fail("check_state", state)

    def metrics(self, state, infos):
        self._fail("metrics", state)
        return {"turns": float("nan") if os.environ.get(FAULT) == "metric" and state.seed == 1 else state.turn}

    def draw(self, state):
        self._fail("draw", state)
        return np.zeros((self.config.size, self.config.size, 3), np.uint8)

    def describe(self, state):
        self._fail("describe", state)
        return f"{state.turn}"

    def prompt(self, state):
        self._fail("prompt", state)
        return "press a button"

    def perceive(self, state, text):
        self._fail("perceive", state)
        return super().perceive(state, text)

    def best_action(self, state):
        return None if os.environ.get(FAULT) == "oracle" and state.seed and state.turn == 2 else 0


class Buttons(ModelPolicy):
    """Presses button 2 in the third turn of seed 1, else button 0."""

    name = "buttons"

    async def respond(self, images, prompt):
        button = 2 if (prompt.seed, prompt.turn) == (1, 2) else 0
        return Reply(f"<perception>{prompt.turn}</perception><answer>{button}</answer>")


@pytest.fixture
def game(monkeypatch):
    monkeypatch.setitem(registry._registered, "fragile-v0", Fragile)
    return Fragile(GameConfig(size=64))


def play(game, policy=None, **options):
    settings = {"max_turns": 5, "observation": "both", "workers": 0} | options
    return evaluate(game, Buttons() if policy is None else policy, 3, **settings)


@pytest.mark.parametrize("fault", [*METHODS, "exit step", "exit prompt", "exit draw", "ending", "metric", *REWARDS])
def test_a_failing_game_ends_its_episode(game, monkeypatch, fault):
    whole = play(game)
    monkeypatch.setenv(FAULT, fault)
    first, failed, last = play(game)
    assert [without_times(first), without_times(last)] == [without_times(whole[0]), without_times(whole[2])]
    assert (failed.status, failed.score) == ("error", None)
    turns = {"start": 0, "metrics": 5, "metric": 5, "check_state": 5, "ended": 1, "to_json": 1}.get(fault, 2)
    turn = "" if fault in ("start", "metrics", "metric", "check_state") else f", turn {2 if fault == 'ended' else 3}"
    assert failed.end_reason.startswith(f"fragile-v0, seed 1{turn}: ")
    if fault in METHODS:
        assert f"RuntimeError: broken {fault} ({__file__}, line " in failed.end_reason
    assert "\n" not in failed.end_reason
    assert len(failed.turns) == turns
    again = play(game, resume=[first, failed, last])[1]
    assert (again.status, again.end_reason, again.attempt) == ("error", failed.end_reason, 2)
    monkeypatch.delenv(FAULT)
    mended = play(game, resume=[first, again, last])
    assert [without_times(r) | {"attempt": 1} for r in mended] == [without_times(r) for r in whole]


def test_a_failing_game_in_worker_processes(game, monkeypatch):
    monkeypatch.setenv(FAULT, "step")
    records = play(game, "random", workers=1)
    assert [record.status for record in records] == ["turn limit", "error", "turn limit"]
    assert "seed 1, turn 3: RuntimeError: broken step" in records[1].end_reason
    assert len(records[1].turns) == 2


def test_an_oracle_without_a_move_ends_its_episode(game, monkeypatch):
    monkeypatch.setenv(FAULT, "oracle")
    records = evaluate(game, "oracle", 15, max_turns=5, workers=0)  # more than MAX_CONSECUTIVE_ERRORS
    assert {(record.status, record.end_reason, len(record.turns)) for record in records[1:]} == {
        ("error", "no oracle move", 2)
    }
    assert records[0].status == "turn limit"


def test_an_oracle_that_exits_ends_its_episode(game, monkeypatch):
    monkeypatch.setattr(Fragile, "best_action", lambda self, state: sys.exit(3) if state.seed == 1 else 0)
    first, failed, last = play(game, "oracle")
    assert [first.status, last.status] == ["turn limit"] * 2
    assert failed.status == "error"
    assert failed.end_reason.startswith("fragile-v0, seed 1, turn 1: SystemExit: 3")


def test_states_for_training_name_the_failing_episode(game, monkeypatch):
    monkeypatch.setenv(FAULT, "step")
    monkeypatch.setattr(Fragile, "start_at", lambda *_: FragileState(1))
    with pytest.raises(GameError, match=r"fragile-v0, seed \d+, turn 1: RuntimeError: broken step"):
        sample_state(game, 0, 0, StateConfig(moves=(5, 5)))


@pytest.mark.parametrize("fault", ["step", "draw", "to_json", "check_state"])
def test_a_run_with_a_failing_game_is_written_and_resumed(game, monkeypatch, tmp_path, run, fault):
    monkeypatch.setenv(FAULT, fault)
    out = tmp_path / "out"
    options = ["fragile", "--policy", "random", "--episodes", "3", "--max-turns", "4", "--workers", "0"]
    done = run("eval", *options, "--videos", "3", "--output-dir", out)
    assert (out / "report.html").exists(), done
    assert [record.status for record in read_run(out).episodes][0::2] == ["turn limit"] * 2
    assert "seed 1" in done.err
    assert f"broken {fault}" in done.err
    assert done.code == (0 if fault == "draw" else 1)  # the random policy plays without images
    assert len(list(out.glob("videos/*.mp4"))) == 2
    monkeypatch.delenv(FAULT)
    assert run("eval", *options, "--videos", "3", "--resume", out).code == 0
    assert len(list(out.glob("videos/*.mp4"))) == 3


def test_a_run_whose_episodes_all_fail_to_start_can_be_resumed_or_replaced(game, monkeypatch, tmp_path, run):
    monkeypatch.setenv(FAULT, "start")
    out = tmp_path / "out"
    options = ["fragile", "--seed", "1", "--episodes", "1", "--max-turns", "3", "--workers", "0", "--videos", "0"]
    for how in ("--output-dir", "--resume", "--output-dir"):
        done = run("eval", *options, how, out)
        assert (done.code, "error in 1 episode: fragile-v0, seed 1: RuntimeError" in done.err) == (1, True), done
        assert [record.turns for record in read_run(out).episodes] == [()]
    monkeypatch.delenv(FAULT)
    assert run("eval", *options, "--output-dir", out).code == 0
    assert run("eval", *options, "--output-dir", out).code == 2
