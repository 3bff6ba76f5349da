"""The function `make_vec`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium.vector import AutoresetMode

from vlmgym.checks import as_int, check_int, check_timeout
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.sandbox.envs.vector.arguments import check_room, read_settings
from vlmgym.sandbox.envs.vector.env import GameVectorEnv
from vlmgym.sandbox.registry import make_games
from vlmgym.workers.limits import Backend, check_num_workers

GameSpec = str | Game[Any, Any]


def make_vec(
    game: GameSpec | Sequence[GameSpec],
    num_envs: int = 1,
    num_workers: int | None = None,
    *,
    perception: int = 3,
    reasoning: int = 3,
    reward: RewardConfig | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    max_episode_steps: int | None = None,
    render: bool = True,
    copy: bool = True,
    full_info: bool = False,
    timeout: float | None = 60.0,
    backend: Backend = "process",
    **overrides: Any,
) -> GameVectorEnv:
    """Create a vector environment of one or several games.

    Args:
        game: Id, name or `Game`, or a sequence of these, which are assigned to the environments in turn.
        num_envs: Number of environments.
        num_workers: Number of worker processes, among which the environments are divided; no more than one per
            environment is started. With backend `process`: at most 8 per core, by default one per core, and 0 to run in
            this process. With `ray`: at least 1, and at most one per CPU of the cluster, which is the default.
        perception: Perceptual difficulty, 1 to 5, of games given by name.
        reasoning: Reasoning difficulty, 1 to 5, of games given by name.
        reward: Reward weights and shaping. Default: the games' own rewards.
        autoreset_mode: Autoreset mode of Gymnasium: `NextStep`, `SameStep` or `Disabled`.
        max_episode_steps: Truncate episodes after this many turns. Default: no limit.
        render: Draw every step. Otherwise observations are empty, and `image(i)` draws on demand.
        copy: Return independent observations. Their memory is reused once they are no longer referenced. Otherwise
            observations are read-only views, which the next step overwrites.
        full_info: Include descriptions, legal actions and the other infos of `GameEnv`.
        timeout: Seconds without a response after which a worker counts as hanging; None to wait forever.
        backend: `process` for workers on this machine; `ray` for workers in a Ray cluster, see `vlmgym.workers.ray`.
        overrides: Config fields of games given by name; they override the difficulty levels.

    Raises:
        UsageError: The game, a level or a config field is unknown, a value is invalid, the environments do not fit
            into memory, or there is no Ray cluster.
    """
    num_envs, num_workers = as_int(num_envs), as_int(num_workers)
    check_int("num_envs", num_envs, 1)
    check_num_workers("num_workers", num_workers, backend)
    check_timeout(timeout, optional=True)
    settings = read_settings(reward, autoreset_mode, max_episode_steps, full_info)
    games = make_games(game, perception, reasoning, **overrides)
    check_room(num_envs, games[0], settings, render, copy)
    each = [games[i % len(games)] for i in range(num_envs)]
    return GameVectorEnv(each, settings, num_workers, render, copy, timeout, backend=backend)
