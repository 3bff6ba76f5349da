"""Chat templates of real models: earlier responses, and the switch of a model's own thinking."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import trl

from tests.in_training.runs import NO_EPISODES, QUICK, SMALL, main, read
from tests.in_training.tiny import make_checkpoint
from vlmgym.cli.main import main as run_command
from vlmgym.policies.local_model import GenerationRequest, LocalModel
from vlmgym.sandbox.core.prompt import Message
from vlmgym.sandbox.core.response_format import compose
from vlmgym.training.engine.encoding import Encoder

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
TURNS = (Message("user", "1"), Message("assistant", compose("2 4", "up merges", "up")), Message("user", "2"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"))


def use_template(checkpoint: Path, name: str) -> None:
    (checkpoint / "chat_template.jinja").write_text((TEMPLATES / f"{name}.jinja").read_text())


@pytest.mark.parametrize("name", ["qwen3_5_think", "qwen3_5_nothink", "qwen3_6"])
def test_templates_that_delete_earlier_thinking_are_named_once(checkpoint: Path, name: str) -> None:
    use_template(checkpoint, name)
    message = "deletes <perception> and <think> from earlier responses, .* --history N quotes"
    encoder = Encoder(checkpoint)
    with pytest.warns(UserWarning, match=message):
        encoder.encode(TURNS, [])
    with pytest.warns(UserWarning, match=message):
        LocalModel(str(checkpoint), "cpu").generate([GenerationRequest([], TURNS)], 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        encoder.encode(TURNS, [])
        text = encoder.encode("Last turn: " + compose("2 4", "up merges", "up"), [])
    assert "up merges" in encoder.tokenizer.decode(text.ids), "past turns quoted in a user message survive"


@pytest.mark.parametrize("name", ["qwen2_5_vl", "qwen3_vl", "gemma4"])
def test_templates_that_keep_earlier_responses(checkpoint: Path, name: str) -> None:
    use_template(checkpoint, name)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        encoder = Encoder(checkpoint)
        assert "up merges" in encoder.tokenizer.decode(encoder.encode(TURNS, []).ids)


def test_thinking_is_switched_and_recorded(checkpoint: Path, tmp_path: Path) -> None:
    use_template(checkpoint, "qwen3_5_think")
    ends = {}
    for thinking in (None, True, False):
        encoder = Encoder(checkpoint, thinking)
        ends[thinking] = encoder.tokenizer.decode(encoder.encode("2", []).ids).rpartition("assistant")[2]
    assert ends == {None: "\n<think>\n", True: "\n<think>\n", False: "\n<think>\n\n</think>\n\n"}
    run, evaluation = tmp_path / "run", tmp_path / "evaluation"
    args = [*QUICK, *SMALL, *NO_EPISODES, "--model", str(checkpoint), "--steps", "1", "--evaluation.states", "0"]
    main([*args, "--enable-thinking", "False", "--output-dir", str(run)])
    assert read(run / "model" / "vlmgym.json")["enable_thinking"] is False
    options = ["--policy", "transformers", "--episodes", "1", "--max-tokens", "1", "--videos", "0", "--no-report"]
    run_command(
        ["eval", "--as-trained", str(run / "model"), *options, "--workers", "0", "--output-dir", str(evaluation)]
    )
    assert json.loads((evaluation / "run.json").read_text())["policy"]["options"]["enable_thinking"] is False
