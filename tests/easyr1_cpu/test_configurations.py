"""Configurations, and what a check says of them, of the machine, and of what a run would go on from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoModelForTokenClassification
from verl.trainer.config import DataConfig
from verl.workers.config import ModelConfig

from tests.easyr1_cpu.rollout_workers import CONFIGS, ROOT, SECTION
from training.easyr1 import critics, machine, memory, resume
from training.easyr1.check import check_run
from training.easyr1.config import RunConfig, read_config
from training.easyr1.launch import fetch_model
from training.easyr1.prompt_stream import PromptStream
from training.easyr1.prompts import load_processors
from training.easyr1.resume import ROWS
from training.easyr1.section import Section
from vlmgym.errors import UsageError

SCRIPTS = {
    path.stem: tuple(path.read_text().split('easyr1.sh" ')[1].split()[:-1])
    for path in sorted((ROOT / "training" / "scripts").glob("*.sh"))
    if 'easyr1.sh" ' in path.read_text()
}
"""Which files of training/configs each script names."""
QUICK = "vlmgym.states={moves: [0, 0], informative: false}"
"""Positions that are found at once."""


def of_script(name: str, *more: str, settings: Sequence[str] = ()) -> RunConfig:
    return read_config([*(str(CONFIGS / f"{each}.yaml") for each in ("base", *SCRIPTS[name], *more)), *settings])


def test_scripts() -> None:
    games = ("2048", "shisensho", "shisensho_pictures", "swap", "geospot", "nlvr2", "mixed")
    assert sorted(SCRIPTS) == sorted([*(f"rl_{game}" for game in games), "ppo_2048", "rl_2048_episodes"])
    assert (SCRIPTS["ppo_2048"], SCRIPTS["rl_2048_episodes"]) == (("2048", "ppo"), ("2048", "episodes"))


@pytest.mark.parametrize("names", [*((name,) for name in SCRIPTS), ("rl_2048", "lora", "low_memory")], ids="+".join)
def test_configurations(qwen3: Path, names: tuple[str, ...]) -> None:
    config = of_script(*names)
    config.worker.actor.model.model_path = str(qwen3)
    problems, facts = check_run(config, machine=False)
    assert problems == []
    assert "prompts have up to" in facts[0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["data.rollout_batch_size=100"], "worker.actor.global_batch_size=128 must divide"),
        (["worker.rollout.n=1"], "worker.rollout.n must be at least 2"),
        (["trainer.n_gpus_per_node=3"], "=3 must divide worker.actor.global_batch_size"),
        (
            ["worker.actor.micro_batch_size_per_device_for_update=7"],
            "update=7 must divide the minibatch of each GPU=256",
        ),
        (["worker.actor.micro_batch_size_per_device_for_experience=5"], "=5 must divide the responses of a step=1024"),
        (["vlmgym.play.max_turns=3"], "vlmgym.play.max_turns=3 must divide"),
        (["data.max_prompt_length=64"], "but data.max_prompt_length is 64"),
        (["vlmgym.play.history=4"], "but data.max_prompt_length is 2,048"),
        (["worker.rollout.max_num_batched_tokens=1024"], "max_num_batched_tokens must be at least 3072"),
        (["trainer.max_steps=null"], "trainer.max_steps must be set"),
        (["vlmgym.play.max_turns=2", "worker.actor.loss_avg_mode=seq"], "worker.actor.loss_avg_mode must be token"),
        (
            ["vlmgym.play.max_turns=2", "algorithm.adv_estimator=rloo"],
            "must be one of grpo, gae with 2 turn(s), got rloo",
        ),
        (["algorithm.adv_estimator=remax"], "algorithm.adv_estimator must be one of"),
        (
            ["vlmgym.play.history=1", "vlmgym.play.history_images=1", "data.max_prompt_length=8192"],
            "have 2 images",
        ),
        (["trainer.logger=[vlmgym,paper]"], "names paper, which is not installed"),
        (["worker.actor.model.model_path=nowhere/at/all"], "no folder nowhere/at/all"),
        (["worker.actor.model.model_path=null"], "names no model: set MODEL"),
        (["trainer.n_gpus_per_node=0"], "must divide GPUs=0"),
        (["worker.actor.global_batch_size=0"], "worker.actor.global_batch_size=0 must divide"),
        (["trainer.total_epochs=3"], "trainer.total_epochs has no effect"),
        (["worker.reward.num_cpus=2"], "worker.reward has no effect"),
        (["algorithm.online_filtering=true"], "algorithm.online_filtering has no effect"),
        (["worker.actor.model.lora.rank=48"], "worker.actor.model.lora.rank must be one of 0, 8, 16, 32, 64, 128"),
        (["worker.actor.ulysses_size=8"], "worker.actor.ulysses_size=8 must divide GPUs=4"),
        (["worker.actor.fsdp.fsdp_size=3"], "worker.actor.fsdp.fsdp_size=3 must divide GPUs=4"),
        (["worker.actor.fsdp.enable_cpu_offload=true"], "micro_batch_size_per_device_for_update=256, or it to false"),
        (["trainer.val_only=true", "trainer.val_before_train=false"], "needs trainer.val_before_train=true"),
        (["trainer.val_only=true", "vlmgym.validation={episodes: 0}"], "need vlmgym.validation.episodes above 0"),
        (["worker.rollout.temperature=0"], "worker.rollout.temperature must be above 0"),
        (["worker.rollout.gpu_memory_utilization=60"], "must be in (0, 1], got 60.0"),
    ],
)
def test_configurations_that_would_not_work(qwen3: Path, settings: list[str], words: str) -> None:
    config = of_script("rl_2048", settings=[QUICK, f"worker.actor.model.model_path={qwen3}", *settings])
    problems, _ = check_run(config, machine=False)
    assert any(words in problem for problem in problems), problems


def test_validation_asks_what_is_held_out(tmp_path: Path, qwen3: Path) -> None:
    """Of 40 questions 4 are kept for validation."""
    Image.new("RGB", (64, 64)).save(tmp_path / "a.png")
    row = {"image": "a.png", "question": "Which colour?", "answer": "black"}
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({**row, "id": str(i)}) + "\n" for i in range(40)))
    config = of_script("rl_nlvr2")
    config.worker.actor.model.model_path = str(qwen3)
    config.vlmgym["games"] = [{"game": "vqa", "overrides": {"data": str(tmp_path / "rows.jsonl")}}]
    assert any("keeps 4 of 40 questions" in problem for problem in check_run(config, machine=False)[0])
    config.vlmgym["validation"] = {"episodes": 4, "turns": 1}
    assert check_run(config, machine=False)[0] == []


def test_what_a_machine_lacks(qwen3: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = of_script("rl_2048", settings=[QUICK])
    config.worker.actor.model.model_path = str(qwen3)
    config.worker.rollout.tensor_parallel_size = 4
    config.worker.actor.ulysses_size = 2
    config.trainer.save_checkpoint_path = str(tmp_path / "file" / "out")
    problems, facts = check_run(config)
    for words in (
        f"trainer.n_gpus_per_node=4, but this machine has {torch.cuda.device_count()}",
        "cannot be created",
        "worker.rollout.tensor_parallel_size=4 cannot split 2 heads, 1 key-value heads",
        "worker.actor.ulysses_size=2 cannot split 1 key-value heads",
    ):
        assert any(words in problem for problem in problems), (words, problems)
    assert "billion parameters take at least" in facts[0]
    config.worker.rollout.dtype = "auto"
    assert any("must be bf16, fp16 or fp32, got auto" in problem for problem in check_run(config)[0])


def test_memory_of_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that asks GPUs for their memory finds these two."""
    found = tmp_path / "torch.py"
    found.write_text("class cuda:\n    mem_get_info = lambda gpu: [(10, 80), (79, 80)][gpu]\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert machine.gpu_memory(2) == [(10, 80), (79, 80)]
    found.write_text("raise RuntimeError('CUDA error: devices are busy')\n")
    with pytest.raises(UsageError, match="devices are busy"):
        machine.gpu_memory(2)


@pytest.mark.parametrize(("there", "nodes", "enough"), [(12, 1, True), (8, 1, False), (12, 2, False)])
def test_processors_that_ray_would_wait_for(there: int, nodes: int, enough: bool) -> None:
    config = of_script("rl_2048", settings=[f"trainer.nnodes={nodes}"])
    assert (not [*machine.check_processors(config, Section.read(config.vlmgym), there)]) == enough


@pytest.mark.parametrize(
    ("settings", "free", "words"),
    [
        ([], 79, []),
        ([], 10, ["vLLM takes 48.0 GiB", "an update takes 29.8 GiB"]),
        (["trainer.n_gpus_per_node=1", "worker.rollout.tensor_parallel_size=1"], 79, ["an update takes 119.2 GiB"]),
        (["worker.rollout.gpu_memory_utilization=0.05"], 79, ["vLLM's weights take 7.5 GiB"]),
        (
            ["worker.actor.offload.offload_params=false", "worker.rollout.gpu_memory_utilization=0.95"],
            79,
            ["vLLM takes 76.0 GiB, 71.5 of 80.0 GiB are free"],
        ),
        (["worker.actor.offload.offload_optimizer=false"], 79, []),
    ],
)
def test_models_that_gpus_do_not_hold(settings: list[str], free: int, words: list[str]) -> None:
    """8 billion parameters on GPUs of 80 GiB."""
    config = of_script("rl_2048", settings=settings)
    needed = memory.estimate_memory(config, {"actor": memory.ModelSize(8 * 10**9, 0, 28, 4)})
    found = [*machine.check_gpus(config, needed, [(free * machine.GIB, 80 * machine.GIB)])]
    assert len(found) == len(words), found
    for problem, start in zip(found, words):
        assert problem.startswith(f"GPU 0: {start}")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (None, "it has no config.json"),
        ('{"model_type": ', "is not a valid JSON file"),
        ("[]", "list indices must be integers"),
        ('{"model_type": "qwen9_vl"}', "`qwen9_vl` but Transformers does not recognize"),
        ('{"model_type": "qwen2"}', "Unrecognized configuration class"),
        ('{"model_type": "qwen3_vl", "text_config": 3}', "no attribute 'text_config'"),
    ],
)
def test_a_model_that_cannot_be_made_is_told(qwen3: Path, tmp_path: Path, written: str | None, words: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(qwen3, folder)
    (folder / "config.json").unlink()
    if written is not None:
        (folder / "config.json").write_text(written)
    problems, _ = check_run(of_script("rl_2048", settings=[QUICK, f"worker.actor.model.model_path={folder}"]))
    assert len([problem for problem in problems if words in problem]) == 1


def test_a_model_without_a_tokenizer_is_told(qwen3: Path, tmp_path: Path) -> None:
    shutil.copy(qwen3 / "config.json", tmp_path)
    with pytest.raises(UsageError, match=f"the processor of the model {tmp_path} does not load"):
        load_processors(ModelConfig(str(tmp_path)), DataConfig())


@pytest.mark.parametrize(
    ("settings", "count"),
    [(["trainer.save_freq=10"], 3), (["trainer.save_freq=200"], 2), (["trainer.save_freq=-1"], 1)],
)
def test_checkpoints_that_the_disk_does_not_hold(tmp_path: Path, settings: list[str], count: int) -> None:
    """Of 300 steps; EasyR1 writes one at the end whatever save_freq is, and three are kept."""
    files = [str(CONFIGS / f"{name}.yaml") for name in ("base", "2048")]
    config = read_config([*files, f"trainer.save_checkpoint_path={tmp_path / 'out'}", *settings])
    (problem,) = machine.check_disk(config, 2.0**60)
    assert problem.startswith(f"{count} checkpoints need {count * 2**30} GiB more")
    (tmp_path / "out" / "global_step_10").mkdir(parents=True)
    assert len([*machine.check_disk(config, 2.0**60)]) == (count > 1)


def test_a_model_that_is_not_here_is_told_without_the_hub(qwen3: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    config = of_script("rl_2048")
    config.worker.actor.model.model_path = "nobody/nothing"
    assert any("HF_HUB_OFFLINE is set" in problem for problem in check_run(config, machine=False)[0])
    with pytest.raises(UsageError, match="the model nobody/nothing is not had from the hub"):
        fetch_model("nobody/nothing")
    fetch_model(str(qwen3))


@pytest.mark.parametrize(
    ("names", "settings", "host", "gpu", "checkpoint"),
    [
        # Of 1,000 parameters, 100 of the vision tower and 50 of the output layer, on 4 GPUs. On the host: weights and
        # optimizer states in float32, the reference and two copies of vLLM's weights in bfloat16. On a GPU: weights,
        # gradients and optimizer states.
        (("rl_2048",), [], 12_000 + 2000 + 4000, 16_000 / 4, 12_000),
        (("rl_2048",), ["worker.actor.model.freeze_vision_tower=true"], 17_200, (4000 + 12 * 900) / 4, 11_200),
        (("rl_2048",), ["worker.actor.offload.offload_optimizer=false"], 10_000, 16_000 / 4, 12_000),
        (("rl_2048",), ["algorithm.disable_kl=true", "trainer.save_model_only=true"], 16_000, 16_000 / 4, 4000),
        (("rl_2048",), ["trainer.val_only=true"], 10_000, 4000 / 4, 0),
        (("rl_2048",), ["worker.actor.fsdp.enable_cpu_offload=true"], 22_000, 0, 12_000),
        (("rl_2048",), ["trainer.nnodes=2"], 14_000 / 2 + 4000, 16_000 / 8, 12_000),
        (("rl_2048",), ["worker.ref.fsdp.enable_cpu_offload=false"], 16_000, 16_000 / 4, 12_000),
        (("rl_2048", "low_memory"), [], 14_000, (2 + 2 + 6) * 1000 / 4, 8000),
        (("rl_2048", "lora"), [], 6000, 2000 / 4, 2000),
        (("ppo_2048",), [], 18_000 + 12 * 950, 16_000 / 4, 12_000 + 12 * 950),
        (("ppo_2048",), ["worker.critic.offload.offload_params=false"], 25_600, 16_000 / 4, 23_400),
    ],
)
def test_bytes_of_a_run(names: tuple[str, ...], settings: list[str], host: float, gpu: float, checkpoint: int) -> None:
    sizes = {"actor": memory.ModelSize(1000, 100, 28, 4), "critic": memory.ModelSize(950, 100, 28, 4)}
    found = memory.estimate_memory(of_script(*names, settings=settings), sizes)
    assert (found.host, found.update, found.checkpoint) == (host, gpu, checkpoint)


def test_parameters_are_those_of_the_models(checkpoint: Path) -> None:
    """The vision tower as EasyR1 freezes it, and the critic without its head."""
    counted = memory.model_size(ModelConfig(str(checkpoint)), critic=False)
    model = AutoModelForImageTextToText.from_pretrained(checkpoint)
    assert counted.parameters == model.num_parameters()
    assert counted.vision == sum(weights.numel() for weights in model.model.visual.parameters()) > 0
    critics.register_critics()
    critic = AutoModelForTokenClassification.from_pretrained(checkpoint)
    judging = memory.model_size(ModelConfig(str(checkpoint)), critic=True)
    assert judging.parameters == critic.num_parameters() - critic.score.weight.numel()
    assert judging.vision == counted.vision


@pytest.mark.parametrize(
    ("gpus", "missing", "words"),
    [
        (4, "", ""),
        (2, "", "has no actor/model_world_size_2_rank_0.pt"),
        (4, "actor/optim_world_size_4_rank_0.pt", "has no actor/optim_world_size_4_rank_0.pt"),
        (4, "dataloader.pt", "has no dataloader.pt"),
        (4, "critic/model_world_size_4_rank_0.pt", "has no critic/model_world_size_4_rank_0.pt"),
    ],
)
def test_checkpoints_that_a_run_cannot_go_on_from(tmp_path: Path, gpus: int, missing: str, words: str) -> None:
    """Saved by four GPUs."""
    curriculum = SECTION.make_curriculum()
    folder = tmp_path / "global_step_25"
    save_parts(folder, "actor", "critic")
    save_rows(folder)
    if missing:
        (folder / missing).unlink()
    settings = [f"trainer.n_gpus_per_node={gpus}", f"trainer.save_checkpoint_path={tmp_path}"]
    config = of_script("ppo_2048", settings=settings)
    assert [*resume.check_checkpoint(config, curriculum)] == [], "without the tracker it begins anew"
    (tmp_path / "checkpoint_tracker.json").write_text('{"last_global_step": 25}')
    problems = [*resume.check_checkpoint(config, curriculum)]
    assert len(problems) == bool(words)
    assert all(words in problem for problem in problems)
    (tmp_path / "checkpoint_tracker.json").write_text('{"last_global_step": 50}')
    (problem,) = resume.check_checkpoint(config, curriculum)
    assert problem.startswith(f"{tmp_path / 'checkpoint_tracker.json'} names no checkpoint")
    config.trainer.load_checkpoint_path = str(tmp_path)
    (problem,) = resume.check_checkpoint(config, curriculum)
    assert "must be a folder named global_step_N" in problem


def save_parts(folder: Path, *parts: str) -> None:
    """Files of the models of a run on four GPUs, as a checkpoint has them, all empty."""
    for part in parts:
        (folder / part).mkdir(parents=True)
        for file in ("model", "optim", "extra_state"):
            (folder / part / f"{file}_world_size_4_rank_0.pt").touch()


def save_rows(folder: Path, **other: Any) -> None:
    """The rows of a run at its beginning, as a checkpoint has them."""
    torch.save({**PromptStream(SECTION.make_curriculum(), DataConfig().seed, 8).state_dict(), **other}, folder / ROWS)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (save_rows, ""),
        (partial(save_rows, seed=7), "the checkpoint is of a run with data.seed=7, not 1"),
        (partial(save_rows, progress='{"entries": []}'), "cannot resume from"),
        (partial(save_rows, progress="{"), "its dataloader.pt is damaged"),
        (lambda folder: (folder / ROWS).write_bytes(b"PK"), "its dataloader.pt is damaged"),
        (lambda folder: (folder / ROWS).write_bytes(b"\x80\x02\x85a\x93"), "its dataloader.pt is damaged"),
        (lambda folder: (folder / ROWS).touch(), "its dataloader.pt is damaged"),
        (lambda folder: torch.save([1], folder / ROWS), "its dataloader.pt is damaged"),
        (lambda folder: torch.save(Path("/"), folder / ROWS), "its dataloader.pt is damaged"),
    ],
)
def test_rows_that_a_run_cannot_go_on_with(tmp_path: Path, write: Callable[[Path], Any], words: str) -> None:
    folder = tmp_path / "global_step_25"
    save_parts(folder, "actor")
    write(folder)
    config = of_script("rl_2048", settings=[f"trainer.load_checkpoint_path={folder}"])
    problems = [*resume.check_checkpoint(config, SECTION.make_curriculum())]
    assert len(problems) == bool(words)
    assert all(words in problem for problem in problems), problems


def test_memory_is_free_within_the_limit_of_a_container(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("4:memory:/old\n0::/job/step\n")
    group = tmp_path / "job" / "step"
    group.mkdir(parents=True)
    assert machine.free_memory(tmp_path, tmp_path / "mine") > 10_000
    for folder, limit, used in ((group, "max", 3000), (group.parent, "10000", 4000)):
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
    assert machine.free_memory(tmp_path, tmp_path / "mine") == 6000


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nowhere.yaml"], "cannot read nowhere.yaml: No such file"),
        (["trainer.steps=3"], "trainer.steps=3: Key 'steps' not in 'TrainerConfig'"),
        (["trainer.max_steps=many"], "trainer.max_steps=many: Value 'many' .* could not be converted"),
        (["trainer.load_checkpoint_path=nowhere"], "trainer.load_checkpoint_path=nowhere: there is no such file"),
        (["data.override_chat_template=nowhere"], "data.override_chat_template=nowhere: there is no such file"),
    ],
)
def test_settings_that_are_not_accepted(args: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_config(args)
