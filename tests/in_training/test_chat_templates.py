"""Chat templates of real models: earlier responses, and the switch of a model's own thinking."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import trl

import vlmgym
from tests.in_training.runs import NO_EPISODES, QUICK, SMALL, main, read
from tests.in_training.tiny import make_checkpoint
from vlmgym.cli.main import main as run_command
from vlmgym.policies.local_model import GenerationRequest, LocalModel
from vlmgym.sandbox.core.prompt import Message
from vlmgym.sandbox.core.response_format import compose
from vlmgym.training.engine.encoding import Encoder

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
DELETING = ["qwen3_5_think", "qwen3_5_nothink", "qwen3_6"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"), "qwen3_5")


def conversation(**config: Any) -> list[Message]:
    """Return the prompt of the second turn of a chat, after a response of the oracle with reasoning."""
    episode = vlmgym.Episode("2048", 0, chat=True, size=64, **config)
    episode.respond(compose("2 4", "up merges", "up", tag=episode.game.config.think_tag))
    return [Message(message["role"], message["content"][-1]["text"]) for message in episode.messages()]


def use_template(checkpoint: Path, name: str) -> None:
    (checkpoint / "chat_template.jinja").write_text((TEMPLATES / f"{name}.jinja").read_text())


@pytest.mark.parametrize("name", DELETING)
def test_templates_that_delete_earlier_thinking_are_named_once(checkpoint: Path, name: str) -> None:
    use_template(checkpoint, name)
    message = "deletes <perception> and <think> from earlier responses, .* --think-tag reasoning .*, or with --history"
    turns, encoder = conversation(), Encoder(checkpoint)
    with pytest.warns(UserWarning, match=message):
        encoder.encode(turns, [])
    with pytest.warns(UserWarning, match=message):
        LocalModel(str(checkpoint), "cpu").generate([GenerationRequest([], turns)], 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert "up merges" not in encoder.tokenizer.decode(encoder.encode(turns, []).ids)
        text = encoder.encode("Last turn: " + compose("2 4", "up merges", "up"), [])
    assert "up merges" in encoder.tokenizer.decode(text.ids), "past turns quoted in a user message survive"


@pytest.mark.parametrize(
    ("name", "tag"),
    [("qwen2_5_vl", "think"), ("qwen3_vl", "think"), ("gemma4", "think"), *((name, "reasoning") for name in DELETING)],
)
def test_earlier_responses_reach_the_model(checkpoint: Path, name: str, tag: str) -> None:
    use_template(checkpoint, name)
    turns = conversation(think_tag=tag)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        encoder = Encoder(checkpoint)
        assert turns[2].text in encoder.tokenizer.decode(encoder.encode(turns, []).ids)


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
