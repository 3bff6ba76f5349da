"""Invalid arguments raise a one-line `UsageError` and change nothing."""

import copy
import pickle
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import vlmgym
from vlmgym import game_ids, make_game, make_vec
from vlmgym.errors import UsageError
from vlmgym.evaluation import EvalConfig, evaluate
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.memory import available_memory
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.sandbox.envs.single import GameEnv
from vlmgym.workers.pool import WORKERS_PER_CORE, available_cores

BAD = ["x", b"x", 1.5, float("nan"), -1, 10**30, [0, 0, 0], [None, "x"], {"a": 1}, object(), int, np.zeros((2, 2))]
"""Values of kinds that users pass by mistake."""


def check_rejected(call: Callable[[], Any]) -> None:
    """Check that a call raises a `UsageError` with a one-line message."""
    with pytest.raises(UsageError) as error:
        call()
    assert str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    "options",
    [
        {"game": "chess"}, {"game": []}, {"num_envs": 0}, {"num_workers": -1}, {"perception": 6}, {"reasoning": "3"},
        {"reward": 1.0}, {"autoreset_mode": "Never"}, {"max_episode_steps": 0}, {"render": "no"}, {"copy": None},
        {"full_info": 2}, {"timeout": 0}, {"size": 10**30}, {"rows": 2.5}, {"no_such_field": 1},
    ],
)  # fmt: skip
def test_make_vec_rejects_invalid_values(options: dict[str, Any]) -> None:
    check_rejected(lambda: make_vec(**{"game": "2048", "num_workers": 0, **options}))


EPISODES: dict[str, Callable[[Any], Any]] = {
    "game": lambda value: Episode(value, 0),
    "seed": lambda value: Episode(make_game("2048"), value),
    "response": lambda value: vlmgym.Episode("2048", 0).respond(value),
    "snapshot": lambda value: Episode.restore(make_game("2048"), value),
    "environment options": lambda value: GameEnv("2048").reset(options=value),
}


@pytest.mark.parametrize("name", EPISODES)
def test_episode_rejects_invalid_values(name: str) -> None:
    for value in BAD:
        if not ((name == "seed" and value is BAD[5]) or (name == "response" and isinstance(value, str))):
            check_rejected(partial(EPISODES[name], value))


@pytest.mark.parametrize("game_id", game_ids())
def test_invalid_actions_are_illegal(game_id: str) -> None:
    game = make_game(game_id)
    for value in BAD:
        if not (isinstance(value, str) and isinstance(game.answer.space, gymnasium.spaces.Text)):
            assert Episode(game, 0).act(value).outcome is Outcome.ILLEGAL


def test_vector_environments_cannot_be_copied() -> None:
    with closing(make_vec("2048", 2, 0, size=64)) as envs:
        for copied in (pickle.dumps, copy.deepcopy):
            check_rejected(partial(copied, envs))


# Resource limits -------------------------------------------------------------------------------------------------


@pytest.mark.skipif(available_memory() is None, reason="the system does not say how much memory is available")
@pytest.mark.parametrize("render", [True, False])
def test_environments_that_do_not_fit_into_memory(render: bool) -> None:
    with pytest.raises(UsageError, match=r"1,000,000,000 environments need .* GB"):
        make_vec("2048", 10**9, render=render)


def test_too_many_workers() -> None:
    most = WORKERS_PER_CORE * available_cores()
    for call in (
        lambda: make_vec("2048", 10**5, most + 1, size=64),
        lambda: evaluate("2048", "random", 10**5, workers=most + 1),
        lambda: EvalConfig(workers=10**5),
    ):
        with pytest.raises(UsageError, match=f"workers must be at most {most} "):
            call()


@pytest.mark.parametrize(
    "options",
    [
        {"episodes": "x"}, {"episodes": 0}, {"concurrency": None}, {"workers": "x"}, {"backend": ["ray"]},
        {"reward": "x"}, {"budget": 5}, {"episodes": 10**9, "concurrency": 10**9}, {"max_turns": 0}, {"seed": -1},
        {"history": -1}, {"observation": "picture"},
    ],
)  # fmt: skip
def test_evaluate_rejects_invalid_values(options: dict[str, Any]) -> None:
    check_rejected(lambda: evaluate("2048", "random", **options))


# Memory limits of cgroups -----------------------------------------------------------------------------------------


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MACHINE = {"proc/meminfo": "MemTotal: 32000 kB\nMemAvailable: 16000 kB\n"}


def test_memory_limit_is_read_from_cgroup_v2(tmp_path: Path) -> None:
    assert available_memory(tmp_path) is None
    assert available_memory(write(tmp_path, MACHINE)) == 16_000 * 1024
    groups = {
        "proc/self/cgroup": "0::/pod/box\n",
        "sys/fs/cgroup/pod/memory.max": "9000000\n",
        "sys/fs/cgroup/pod/memory.current": "5000000\n",
        "sys/fs/cgroup/pod/memory.stat": "anon 1\ninactive_file 1000000\n",
        "sys/fs/cgroup/pod/box/memory.max": "max\n",
    }
    assert available_memory(write(tmp_path, groups)) == 5_000_000
