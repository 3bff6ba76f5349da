"""Training runs that fail: divergence, full memory, full disks, and invalid options."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.in_training.runs import NO_EPISODES, QUICK, SMALL, fail
from tests.in_training.tiny import GAME, make_actor, make_checkpoint, make_engine, make_prompts, make_samples
from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError
from vlmgym.rollout.states import StateConfig
from vlmgym.runs.files import OutputError
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.training.algorithm import TrainingError
from vlmgym.training.engine.checkpoint import last_checkpoint, save_checkpoint
from vlmgym.training.evaluation import TrainedPolicy
from vlmgym.training.records import make_trained_record
from vlmgym.training.sft import Sft
from vlmgym.training.states import MultiTurnConfig
from vlmgym.training.train import memory_errors

DIVERGING = ("--settings", "update.weight_decay=1", "--evaluation.states", "0")
FULL_GPU = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


@pytest.mark.parametrize("error", [FULL_GPU, RuntimeError("CUDA error: out of memory")])
def test_a_full_gpu_is_reported_with_options_to_lower(
    model: Path, monkeypatch: pytest.MonkeyPatch, error: RuntimeError
) -> None:
    def to(*_: Any) -> None:
        raise error

    monkeypatch.setattr(torch.nn.Module, "to", to)
    with pytest.raises(TrainingError, match=r"lower --update.micro-batch-size"), memory_errors():
        make_actor(model)


@pytest.mark.parametrize("fill", [partial(torch.empty, 2**60, dtype=torch.uint8), partial(np.empty, 2**60, np.uint8)])
def test_full_memory_is_reported_with_options_to_lower(fill: Callable[[], Any]) -> None:
    with pytest.raises(TrainingError, match=r"lower --update.micro-batch-size"), memory_errors():
        fill()


@pytest.mark.parametrize("content", [None, "{}", '{"model_type": "gpt2"}'])
def test_folders_without_a_qwen_vl_are_rejected(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(UsageError, match=str(tmp_path)):
        make_actor(tmp_path)


def test_mixtures_of_experts_are_rejected(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "qwen3_vl_moe", "architectures": ["Qwen3VLMoeForConditionalGeneration"]}
    config["text_config"] |= {"model_type": "qwen3_vl_moe_text", "num_experts": 2, "moe_intermediate_size": 32}
    config["vision_config"]["model_type"] = "qwen3_vl_moe"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="qwen3_vl_moe"):
        make_actor(tmp_path)


def test_unknown_devices_are_rejected(model: Path) -> None:
    with pytest.raises(UsageError, match="device nowhere"):
        make_actor(model, device="nowhere")


def test_diverged_runs_stop_and_keep_a_good_checkpoint(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    args = [*QUICK, "--model", str(model), *SMALL, *NO_EPISODES, "--steps", "20", "--output-dir", str(run)]
    code, message = fail(capsys, *args, *DIVERGING, "--update.lr", "1e2")
    last = last_checkpoint(run / "checkpoints")
    assert last is not None
    assert code == 1
    assert "the gradient is not finite; lower the learning rate; " in message
    assert message.endswith(f"the last checkpoint is {last}")
    actor = make_actor(last / "model")
    assert actor.compute_logprobs(make_samples(actor, (5, 9))).logprobs.isfinite().all()
    assert not (run / "result.json").exists()


def test_diverged_models_are_not_saved(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    args = [*QUICK, "--model", str(model), *SMALL, *NO_EPISODES, "--steps", "1", "--output-dir", str(run)]
    code, message = fail(capsys, *args, *DIVERGING, "--update.lr", "1e30")
    assert code == 1
    assert "after step 1 the model outputs are not finite" in message
    assert message.endswith("there is no checkpoint yet")
    assert not (run / "checkpoints").exists()
    assert not (run / "model").exists()


def test_failed_evaluations_are_reported_with_how_to_resume(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def generate(*_: Any) -> Any:
        raise TrainingError("no more")

    monkeypatch.setattr(TrainedPolicy, "respond_to_batch", generate)
    run = tmp_path / "run"
    args = [*QUICK, "--model", str(model), *SMALL, "--evaluation.states", "0", "--output-dir", str(run)]
    code, message = fail(capsys, *args)
    assert code == 1
    assert message.startswith(f"error: no more; --resume {run} starts again")


@contextmanager
def limited_file_size(size: int) -> Iterator[None]:
    """Make writing fail as on a full disk once a file exceeds this size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_full_disks_leave_no_partial_checkpoint(model: Path, tmp_path: Path) -> None:
    actor = make_actor(model)
    engine = make_engine(actor)
    optimizer = engine.make_optimizer(1e-3, 0.0)
    engine.step(optimizer, [actor.encoder.sample(*make_prompts(1)[0], "up")], Sft.loss, 1.0)
    curriculum = Curriculum.of([GAME])
    start = curriculum.begin()
    trained = make_trained_record(
        curriculum, start, MultiTurnConfig(), StateConfig(), RewardConfig(), trainer="local grpo", step=1
    )
    args: Any = (tmp_path, actor, optimizer, start, [], trained)
    weights = (model / "model.safetensors").stat().st_size
    for size in (weights // 2, weights + 100_000):  # too small for the weights, or only for the optimiser
        with limited_file_size(size), pytest.raises(OutputError, match=f"cannot write {tmp_path}"):
            save_checkpoint(*args)
        assert last_checkpoint(tmp_path) is None
    with limited_file_size(weights // 2), pytest.raises(OutputError, match=f"cannot write {tmp_path / 'tiny'}: "):
        make_checkpoint(tmp_path / "tiny")
    save_checkpoint(*args)
    assert last_checkpoint(tmp_path) == tmp_path / "step_000001"


@pytest.mark.parametrize("left", [0.0, 0.5])
def test_truncated_checkpoints_are_rejected(
    finished: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], left: float
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished("blank"), run)
    file = run / "checkpoints" / "step_000003" / "trainer.pt"
    file.write_bytes(file.read_bytes()[: int(left * file.stat().st_size)])
    code, message = fail(capsys, "--resume", str(run), "--steps", "4")
    assert (code, f"cannot read the checkpoint {run}/checkpoints/step_000003" in message) == (2, True)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("--games", "geospot", *QUICK, "--sft.steps", "1", "--evaluation.states", "0", *NO_EPISODES),
            "use --sft.expert oracle",
        ),
        (("--settings", "sft.step=4", *QUICK), "sft.step: unknown setting"),
        (("--preset", "huge"), "'huge' not found: use 1x24gb, 1x80gb, demo, single_moves, tiny"),
        (("--resume", "nowhere"), "nowhere contains no training run"),
        (("--grpo.group-size", "1", *QUICK), "group_size: input should be greater than or equal to 2 (got 1)"),
        (("--ppo.lr", "1e-4", *QUICK), "ppo.* only applies to PPO"),
        (("--algorithm", "ppo", "--update.lr", "1e-3", "--preset", "tiny"), "--ppo.lr 5e-05 overrides --update.lr"),
        (("--games", "2048", "--curriculum", "2048", *QUICK), "use either --games or --curriculum"),
        (("--settings", "tiny.layers=2", "--model", "a/b", *QUICK), "settings of tiny only apply to a tiny model"),
    ],
)
def test_invalid_options_are_rejected_in_one_sentence(
    args: Sequence[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = () if "--resume" in args else ("--output-dir", str(tmp_path / "run"))
    code, error = fail(capsys, *args, *output)
    assert code == 2
    assert error.startswith("error: ")
    assert message in error
