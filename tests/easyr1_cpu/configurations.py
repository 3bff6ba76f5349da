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

from tests.easyr1_cpu.tables import CONFIGS, ROOT, SECTION
from training.easyr1 import critics, machine, resume, sizes
from training.easyr1.check import check_run
from training.easyr1.config import RunConfig, read_config
from training.easyr1.launch import fetch_model
from training.easyr1.prompts import load_processors
from training.easyr1.resume import ROWS
from training.easyr1.rows import RowStream
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
    checked = check_run(config, machine=False)
    assert checked.problems == []
    assert "prompts have up to" in checked.facts[0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["data.rollout_batch_size=100"], "worker.actor.global_batch_size=128 does not divide"),
        (["worker.rollout.n=1"], "worker.rollout.n is 2 or more"),
        (["trainer.n_gpus_per_node=3"], "is no multiple of 3 GPUs"),
        (["worker.actor.micro_batch_size_per_device_for_update=7"], "does not divide the 256 rows of a minibatch"),
        (["vlmgym.play.turns=3"], "no multiple of vlmgym.play.turns=3"),
        (["data.max_prompt_length=64"], "and data.max_prompt_length is 64"),
        (["vlmgym.play.history=4"], "with 4 earlier turns prompts may have"),
        (["worker.rollout.max_num_batched_tokens=1024"], "max_num_batched_tokens=1024 is less"),
        (["trainer.max_steps=null"], "trainer.max_steps is not set"),
        (["vlmgym.play.turns=2", "worker.actor.loss_avg_mode=seq"], "worker.actor.loss_avg_mode counts rows that only"),
        (["algorithm.adv_estimator=remax"], "algorithm.adv_estimator is one of"),
        (["vlmgym.play.history=1", "vlmgym.play.history_images=1", "data.max_prompt_length=8192"], "show 2 pictures"),
        (["trainer.logger=[vlmgym,paper]"], "there is no paper"),
        (["worker.actor.model.model_path=nowhere/at/all"], "there is no folder nowhere/at/all"),
        (["worker.actor.model.model_path=null"], "names no model: set MODEL"),
        (["trainer.n_gpus_per_node=0"], "trainer.n_gpus_per_node is at least 1, not 0"),
        (
            ["trainer.total_epochs=3"],
            "total_epochs has no effect here: leave it out; in its place there is trainer.",
        ),
        (
            ["worker.reward.num_cpus=2"],
            "worker.reward has no effect here: leave it out; in its place there is vlmgym.",
        ),
        (["worker.actor.model.lora.rank=48"], "worker.actor.model.lora.rank is one of 0, 8, 16, 32, 64, 128, 256, 320"),
        (["worker.actor.ulysses_size=8"], "worker.actor.ulysses_size=8 does not divide 4 GPUs"),
        (["worker.actor.fsdp.fsdp_size=3"], "worker.actor.fsdp.fsdp_size=3 does not divide 4 GPUs"),
        (["worker.actor.fsdp.enable_cpu_offload=true"], "micro_batch_size_per_device_for_update=256, or it to false"),
        (["trainer.val_only=true", "trainer.val_before_train=false"], "set trainer.val_before_train=true"),
        (["trainer.val_only=true", "vlmgym.validation={episodes: 0}"], "trainer.val_only asks for validation"),
        (["worker.rollout.temperature=0"], "worker.rollout.temperature is above 0, not 0.0"),
        (["worker.rollout.gpu_memory_utilization=60"], "is above 0 and at most 1, not 60.0"),
        (["worker.actor.optim.lr=nan"], "worker.actor.optim.lr is at least 0, not nan"),
        (["data.max_pixels=0"], "data.max_pixels is at least 1, not 0"),
        (["data.seed=-1"], "data.seed is at least 0, not -1"),
        (["worker.rollout.dtype=auto"], "worker.rollout.dtype is one of bf16, bfloat16"),
        (["worker.actor.optim.strategy=sgd"], "worker.actor.optim.strategy is one of adamw, adamw_bf16, not sgd"),
    ],
)
def test_configurations_that_would_not_work(qwen3: Path, settings: list[str], words: str) -> None:
    config = of_script("rl_2048", settings=[QUICK, f"worker.actor.model.model_path={qwen3}", *settings])
    problems = check_run(config, machine=False).problems
    assert any(words in problem for problem in problems), problems


def test_validation_asks_what_is_held_out(tmp_path: Path, qwen3: Path) -> None:
    """Of 40 questions of a user 4 are held out."""
    Image.new("RGB", (64, 64)).save(tmp_path / "a.png")
    row = {"image": "a.png", "question": "Which colour?", "answer": "black"}
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({**row, "id": str(i)}) + "\n" for i in range(40)))
    config = of_script("rl_nlvr2")
    config.worker.actor.model.model_path = str(qwen3)
    config.vlmgym["games"] = [{"game": "vqa", "knobs": {"data": str(tmp_path / "rows.jsonl")}}]
    assert any("4 are held out" in problem for problem in check_run(config, machine=False).problems)
    config.vlmgym["validation"] = {"episodes": 4, "turns": 1}
    assert check_run(config, machine=False).problems == []


def test_what_a_machine_lacks(qwen3: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = of_script("rl_2048")
    config.worker.actor.model.model_path = str(qwen3)
    config.worker.rollout.tensor_parallel_size = 4
    config.worker.actor.ulysses_size = 2
    config.trainer.logger = ("vlmgym", "swanlab")
    config.trainer.save_checkpoint_path = str(tmp_path / "file" / "out")
    problems, facts = machine.look_at_machine(config)
    for words in (
        f"trainer.n_gpus_per_node=4, and this machine has {torch.cuda.device_count() or 'no'} GPU",
        "swanlab, which is not installed",
        "cannot be made",
        "worker.rollout.tensor_parallel_size=4 does not share out the model's 2 attention heads, 1 of keys and values",
        "worker.actor.ulysses_size=2 does not divide the 1 heads of keys and values of its model",
    ):
        assert any(words in problem for problem in problems), words
    assert "the model has 0.000" in facts[0]


def test_gpus_that_others_use_are_told(qwen3: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that asks GPUs for their memory finds these two."""
    config = of_script("rl_2048")
    config.worker.actor.model.model_path = str(qwen3)
    gib = machine.GIB
    found = tmp_path / "torch.py"
    found.write_text(
        f"class cuda:\n    mem_get_info = lambda gpu: [(10 * {gib}, 80 * {gib}), (79 * {gib}, 80 * {gib})][gpu]\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr("os.cpu_count", lambda: 12)
    told = [problem for problem in machine.look_at_machine(config)[0] if "GPU" in problem and "setup.sh" not in problem]
    assert told == [
        "trainer.n_gpus_per_node=4, and this machine has 2 GPU(s) with CUDA: set GPUS=2",
        "GPU 0 has 10 of 80 GiB free: another program uses it",
        "vLLM takes 48.0 GiB of each GPU by worker.rollout.gpu_memory_utilization=0.6, and 10.0 are left to it: lower "
        "it, or offload more (worker.actor.offload)",
    ]
    found.write_text("raise RuntimeError('CUDA error: devices are busy\\n\\nFor debugging consider')\n")
    told = machine.look_at_machine(config)[0]
    assert "the GPUs do not answer: RuntimeError: CUDA error: devices are busy" in told


@pytest.mark.parametrize(
    ("there", "nodes", "words"),
    [
        (12, 1, None),
        (8, 1, "Ray takes a processor for each of 4 GPUs and 8 players, and has 8: set vlmgym.players=4"),
        (2, 1, "Ray takes a processor for each of 4 GPUs and 8 players, and has 2: give it more"),
        (12, 2, "Ray takes a processor for each of 8 GPUs and 8 players, and has 12: set vlmgym.players=4"),
    ],
)
def test_processors_that_ray_would_wait_for(there: int, nodes: int, words: str | None) -> None:
    assert machine.lack_of_processors(of_script("rl_2048", settings=[f"trainer.nnodes={nodes}"]), there) == words


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([], []),
        (["trainer.n_gpus_per_node=1", "worker.rollout.tensor_parallel_size=1"], ["at least 119.2 GiB of each GPU"]),
        (["worker.rollout.gpu_memory_utilization=0.05"], ["vLLM's weights are 7.5 GiB on each GPU, and worker."]),
        (
            ["worker.actor.offload.offload_params=false", "worker.rollout.gpu_memory_utilization=0.95"],
            ["vLLM takes 76"],
        ),
        (["worker.actor.offload.offload_optimizer=false"], []),
    ],
)
def test_models_that_gpus_do_not_hold(settings: list[str], words: list[str]) -> None:
    """8 billion parameters, and 79 of 80 GiB free."""
    config = of_script("rl_2048", settings=settings)
    needed = sizes.gpu_bytes(config, sizes.Parameters(8 * 10**9, 0, 0, 0, (28, 4), (0, 0)))
    found = [*machine._gpu_room(config, needed, 79 * machine.GIB, 80 * machine.GIB)]
    assert len(found) == len(words)
    for problem, start in zip(found, words):
        assert problem.startswith(start)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (None, "there is no config.json in it"),
        ('{"model_type": ', "is not a valid JSON file"),
        ("[]", "list indices must be integers"),
        ('{"model_type": "qwen9_vl"}', "`qwen9_vl` but Transformers does not recognize"),
        ('{"model_type": "qwen2"}', "Unrecognized configuration class"),
        ('{"model_type": "qwen3_vl", "text_config": 3}', "no attribute 'text_config'"),
    ],
)
def test_a_model_that_cannot_be_made_is_told(qwen3: Path, tmp_path: Path, written: str | None, words: str) -> None:
    """Even if its processor loads; what cannot be added up is named, too."""
    folder = tmp_path / "model"
    shutil.copytree(qwen3, folder)
    (folder / "config.json").unlink()
    if written is not None:
        (folder / "config.json").write_text(written)
    checked = check_run(of_script("rl_2048", settings=[QUICK, f"worker.actor.model.model_path={folder}"]))
    assert len([problem for problem in checked.problems if words in problem]) == 1
    assert "memory and the disk for checkpoints are not added up, as the model does not load" in checked.facts


@pytest.mark.parametrize("model", ["nowhere/at/all", "null"])
def test_a_model_that_is_nowhere_is_told_once(model: str) -> None:
    checked = check_run(of_script("rl_2048", settings=[f"worker.actor.model.model_path={model}"]))
    assert len([problem for problem in checked.problems if "MODEL" in problem or model in problem]) == 1
    assert any("not added up" in fact for fact in checked.facts)


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
    (problem,) = machine._disk(config, 2.0**60)
    assert problem.startswith(f"{count} checkpoints need {count * 2**30} GiB more")
    (tmp_path / "out" / "global_step_10").mkdir(parents=True)
    assert len([*machine._disk(config, 2.0**60)]) == (count > 1)


def test_a_model_that_is_not_here_is_told_without_the_hub(qwen3: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    config = of_script("rl_2048")
    config.worker.actor.model.model_path = "nobody/nothing"
    assert any("HF_HUB_OFFLINE is set" in problem for problem in check_run(config, machine=False).problems)
    with pytest.raises(UsageError, match="the model nobody/nothing is not had from the hub"):
        fetch_model("nobody/nothing")
    fetch_model(str(qwen3))


@pytest.mark.parametrize(
    ("names", "settings", "host", "gpu", "checkpoint"),
    [
        # Of 1,000 parameters, 100 of the eye and 50 of the output, on 4 GPUs. On the host: weights and moments in
        # float32, the reference and two copies of vLLM's weights in bfloat16. On a GPU: weights, gradient and moments.
        (("rl_2048",), [], 12_000 + 2000 + 4000, 16_000 / 4, 12_000),
        (("rl_2048",), ["worker.actor.model.freeze_vision_tower=true"], 17_200, (4000 + 12 * 900) / 4, 11_200),
        (("rl_2048",), ["worker.actor.offload.offload_optimizer=false"], 10_000, 16_000 / 4, 12_000),
        (("rl_2048",), ["algorithm.disable_kl=true", "trainer.save_model_only=true"], 16_000, 16_000 / 4, 4000),
        (("rl_2048",), ["trainer.val_only=true"], 10_000, 4000 / 4, 0),
        (("rl_2048",), ["worker.actor.fsdp.enable_cpu_offload=true"], 22_000, 0, 12_000),
        (("rl_2048",), ["trainer.nnodes=2"], 14_000 / 2 + 4000, 16_000 / 8, 12_000),
        (("rl_2048",), ["worker.actor.fsdp.fsdp_size=2"], 18_000, 16_000 / 2, 12_000),
        (("rl_2048",), ["worker.ref.fsdp.enable_cpu_offload=false"], 16_000, (16_000 + 2000) / 4, 12_000),
        (("rl_2048", "low_memory"), [], 14_000, (2 + 2 + 6) * 1000 / 4, 8000),
        (("rl_2048", "lora"), [], 6000, 2000 / 4, 2000),
        (("ppo_2048",), [], 18_000 + 12 * 950, 16_000 / 4, 12_000 + 12 * 950),
        (("ppo_2048",), ["worker.critic.offload.offload_params=false"], 25_600, (16_000 + 4 * 950) / 4, 23_400),
    ],
)
def test_bytes_of_a_run(names: tuple[str, ...], settings: list[str], host: float, gpu: float, checkpoint: int) -> None:
    config = of_script(*names, settings=settings)
    parameters = sizes.Parameters(whole=1000, eye=100, critic=950, critic_eye=100, heads=(28, 4), critic_heads=(28, 4))
    assert sizes.host_bytes(config, parameters) == host
    assert sizes.gpu_bytes(config, parameters).update == gpu
    assert sizes.checkpoint_bytes(config, parameters) == checkpoint


def test_parameters_are_those_of_the_models(checkpoint: Path, qwen3: Path) -> None:
    """The eye as EasyR1 freezes it, and the critic, which is counted without its head and may be another model."""
    actor = f"worker.actor.model.model_path={checkpoint}"
    counted = sizes.count_parameters(of_script("ppo_2048", settings=[actor]))
    model = AutoModelForImageTextToText.from_pretrained(checkpoint)
    critics.register_critics()
    critic = AutoModelForTokenClassification.from_pretrained(checkpoint)
    assert counted.whole == model.num_parameters()
    assert counted.eye == sum(weights.numel() for weights in model.model.visual.parameters()) > 0
    assert counted.critic == critic.num_parameters() - critic.score.weight.numel()
    assert counted.critic_eye == counted.eye
    other = sizes.count_parameters(of_script("ppo_2048", settings=[actor, f"worker.critic.model.model_path={qwen3}"]))
    assert other.whole == counted.whole
    assert (
        other.critic
        == sizes.count_parameters(of_script("ppo_2048", settings=[f"worker.actor.model.model_path={qwen3}"])).critic
    )
    assert sizes.count_parameters(of_script("rl_2048", settings=[actor])).critic == 0
    with pytest.raises(UsageError, match="there is no folder nowhere/at/all"):
        sizes.count_parameters(of_script("ppo_2048", settings=[actor, "worker.critic.model.model_path=nowhere/at/all"]))


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
    assert [*resume.checkpoint_problems(config, curriculum)] == [], "without the tracker it begins anew"
    (tmp_path / "checkpoint_tracker.json").write_text('{"last_global_step": 25}')
    problems = [*resume.checkpoint_problems(config, curriculum)]
    assert len(problems) == bool(words)
    assert all(words in problem for problem in problems)
    (tmp_path / "checkpoint_tracker.json").write_text('{"last_global_step": 50}')
    (problem,) = resume.checkpoint_problems(config, curriculum)
    assert problem.startswith(f"{tmp_path / 'checkpoint_tracker.json'} names a folder that is not there")
    (tmp_path / "checkpoint_tracker.json").write_text('{"last_glo')
    (problem,) = resume.checkpoint_problems(config, curriculum)
    assert problem.startswith(f"{tmp_path / 'checkpoint_tracker.json'} cannot be read")
    config.trainer.load_checkpoint_path = str(tmp_path)
    (problem,) = resume.checkpoint_problems(config, curriculum)
    assert "is no checkpoint: its name is global_step_ and a number" in problem


def save_parts(folder: Path, *parts: str) -> None:
    """Files of the models of a run on four GPUs, as a checkpoint has them, all empty."""
    for part in parts:
        (folder / part).mkdir(parents=True)
        for file in ("model", "optim", "extra_state"):
            (folder / part / f"{file}_world_size_4_rank_0.pt").touch()


def save_rows(folder: Path, **other: Any) -> None:
    """The rows of a run at its beginning, as a checkpoint has them."""
    torch.save({**RowStream(SECTION.make_curriculum(), DataConfig().seed, 8).state_dict(), **other}, folder / ROWS)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (save_rows, ""),
        (partial(save_rows, seed=7), "the checkpoint is of a run with data.seed=7, not 1; leave out"),
        (partial(save_rows, progress='{"entries": []}'), "; leave out trainer.load_checkpoint_path to begin anew"),
        (partial(save_rows, progress="{"), "whose dataloader.pt cannot be read"),
        (lambda folder: (folder / ROWS).write_bytes(b"PK"), "whose dataloader.pt cannot be read"),
        (lambda folder: (folder / ROWS).write_bytes(b"\x80\x02\x85a\x93"), "whose dataloader.pt cannot be read"),
        (lambda folder: (folder / ROWS).touch(), "whose dataloader.pt cannot be read"),
        (lambda folder: torch.save([1], folder / ROWS), "whose dataloader.pt cannot be read"),
        (lambda folder: torch.save(Path("/"), folder / ROWS), "whose dataloader.pt cannot be read"),
    ],
)
def test_rows_that_a_run_cannot_go_on_with(tmp_path: Path, write: Callable[[Path], Any], words: str) -> None:
    folder = tmp_path / "global_step_25"
    save_parts(folder, "actor")
    write(folder)
    config = of_script("rl_2048", settings=[f"trainer.load_checkpoint_path={folder}"])
    problems = [*resume.checkpoint_problems(config, SECTION.make_curriculum())]
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
