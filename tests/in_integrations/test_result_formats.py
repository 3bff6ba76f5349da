"""Exported results load in the libraries of their formats."""

from __future__ import annotations

import json
import shutil
from base64 import b64decode
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import yaml
from huggingface_hub import eval_result_entries_to_yaml, parse_eval_result_entries
from inspect_ai.log import list_eval_logs, read_eval_log
from PIL import Image

from tests.playing import small_suite
from vlmgym import make_game
from vlmgym.cli.main import main
from vlmgym.evaluation import open_run

POLICY = """
from vlmgym.policies import Reply

def right(images, prompts):
    more = {"prompt_tokens": 10, "completion_tokens": 5, "finish_reason": "length", "reasoning": "It is."}
    return [Reply("<answer>true</answer>", latency=0.5, **more) for _ in prompts]
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a run of a small suite, and its exports."""
    root = tmp_path_factory.mktemp("suite")
    (root / "policy.py").write_text(POLICY)
    with small_suite(root, "nlvr2-v0", "rotation-v0", "swap-v0", episodes=2, max_turns=3):
        options = ["--videos", "0", "--no-report", "--workers", "0", "--price-in", "1", "--price-out", "2"]
        run = ["--policy", f"{root / 'policy.py'}:right", "--output-dir", str(root / "run")]
        main(["eval", "--suite", "small-1", *run, *options])
        config = json.loads((root / "run" / "run.json").read_text())
        for name, change in (("changed", {"seed": 1}), ("plain", {"suite": None})):
            (shutil.copytree(root / "run", root / name) / "run.json").write_text(json.dumps({**config, **change}))
        export(root, "run", "eval-results", "--dataset", "org/games", "--source-url", "https://example.org/run")
        export(root, "run", "inspect")
        yield root


def export(root: Path, run: str, name: str, *options: str) -> None:
    folder = str(root / name)
    main(["export", str(root / run), "--format", name, "--output-dir", folder, "--workers", "0", *options])


def test_the_hub_reads_eval_results(root: Path) -> None:
    data = yaml.safe_load((root / "eval-results" / ".eval_results" / "small-1.yaml").read_text())
    entries = parse_eval_result_entries(data)
    assert eval_result_entries_to_yaml(entries) == data
    suite = open_run(root / "run").last_summary().suite
    assert suite is not None
    assert suite.score is not None
    assert [entry.task_id for entry in entries] == ["small-1", "nlvr2-v0", "rotation-v0", "swap-v0"]
    assert entries[0].value == round(suite.score[0], 6)
    assert {entry.dataset_id for entry in entries} == {"org/games"}
    assert {entry.source_url for entry in entries} == {"https://example.org/run"}


def test_inspect_reads_logs_with_the_images_that_the_model_saw(root: Path) -> None:
    logs = {info.task: info for info in list_eval_logs(str(root / "inspect"))}
    assert sorted(logs) == ["nlvr2", "rotation", "swap"]
    header = read_eval_log(logs["swap"], header_only=True)
    log = read_eval_log(logs["swap"], resolve_attachments=True)
    run = open_run(root / "run")
    records = [episode for episode in run.read() if episode.game.id == "swap-v0"]
    assert header.status == log.status == "success"
    assert header.eval.model == run.config.policy.label
    assert header.results is not None
    assert log.samples is not None
    metrics = header.results.scores[0].metrics
    assert metrics["mean"].value == run.last_summary().games["swap-v0"].score_mean
    assert {"stderr", "normalised", "normalised_stderr"} <= metrics.keys()
    for sample, record in zip(log.samples, records, strict=True):
        assert sample.scores is not None
        assert sample.scores["game_score"].value == record.score
        assert sample.output.stop_reason == "max_tokens"
        assert sample.model_usage[run.config.policy.label].total_tokens == 45
        assert [message.role for message in sample.messages] == ["user", "assistant"] * 3
        assert sample.messages[1].text == "<answer>true</answer>"
        for message, turn in zip(sample.messages[::2], record.turns, strict=True):
            assert message.text == turn.prompt
            (image,) = make_game("swap").images(make_game("swap").from_data(turn.state))
            seen = Image.open(BytesIO(b64decode(message.content[0].image.partition(",")[2])))
            assert np.array_equal(np.asarray(seen.convert("RGB")), image)


@pytest.mark.parametrize(
    ("run", "options", "message"),
    [
        ("changed", ["--format", "eval-results", "--dataset", "a/b"], "changed differs from its suite: seed is 1, but"),
        ("plain", ["--format", "eval-results", "--dataset", "a/b"], "plain is not a run of a suite"),
        ("run", ["--format", "eval-results"], "eval-results needs --dataset"),
        ("run", ["--format", "inspect", "--top", "1"], "remove --top"),
        ("run", ["--format", "inspect", "--source-url", "https://example.org"], "only eval-results"),
        ("run", ["--format", "eval-results", "--dataset", "games"], "such as my-org/my-benchmark, got 'games'"),
        (
            "run",
            ["--format", "eval-results", "--dataset", "org/games", "--source-url", "runs/qwen"],
            "source_url must be the address of a web page, got 'runs/qwen'",
        ),
    ],
)
def test_options_that_do_not_fit_are_rejected(root, run, options, message, tmp_path, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["export", str(root / run), *options, "--output-dir", str(tmp_path / "new"), "--workers", "0"])
    assert message in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_every_message_has_the_images_of_its_prompt(tmp_path: Path) -> None:
    options = ["--episodes", "1", "--max-turns", "3", "--videos", "0", "--no-report", "--workers", "0"]
    history = ["--history", "2", "--history-images", "1"]
    main(["eval", "2048", *history, *options, "--output-dir", str(tmp_path / "run")])
    export(tmp_path, "run", "inspect")
    (info,) = list_eval_logs(str(tmp_path / "inspect"))
    (sample,) = read_eval_log(info, resolve_attachments=True).samples or []
    shown = [[part.image for part in message.content[:-1]] for message in sample.messages[::2]]
    assert [len(images) for images in shown] == [1, 2, 2]
    assert shown[1][0] == shown[0][-1]
    assert shown[2][0] == shown[1][-1]


def test_runs_of_fewer_games_have_no_score_of_the_suite(root: Path, tmp_path: Path) -> None:
    options = ["--videos", "0", "--no-report", "--workers", "0", "--observation", "text", "--policy", "random"]
    main(["eval", "--suite", "small-1", *options, "--output-dir", str(tmp_path / "run")])
    export(tmp_path, "run", "eval-results", "--dataset", "org/games")
    data = yaml.safe_load((tmp_path / "eval-results" / ".eval_results" / "small-1.yaml").read_text())
    assert [entry.task_id for entry in parse_eval_result_entries(data)] == ["nlvr2-v0", "swap-v0"]


def test_runs_without_versions_have_logs(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "run", tmp_path / "run")
    config = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps(config | {"versions": {}}))
    export(tmp_path, "run", "inspect")
    assert all(
        read_eval_log(info).eval.packages == {"vlmgym": "unknown"} for info in list_eval_logs(str(tmp_path / "inspect"))
    )


def test_runs_of_no_suite_have_logs(tmp_path: Path) -> None:
    options = ["--episodes", "1", "--max-turns", "2", "--videos", "0", "--no-report", "--workers", "0"]
    main(["eval", "2048", "--chat", *options, "--output-dir", str(tmp_path / "run")])
    export(tmp_path, "run", "inspect")
    (info,) = list_eval_logs(str(tmp_path / "inspect"))
    log = read_eval_log(info)
    assert log.samples is not None
    assert [message.role for message in log.samples[0].messages] == ["system"] + ["user", "assistant"] * 2
    assert log.eval.model == "random"
