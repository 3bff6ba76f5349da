"""Evaluations of a curriculum: the episodes' stages, resumed runs, the run folder."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from vlmgym.cli.main import main
from vlmgym.curriculum import Curriculum, CurriculumFile
from vlmgym.errors import InfrastructureError
from vlmgym.evaluation import Budget, EpisodeRecord, Hooks, evaluate, read_run
from vlmgym.policies import ModelPolicy, Reply, random_response
from vlmgym.rollout.turn import TURN_LIMIT

AT_ONCE, EPISODES = 4, 40
SETTINGS: dict[str, Any] = {"max_turns": 3, "workers": 0, "seed": 5}
TOML = f"""
max_concurrency = {AT_ONCE}

[[entries]]
game = "2048"
weight = 3
overrides = {{ size = 96 }}
by = "success"
measure = "played"
at_least = 1.0
window = 3
up = 0.6
down = 0.3
stages = [
    {{ name = "small", overrides = {{ rows = 3, columns = 3 }} }},
    {{ name = "whole" }},
    {{ name = "large", overrides = {{ rows = 6 }} }},
]

[[entries]]
game = "swap"
overrides = {{ size = 128, rows = 5, columns = 5 }}
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("curricula") / "my.toml"
    path.write_text(TOML)
    return path


@pytest.fixture(scope="module")
def curriculum(path: Path) -> Curriculum:
    return Curriculum.read(path)


@pytest.fixture(scope="module")
def whole(curriculum: Curriculum) -> list[EpisodeRecord]:
    return evaluate(curriculum, "random", EPISODES, **SETTINGS)


def facts(records: Iterable[EpisodeRecord]) -> list[Any]:
    """Return the fields of records that are the same in all runs."""
    responses = [[turn.response for turn in record.turns] for record in records]
    return [(r.index, r.seed, r.game, r.stage, response, r.score) for r, response in zip(records, responses)]


class Model(ModelPolicy):
    """A random policy that responds out of order and fails in episodes whose seed is in `fails`."""

    name = "model"
    transform = None
    counts_tokens = True

    def __init__(self, order: int = 0, fails: Iterable[int] = (), tokens: int | None = None) -> None:
        super().__init__()
        self.order, self.fails, self.tokens = random.Random(order), {*fails}, tokens
        self.most, self.begun = 0, set[int]()

    def set_running_episodes(self, episodes: int) -> None:
        self.most = max(self.most, episodes)

    async def respond(self, images: list[Any], prompt: Any) -> Reply:
        self.begun.add(prompt.seed)
        await asyncio.sleep(self.order.random() / 100)
        if prompt.seed in self.fails:
            raise InfrastructureError("the server is down")
        return Reply(random_response(prompt), self.tokens, self.tokens)


def test_stages_follow_from_earlier_results(curriculum: Curriculum, whole: list[EpisodeRecord]) -> None:
    assert [record.index for record in whole] == list(range(EPISODES))
    assert [record.seed for record in whole] == list(range(5, 5 + EPISODES))
    assert {record.stage for record in whole if record.game.id == "2048-v0"} == {"small", "whole", "large"}
    assert {record.stage for record in whole if record.game.id == "swap-v0"} == {None}
    for record in whole:
        progress = curriculum.begin()
        for before in whole[: max(0, record.index - AT_ONCE + 1)]:
            pick = curriculum.at(curriculum.entry_at(5, before.index), before.stage)
            progress = curriculum.after(progress, pick, curriculum.success(pick, before.turns))
        pick = curriculum.pick(progress, 5, record.index)
        assert (record.stage, record.game.game()) == (pick.stage, pick.game)


@pytest.mark.parametrize(("concurrency", "order"), [(1, 0), (3, 1), (64, 2)])
def test_stages_do_not_depend_on_concurrency_or_order(
    curriculum: Curriculum, whole: list[EpisodeRecord], concurrency: int, order: int
) -> None:
    model = Model(order)
    again = evaluate(curriculum, model, EPISODES, **SETTINGS, concurrency=concurrency)
    assert facts(again) == facts(whole)
    assert model.most == min(concurrency, AT_ONCE)


@pytest.mark.parametrize("cut", [1, 17])
def test_resumed_run_reaches_the_same_stages(curriculum: Curriculum, whole: list[EpisodeRecord], cut: int) -> None:
    # As if some episodes had still been running.
    earlier = whole[:cut] + [r for r in whole[cut + 1 : cut + AT_ONCE] if r.index % 2]
    assert facts(evaluate(curriculum, Model(), EPISODES, **SETTINGS, resume=earlier)) == facts(whole)


def test_failed_episode_blocks_later_stages_until_resumed(curriculum: Curriculum, whole: list[EpisodeRecord]) -> None:
    reasons: list[str] = []
    model = Model(fails=[5 + 9])
    part = evaluate(curriculum, model, EPISODES, **SETTINGS, hooks=Hooks(on_stop=reasons.append))
    assert reasons == ["episode 9 has no result, so later stages are unknown"]
    assert max(model.begun) == 5 + 9 + AT_ONCE - 1
    assert facts(part[:9]) == facts(whole[:9])
    assert part[9].status == "error"
    assert facts(evaluate(curriculum, Model(), EPISODES, **SETTINGS, resume=part)) == facts(whole)


def test_stages_by_episode_do_not_wait() -> None:
    entry = {"game": "2048", "overrides": {"size": 64}, "stages": [{"name": "a", "episodes": 7}, {"name": "b"}]}
    curriculum = Curriculum.from_file(CurriculumFile.model_validate({"entries": [entry]}))
    model = Model(fails=[5])
    records = evaluate(curriculum, model, 12, **SETTINGS)
    assert [record.stage for record in records] == ["a"] * 7 + ["b"] * 5
    assert [record.status for record in records] == ["error"] + [TURN_LIMIT] * 11
    assert model.most == 12


def test_stopped_run_does_not_wait_for_results(curriculum: Curriculum, whole: list[EpisodeRecord]) -> None:
    reasons: list[str] = []
    budget = Budget(budget_tokens=50)
    stopped = evaluate(
        curriculum, Model(tokens=1), EPISODES, **SETTINGS, budget=budget, hooks=Hooks(on_stop=reasons.append)
    )
    assert reasons == ["the budget of 50 tokens is used up"]
    assert "stopped" in {record.status for record in stopped}
    assert facts(evaluate(curriculum, Model(), EPISODES, **SETTINGS, resume=stopped)) == facts(whole)


# The command ----------------------------------------------------------------------------------------------------------

COMMAND = ["eval", "--max-turns", "3", "--workers", "0", "--seed", "5", "--videos", "0", "--no-report"]


def run(path: Path, *args: str) -> None:
    main([*COMMAND, "--curriculum", str(path), *args])


def test_command_plays_and_resumes_a_curriculum(
    path: Path, whole: list[EpisodeRecord], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    run(path, "--episodes", str(EPISODES), "--output-dir", str(folder))
    printed = capsys.readouterr()
    assert f"limited to {AT_ONCE} by max_concurrency" in printed.err
    made = read_run(folder)
    assert facts(sorted(made.episodes, key=lambda record: record.index)) == facts(whole)
    assert made.config.game_ids == ("2048-v0", "swap-v0")
    assert len(made.config.games) == 4
    of_swap = sum(record.game.id == "swap-v0" for record in whole)
    assert made.config.curriculum is not None
    assert made.config.curriculum.episodes == {"2048-v0": EPISODES - of_swap, "swap-v0": of_swap}
    assert Curriculum.from_file(CurriculumFile.model_validate(made.config.curriculum.file)) == Curriculum.read(path)
    summary = made.folder.read_summary()
    assert summary is not None
    for name, stage in summary.games["2048-v0"].stages.items():
        scores = [record.score or 0.0 for record in whole if record.stage == name]
        assert stage.episodes == len(scores)
        assert stage.score_mean == pytest.approx(sum(scores) / len(scores))
        assert f"stage {name}" in printed.out
    assert summary.games["swap-v0"].stages == {}
    assert summary.games["swap-v0"].score_stderr is not None
    assert (summary.games["2048-v0"].score_stderr, summary.games["2048-v0"].score_ci) == (None, None)
    assert ", all stages together" in printed.out

    lines = made.folder.episodes.read_bytes().splitlines(keepends=True)
    made.folder.episodes.write_bytes(b"".join(lines[:11]) + lines[11][:100])  # as if the run had been killed
    made.folder.summary.unlink()
    run(path, "--episodes", str(EPISODES), "--resume", str(folder))
    assert facts(sorted(read_run(folder).episodes, key=lambda record: record.index)) == facts(whole)


REFUSED: dict[tuple[str, ...], str] = {
    ("--games", "swap"): "--curriculum already names the games",
    ("--perception", "2"): "sets the difficulty of its games",
    ("--config", "rows=5"): "rows cannot be set for a curriculum",
    ("--config", "data=x.csv"): "no game of this curriculum takes data",
}


@pytest.mark.parametrize("args", REFUSED)
def test_options_that_contradict_a_curriculum(
    path: Path, tmp_path: Path, args: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        run(path, "--output-dir", str(tmp_path / "run"), *args)
    assert caught.value.code == 2
    assert REFUSED[args] in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_resume_needs_the_same_curriculum(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, other = str(tmp_path / "run"), tmp_path / "other.toml"
    run(path, "--episodes", "2", "--output-dir", folder)
    other.write_text(TOML.replace("up = 0.6", "up = 0.9"))
    for args, message in (
        (["--curriculum", str(other)], "curriculum.entries.0.up was 0.6 and is 0.9"),
        (["2048"], "it had a curriculum"),
    ):
        with pytest.raises(SystemExit) as caught:
            main([*COMMAND, *args, "--episodes", "2", "--resume", folder])
        assert caught.value.code == 2
        assert message in capsys.readouterr().err


def test_compare_uses_episodes_at_equal_stages(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "poor.py").write_text("def policy(images, prompts):\n    return ['no idea'] * len(prompts)\n")
    policies = {"good": "oracle", "bad": str(tmp_path / "poor.py:policy")}
    for name, policy in policies.items():
        run(path, "--episodes", "24", "--policy", policy, "--output-dir", str(tmp_path / name))
    capsys.readouterr()
    main(["compare", str(tmp_path / "good"), str(tmp_path / "bad"), "--output-dir", str(tmp_path / "c"), "--no-page"])
    runs = [{record.seed: record for record in read_run(tmp_path / name).episodes} for name in policies]
    apart = sum(runs[0][seed].stage != runs[1][seed].stage for seed in runs[0])
    assert apart > 0
    assert f"{apart} at different stages" in capsys.readouterr().out
    main([*COMMAND, "2048", "--size", "64", "--episodes", "2", "--output-dir", str(tmp_path / "alone")])
    with pytest.raises(SystemExit):
        main(["compare", str(tmp_path / "good"), str(tmp_path / "alone"), "--output-dir", str(tmp_path / "d")])
    assert "have different curricula" in capsys.readouterr().err
