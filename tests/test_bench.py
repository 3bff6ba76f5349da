"""Measuring rates, recommending a layout, and `vlmgym bench`."""

import io

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.scripts import repeat, spread_states, uniform_script
from vlmgym.cli import bench as bench_module
from vlmgym.cli.bench import TIE_RATIO, BenchConfig, bench, measure_layouts, recommend
from vlmgym.cli.main import main
from vlmgym.cli.timing import Rates, Script, legal_script, measure, opened, play
from vlmgym.errors import UsageError
from vlmgym.sandbox.core.memory import available_memory
from vlmgym.sandbox.envs.single import GameEnv
from vlmgym.sandbox.envs.vector.make import make_vec
from vlmgym.sandbox.registry import make_game

GAMES = ["2048", "shisensho", "swap"]


def test_rates():
    rates = Rates((5000.0, 1000.0, 3000.0, 2000.0))
    assert (rates.median, rates.slowest, rates.fastest) == (2500, 1000, 5000)
    assert str(rates) == "2,500 (1,000 to 5,000)"


def test_candidates_take_turns():
    turns = []

    def candidate(name, rate):
        def turn(seconds):
            turns.append((name, seconds))
            return rate

        return turn

    rates = measure({"a": candidate("a", 1.0), "b": candidate("b", 2.0)}, 3, 0.5, "test")
    assert turns == [("a", 0.5), ("b", 0.5)] * 3
    assert rates == {"a": Rates((1.0,) * 3), "b": Rates((2.0,) * 3)}
    assert repeat(lambda: 7)(0) > 0


@pytest.mark.parametrize("name", GAMES)
def test_legal_script(name):
    game = make_game(name, size=160)
    script = legal_script(game, 3, 60, seed=5)
    assert script == legal_script(game, 3, 60, seed=5)
    makers = {"ours": lambda: make_vec(game, 3, 0), "sync": lambda: SyncVectorEnv([lambda: GameEnv(game)] * 3)}
    with opened(makers) as made:
        resets = 0
        for env in made.values():
            env.reset(seed=script.seed)
        for actions in script.steps:
            ours, theirs = (env.step(actions) for env in made.values())
            np.testing.assert_array_equal(ours[0], theirs[0])
            resets += (~ours[4]["_outcome"]).sum()
            assert set(ours[4]["outcome"]) <= {"played", None}
    assert (resets > 0) == (name == "shisensho")  # whose episodes are shorter than the script


@pytest.mark.parametrize("name", GAMES)
def test_spread_script_starts_at_different_moves(name):
    game = make_game(name, size=160)
    script = legal_script(game, 25, 4, states=spread_states(game, 25, 24))
    turns = [state.turn for state in script.states]
    assert turns[:12] == list(range(12))
    assert turns[24] == 0
    with opened({"ours": lambda: make_vec(game, 25, 0, render=False)}) as made:
        envs = made["ours"]
        envs.reset(seed=script.seed)
        envs.set_states(script.states)
        for actions in script.steps:
            assert set(envs.step(actions)[4]["outcome"]) <= {"played", None}
        assert play(envs, script)(0.01) > 0


def test_uniform_script():
    script = uniform_script(make_game("2048", size=160), 4, 50)
    assert {action for actions in script.steps for action in actions} == {0, 1, 2, 3}
    assert [len(actions) for actions in script.steps] == [4] * 50


class Counting(SyncVectorEnv):
    """Keeps its calls."""

    def __init__(self, game, num_envs):
        super().__init__([lambda: GameEnv(game)] * num_envs)
        self.calls = []

    def reset(self, *, seed=None, options=None):
        self.calls.append(("reset", seed))
        return super().reset(seed=seed, options=options)

    def step(self, actions):
        self.calls.append(("step", list(actions)))
        return super().step(actions)


def test_script_restarts_at_its_end():
    game = make_game("2048", size=160)
    script = Script(7, [[0, 1], [1, 2], [2, 3]])
    with opened({"env": lambda: Counting(game, 2)}) as made:
        env = made["env"]
        turn = play(env, script)
        assert all(turn(0.002) > 0 for _ in range(3))
        assert env.closed is False
    assert env.closed
    cycle = [("reset", 7), ("step", [0, 1]), ("step", [1, 2]), ("step", [2, 3])]
    assert env.calls == (cycle * len(env.calls))[: len(env.calls)]
    assert len(env.calls) > len(cycle)


@given(st.dictionaries(st.tuples(st.integers(0, 8), st.integers(1, 512)), st.floats(1, 1e6), min_size=1))
def test_recommended_layout_is_the_smallest_fast_one(rates):
    found = recommend({layout: Rates((rate,)) for layout, rate in rates.items()})
    chosen = (found.num_workers, found.num_envs)
    enough = max(rates.values()) * TIE_RATIO
    assert rates[chosen] >= enough
    assert all(rate < enough for layout, rate in rates.items() if layout < chosen)
    assert ("the fastest here" in found.reason) == (rates[chosen] == max(rates.values()))


def test_bench_measures_every_layout_and_recommends_one(monkeypatch):
    monkeypatch.setattr(bench_module, "ACTIONS", 40)
    config = BenchConfig(game="shisensho", size=120, workers=(1, 0), envs=(4, 2), seconds=0.1)
    assert config.layouts() == [(0, 2), (0, 4), (1, 2), (1, 4)]
    shown = io.StringIO()
    found = bench(config, Console(file=shown, width=160))
    assert (found.num_workers, found.num_envs) in config.layouts()
    assert f"make_vec('shisensho', num_envs={found.num_envs}, num_workers={found.num_workers}" in shown.getvalue()


def test_command(capsys, monkeypatch):
    monkeypatch.setattr(bench_module, "ACTIONS", 40)
    main(["bench", "2048", "--size", "120", "--workers", "0", "--envs", "2", "--seconds", "0.05"])
    assert "Recommended: make_vec('2048', num_envs=2, num_workers=0" in " ".join(capsys.readouterr().out.split())


def test_default_layouts():
    assert {0, 1} <= {workers for workers, _ in BenchConfig().layouts()}
    assert all(count <= envs for count, envs in BenchConfig(envs=(1, 2), workers=(0, 2)).layouts())


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        (["nosuch"], "nosuch"),
        (["--envs", "0"], "envs"),
        (["--workers", "-1"], "workers"),
        (["--seconds", "nan"], "seconds"),
        (["--workers", "4", "--envs", "2"], "must be at least as large as one of workers"),
        (["--size", "100000"], "size"),
    ],
)
def test_invalid_options(options, fact, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["bench", *options])
    error = capsys.readouterr().err
    assert fact in error
    assert error.count("\n") == 1


@pytest.mark.skipif(available_memory() is None, reason="the system does not report free memory")
def test_frames_that_do_not_fit_into_memory():
    assert 2**20 < available_memory() < 2**50
    with pytest.raises(UsageError, match=r"need .* GB of memory and .* GB is available"):
        measure_layouts(BenchConfig(workers=(0,), envs=(10_000_000,)))
