"""Vector environments: snapshots, branches, attributes and images on demand."""

import numpy as np
import pytest

from tests.processes import worker_process
from vlmgym.errors import EpisodeEnded, UsageError
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.sandbox.envs.single import Response


def test_get_and_set_states(make_envs):
    envs = make_envs("2048", 3, 1, size=64)
    envs.reset(seed=0)
    envs.step([0, 1, 2])
    states = envs.get_states()
    there = [envs.step([3, 2, 1])[0] for _ in range(4)][-1]
    other = make_envs("2048", 3, 0, size=64)
    other.set_states(states)
    assert np.array_equal([other.step([3, 2, 1])[0] for _ in range(4)][-1], there)
    envs.set_states(states[:1], [2])
    assert envs.get_states()[2] == states[0]


def test_branch(make_envs):
    envs = make_envs("2048", 2, 1, size=64)
    envs.reset(seed=0)
    envs.step([0, 1])
    copies = envs.branch(3, num_workers=0)
    assert copies.get_states() == [state for state in envs.get_states() for _ in range(3)]
    copies.step([Response(f"<answer>{word}</answer>") for word in ("up", "right", "nonsense") * 2])
    assert copies.call("snapshot")[2].turn == 2
    ours, *_ = envs.step([0, 1])
    assert np.array_equal(copies.image(0), ours[0])
    assert np.array_equal(copies.image(4), ours[1])
    chance = envs.branch(8, num_workers=0, seed=1)
    chance.step([2] * 16)
    assert len({state.state for state in chance.get_states()[:8]}) > 2
    copies.close(), chance.close()


def test_branches_of_ended_episodes(make_envs):
    for mode in ("NextStep", "Disabled"):
        envs = make_envs("2048", 2, 0, size=64, max_episode_steps=2, autoreset_mode=mode)
        envs.reset(seed=0)
        envs.step([0, 1]), envs.step([1, 0])
        copies = envs.branch(2, num_workers=0)
        if mode == "Disabled":
            with pytest.raises(EpisodeEnded, match="environment 0 is over"):
                copies.step([0] * 4)
        else:
            *_, info = copies.step([0] * 4)
            assert info["turn"].tolist() == [0] * 4
        copies.close()


def test_branches_are_reproducible_across_resets(make_envs):
    envs = make_envs("2048", 2, 0, size=64, max_episode_steps=3)
    envs.reset(seed=0)
    envs.step([0, 1])
    seeds = []
    for _ in range(2):
        copies = envs.branch(2)
        for _ in range(6):
            *_, info = copies.step([0, 1, 2, 3])
        seeds.append(info["seed"].tolist())
        copies.close()
    assert seeds[0] == seeds[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_set_attr_survives_restarts_and_branches(make_envs, workers):
    envs = make_envs("2048", 4, workers, size=64)
    envs.set_attr("note", list("abcd"))
    envs.reset(seed=0)
    envs.set_attr("reward", RewardConfig(illegal=-5.0))
    assert envs.get_attr("note") == tuple("abcd")
    assert envs.step([Response("<answer>9</answer>")] * 4)[1].tolist() == [-5.0] * 4
    if workers:
        process = worker_process(envs, 1)
        process.kill()
        process.join()
        with pytest.warns(RuntimeWarning, match="resumes"):
            assert envs.step([Response("<answer>9</answer>")] * 4)[1].tolist() == [-5.0] * 4
        assert envs.get_attr("note") == tuple("abcd")
    copies = envs.branch(2, num_workers=0)
    assert copies.get_attr("note") == tuple("aabbccdd")
    assert copies.step([Response("<answer>9</answer>")] * 8)[1].tolist() == [-5.0] * 8
    copies.set_attr("note", "e")
    assert copies.get_attr("note") == ("e",) * 8
    assert envs.get_attr("note") == tuple("abcd")
    copies.close()
    for name, value, message in [
        ("game", 0, "'game': create another"),
        ("episode", 0, "'episode': use set_states"),
        ("np_random", 0, "'np_random': use the seed of reset"),
        ("reward", 1.0, "reward must be a RewardConfig"),
        ("step", 0, "'step': it is an internal attribute"),
        ("frames", 0, "internal attribute"),
        ("note", [1, 2], "got 2 values for 4 environments"),
    ]:
        with pytest.raises(UsageError, match=message):
            envs.set_attr(name, value)


def test_image_without_rendering(make_envs):
    drawn = make_envs("2048", 3, 0, size=64)
    blind = make_envs("2048", 3, 2, size=64, render=False)
    observations, _ = drawn.reset(seed=0)
    nothing, _ = blind.reset(seed=0)
    assert nothing.shape == (3, 0, 0, 3)
    assert blind.observation_space.contains(nothing)
    observations, *_ = drawn.step([0, 1, 2])
    blind.step([0, 1, 2])
    assert all(np.array_equal(blind.image(i), observations[i]) for i in range(3))
    assert all(np.array_equal(a, b) for a, b in zip(blind.render(), observations))
