"""Live logging of evaluations to TensorBoard and Weights & Biases."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from tests.api_server import ApiServer, first, refusal
from vlmgym.cli.main import main
from vlmgym.evaluation import read_run
from vlmgym.evaluation.live_log import TensorBoardLogger, WandbLogger

QUICK = ["--max-turns", "3", "--workers", "0", "--videos", "0", "--no-report"]


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """Read the values of each tag by step from event files."""
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    events.Reload()
    tags = sorted(events.Tags()["tensors"])
    return {tag: {event.step: make_ndarray(event.tensor_proto).item() for event in events.Tensors(tag)} for tag in tags}


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Use Weights & Biases offline; afterwards, tear it down, so that it rereads its settings."""
    import wandb as module

    for name, value in {"MODE": "offline", "SILENT": "true", "CONSOLE": "off", "ERROR_REPORTING": "false"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    yield module
    module.teardown()


def test_tensorboard_logs_running_means_of_each_episode(tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ["eval", "2048", "swap", "--episodes", "4", "--policy", "oracle", "--tensorboard", *QUICK]
    main([*command, "--output-dir", str(run)])
    logged = scalars(run / "tensorboard")
    summary = json.loads((run / "summary.json").read_text())["games"]["2048-v0"]
    assert sum(len(logged[f"{game}/episodes"]) for game in ("2048-v0", "swap-v0")) == 8
    steps = sorted(logged["2048-v0/episodes"])
    assert [logged["2048-v0/episodes"][step] for step in steps] == [1, 2, 3, 4]
    last = {tag: values[max(values)] for tag, values in logged.items()}
    assert last["2048-v0/score_mean"] == pytest.approx(summary["score_mean"])
    assert (last["2048-v0/score_ci_low"], last["2048-v0/score_ci_high"]) == pytest.approx(tuple(summary["score_ci"]))
    assert last["2048-v0/turns_played"] == 12
    assert last["2048-v0/turns_illegal"] == last["2048-v0/turns_unparsable"] == 0


def test_tokens_cost_and_errors_are_logged_and_a_resumed_run_continues(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with ApiServer(first([refusal(400)])).running() as server:
        command = ["eval", "2048", *QUICK, "--policy", "openai", "--model", "m", "--base-url", server.url]
        command += ["--price-in", "1000", "--price-out", "2000", "--concurrency", "1", "--episodes", "3"]
        with pytest.raises(SystemExit, match="1"):
            main([*command, "--tensorboard", "--output-dir", str(run)])
        assert max(scalars(run / "tensorboard")["2048-v0/status_error"].values()) == 1
        main([*command, "--tensorboard", "--resume", str(run)])
    logged = scalars(run / "tensorboard")
    assert logged["2048-v0/episodes"][3] == 3
    assert logged["2048-v0/prompt_tokens"][3] == 900
    assert logged["2048-v0/completion_tokens"][3] == 63
    assert logged["2048-v0/cost"][3] == pytest.approx(0.9 + 0.126)


def test_wandb_logs_metrics_and_config(tmp_path: Path, wandb: Any) -> None:
    run = tmp_path / "run"
    main(["eval", "2048", "--episodes", "3", "--reasoning", "4", "--wandb", "games", *QUICK, "--output-dir", str(run)])
    wandb.teardown()  # flushes its files
    name = (run / "wandb_id").read_text()
    (file,) = run.glob(f"wandb/offline-run-*-{name}/run-{name}.wandb")
    written = file.read_bytes()
    mean = json.loads((run / "summary.json").read_text())["games"]["2048-v0"]["score_mean"]
    assert b"2048-v0/score_mean" in written
    assert json.dumps(mean).encode() in written
    assert b"four_probability" in written, "the config is missing"


@pytest.mark.parametrize(("logger", "method"), [("tensorboard", "close"), ("wandb", "log")])
def test_failing_loggers_lose_no_episode(
    tmp_path: Path,
    wandb: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    logger: str,
    method: str,
) -> None:
    kind: type[Any] = {"tensorboard": TensorBoardLogger, "wandb": WandbLogger}[logger]
    close = kind.close

    def fail(self: Any, *_: Any, **options: Any) -> None:
        if method == "close":
            close(self, **options)
        raise OSError("no space left")

    monkeypatch.setattr(kind, method, fail)
    run = tmp_path / "run"
    main(["eval", "2048", "--episodes", "3", "--tensorboard", "--wandb", "games", *QUICK, "--output-dir", str(run)])
    assert len(read_run(run).episodes) == 3
    assert (run / "summary.json").exists()
    name = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases"}[logger]
    assert capsys.readouterr().err.count(f"logging to {name} failed and is disabled (OSError: no space left)") == 1
    if method == "log":
        assert len(scalars(run / "tensorboard")["2048-v0/episodes"]) == 3


@pytest.mark.parametrize("package", ["tensorboard", "wandb"])
def test_missing_loggers_are_reported_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    option = ["--tensorboard"] if package == "tensorboard" else ["--wandb", "games"]
    with pytest.raises(SystemExit, match="2"):
        main(["eval", "2048", *QUICK, *option, "--output-dir", str(tmp_path / "run")])
    sentence = f"error: --{package} needs {package}: run {sys.executable} -m pip install 'vlmgym[log]'\n"
    assert capsys.readouterr().err == sentence
    assert not (tmp_path / "run").exists()
