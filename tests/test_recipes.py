"""The recipes G0 and G1: the commands that they run, and cold-start data."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.test_training_scripts import assert_rejected, run
from tests.training import ROOT

GAMES = {"2048": "2048", "shisensho_cifar10": "shisensho_cifar10", "swap": "swap", "all": "mixed"}
"""Configuration name for some of the games that the recipes accept."""
LLAMAFACTORY = """\
#!/bin/sh
echo "$@" >>"$(dirname "$0")/calls"
for setting; do
    case $setting in output_dir=*) mkdir -p "${setting#*=}" && echo "{}" >"${setting#*=}/train_results.json" ;; esac
done
"""
"""Stand-in for llamafactory-cli: it records its arguments and writes the file that marks training as finished."""


@pytest.mark.parametrize("game", GAMES)
def test_dry_run_of_g0(game: str, tmp_path: Path) -> None:
    done = run("g0.sh", game, "data.seed=2", "--dry-run", OUT=str(tmp_path / "out"))
    variable, *command = shlex.split(done.stdout)
    assert variable == f"OUT={tmp_path / 'out'}"
    assert command[2:] == [GAMES[game], "g0", f"trainer.experiment_name=g0_{game}", "data.seed=2"]
    assert command[1].endswith("training/scripts/easyr1.sh")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("game", GAMES)
def test_dry_run_of_g1(game: str, tmp_path: Path) -> None:
    variables = {"OUT": str(tmp_path), "EPISODES": "7", "EXPERT": "--policy openai --model expert", "MODEL": "base"}
    done = run("g1.sh", game, "data.seed=2", "--dry-run", **variables)
    play, rescore, export, sft, rl = map(shlex.split, done.stdout.splitlines())
    assert play[1:3] == ["eval", game.partition("_")[0] if game != "all" else "2048"]
    assert ("tiles=cifar10" in play, "swap" in play) == (game == "shisensho_cifar10", game in ("swap", "all"))
    assert " ".join(play).count("--policy openai --model expert --episodes 7") == 1
    assert play[-2:] == ["--output-dir", f"{tmp_path}/episodes"]
    assert rescore[1:5] == ["rescore", f"{tmp_path}/episodes", "--output-dir", f"{tmp_path}/rescored"]
    assert export[1:3] == ["export", f"{tmp_path}/rescored"]
    assert sft[1] == "MODEL=base"
    assert sft[-2:] == [f"{tmp_path}/data", f"{tmp_path}/sft"]
    assert rl[1:3] == [f"MODEL={tmp_path}/sft", f"OUT={tmp_path}/rl"]
    assert rl[5:] == [GAMES[game], "g0", "g1", f"trainer.experiment_name=g1_{game}", "data.seed=2"]
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def fine_tuned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Make the oracle's data and a fine-tuned checkpoint; return the variables for commands that use them."""
    folder = tmp_path_factory.mktemp("recipe")
    command = folder / "llamafactory-cli"
    command.write_text(LLAMAFACTORY)
    command.chmod(0o755)
    out = folder / "g1 shisensho"
    variables = {"OUT": str(out), "EPISODES": "1", "STAGES": "data sft", "LLAMAFACTORY": str(command)}
    done = run("g1.sh", "shisensho", **variables)
    assert done.returncode == 0, done.stderr
    return variables


@pytest.mark.slow
def test_stages_leave_their_results_and_are_not_repeated(fine_tuned: dict[str, str]) -> None:
    out = Path(fine_tuned["OUT"])
    rows = llamafactory_rows(out / "data")
    assert len(rows) == 18, "all pairs of a board of 6 x 6"
    for row in rows:
        (response,) = [message["content"] for message in row["messages"] if message["role"] == "assistant"]
        assert re.fullmatch(r"<perception>.+</perception>\n<think>.+</think>\n<answer>.+</answer>", response, re.DOTALL)
    assert run("g1.sh", "shisensho", **fine_tuned).returncode == 0
    (call,) = (out.parent / "calls").read_text().splitlines()
    assert call.startswith(f"train {ROOT}/training/sft/sft.yaml model_name_or_path=Qwen/Qwen2.5-VL-7B-Instruct ")
    assert f"dataset_dir={out}/data media_dir={out}/data dataset=data output_dir={out}/sft" in call


def test_unfinished_fine_tuning_is_reported(tmp_path: Path) -> None:
    (tmp_path / "sft").mkdir()
    for stages in ("sft", "data sft rl"):
        assert_rejected(run("g1.sh", "2048", OUT=str(tmp_path), STAGES=stages), "remove it to fine-tune again")


@pytest.mark.slow
def test_only_right_turns_of_an_expert_are_kept(fine_tuned: dict[str, str], tmp_path: Path) -> None:
    """The expert repeats the oracle's moves, but misreads the board in every second turn."""
    expert = tmp_path / "expert.py"
    expert.write_text(
        "import json, pathlib\n"
        f"rows = pathlib.Path({fine_tuned['OUT']!r}, 'data', 'data.jsonl').read_text().splitlines()\n"
        "responses = [json.loads(row)['messages'][-1]['content'] for row in rows]\n"
        "def policy(images, prompts):\n"
        "    return [responses[p.turn].replace('>', '>red heart, ' if p.turn % 2 else '>', 1) for p in prompts]\n"
    )
    variables = {"OUT": str(tmp_path / "out"), "STAGES": "data", "EXPERT": f"--policy {expert}:policy"}
    done = run("g1.sh", "shisensho", **fine_tuned | variables)
    assert done.returncode == 0, done.stderr
    assert [row["turn"] for row in llamafactory_rows(tmp_path / "out" / "data")] == [*range(1, 19, 2)]


def llamafactory_rows(folder: Path) -> list[dict[str, Any]]:
    """Read a dataset as LLaMA-Factory's data/README.md specifies for images in the sharegpt format."""
    ((name, info),) = json.loads((folder / "dataset_info.json").read_text()).items()
    assert "," not in name
    assert info["formatting"] == "sharegpt"
    tags, columns = info["tags"], info["columns"]
    rows = [json.loads(line) for line in (folder / info["file_name"]).read_text(encoding="utf-8").splitlines()]
    for row in rows:
        messages = row[columns["messages"]]
        roles = [message[tags["role_tag"]] for message in messages]
        assert roles == [tags["user_tag"], tags["assistant_tag"]] * (len(messages) // 2), "they alternate"
        texts = "".join(message[tags["content_tag"]] for message in messages)
        assert texts.count("<image>") == len(row[columns["images"]]) > 0
        for path in row[columns["images"]]:
            Image.open(folder / path).verify()
    return rows


@pytest.mark.parametrize(
    ("script", "args", "variables", "words"),
    [
        ("g0.sh", (), {}, "the first argument must be a game"),
        ("g1.sh", ("2048",), {"STAGES": "data rest"}, "STAGES must be some of data, sft and rl, got rest"),
        ("g1.sh", ("2048",), {"DATA": "cifar", "STAGES": "data"}, "DATA only applies to shisensho_cifar10, got 2048"),
        ("g1.sh", ("2048",), {"EPISODES": "0"}, "EPISODES must be a number of at least 1, got 0"),
    ],
)
def test_invalid_arguments_are_rejected(
    script: str, args: tuple[str, ...], variables: dict[str, str], words: str
) -> None:
    assert_rejected(run(script, *args, **variables), words)
