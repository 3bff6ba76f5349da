"""Training runs of a few steps, by the command line: every way to train, resuming, and what is told where it fails."""

from __future__ import annotations

import importlib
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText

from tests.in_training.test_drawing_ahead import MANY, Signed, until_elsewhere
from tests.in_training.tiny import ALIKE, GAME, make_actor, make_checkpoint, make_player, questions, samples
from training.core.rollouts import start_rollouts
from training.core.states import SFT_STREAM, all_actions
from training.local.actor import Sample
from training.local.ahead import drawn_ahead
from training.local.checkpoint import last_checkpoint, save_checkpoint
from training.local.cold_start import supervised_step
from training.local.config import TrainConfig, read_config
from training.local.demonstrations import Demonstrations
from training.local.encoding import Encoder
from training.local.errors import TrainingError
from training.local.evaluation import measure
from training.local.held_out import HeldOut, look_at_cold_start, validation_episodes
from training.local.live_policy import LivePolicy
from training.local.rollout import Answer, roll_out
from training.local.run import TrainingRun
from training.local.train import main, memory_errors
from training.local.trainer import Trainer
from vlmgym import make_game
from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError
from vlmgym.policies.base import Reply
from vlmgym.records.episode import EpisodeRecord
from vlmgym.records.files import OutputError
from vlmgym.records.output_folder import OutputFolder
from vlmgym.records.run_folder import RunFolder
from vlmgym.rollout.episode import EpisodeRollout
from vlmgym.terminal import make_console

HERE = Path(__file__).parent
QUICK = ("--preset", str(HERE / "quick.args"))
SMALL = ("--size", "96", "--config", "rows=3", "columns=3", "goal=16")
EPISODES = ("--play.max-turns", "2", "--play.history", "1", "--play.history-images", "1")
NO_EPISODES = ("--evaluation.episodes", "0")
TAUGHT = ("--cold-start.steps", "2", "--cold-start.batch", "4", "--cold-start.gate", "0")
WAYS = {
    "grpo": (*SMALL, *NO_EPISODES, "--update.kl", "0.1"),
    "grpo, updates": (
        *(*SMALL, *NO_EPISODES, "--grpo.epochs", "2", "--grpo.minibatches", "2"),
        *("--update.clip-high", "0.1"),
    ),
    "grpo, episodes": (*SMALL, *EPISODES, *NO_EPISODES, "--grpo.gamma", "0.9", "--update.micro-batch", "4"),
    "dr grpo": (*SMALL, *NO_EPISODES, "--grpo.no-scale", "--update.loss-over", "constant", "--update.entropy", "0.01"),
    "ppo": (*SMALL, *EPISODES, *NO_EPISODES, "--algorithm", "ppo", "--answers", "4", "--ppo.entropy", "0.01"),
    "ppo, tokens": (
        *(*SMALL, *NO_EPISODES, "--algorithm", "ppo", "--answers", "4", "--ppo.over", "tokens"),
        *("--update.kl", "0.1", "--update.kl-target", "0.001", "--ppo.token-lam", "0.95"),
    ),
    "lora": (*SMALL, *NO_EPISODES, "--lora", "4", "--checkpointing", "--update.kl", "0.1"),
    "bfloat16": (*SMALL, *NO_EPISODES, "--dtype", "bfloat16", "--lora", "4"),
    "blank": (*SMALL, *NO_EPISODES, "--blank"),
    "mixture": ("--games", "2048", "swap", "--reasoning", "1", "--size", "128", "--answers", "12"),
    "curriculum": ("--curriculum", str(HERE / "curriculum.toml"), *EPISODES, *NO_EPISODES),
}
"""Options of each way to train, of a model that answers already."""
CHANCE: Any = importlib.import_module("benchmarks.learning.chance")
NOVEL: Any = importlib.import_module("benchmarks.learning.novel")
TO_RESUME = ("ppo, tokens", "lora", "curriculum")

Run = Callable[..., Path]


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_player(tmp_path_factory.mktemp("player"))


@pytest.fixture(scope="module")
def finished(player: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The folder of the finished run of a way to train; each is run once."""
    done: dict[str, Path] = {}

    def run(way: str) -> Path:
        if way not in done:
            done[way] = tmp_path_factory.mktemp("runs") / "run"
            main([*QUICK, "--model", str(player), *WAYS[way], "--output-dir", str(done[way])])
        return done[way]

    return run


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def curve(run: Path) -> list[dict[str, float]]:
    """The numbers of each step but those that a clock says."""
    lines = (run / "curve.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.startswith("seconds")} for line in lines]


def rollouts(run: Path) -> list[EpisodeRecord]:
    files = sorted((run / "rollouts").glob("step_*.jsonl"))
    return [EpisodeRecord.model_validate_json(line) for file in files for line in file.read_text().splitlines()]


def failing(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    """Exit code and last line of standard error of a command that fails."""
    with pytest.raises(SystemExit) as raised:
        main(args)
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return int(raised.value.code or 0), said.strip().splitlines()[-1]


def images_shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """All images that models get from now on."""
    shown: list[Any] = []
    encode = Encoder.encode

    def kept(encoder: Encoder, text: str, images: Sequence[Any]) -> Any:
        shown.extend(images)
        return encode(encoder, text, images)

    monkeypatch.setattr(Encoder, "encode", kept)
    return shown


def demonstrations(config: TrainConfig, checkpoint: Path) -> Demonstrations:
    """What a cold start learns from."""
    curriculum = config.make_curriculum()
    return Demonstrations(config, curriculum, curriculum.begin(), Encoder(checkpoint))


# Options --------------------------------------------------------------------------------------------------------------


def test_a_command_line_overrides_its_preset() -> None:
    config = read_config(["--config", "rows=4", "theme=light", "--config", "columns=5", "--steps", "7"])
    (game,) = config.make_curriculum().games
    assert (game.config.rows, game.config.columns, game.config.theme) == (4, 5, "light")
    assert (game.config.goal, game.config.size) == (16, 96)  # as the preset says
    assert (config.steps, config.answers) == (7, 64)
    with pytest.raises(UsageError, match="rows is set twice"):
        read_config(["--config", "rows=4", "rows=5"]).make_curriculum()


def test_the_config_fields_of_a_users_own_file_are_kept_whatever_is_played(tmp_path: Path) -> None:
    (tmp_path / "mine.args").write_text("--config rows=6 columns=6")
    (game,) = read_config(["--preset", str(tmp_path / "mine.args"), "--games", "swap"]).make_curriculum().games
    assert (game.name, game.config.rows) == ("swap", 6)
    (game,) = read_config(["--preset", "tiny", "--games", "swap", "--size", "256"]).make_curriculum().games
    assert (game.name, game.config.rows) == ("swap", 8)


def test_a_preset_is_for_a_tiny_model_unless_one_is_named() -> None:
    assert read_config([]).model.lora == 0
    assert read_config(["--model", "Qwen/Qwen3-VL-4B-Instruct"]).model.lora == 64
    assert read_config(["--model", "Qwen/Qwen3-VL-4B-Instruct", "--preset", "1x80gb"]).answers > 64


# Ways to train --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_way_to_train(finished: Run, player: Path, way: str) -> None:
    run = finished(way)
    rows = curve(run)
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(math.isfinite(value) for row in rows for value in row.values())
    assert max(row["grad_norm"] for row in rows) > 0, "nothing could be learned, so nothing is tested"
    ppo = way.startswith("ppo")
    assert all(("explained" in row) == ("value_loss" in row) == ppo for row in rows)
    assert all(("kl" in row) == ("--update.kl" in WAYS[way]) for row in rows)
    assert any(row["clipped"] > 0 for row in rows) == (ppo or way == "grpo, updates")

    copies, positions = (1, 4) if ppo else (3, 4 if way == "mixture" else 2)
    records = rollouts(run)
    assert [record.seed for record in records] == list(range(3 * positions * copies))
    starts = [record.turns[0].state for record in records]
    assert all(starts[place] == starts[place - place % copies] for place in range(len(starts)))
    assert all(1 <= len(record.turns) <= record.max_turns for record in records)

    result = read(run / "result.json")
    assert set(result) == {
        *("final_reward", "total_steps", "total_episodes", "before", "after", "seconds", "paths"),
    }
    assert (result["total_steps"], result["total_episodes"]) == (3, len(records))
    totals = [sum(turn.reward.total for turn in record.turns) for record in records]
    assert result["final_reward"] == pytest.approx(np.mean(totals))
    for when in ("before", "after"):
        assert result[when]["states"]["answers"] == 4
    assert ("report" in result["paths"]) == (way == "mixture")
    assert {"model", "curve", "rollouts"} <= set(result["paths"])
    assert all(Path(path).exists() for path in result["paths"].values())

    trained, before = load_file(run / "model" / "model.safetensors"), load_file(player / "model.safetensors")
    assert set(trained) == set(before)
    assert any((trained[name].float() - before[name]).abs().max() > 1e-4 for name in before)
    assert all(tensor.isfinite().all() for tensor in trained.values())
    AutoModelForImageTextToText.from_pretrained(run / "model")
    checkpoints = sorted((run / "checkpoints").glob("step_*"))
    assert [folder.name for folder in checkpoints] == ["step_000002", "step_000003"]
    weights = "adapter/adapter_model.safetensors" if "--lora" in WAYS[way] else "model/model.safetensors"
    for folder in checkpoints:
        assert [str(path.relative_to(folder)) for path in folder.rglob("*.safetensors")] == [weights]
    trainer = torch.load(checkpoints[-1] / "trainer.pt", weights_only=True)
    assert (trainer["critic"] is not None) == ppo


def test_whole_episodes_are_measured_as_any_other_policys(finished: Run) -> None:
    run = finished("mixture")
    result = read(run / "result.json")
    for when in ("before", "after"):
        folder = run / "evaluation" / when
        lines = (folder / "episodes.jsonl").read_text().splitlines()
        records = [EpisodeRecord.model_validate_json(line) for line in lines]
        assert {record.game.id for record in records} == set(result[when]["episodes"]) == {"2048-v0", "swap-v0"}
        for record in records:
            assert result[when]["episodes"][record.game.id]["score"] == record.score
            assert record.seed >= 1_000_000
        assert "<html" in (folder / "report.html").read_text()
    assert Path(result["paths"]["report"]).exists()


def test_a_blank_run_never_shows_an_image(player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = images_shown(monkeypatch)
    args = [*QUICK, "--model", str(player), *SMALL, *EPISODES, *TAUGHT, "--blank", "--steps", "1"]
    main([*args, "--output-dir", str(tmp_path / "run")])
    assert len(shown) > 50
    assert all((image == 128).all() for image in shown)


def test_what_the_gate_of_the_cold_start_reads_is_not_measured_on(
    player: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = read_config([*QUICK, "--size", "96"])
    curriculum = config.make_curriculum()
    place: Any = (config, curriculum, curriculum.begin(), 16)
    shown = images_shown(monkeypatch)
    assert look_at_cold_start(make_actor(player), *place).answers == 16
    looked_at = {image.tobytes() for image in shown}
    measured = {image.tobytes() for episode in validation_episodes(*place) for image in episode.observation.images}
    assert min(len(looked_at), len(measured)) > 10
    assert not looked_at & measured


@pytest.mark.parametrize("history", ["0", "1"])
def test_the_critic_judges_where_an_episode_was_cut_off_as_it_would_the_next_turn(
    player: Path, tmp_path: Path, history: str
) -> None:
    def played(limit: int) -> tuple[Trainer, list[EpisodeRollout], list[Answer]]:
        args = [*QUICK, "--model", str(player), *SMALL, "--algorithm", "ppo", "--play.max-turns", str(limit)]
        args += ["--play.history", history, "--play.history-images", history, "--states.moves", "0", "2"]
        config = read_config(args)
        trainer = Trainer(config, TrainingRun(tmp_path))
        assert trainer.actor.critic is not None
        torch.nn.init.ones_(trainer.actor.critic.weight)
        where = (trainer.curriculum, trainer.progress, 0, range(4), 1)
        episodes = list(start_rollouts(*where, config.play, config.states, config.reward))
        return trainer, episodes, roll_out(trainer.actor, episodes, config.rollout, (0,)).answers

    trainer, episodes, _ = played(2)
    found = trainer._expected_beyond(episodes)
    third = [answer for answer in played(3)[2] if answer.turn.turn == 3]
    _, values = trainer._measure(trainer.actor, [answer.sample for answer in third])
    assert found == pytest.approx({(one.row, one.copy): value[0] for one, value in zip(third, values)}, abs=ALIKE)
    assert len(found) == 4
    assert np.std(list(found.values())) > 100 * ALIKE


def test_each_answer_is_measured_as_if_alone(player: Path, tmp_path: Path) -> None:
    args = [*QUICK, "--model", str(player), *SMALL, "--algorithm", "ppo", "--update.micro-batch", "2"]
    trainer = Trainer(read_config(args), TrainingRun(tmp_path))
    assert trainer.actor.critic is not None
    torch.nn.init.ones_(trainer.actor.critic.weight)
    some = samples(trainer.actor, (5, 40, 1, 90, 9))
    found = trainer._measure(trainer.actor, some)
    for sample, logprobs, values in zip(some, *found, strict=True):
        with torch.no_grad():
            alone = trainer.actor.measure([sample])
        assert alone.values is not None
        np.testing.assert_allclose(logprobs, alone.logprobs[0], atol=ALIKE)
        np.testing.assert_allclose(values, alone.values[0], atol=ALIKE)


def test_a_game_at_two_levels_is_measured_at_both(player: Path, tmp_path: Path) -> None:
    config = read_config([*QUICK, *SMALL, "--evaluation.states", "0", "--evaluation.turns", "1"])
    games = [make_game("2048", size=96, rows=3, columns=3, goal=goal) for goal in (16, 32)]
    actor = make_actor(player)
    found = measure(actor, config, Curriculum.of([*games, games[0]]), 0, tmp_path / "before", make_console(stderr=True))
    assert set(found["episodes"]) == {"2048-v0", "2048-v0 (2)"}
    for folder, game in zip(("before", "before-2"), games):
        (line,) = (tmp_path / folder / "episodes.jsonl").read_text().splitlines()
        assert EpisodeRecord.model_validate_json(line).game.config["goal"] == game.config.goal


def test_a_prompt_of_an_episode_repeats_the_turn_before(finished: Run) -> None:
    first, last = max(rollouts(finished("grpo, episodes")), key=lambda record: len(record.turns)).turns
    assert first.response in last.prompt
    assert first.prompt_tokens is not None
    assert last.prompt_tokens is not None
    assert last.prompt_tokens > first.prompt_tokens + 9, "the image of the turn before has 9 tokens"


def test_stages_of_a_curriculum_follow_and_are_recorded(finished: Run) -> None:
    # The first stage ends after three groups; those of a step, two here, begin together.
    assert [record.stage for record in rollouts(finished("curriculum"))] == ["bright"] * 12 + ["dark"] * 6


def test_a_target_moves_the_weight_of_the_divergence(finished: Run) -> None:
    weights = [row["kl_weight"] for row in curve(finished("ppo, tokens"))]
    far = [row["kl"] > 0.001 for row in curve(finished("ppo, tokens"))]
    for before, after, is_far in zip([0.1, *weights], weights, far):
        assert (after > before) == is_far
        assert 0.98 * before <= after <= 1.02 * before


def test_a_tiny_model_is_made_and_taught_where_none_is_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    main([*QUICK, *SMALL, *NO_EPISODES, *TAUGHT, "--states.informative", "--steps", "1", "--output-dir", str(run)])
    cold, made = last_checkpoint(run / "cold_start"), load_file(run / "tiny" / "model.safetensors")
    assert cold is not None
    taught = load_file(cold / "model" / "model.safetensors")
    assert any((taught[name] - made[name]).abs().max() > 1e-4 for name in made)
    assert read(run / "result.json")["total_steps"] == 1
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert list((run / "tensorboard").glob("events*"))


def test_where_episodes_are_played_the_cold_start_knows_prompts_after_an_answer(player: Path) -> None:
    said: list[list[str]] = []
    for played in (["--play.max-turns", "3"], ["--cold-start.answers-before", "1"], []):
        teaching = demonstrations(read_config([*QUICK, "--model", str(player), *SMALL, *played]), player)
        said.append([teaching.encoder.text(teaching.draw(row).prompt.ids.tolist()) for row in range(24)])
    episodes, asked, never = (sum("was not played" in prompt for prompt in prompts) for prompts in said)
    assert 1 <= episodes <= 12
    assert 1 <= asked <= 12
    assert never == 0


def test_demonstrations_are_the_same_from_another_process(player: Path) -> None:
    teaching = demonstrations(read_config([*QUICK, "--model", str(player), *SMALL]), player)
    with drawn_ahead(Signed(teaching.batch), MANY) as drawn:
        begun = until_elsewhere(drawn)
    theirs, ours = begun[-1][1], teaching.batch(len(begun) - 1)
    assert len({sample.prompt.patches.numpy().tobytes() for sample in ours}) > 1
    for one, other in zip(theirs, ours, strict=True):
        assert (one.response, one.prompt.end) == (other.response, other.prompt.end)
        for name in ("ids", "patches", "grids"):
            assert torch.equal(getattr(one.prompt, name), getattr(other.prompt, name))


# Novel positions ------------------------------------------------------------------------------------------------------


def test_positions_that_a_training_drew_are_drawn_again(
    finished: Run, player: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = (*QUICK, "--model", str(player), *WAYS["grpo"])
    states = {GAME.from_json(json.dumps(record.turns[0].state)) for record in rollouts(finished("grpo"))}
    assert NOVEL.images_drawn(args, 0, 6) == {NOVEL.digest(GAME.images(state)) for state in states}

    teaching, shown = demonstrations(read_config(args), player), images_shown(monkeypatch)
    for row in range(6):
        teaching.draw(row)
    assert NOVEL.images_drawn(args, SFT_STREAM, 6) == {NOVEL.digest([image]) for image in shown}


def test_positions_are_novel_that_neither_cold_start_nor_training_drew(player: Path) -> None:
    cold, after = (*QUICK, *SMALL, *TAUGHT), (*QUICK, *SMALL, "--model", str(player))
    config = read_config(cold)
    curriculum = config.make_curriculum()
    place = (curriculum, curriculum.begin())

    def episodes(stream: int, count: int) -> list[EpisodeRollout]:
        return list(
            start_rollouts(*place, config.seed + stream, range(count), 1, config.play, config.states, config.reward)
        )

    assert NOVEL.novel(episodes(SFT_STREAM, 8), cold, after) == NOVEL.novel(episodes(0, 6), cold, after) == []
    held_out = validation_episodes(config, *place, 40)
    kept = NOVEL.novel(held_out, cold, after)
    known = {episode.live.episode.state for stream in (SFT_STREAM, 0) for episode in episodes(stream, 8)}
    assert {episode.prompt_id for episode in held_out} >= {episode.prompt_id for episode in kept}
    assert len(kept) > 20
    assert not known & {episode.live.episode.state for episode in kept}


def test_what_is_reached_without_looking_is_what_such_answers_earn() -> None:
    config = read_config((*QUICK, *SMALL))
    curriculum = config.make_curriculum()
    rewards = []
    for action in all_actions(GAME):
        episodes = validation_episodes(config, curriculum, curriculum.begin(), 12)
        reply = Reply(f"<answer>{GAME.format(action)}</answer>")
        rewards.append([episode.respond(reply).reward.total for episode in episodes])
    constant = np.mean(rewards, axis=1)
    random, best = CHANCE.without_looking(validation_episodes(config, curriculum, curriculum.begin(), 12))
    assert (random, best) == pytest.approx((constant.mean(), constant.max()))
    assert random < best


def test_an_interval_is_told_where_there_is_one() -> None:
    found = partial(HeldOut, answers=2, perception=None, format=1.0)
    assert found(reward=0.5, interval=None).words() == "reward 0.500 over 2 held-out positions, 100% in form"
    assert found(reward=0.5, interval=(0.25, 0.75)).words().startswith("reward 0.500 (0.250 to 0.750) over 2 ")


# Resuming -------------------------------------------------------------------------------------------------------------


def assert_same(run: Path, other: Path) -> None:
    """Numbers, weights, rollouts and result of two runs are equal, bit for bit, but for what a clock says."""
    assert curve(run) == curve(other)
    weights, others = load_file(run / "model" / "model.safetensors"), load_file(other / "model" / "model.safetensors")
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    assert [record.turns for record in rollouts(run)] == [record.turns for record in rollouts(other)]
    results = read(run / "result.json"), read(other / "result.json")
    for name in ("final_reward", "total_steps", "total_episodes"):
        assert results[0][name] == results[1][name]
    assert [result[when]["states"] for when in ("before", "after") for result in results[:1]] == [
        result[when]["states"] for when in ("before", "after") for result in results[1:]
    ]


@pytest.mark.parametrize("way", TO_RESUME)
def test_a_run_that_goes_on_is_the_run_that_was_never_stopped(
    finished: Run, player: Path, tmp_path: Path, way: str
) -> None:
    whole, parts = finished(way), tmp_path / "run"
    main([*QUICK, "--model", str(player), *WAYS[way], "--steps", "2", "--output-dir", str(parts)])
    main(["--resume", str(parts), "--steps", "3"])
    assert_same(parts, whole)


def test_a_run_that_was_killed_goes_on(player: Path, tmp_path: Path) -> None:
    args = [*QUICK, "--model", str(player), *SMALL, *NO_EPISODES, *TAUGHT, "--update.kl", "0.1"]
    args += ["--steps", "4", "--checkpoint-interval", "2"]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    command = [sys.executable, "-m", "training.local.train", *args, "--output-dir", str(killed)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=HERE.parents[1])
    deadline = time.monotonic() + 300
    while not (killed / "curve.jsonl").exists() or len(curve(killed)) < 3:
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (killed / "result.json").exists()
    with (killed / "curve.jsonl").open("a") as file:
        file.write('{"step": 99, "rew')  # a line that was torn
    part = killed / "checkpoints" / ".step_000004.part"
    if not part.exists():
        OutputFolder(part.parent).make_temporary(part)
    (part / "model").mkdir(exist_ok=True)
    main(["--resume", str(killed)])
    main([*args, "--output-dir", str(whole)])
    assert_same(killed, whole)
    kept = sorted(path.name for path in (killed / "checkpoints").iterdir())
    assert kept == [".vlmgym.jsonl", "step_000002", "step_000004"]


def test_a_finished_run_can_be_made_longer(finished: Run, tmp_path: Path) -> None:
    longer = tmp_path / "run"
    shutil.copytree(finished("blank"), longer)
    torn = longer / "before.json"
    torn.write_text(torn.read_text()[:20])
    main(["--resume", str(longer), "--steps", "4"])
    assert [row["step"] for row in curve(longer)] == [1, 2, 3, 4]
    assert curve(longer)[:3] == curve(finished("blank"))
    assert read(longer / "result.json")["before"] == read(finished("blank") / "result.json")["before"]


def test_what_a_run_is_resumed_with_is_kept_and_may_be_what_memory_needs(
    finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished("blank"), run)
    main(["--resume", str(run), "--steps", "4", "--update.micro-batch", "1", "--rollout.batch", "2", "--checkpointing"])
    config = TrainingRun.reopen(run, ["--resume", str(run)])[1]
    kept = (config.steps, config.update.micro_batch, config.rollout.batch, config.model.checkpointing)
    assert kept == (4, 1, 2, True)
    assert failing(capsys, "--resume", str(run), "--update.lr", "0.5")[0] == 2
    TrainingRun.reopen(run, ["--resume", str(run)])  # what was refused is not kept


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--seed", "1"), "seed was 0 and is 1"),
        (("--update.lr", "0.5"), "update.lr was 0.001 and is 0.5"),
        (("--algorithm", "ppo"), "algorithm was 'grpo' and is 'ppo'"),
        (("--config", "similarity=0.5"), "games.0.config.similarity was 0.1 and is 0.5"),
    ],
)
def test_options_that_decide_what_is_learned_stay(
    finished: Run, capsys: pytest.CaptureFixture[str], args: Sequence[str], message: str
) -> None:
    run = finished("blank")
    code, said = failing(capsys, "--resume", str(run), *args)
    assert code == 2
    assert said == f"error: {run} was a run with other options, so it cannot be resumed: {message}"


@pytest.mark.parametrize(
    ("way", "file", "now", "message"),
    [
        ("blank", "quick.args", ("--update.lr 1e-3", "--update.lr 2e-3"), "update.lr was 0.001 and is 0.002"),
        (
            "curriculum",
            "curriculum.toml",
            ("episodes = 3", "episodes = 4"),
            "entries.0.stages.0.episodes was 3 and is 4",
        ),
    ],
)
def test_a_file_that_a_run_began_with_stays(
    finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str, file: str, now: Any, message: str
) -> None:
    run, changed = tmp_path / "run", tmp_path / file
    shutil.copytree(finished(way), run)
    changed.write_text((HERE / file).read_text())
    options = (run / "options.json").read_text()
    (run / "options.json").write_text(options.replace(str(HERE / file), str(changed)))
    TrainingRun.reopen(run, [])  # it lies elsewhere, and says the same
    changed.write_text(changed.read_text().replace(*now))
    code, said = failing(capsys, "--resume", str(run))
    assert code == 2
    assert said.startswith(f"error: {run} was a run with other options, so it cannot be resumed: ")
    assert said.endswith(message)


# Failures -------------------------------------------------------------------------------------------------------------


FULL = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


@pytest.mark.parametrize("error", [FULL, RuntimeError("CUDA error: out of memory")])
def test_where_a_gpu_has_no_room_it_is_said_what_to_lower(
    player: Path, monkeypatch: pytest.MonkeyPatch, error: RuntimeError
) -> None:
    def to(*_: Any) -> None:
        raise error

    monkeypatch.setattr(torch.nn.Module, "to", to)
    with pytest.raises(TrainingError, match="the memory is too small: give a lower"), memory_errors():
        make_actor(player)


@pytest.mark.parametrize("fill", [partial(torch.empty, 2**60, dtype=torch.uint8), partial(np.empty, 2**60, np.uint8)])
def test_where_memory_is_used_up_it_is_said_what_to_lower(fill: Callable[[], Any]) -> None:
    with pytest.raises(TrainingError, match="the memory is too small: give a lower"), memory_errors():
        fill()


def test_a_loss_that_is_no_number_stops_and_the_last_checkpoint_is_good(
    player: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    args = [*QUICK, "--model", str(player), *SMALL, *NO_EPISODES, "--steps", "20", "--output-dir", str(run)]
    code, said = failing(capsys, *args, "--update.lr", "1e2", "--update.weight-decay", "1", "--evaluation.states", "0")
    assert code == 1
    assert said.startswith("error: the gradient is not finite: lower --update.lr (of PPO --ppo.lr); ")
    last = last_checkpoint(run / "checkpoints")
    assert last is not None
    assert said.endswith(f"; the last checkpoint is {last}")
    actor = make_actor(last / "model")
    assert actor.measure(samples(actor, (5, 9))).logprobs.isfinite().all()
    assert not (run / "result.json").exists()


def test_no_checkpoint_is_written_of_a_model_that_a_step_has_ruined(
    player: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [*QUICK, "--model", str(player), *SMALL, *NO_EPISODES, "--steps", "1", "--output-dir", str(tmp_path / "run")]
    code, said = failing(capsys, *args, "--update.lr", "1e30", "--update.weight-decay", "1", "--evaluation.states", "0")
    assert code == 1
    assert said.startswith("error: after step 1 the model gives no numbers: lower --update.lr")
    assert said.endswith("; there is no checkpoint yet")
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert not (tmp_path / "run" / "model").exists()


def test_what_ends_an_evaluation_is_told_with_how_the_training_goes_on(
    player: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(*_: Any) -> Any:
        raise TrainingError("no more")

    monkeypatch.setattr(LivePolicy, "_ask", ask)
    run = tmp_path / "run"
    args = [*QUICK, "--model", str(player), *SMALL, "--evaluation.states", "0", "--output-dir", str(run)]
    told = f"error: no more; --resume {run} begins anew, as there is no checkpoint yet"
    assert failing(capsys, *args) == (1, told)


def test_a_cold_start_that_taught_nothing_is_not_gone_on_from(
    player: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [*QUICK, "--model", str(player), *SMALL, *TAUGHT[:-1], "0.9", "--output-dir", str(tmp_path / "run")]
    code, said = failing(capsys, *args)
    assert code == 1
    assert said.startswith("error: the cold start taught too little, and --cold-start.gate asks for 90%: reward ")
    assert said.endswith("begin anew with more --cold-start.steps or another --cold-start.lr")
    assert not (tmp_path / "run" / "rollouts").exists()


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Weights & Biases without an account, which reads its settings anew afterwards."""
    module = pytest.importorskip("wandb")
    for name in ("WANDB_API_KEY", "WANDB_MODE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"SILENT": "true", "CONSOLE": "off", "ERROR_REPORTING": "false"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    yield module
    module.teardown()


def test_wandb_gets_the_numbers_of_all_steps_under_one_name(
    player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wandb: Any
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = tmp_path / "run"
    main([*QUICK, "--model", str(player), *SMALL, *NO_EPISODES, "--wandb", "games", "--output-dir", str(run)])
    time.sleep(1.1)  # its folders are named by the second
    main(["--resume", str(run), "--steps", "4"])
    wandb.teardown()  # all is written now
    name = (run / "wandb_id").read_text()
    files = sorted(run.glob(f"wandb/offline-run-*-{name}/run-{name}.wandb"))
    first, second = (file.read_bytes() for file in files)
    assert b"perception_weight" in first, "the run's configuration is kept, too"
    for row in curve(run):
        kept, other = (second, first) if row["step"] == 4 else (first, second)
        assert json.dumps(row["entropy"]).encode() in kept
        assert json.dumps(row["entropy"]).encode() not in other


def test_wandb_that_is_not_installed_is_told_before_anything_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    code, said = failing(capsys, *QUICK, "--wandb", "games", "--output-dir", str(tmp_path / "run"))
    assert (code, said[:26]) == (2, "error: --wandb needs wandb")
    assert "run pip install -e '.[log]' in the folder of vlmgym" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("wandb")
def test_wandb_that_does_not_take_the_run_is_told_before_anything_is_learned(
    player: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    run = tmp_path / "run"
    code, said = failing(capsys, *QUICK, "--model", str(player), *SMALL, "--wandb", "games", "--output-dir", str(run))
    assert code == 2
    assert said.startswith("error: Weights & Biases refuses the run: No API key")
    assert not (run / "before.json").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--games", "caption", *QUICK), "caption keeps 1 of 16 questions for validation, but --evaluation.states"),
        (
            ("--games", "geospot", *QUICK, "--cold-start.steps", "1", "--evaluation.states", "0", *NO_EPISODES),
            "the actions of geospot cannot be enumerated, as informative states and the greedy",
        ),
        (("--preset", "huge"), "there is no preset 'huge'; the presets are 1x24gb, 1x80gb, tiny, or a file of options"),
        (("--model", "./no/where", *QUICK), "no folder ./no/where"),
        (("--games", "chess", *QUICK), "unknown game 'chess'"),
        (("--curriculum", "nowhere.toml", *QUICK), "nowhere.toml is neither a file nor"),
        (("--resume", "nowhere"), "nowhere holds no training run"),
        (("--rollout.temperature", "0", *QUICK), "rollouts need a temperature above 0"),
        (("--grpo.group", "1", *QUICK), "a group has at least 2 responses, not 1"),
        (("--answers", "7", *QUICK), "answers are a multiple of the group of 3, not 7"),
        (("--answers", "0", *QUICK), "answers is at least 1, not 0"),
        (
            ("--algorithm", "ppo", "--update.clip-high", "0.3", *QUICK),
            "--update.clip-high is GRPO's: with PPO give --ppo.clip instead",
        ),
        (("--ppo.lr", "1e-4", *QUICK), "--ppo.lr is PPO's: leave it out, or give --algorithm ppo"),
        (("--algorithm", "ppo", "--grpo.gamma=0.9", *QUICK), "--grpo.gamma is GRPO's: leave it out, or give --algo"),
        (
            ("--algorithm", "ppo", "--update.lr", "1e-3", "--preset", "tiny"),
            "the learning rate of PPO is --ppo.lr, 5e-05: give another, and leave out --update.lr",
        ),
        (("--grpo.minibatches", "7", *QUICK), "grpo.minibatches is at most the number of answers of a step, 6, not 7"),
        (
            ("--algorithm", "ppo", "--ppo.minibatches", "7", *QUICK),
            "ppo.minibatches is at most the number of answers of a step, 6, not 7",
        ),
        (("--games", "2048", "--curriculum", "2048", *QUICK), "a curriculum says which games are played: leave out"),
        (
            ("--tiny.layers", "2", "--model", "a/b", *QUICK),
            "a model that is named has its size: leave out --tiny",
        ),
        (("--reward.illegal", "nan", *QUICK), "reward: "),
        (("--update.lr", "nan", *QUICK), "lr is a number, at least 0, not nan"),
        (("--update.grad-norm", "0", *QUICK), "grad_norm is a number, more than 0, not 0.0"),
        (("--update.betas", "0.9", "1", *QUICK), "betas are at least 0 and less than 1, not (0.9, 1.0)"),
        (("--ppo.lr", "-1", *QUICK), "lr is a number, at least 0, not -1.0"),
        (("--grpo.gamma", "7", *QUICK), "gamma is 0 to 1, not 7.0"),
        (("--rollout.temperature", "inf", *QUICK), "temperature is a number, at least 0, not inf"),
        (("--cold-start.lr", "0", *QUICK), "lr is a number, more than 0, not 0.0"),
        (("--seed", str(2**63), *QUICK), "a seed is at least 0 and less than 2^63, not 9223372036854775808"),
        (("--rollouts-every", "-1", *QUICK), "rollouts_every is at least 0, not -1"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(
    args: Sequence[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = () if "--resume" in args else ("--output-dir", str(tmp_path / "run"))
    code, said = failing(capsys, *args, *out)
    assert code == 2
    assert said.startswith(f"error: {message}")


def test_a_folder_that_cannot_be_used_is_told(
    finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = finished("blank")
    code, said = failing(capsys, *QUICK, "--output-dir", str(done))
    assert (code, said) == (2, f"error: {done} holds a training run: --resume it, or choose another --output-dir")
    (tmp_path / "file").write_text("")
    assert failing(capsys, *QUICK, "--output-dir", str(tmp_path / "file"))[1].endswith(
        "/file is a file: choose a folder"
    )


@pytest.mark.parametrize(
    "theirs",
    ["notes.txt", "options.json", "curve.png", "checkpoints/step_000002/model.safetensors", "model/x", ".vlmgym.jsonl"],
)
def test_a_folder_of_others_is_not_trained_in(tmp_path: Path, capsys: pytest.CaptureFixture[str], theirs: str) -> None:
    path = tmp_path / "run" / theirs
    path.parent.mkdir(parents=True)
    path.write_text("theirs")
    assert failing(capsys, *QUICK, "--output-dir", str(tmp_path / "run"))[0] == 2
    assert [file for file in (tmp_path / "run").rglob("*") if file.is_file()] == [path]
    assert path.read_text() == "theirs"


@pytest.mark.parametrize(
    "theirs", ["curve.png", "rollouts/step_000004.jsonl", "model/notes", "checkpoints/.step_000004.part/x"]
)
def test_a_run_is_not_resumed_over_files_of_others(
    finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], theirs: str
) -> None:
    shutil.copytree(finished("blank"), run := tmp_path / "run")
    if theirs == "curve.png":
        OutputFolder(run).remove(run / theirs)
    path = run / theirs
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("theirs")
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    code, said = failing(capsys, "--resume", str(run), "--steps", "4")
    assert code == 2
    assert "was not written by vlmgym" in said
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before


def test_a_command_that_could_not_begin_can_be_corrected_in_the_same_folder(
    player: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [*QUICK, *SMALL, *NO_EPISODES, "--steps", "1", "--output-dir", str(tmp_path / "run")]
    code, said = failing(capsys, *args, *TAUGHT, "--seed", "5", "--device", "banana")
    assert (code, said[:48]) == (2, "error: the model cannot go to the device banana:")
    assert not list((tmp_path / "run").iterdir())
    assert failing(capsys, *args, "--model", str(tmp_path))[0] == 2
    code, said = failing(capsys, *args, "--model", str(player), *TAUGHT[:-1], "0.9")
    assert (code, said[:37]) == (1, "error: the cold start taught too litt")
    main([*args, "--model", str(player)])


def test_options_that_a_run_cannot_be_resumed_with_are_not_kept(
    finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished("blank"), run := tmp_path / "run")
    options = (run / "options.json").read_bytes()
    assert failing(capsys, f"--resume={run}", "--device", "banana")[0] == 2
    assert (run / "options.json").read_bytes() == options
    for _ in range(2):
        main([f"--resume={run}", "--keep", "3"])
    assert read(run / "options.json") == [*json.loads(options), "--keep", "3"]


def test_a_run_goes_on_in_its_own_folder_and_in_one_process(
    finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = finished("blank")
    code, said = failing(capsys, "--resume", str(done), "--output-dir", str(tmp_path / "elsewhere"))
    assert (code, said) == (2, "error: a run goes on in its own folder: leave out --output-dir beside --resume")
    with RunFolder(done).reserved():
        code, said = failing(capsys, "--resume", str(done))
    assert (code, said) == (1, f"error: another run is writing to {done}: choose another --output-dir")


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """As a disk does that is full, fail where a file becomes larger."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_is_told_and_leaves_no_half_checkpoint(player: Path, tmp_path: Path) -> None:
    actor = make_actor(player)
    optimizer = torch.optim.AdamW(actor.parameters())
    supervised_step(actor, [Sample(actor.encoder.encode(*questions(1)[0]), [actor.encoder.end])], 1)
    optimizer.step()
    place: Any = (tmp_path, 1, actor, optimizer, Curriculum.of([GAME]).begin(), {})
    weights = (player / "model.safetensors").stat().st_size
    for most in (weights // 2, weights + 100_000):  # too little for the weights, and for the optimizer's numbers
        with files_no_larger_than(most), pytest.raises(OutputError, match=f"cannot write {tmp_path}"):
            save_checkpoint(*place)
        assert last_checkpoint(tmp_path) is None
    with files_no_larger_than(weights // 2), pytest.raises(OutputError, match=f"cannot write {tmp_path / 'tiny'}: "):
        make_checkpoint(tmp_path / "tiny")
    save_checkpoint(*place)
    assert last_checkpoint(tmp_path) == tmp_path / "step_000001"


@pytest.mark.parametrize("left", [0.0, 0.5])
def test_a_checkpoint_that_is_torn_is_told(
    finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], left: float
) -> None:
    torn = tmp_path / "run"
    shutil.copytree(finished("blank"), torn)
    file = torn / "checkpoints" / "step_000003" / "trainer.pt"
    file.write_bytes(file.read_bytes()[: int(left * file.stat().st_size)])
    code, said = failing(capsys, "--resume", str(torn), "--steps", "4")
    assert code == 2
    assert said.startswith(f"error: the checkpoint {torn}/checkpoints/step_000003 cannot be read")
