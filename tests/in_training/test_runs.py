"""Training runs of a few steps: variants, evaluation, supervised fine-tuning, and novel states."""

from __future__ import annotations

import importlib
import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText

from tests.in_training.runs import EPISODES, NO_EPISODES, QUICK, SFT, SMALL, VARIANTS, curve, main, read, rollouts
from tests.in_training.tiny import TOLERANCE, make_actor
from tests.test_training_core import make_turns
from vlmgym import make_game
from vlmgym.curriculum import Curriculum
from vlmgym.errors import GenerationError
from vlmgym.runs.record import EpisodeRecord, StatementsRecord
from vlmgym.terminal import make_console
from vlmgym.training.algorithm import TrainingError
from vlmgym.training.config import TrainConfig, read_config
from vlmgym.training.engine.actor import roll_out
from vlmgym.training.engine.checkpoint import last_checkpoint
from vlmgym.training.engine.encoding import Encoder
from vlmgym.training.engine.processes import ALONE, Processes
from vlmgym.training.evaluation import evaluate_model
from vlmgym.training.run import TrainingRun
from vlmgym.training.sft import Demonstrations
from vlmgym.training.signal import response_metrics
from vlmgym.training.states import SFT_STREAM, EpisodeRollout, start_rollouts
from vlmgym.training.trainer import Trainer
from vlmgym.training.validation import check_gate, validation_episodes

CHANCE: Any = importlib.import_module("benchmarks.learning.chance")
NOVEL: Any = importlib.import_module("benchmarks.learning.novel")

Run = Callable[[str], Path]


def record_images(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that collects all images passed to models."""
    shown: list[Any] = []
    encode = Encoder.encode

    def recording(encoder: Encoder, text: str, images: Sequence[Any]) -> Any:
        shown.extend(images)
        return encode(encoder, text, images)

    monkeypatch.setattr(Encoder, "encode", recording)
    return shown


def make_demonstrations(config: TrainConfig, checkpoint: Path) -> Demonstrations:
    curriculum = config.make_curriculum()
    return Demonstrations(config, curriculum, curriculum.begin(), Encoder(checkpoint), ALONE)


def make_trainer(model: Path, folder: Path, *args: str) -> Trainer:
    """Create a PPO trainer whose critic is not zero."""
    config = read_config([*QUICK, "--model", str(model), *SMALL, "--algorithm", "ppo", *args])
    trainer = Trainer(config, TrainingRun(folder))
    assert trainer.actor.critic is not None
    torch.nn.init.ones_(trainer.actor.critic.weight)
    return trainer


# Variants -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_variant_trains_and_writes_its_files(finished: Run, model: Path, variant: str) -> None:
    run = finished(variant)
    rows = curve(run)
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(math.isfinite(value) for row in rows for value in row.values())
    assert max(row["grad_norm"] for row in rows) > 0, "there is nothing to learn, so nothing is tested"
    ppo = variant.startswith("ppo")
    assert all(("explained_variance" in row) == ("value_loss" in row) == ppo for row in rows)
    for metric, option in (("kl", "--update.kl-coef"), ("perception_loss", "--update.perception-coef")):
        assert all((metric in row) == (option in VARIANTS[variant]) for row in rows)
    assert any(row.get("clip_fraction", 0) > 0 for row in rows) == (ppo or variant == "dr grpo, updates")

    group_size, prompts = (1, 4) if ppo else (1, 6) if variant == "dagger" else (3, 4 if variant == "mixture" else 2)
    records = rollouts(run)
    assert [record.seed for record in records] == list(range(3 * prompts * group_size))
    starts = [record.turns[0].state for record in records]
    assert all(starts[index] == starts[index - index % group_size] for index in range(len(starts)))
    assert all(1 <= len(record.turns) <= record.max_turns for record in records)

    result = read(run / "result.json")
    counts = ("final_reward", "final_episodes", "total_steps", "total_episodes")
    assert set(result) == {*counts, "validation", "seconds", "paths"}
    assert (result["total_steps"], result["total_episodes"]) == (3, len(records))
    totals = [sum(turn.reward.total for turn in record.turns) for record in records]
    assert result["final_reward"] == pytest.approx(np.mean(totals))
    assert [result["validation"][when]["states"]["responses"] for when in ("before", "after")] == [4, 4]
    assert ("report" in result["paths"]) == (variant == "mixture")
    assert {"model", "checkpoint", "metrics", "curve", "rollouts"} <= set(result["paths"])
    assert all(Path(path).exists() for path in result["paths"].values())

    trained, before = load_file(run / "model" / "model.safetensors"), load_file(model / "model.safetensors")
    assert set(trained) == set(before)
    assert any((trained[name].float() - before[name]).abs().max() > 1e-4 for name in before)
    assert all(tensor.isfinite().all() for tensor in trained.values())
    AutoModelForImageTextToText.from_pretrained(run / "model")
    checkpoints = sorted((run / "checkpoints").glob("step_*"))
    assert [folder.name for folder in checkpoints] == ["step_000002", "step_000003"]
    weights = "adapter/adapter_model.safetensors" if "--lora" in VARIANTS[variant] else "model/model.safetensors"
    for folder in checkpoints:
        assert [str(path.relative_to(folder)) for path in folder.rglob("*.safetensors")] == [weights]
    trainer = torch.load(checkpoints[-1] / "trainer.pt", weights_only=True)
    assert (trainer["critic"] is not None) == ppo


def test_episode_prompts_repeat_past_turns(finished: Run) -> None:
    first, last = max(rollouts(finished("grpo, episodes")), key=lambda record: len(record.turns)).turns
    assert first.response in last.prompt
    assert first.prompt_tokens is not None
    assert last.prompt_tokens is not None
    assert last.prompt_tokens > first.prompt_tokens + 9, "an image has 9 tokens"


def test_curriculum_stages_advance_and_are_recorded(finished: Run) -> None:
    groups = [record.stage for record in rollouts(finished("curriculum"))][::3]
    assert groups == ["bright", "dark", "dark", "first", "dark", "later"], "a step has two groups"


def test_training_on_data_of_a_curriculum(tmp_path: Path) -> None:
    rows = ["photo,latitude,longitude,land"]
    for number in range(12):
        Image.new("RGB", (32, 32), (20 * number, 0, 0)).save(tmp_path / f"{number}.png")
        rows.append(f"{number}.png,{40 + number},{number},FR")
    (tmp_path / "places.csv").write_text("\n".join(rows))
    (tmp_path / "small.toml").write_text(
        '[[entries]]\ngame = "geospot"\noverrides = { size = 96, preset = "mixtrain" }\nby = "step"\n'
        'stages = [{ name = "country", steps = 1, overrides = { stage = 1 } }, { name = "full" }]\n'
    )
    args = ["--curriculum", str(tmp_path / "small.toml"), "--config", f"data={tmp_path}/places.csv"]
    args += ["columns=image=photo,country=land", "--states.validation-fraction", "0.4", "--states.moves", "0", "0"]
    main([*QUICK, *args, *NO_EPISODES, "--sft.expert", "oracle", "--output-dir", str(tmp_path / "run")])
    records = rollouts(tmp_path / "run")
    assert [record.stage for record in records] == ["country"] * 6 + ["full"] * 12
    assert all(f"{tmp_path}/places.csv" in json.dumps(record.turns[0].state) for record in records)


def test_a_control_continues_supervised_fine_tuning_and_leaves_no_trace(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [*QUICK, "--model", str(model), *SMALL, *NO_EPISODES, *SFT, "--update.kl-coef", "0.1"]
    main([*args, "--output-dir", str(tmp_path / "plain")])
    main([*args, "--sft.control-steps", "3", "--steps", "2", "--output-dir", str(tmp_path / "run")])
    *_, start, control, trained, difference = itertools.takewhile(
        lambda line: not line.startswith("model "), capsys.readouterr().out.partition("/plain/rollouts")[2].splitlines()
    )
    assert [line.split("  ")[0] for line in (start, control, trained)] == ["start", "more SFT", "GRPO"]
    assert difference.startswith("GRPO minus more SFT: ")
    main(["--resume", str(tmp_path / "run"), "--steps", "3"])
    assert curve(tmp_path / "run") == curve(tmp_path / "plain")
    result, plain = (read(tmp_path / name / "result.json") for name in ("run", "plain"))
    control_states = result["validation"].pop("control")["states"]
    assert result["validation"] == plain["validation"]
    assert len(control_states["successes"]) == 4
    assert Path(result["paths"]["comparison"]).read_bytes().startswith(b"\x89PNG")
    assert read(tmp_path / "run" / "control_curve.jsonl")["step"] == 3


def test_blank_runs_never_show_an_image(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = record_images(monkeypatch)
    args = [*QUICK, "--model", str(model), *SMALL, *EPISODES, *SFT, "--control", "blank", "--steps", "1"]
    main([*args, "--output-dir", str(tmp_path / "run")])
    assert len(shown) > 50
    assert all((image == 128).all() for image in shown)


@pytest.mark.parametrize("history", ["0", "1"])
def test_truncated_episodes_bootstrap_from_the_value_of_the_next_turn(
    model: Path, tmp_path: Path, history: str
) -> None:
    args = ("--history", history, "--history-images", history, "--states.moves", "0", "2")

    def play(max_turns: int) -> tuple[Trainer, list[EpisodeRollout], Any]:
        trainer = make_trainer(model, tmp_path, *args, "--max-turns", str(max_turns))
        config = trainer.config
        picks = trainer.curriculum.picks(trainer.progress, 0, range(4))
        episodes = list(start_rollouts(picks, 0, 1, config.play, config.states, config.reward))
        return trainer, episodes, roll_out(trainer.actor, episodes, config.rollout, (0,))[0]

    trainer, episodes, _ = play(2)
    bootstrap = trainer.bootstrap_values(episodes)
    third = [samples[2] for samples in play(3)[2]]
    _, values = trainer.engine.infer(third)
    assert bootstrap == pytest.approx([each[0] for each in values], abs=TOLERANCE)
    assert len(bootstrap) == 4
    assert np.std(bootstrap) > 10 * TOLERANCE


# Evaluation -----------------------------------------------------------------------------------------------------------


def test_whole_episodes_are_evaluated_on_validation_seeds(finished: Run) -> None:
    run = finished("mixture")
    result = read(run / "result.json")
    for when in ("before", "after"):
        folder = run / "evaluation" / when
        lines = (folder / "episodes.jsonl").read_text().splitlines()
        records = [EpisodeRecord.model_validate_json(line) for line in lines]
        assert (
            {record.game.id for record in records}
            == set(result["validation"][when]["episodes"])
            == {"2048-v0", "swap-v0"}
        )
        for record in records:
            assert result["validation"][when]["episodes"][record.game.id]["score"] == record.score
            assert record.seed >= 1_000_000
        assert "<html" in (folder / "report.html").read_text()


def test_a_game_at_two_levels_is_evaluated_at_both(model: Path, tmp_path: Path) -> None:
    config = read_config([*QUICK, "--model", str(model), "--evaluation.states", "0", "--evaluation.max-turns", "1"])
    games = [make_game("2048", size=96, rows=3, columns=3, goal=goal) for goal in (16, 32)]
    trainer = Trainer(config, TrainingRun(tmp_path / "run"), Curriculum.of([*games, games[0]]))
    found = evaluate_model(trainer, tmp_path / "before", make_console(stderr=True))
    assert set(found["episodes"]) == {"2048-v0", "2048-v0 (2)"}
    for folder, game in zip(("before", "before-2"), games):
        (line,) = (tmp_path / folder / "episodes.jsonl").read_text().splitlines()
        assert EpisodeRecord.model_validate_json(line).game.config["goal"] == game.config.goal


def test_steps_average_the_shares_of_true_statements() -> None:
    counts = [(3, 3, None), (4, 2, 1), (0, 0, None)]
    records = [StatementsRecord(checked=checked, true=true, first_false=first) for checked, true, first in counts]
    turns = [make_turns(1.0, right=True, statements=statements)[0] for statements in (*records, None)]
    assert response_metrics(turns)["reasoning"] == 0.75
    assert "reasoning" not in response_metrics(turns[2:])


def test_the_sft_gate_uses_no_validation_states(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = read_config([*QUICK, "--size", "96"])
    curriculum = config.make_curriculum()
    args: Any = (config, curriculum, curriculum.begin(), 16)
    shown = record_images(monkeypatch)
    assert check_gate(make_actor(model), *args).responses == 16
    gate = {image.tobytes() for image in shown}
    validation = {image.tobytes() for episode in validation_episodes(*args) for image in episode.observation.images}
    assert min(len(gate), len(validation)) > 10
    assert not gate & validation


# Supervised fine-tuning -----------------------------------------------------------------------------------------------


def test_a_tiny_model_is_created_and_fine_tuned(tmp_path: Path) -> None:
    run = tmp_path / "run"
    main([*QUICK, *SMALL, *NO_EPISODES, *SFT, "--states.informative", "--steps", "1", "--output-dir", str(run)])
    checkpoint, created = last_checkpoint(run / "sft"), load_file(run / "tiny" / "model.safetensors")
    assert checkpoint is not None
    tuned = load_file(checkpoint / "model" / "model.safetensors")
    assert any((tuned[name] - created[name]).abs().max() > 1e-4 for name in created)
    assert read(run / "result.json")["total_steps"] == 1
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert list((run / "tensorboard").glob("events*"))


@pytest.mark.parametrize("args", [["--max-turns", "3"], ["--settings", "sft.random_turns=1"], []])
def test_demonstrations_follow_random_turns_where_prompts_have_feedback(model: Path, args: list[str]) -> None:
    demonstrations = make_demonstrations(read_config([*QUICK, "--model", str(model), *SMALL, *args]), model)
    prompts = {len(demonstrations.sample(index).prompt.ids) for index in range(24)}
    assert (len(prompts) > 1) == bool(args)


def test_a_process_may_have_no_demonstration_of_a_step(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All demonstrations of the first of two processes fail; the second process has one."""
    config = read_config([*QUICK, "--model", str(model), *SMALL, "--settings", "sft.batch_size=2"])
    demonstrations = make_demonstrations(config, model)
    sample, processes = demonstrations.sample(1), Processes(0, 2)
    gathered = iter([[sample], []])
    monkeypatch.setattr(processes, "gather", lambda items: [*items, *next(gathered)])
    monkeypatch.setattr(Demonstrations, "sample", Mock(side_effect=GenerationError("no such state")))
    assert replace(demonstrations, processes=processes).batch(0) == [sample]
    with pytest.raises(TrainingError, match="no demonstration of step 1 could be made, the first: no such state"):
        demonstrations.batch(0)


# Novel states ---------------------------------------------------------------------------------------------------------


def test_novel_states_were_drawn_neither_for_sft_nor_for_training(model: Path) -> None:
    cold, after = (*QUICK, *SMALL, *SFT), (*QUICK, *SMALL, "--model", str(model))
    config = read_config(cold)
    curriculum = config.make_curriculum()

    def draw(stream: int, count: int) -> list[EpisodeRollout]:
        seed = config.seed + stream
        picks = curriculum.picks(curriculum.begin(), seed, range(count))
        return list(start_rollouts(picks, seed, 1, config.play, config.states, config.reward))

    assert NOVEL.novel(draw(SFT_STREAM, 8), cold, after) == NOVEL.novel(draw(0, 6), cold, after) == []
    validation = validation_episodes(config, curriculum, curriculum.begin(), 40)
    novel = NOVEL.novel(validation, cold, after)
    assert len(novel) > 20
    drawn = {episode.episode.state for stream in (SFT_STREAM, 0) for episode in draw(stream, 8)}
    assert not drawn & {episode.episode.state for episode in novel}
