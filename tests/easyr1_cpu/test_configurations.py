"""Configurations, and preflight checks of settings, the machine and checkpoints."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoModelForTokenClassification
from verl.trainer.config import DataConfig
from verl.workers.config import ModelConfig

from tests.easyr1_cpu.rollout_workers import CONFIGS, ROOT, SECTION, encoder_of
from vlmgym.errors import UsageError
from vlmgym.policies.base import Reply
from vlmgym.training.easyr1 import config as check
from vlmgym.training.easyr1 import worker
from vlmgym.training.easyr1.batch import load_processors
from vlmgym.training.easyr1.config import STREAM, RunConfig, check_checkpoint, preflight, read_config, trained_record
from vlmgym.training.easyr1.episodes import PromptStream, RolloutWorker
from vlmgym.training.easyr1.settings import Section
from vlmgym.training.easyr1.trainer import fetch_model

SCRIPTS = {
    path.stem: tuple(path.read_text().split('easyr1.sh" ')[1].split()[:-1])
    for path in sorted((ROOT / "training" / "scripts").glob("*_*.sh"))
    if 'easyr1.sh" ' in path.read_text()
}
"""Config files in training/configs, by the script that uses them."""
QUICK = "vlmgym.states={moves: [0, 0], informative: false}"
"""Setting that makes state generation fast."""


def config_of(name: str, *more: str, settings: Sequence[str] = ()) -> RunConfig:
    return read_config([*(str(CONFIGS / f"{each}.yaml") for each in ("base", *SCRIPTS[name], *more)), *settings])


def write_cifar10(folder: Path) -> None:
    """Write training images in the size and number of classes of CIFAR-10, one black image per class."""
    for label in range(10):
        (folder / "train" / str(label)).mkdir(parents=True)
        Image.new("RGB", (32, 32)).save(folder / "train" / str(label) / "0.png")


def test_every_script_has_its_configs() -> None:
    games = ("2048", "shisensho", "shisensho_cifar10", "swap", "geospot", "nlvr2", "vqa", "caption", "mixed")
    others = {"ppo_2048": ("2048", "ppo"), "ppo_geospot": ("geospot", "ppo"), "rl_2048_episodes": ("2048", "episodes")}
    assert sorted(SCRIPTS) == sorted([*(f"rl_{game}" for game in games), *others])
    assert {name: SCRIPTS[name] for name in others} == others


@pytest.mark.parametrize("names", [*((name,) for name in SCRIPTS), ("rl_2048", "lora", "low_memory")], ids="+".join)
def test_configurations(qwen3: Path, tmp_path: Path, names: tuple[str, ...]) -> None:
    config = config_of(*names)
    if names == ("rl_shisensho_cifar10",):
        write_cifar10(tmp_path)
        config.vlmgym["overrides"] = {"data": str(tmp_path)}  # as DATA= does
    config.worker.actor.model.model_path = str(qwen3)
    problems, facts = preflight(config, machine=False)
    assert problems == []
    assert "prompts have up to" in facts[0]
    assert not [fact for fact in facts if "warning" in fact]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["data.rollout_batch_size=100"], "worker.actor.global_batch_size=128 must divide"),
        (["trainer.n_gpus_per_node=3"], "GPUs=3 must divide worker.actor.global_batch_size"),
        (["data.max_prompt_length=64"], "but data.max_prompt_length is 64"),
        (["algorithm.adv_estimator=remax"], "algorithm.adv_estimator must be one of"),
        (["vlmgym.play.history=1", "vlmgym.play.history_images=1", "data.max_prompt_length=8192"], "have 2 images"),
        (["trainer.logger=[vlmgym,paper]"], "names paper, which is not installed"),
        (["worker.actor.model.model_path=nowhere/at/all"], "no folder nowhere/at/all"),
        (["trainer.total_epochs=3"], "trainer.total_epochs has no effect"),
        (["worker.actor.ulysses_size=2"], "worker.actor.ulysses_size must be 1, because"),
        (["worker.actor.model.lora.rank=24"], "lora.rank must be one of 8, 16, 32, 64, 128, 256, 320, 512 for vLLM"),
        (["trainer.val_only=true", "vlmgym.validation={episodes: 0}"], "need vlmgym.validation.episodes above 0"),
    ],
)
def test_invalid_configurations(qwen3: Path, settings: list[str], words: str) -> None:
    config = config_of("rl_2048", settings=[QUICK, f"worker.actor.model.model_path={qwen3}", *settings])
    problems, _ = preflight(config, machine=False)
    assert any(words in problem for problem in problems), problems


@pytest.mark.parametrize(
    "play",
    [
        {"max_turns": 4},
        {"max_turns": 4, "history": 2},
        {"max_turns": 4, "chat": True},
        {"max_turns": 4, "chat": True, "observation": "both", "history_images": 1, "history": 1},
    ],
)
def test_no_prompt_of_an_episode_exceeds_the_estimate(qwen3: Path, play: dict[str, Any]) -> None:
    """In 12 episodes of three games, with legal, illegal and unparsable responses of up to 40 tokens."""
    games = [{"game": game, "overrides": {"size": 128}} for game in ("2048", "shisensho", "swap")]
    section = Section.read({"games": games, "play": play, "validation": {"episodes": 0}, "rollout_workers": 0})
    config = config_of("rl_2048", settings=[f"worker.actor.model.model_path={qwen3}", "data.max_response_length=40"])
    config.vlmgym = section.model_dump()
    first, later = [
        int(size.replace(",", "")) for size in re.findall(r"([\d,]+) (?:tokens|later)", preflight(config, False)[1][0])
    ]
    encoder, curriculum, rng = encoder_of(qwen3, later), section.make_curriculum(), np.random.default_rng(0)
    worker = RolloutWorker(section, encoder, 0, "tiny")
    requests = worker.start(list(curriculum.picks(curriculum.begin(), 0, range(12)).items()), 1)
    lengths = []
    while requests:
        lengths += [int(request.features["attention_mask"].sum()) for request in requests]
        replies = []
        for request in requests:
            game = (episode := worker.episodes[request.prompt_id, 0].episode).game
            legal = (game.legal_actions(episode.state) or ())[0]
            texts = [game.answer.format(game.answer.sample(rng)), game.answer.format(legal), "is " * 30]
            tokens = encoder.tokenizer.encode(f"<answer>{rng.choice(texts)}</answer>")[:40]
            replies.append(((request.prompt_id, 0), Reply(encoder.tokenizer.decode(tokens))))
        requests = [result.next for result in worker.play(replies) if result.next is not None]
    assert not any(episode.failed for episode in worker.finish(1))
    assert first < max(lengths) <= later < 1.5 * max(lengths)


def test_size_of_the_validation_split(tmp_path: Path, qwen3: Path) -> None:
    """Of the 40 questions, 4 are in the validation split."""
    Image.new("RGB", (64, 64)).save(tmp_path / "a.png")
    row = {"image": "a.png", "question": "Which colour?", "answer": "black"}
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({**row, "id": str(i)}) + "\n" for i in range(40)))
    config = config_of("rl_nlvr2")
    config.worker.actor.model.model_path = str(qwen3)
    config.vlmgym["games"] = [{"game": "vqa", "overrides": {"data": str(tmp_path / "rows.jsonl")}}]
    assert any("keeps 4 of 40 questions" in problem for problem in preflight(config, machine=False)[0])
    config.vlmgym["validation"] = {"episodes": 4, "max_turns": 1}
    assert preflight(config, machine=False)[0] == []


def test_preflight_reports_machine_problems(qwen3: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = config_of("rl_2048", settings=[QUICK])
    config.worker.actor.model.model_path = str(qwen3)
    config.trainer.save_checkpoint_path = str(tmp_path / "file" / "out")
    problems, facts = preflight(config)
    for words in (f"trainer.n_gpus_per_node=4, but this machine has {torch.cuda.device_count()}", "cannot be created"):
        assert any(words in problem for problem in problems), (words, problems)
    assert "billion parameters need at least" in facts[0]
    config.vlmgym["rollout_workers"] += 4
    needed = [float(re.findall(r"need at least ([\d.]+) GiB", fact)[0]) for fact in (facts[0], preflight(config)[1][0])]
    assert needed[1] == pytest.approx(needed[0] + 4), "1 GiB for each rollout worker"
    config.worker.rollout.dtype = "auto"
    assert any("must be bf16, fp16 or fp32, got auto" in problem for problem in preflight(config)[0])


def test_gpus_without_enough_memory_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child process imports a fake torch that reports two GPUs with 10 and 79 GiB of free memory."""
    fake = tmp_path / "torch.py"
    fake.write_text("class cuda:\n    mem_get_info = lambda gpu: [(10 << 30, 80 << 30), (79 << 30, 80 << 30)][gpu]\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (problem,) = check.check_gpus(2, 30 * check.GIB)
    assert problem.startswith("GPU 0: an update needs 30.0 GiB, 10.0 GiB are free")
    assert [*check.check_gpus(2, 5 * check.GIB)] == []
    fake.write_text("raise RuntimeError('CUDA error: devices are busy')\n")
    (problem,) = check.check_gpus(2, 0)
    assert "devices are busy" in problem


@pytest.mark.parametrize(("cpus", "nodes", "enough"), [(12, 1, True), (8, 1, False), (12, 2, False)])
def test_too_few_cpus_are_reported(cpus: int, nodes: int, enough: bool) -> None:
    config = config_of("rl_2048", settings=[f"trainer.nnodes={nodes}"])
    assert (not [*check.check_cpus(config.trainer, Section.read(config.vlmgym), cpus)]) == enough


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ('{"model_type": ', "is not a valid JSON file"),
        ('{"model_type": "qwen9_vl"}', "`qwen9_vl` but Transformers does not recognize"),
        ('{"model_type": "qwen3_vl", "text_config": {"rope_parameters": {}}}', "was saved by transformers 5: convert"),
    ],
)
def test_invalid_models(qwen3: Path, tmp_path: Path, written: str | None, words: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(qwen3, folder)
    (folder / "config.json").unlink()
    if written is not None:
        (folder / "config.json").write_text(written)
    problems, _ = preflight(config_of("rl_2048", settings=[QUICK, f"worker.actor.model.model_path={folder}"]))
    assert len([problem for problem in problems if words in problem]) == 1


def test_model_without_a_tokenizer(qwen3: Path, tmp_path: Path) -> None:
    shutil.copy(qwen3 / "config.json", tmp_path)
    with pytest.raises(UsageError, match=f"cannot load the processor of the model {tmp_path}"):
        load_processors(ModelConfig(str(tmp_path)), DataConfig())


@pytest.mark.parametrize(
    ("settings", "count"),
    [(["trainer.save_freq=10"], 3), (["trainer.save_freq=200"], 2), (["trainer.save_freq=-1"], 1)],
)
def test_disk_space(tmp_path: Path, settings: list[str], count: int) -> None:
    """A run has 300 steps. EasyR1 always saves a checkpoint after the last step, and keeps the last three."""
    files = [str(CONFIGS / f"{name}.yaml") for name in ("base", "2048")]
    config = read_config([*files, f"trainer.save_checkpoint_path={tmp_path / 'out'}", *settings])
    (problem,) = check.check_disk(config, 2.0**60)
    assert problem.startswith(f"{count} checkpoints need {count * 2**30} GiB more")
    (tmp_path / "out" / "global_step_10").mkdir(parents=True)
    assert len([*check.check_disk(config, 2.0**60)]) == (count > 1)


@pytest.mark.parametrize(("parallel", "problems"), [(1, 0), (2, 1)])
def test_attention_heads_are_split_among_gpus(checkpoint: Path, parallel: int, problems: int) -> None:
    """The language model has two heads, the vision encoder one."""
    found = [*check.check_heads(ModelConfig(str(checkpoint)), parallel)]
    assert len(found) == problems
    assert all("must divide the 2 attention heads of the language model and the 1 of" in problem for problem in found)


def test_missing_model_without_the_hub(qwen3: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    config = config_of("rl_2048")
    config.worker.actor.model.model_path = "nobody/nothing"
    assert any("HF_HUB_OFFLINE is set" in problem for problem in preflight(config, machine=False)[0])
    with pytest.raises(UsageError, match="cannot download the model nobody/nothing"):
        fetch_model("nobody/nothing")
    fetch_model(str(qwen3))


@pytest.mark.parametrize(
    ("names", "settings", "host", "gpu", "checkpoint"),
    [
        # A model with 1,000 parameters, 100 in the vision tower and 50 in the output layer, on 4 GPUs. The host
        # holds weights and optimizer states in float32, and the reference and two copies of vLLM's weights in bfloat16;
        # a GPU holds weights, gradients and optimizer states.
        (("rl_2048",), [], 12_000 + 2000 + 4000, 16_000 / 4, 12_000),
        (("rl_2048",), ["worker.actor.model.freeze_vision_tower=true"], 17_200, (4000 + 12 * 900) / 4, 11_200),
        (("rl_2048",), ["trainer.val_only=true"], 10_000, 4000 / 4, 0),
        (("rl_2048",), ["trainer.nnodes=2"], 14_000 / 2 + 4000, 16_000 / 8, 12_000),
        (("rl_2048", "low_memory"), [], 14_000, (2 + 2 + 6) * 1000 / 4, 8000),
        (("rl_2048", "lora"), [], 6000, 2000 / 4, 2000),
        (("ppo_2048",), [], 18_000 + 12 * 950, 16_000 / 4, 12_000 + 12 * 950),
    ],
)
def test_memory_estimate(names: tuple[str, ...], settings: list[str], host: float, gpu: float, checkpoint: int) -> None:
    sizes = {"actor": (1000, 100), "critic": (950, 100)}
    found = check.estimate_memory(config_of(*names, settings=settings), sizes)
    assert found == (host, gpu, checkpoint)


def test_model_size(checkpoint: Path) -> None:
    """The vision parameters are those that EasyR1 can freeze; the critic is counted without its head."""
    parameters, vision = check.model_size(ModelConfig(str(checkpoint)), critic=False)
    model = AutoModelForImageTextToText.from_pretrained(checkpoint)
    assert parameters == model.num_parameters()
    assert vision == sum(weights.numel() for weights in model.model.visual.parameters()) > 0
    worker.register_critics()
    critic = AutoModelForTokenClassification.from_pretrained(checkpoint)
    size = check.model_size(ModelConfig(str(checkpoint)), critic=True)
    assert size == (critic.num_parameters() - critic.score.weight.numel(), vision)


@pytest.mark.parametrize(
    ("gpus", "missing", "words"),
    [
        (4, "", ""),
        (2, "", "has no actor/model_world_size_2_rank_0.pt"),
        (4, "actor/optim_world_size_4_rank_0.pt", "has no actor/optim_world_size_4_rank_0.pt"),
    ],
)
def test_incomplete_checkpoints(tmp_path: Path, gpus: int, missing: str, words: str) -> None:
    """The checkpoint is from a run on four GPUs."""
    curriculum = SECTION.make_curriculum()
    folder = tmp_path / "global_step_25"
    save_parts(folder, "actor", "critic")
    save_stream(folder)
    if missing:
        (folder / missing).unlink()
    settings = [f"trainer.n_gpus_per_node={gpus}", f"trainer.save_checkpoint_path={tmp_path}"]
    config = config_of("ppo_2048", settings=settings)
    assert [*check_checkpoint(config, SECTION, curriculum)] == [], "without the tracker, a run starts over"
    (tmp_path / "checkpoint_tracker.json").write_text('{"last_global_step": 25}')
    problems = [*check_checkpoint(config, SECTION, curriculum)]
    assert len(problems) == bool(words)
    assert all(words in problem for problem in problems)
    (tmp_path / "checkpoint_tracker.json").write_text('{"last_global_step": 50}')
    (problem,) = check_checkpoint(config, SECTION, curriculum)
    assert problem.startswith(f"{tmp_path / 'checkpoint_tracker.json'} names no checkpoint")
    config.trainer.load_checkpoint_path = str(tmp_path)
    (problem,) = check_checkpoint(config, SECTION, curriculum)
    assert f"cannot resume from {tmp_path}" in problem


def save_parts(folder: Path, *parts: str) -> None:
    """Write empty model files of a checkpoint of a run on four GPUs."""
    for part in parts:
        (folder / part).mkdir(parents=True)
        for file in ("model", "optim", "extra_state"):
            (folder / part / f"{file}_world_size_4_rank_0.pt").touch()


def save_stream(folder: Path, **other: Any) -> None:
    """Write the state of the prompt stream at the start of a run."""
    state = PromptStream(SECTION.make_curriculum(), DataConfig().seed, 8).state_dict()
    torch.save({**state, **other}, folder / STREAM)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (save_stream, ""),
        (partial(save_stream, seed=7), "the checkpoint has data.seed=7, but this run has data.seed=1"),
        (partial(save_stream, progress='{"entries": []}'), "cannot resume from"),
        (lambda folder: torch.save(Path("/"), folder / STREAM), "cannot resume from"),
    ],
)
def test_invalid_state_of_the_prompt_stream(tmp_path: Path, write: Callable[[Path], Any], words: str) -> None:
    folder = tmp_path / "global_step_25"
    save_parts(folder, "actor")
    write(folder)
    config = config_of("rl_2048", settings=[f"trainer.load_checkpoint_path={folder}"])
    problems = [*check_checkpoint(config, SECTION, SECTION.make_curriculum())]
    assert len(problems) == bool(words)
    assert all(words in problem for problem in problems), problems


def test_changed_settings_are_rejected_when_a_run_is_resumed(tmp_path: Path) -> None:
    folder, curriculum = tmp_path / "global_step_25", SECTION.make_curriculum()
    save_parts(folder, "actor")
    save_stream(folder)
    config = config_of("rl_2048", settings=[f"trainer.load_checkpoint_path={folder}"])
    trained_record(config, SECTION, curriculum, curriculum.begin(), 25, "template").write(folder)
    config.trainer.max_steps = 5000
    assert [*check_checkpoint(config, SECTION, curriculum)] == []
    config.data.max_response_length = 16
    reward = SECTION.reward.model_copy(update={"format_weight": 9.0})
    other = SECTION.model_copy(update={"reward": reward})
    (problem,) = check_checkpoint(config, other, curriculum)
    assert "with other settings: max_tokens was 1024 and is 16; reward.format_weight was" in problem


def test_free_memory_in_a_container(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("4:memory:/old\n0::/job/step\n")
    group = tmp_path / "job" / "step"
    group.mkdir(parents=True)
    assert check.free_memory(tmp_path, tmp_path / "mine") > 10_000
    for folder, limit, used in ((group, "max", 3000), (group.parent, "10000", 4000)):
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
    assert check.free_memory(tmp_path, tmp_path / "mine") == 6000


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nowhere.yaml"], "cannot read nowhere.yaml: No such file"),
        (["trainer.steps=3"], "trainer.steps=3: Key 'steps' not in 'TrainerConfig'"),
    ],
)
def test_invalid_settings(args: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_config(args)
