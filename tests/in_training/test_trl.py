"""TRL's GRPOTrainer with the public interface: single moves, and whole episodes through tool calls."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trl
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import GRPOConfig, GRPOTrainer

from tests.in_training.tiny import make_checkpoint, make_move_model
from vlmgym import Episode, RewardConfig, make_dataset, reward_fn, to_hf_dataset
from vlmgym.errors import UsageError
from vlmgym.integrations.trl import GameEnvironment, check_sight, episode_limits
from vlmgym.training.algorithm import TrainingError
from vlmgym.training.config import Kind
from vlmgym.training.signal import SIGHT_INTERVAL

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "train_with_trl.py"
PAGE = (ROOT / "docs" / "integrations" / "trl.md").read_text()
SINGLE_MOVES, EPISODES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TEMPLATES = Path(trl.__file__).parent / "chat_templates"
SMALL: dict[str, Any] = {"rows": 3, "columns": 3, "goal": 16, "size": 64}
REWARD = RewardConfig(shaping="log2", illegal=-1.0, unparsable=-2.0)
TURNS = 6


def grpo_config(folder: Path, **options: Any) -> GRPOConfig:
    quick = {"per_device_train_batch_size": 8, "num_generations": 2, "logging_steps": 1, "save_strategy": "no"}
    on_cpu = {"use_cpu": True, "bf16": False, "report_to": "none"}
    return GRPOConfig(output_dir=str(folder), **{"learning_rate": 1e-3, **quick, **on_cpu, **options})


def load(folder: Path) -> torch.nn.Module:
    """Load a model in float32."""
    model: torch.nn.Module = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    return model


def load_processor(folder: Path, kind: Kind) -> Any:
    """Load a processor, with the chat template of the real model."""
    processor = AutoProcessor.from_pretrained(folder)
    processor.chat_template = (TEMPLATES / f"{kind}.jinja").read_text()
    return processor


def without_vision_tokens(processor: Any) -> dict[str, Any]:
    """Return generation options that suppress image tokens: tiny models generate them, and forward passes then fail."""
    names = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    return {"suppress_tokens": processor.tokenizer.convert_tokens_to_ids(list(names))}


def parameters(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).clone()


# Single moves ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "qwen3_vl"])
def test_single_moves_are_rewarded_as_in_an_episode(kind: Kind, tmp_path: Path) -> None:
    folder = make_move_model(tmp_path / "model", kind)
    rows = make_dataset("2048", 8, reward=REWARD, **{**SMALL, "size": 96})
    seen: list[tuple[str, str, float]] = []

    def recorded(prompts: Any, completions: Any, **columns: Any) -> list[float]:
        rewards = reward_fn(prompts, completions, **columns)
        seen.extend(zip(columns["snapshot"], (completion[0]["content"] for completion in completions), rewards))
        return rewards

    processor = load_processor(folder, kind)
    options = {"temperature": 0.5, "generation_kwargs": without_vision_tokens(processor)}
    trainer = GRPOTrainer(
        model=load(folder),
        reward_funcs=recorded,
        args=grpo_config(tmp_path, max_steps=2, max_completion_length=16, **options),
        train_dataset=to_hf_dataset(rows),
        processing_class=processor,
    )
    before = parameters(trainer.model)
    trainer.train()
    assert len(seen) == 16
    for first, second in zip(seen[::2], seen[1::2]):
        assert first[0] == second[0]
    for snapshot, response, reward in seen:
        assert reward == Episode.restore(snapshot).respond(response).total
    assert len({reward for _, _, reward in seen}) > 1
    assert not torch.equal(before, parameters(trainer.model))


@pytest.mark.parametrize("lost", ["", "in the trainer", "in the model"])
def test_models_that_do_not_see_their_images_stop_training(lost: str, checkpoint: Path, tmp_path: Path) -> None:
    class Trainer(GRPOTrainer):
        def _get_per_token_logps_and_entropies(self, *args: Any, pixel_values: Any = None, **columns: Any) -> Any:
            pixels = None if lost == "in the trainer" else pixel_values
            return super()._get_per_token_logps_and_entropies(*args, pixel_values=pixels, **columns)

    processor, model = load_processor(checkpoint, "qwen3_vl"), load(checkpoint)
    if lost == "in the model":  # images become the same embeddings, whatever they show
        model.model.visual.patch_embed.register_forward_hook(lambda module, args, output: torch.zeros_like(output))
    steps = SIGHT_INTERVAL + 2 if not lost else 1
    options = {"max_completion_length": 4, "generation_kwargs": without_vision_tokens(processor)}
    trainer = Trainer(
        model=model,
        reward_funcs=reward_fn,
        args=grpo_config(tmp_path, max_steps=steps, per_device_train_batch_size=2, **options),
        train_dataset=to_hf_dataset(make_dataset("2048", 2, reward=REWARD, **SMALL)),
        processing_class=processor,
    )
    check_sight(trainer)
    if lost:
        with pytest.raises(TrainingError, match="the model does not see its images"):
            trainer.train()
        return
    trainer.train()
    gaps = {row["step"]: row["sight/logprob_gap"] for row in trainer.state.log_history if "sight/logprob_gap" in row}
    assert [*gaps] == [1, SIGHT_INTERVAL + 1]
    assert all(gap > 0 for gap in gaps.values())


# Episodes -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen3-VL with the chat template of the real one."""
    folder = make_checkpoint(tmp_path_factory.mktemp("checkpoint"))
    load_processor(folder, "qwen3_vl").save_pretrained(folder)
    return folder


def respond_by_hand(snapshot: str, always: str | None) -> tuple[list[str], list[Any], list[str], float]:
    """Play an episode with the oracle or the response `always`; return responses, images, texts and reward."""
    episode = Episode.restore(snapshot)
    responses: list[str] = []
    images: list[Any] = []
    texts = [message["content"][-1]["text"] for message in episode.messages()[:-1]]
    reward = 0.0
    while not episode.done:
        images += episode.images
        texts.append(episode.prompt)
        responses.append(always or f"<answer>{episode.answer()}</answer>")
        reward += episode.respond(responses[-1]).total
    return responses, images, texts, reward


def has_in_order(text: str, texts: list[str]) -> bool:
    return re.search(".*".join(map(re.escape, texts)), text, re.DOTALL) is not None


@pytest.mark.parametrize("chat", [False, True])
def test_episodes_equal_those_played_by_hand(chat: bool, checkpoint: Path, tmp_path: Path, monkeypatch: Any) -> None:
    rows = make_dataset("2048", 2, max_turns=TURNS, chat=chat, reward=REWARD, **{**SMALL, "goal": 8})
    processor = AutoProcessor.from_pretrained(checkpoint)
    limits = episode_limits(rows[:1], processor, 64)
    trainer = GRPOTrainer(
        model=load(checkpoint),
        processing_class=processor,
        train_dataset=to_hf_dataset(rows),
        args=grpo_config(tmp_path, max_steps=2, per_device_train_batch_size=4, **limits),
        environment_factory=GameEnvironment,
    )
    expected = [
        [respond_by_hand(row["snapshot"], always) for always in (None, "<answer>left</answer>")] for row in rows
    ]
    responses = [[played[0] for played in group] for group in expected]
    calls = 0
    steps: list[tuple[list[Any], list[Any], list[str]]] = []

    def generate(prompt_ids: Any, images: Any, fields: Any, num_generations: int, has_tool_images: bool = False) -> Any:
        """Call the tool once per turn, and once more after the end."""
        nonlocal calls
        calls = calls + 1 if has_tool_images else 0
        ids = []
        for i, environment in enumerate(trainer.environments):
            mine = responses[environment.episode.seed][i % 2]
            response = mine[calls] if calls < len(mine) else "<answer>up</answer>"
            call = f'{{"name": "respond", "arguments": {{"response": "{response}"}}}}'
            text = f"<tool_call>\n{call}\n</tool_call>{processor.tokenizer.eos_token}"
            ids.append(processor.tokenizer(text, add_special_tokens=False)["input_ids"])
        if calls == TURNS:
            episodes = [environment.episode for environment in trainer.environments]
            rewards = [environment.get_reward() for environment in trainer.environments]
            facts = [(each.seed, each.turn, reward) for each, reward in zip(episodes, rewards)]
            prompts = processor.tokenizer.batch_decode(prompt_ids)
            steps.append((facts, [list(map(np.asarray, shown)) for shown in images], prompts))
        return ids, None

    monkeypatch.setattr(trainer, "_generate_single_turn", generate)
    before = parameters(trainer.model)
    trainer.train()
    assert len(steps) == 2
    for facts, shown, prompts in steps:
        assert [seed for seed, *_ in facts] in ([0, 0, 1, 1], [1, 1, 0, 0])
        for i, (seed, turn, reward) in enumerate(facts):
            taken, images, texts, total = expected[seed][i % 2]
            assert (turn, reward) == (len(taken), pytest.approx(total))
            assert len(shown[i]) == len(images)
            assert all(map(np.array_equal, shown[i], images))
            assert has_in_order(prompts[i], texts)
    assert min(len(taken) for taken, *_ in chain(*expected)) < TURNS  # a game ended before the limit
    logged = [entry for entry in trainer.state.log_history if "reward" in entry]
    mean = np.mean([total for *_, total in chain(*expected)])
    assert [entry["reward"] for entry in logged] == [pytest.approx(mean)] * 2
    assert not torch.equal(before, parameters(trainer.model))


def test_a_dataset_without_snapshots_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no column snapshot.*make_dataset"):
        GameEnvironment().reset(prompt=[{"role": "user", "content": "Play."}])


def test_a_template_without_images_of_tools_is_refused(checkpoint: Path) -> None:
    processor = AutoProcessor.from_pretrained(checkpoint)
    processor.chat_template = (TEMPLATES / "gemma4.jinja").read_text()
    with pytest.raises(UsageError, match=r"template.*images that tools return"):
        episode_limits([], processor, 64)


def test_a_dataset_with_history_is_refused(checkpoint: Path) -> None:
    rows = make_dataset("2048", 1, history=2, **SMALL)
    with pytest.raises(UsageError, match=r"history=0 or chat=True"):
        episode_limits(rows, AutoProcessor.from_pretrained(checkpoint), 64)


@pytest.mark.parametrize(("calls", "unparsable"), [(0, 1), (1, 2), (2, 3), (3, 3)])
def test_a_rollout_that_stops_early_has_another_unparsable_response(calls: int, unparsable: int) -> None:
    (row,) = make_dataset("2048", 1, max_turns=3, reward=REWARD, **SMALL)
    environment = GameEnvironment()
    environment.reset(**row)
    for _ in range(calls):
        environment.respond("none")
    assert [environment.get_reward() for _ in range(2)] == [-2.0 * unparsable] * 2  # the added response is counted once


@pytest.mark.parametrize("turns", ["1", "3"])
def test_the_example_trains(turns: str, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = ["--turns", turns, "--size", "64", "--rows", "4", "--steps", "1", "--batch", "2", "--group", "2"]
    options = [*quick, "--response-tokens", "8", "--model", str(checkpoint), "--output-dir", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *options])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert (tmp_path / "out" / "model.safetensors").exists()


@pytest.mark.slow
def test_two_processes_train_adapters(tmp_path: Path) -> None:
    """On gloo, with torchrun, because `accelerate launch` starts one process on a CPU.

    A group of eight needs both processes, which generate four rollouts each.
    """
    folder = make_move_model(tmp_path / "model")
    load_processor(folder, "qwen3_vl").save_pretrained(folder)
    quick = ["--size", "64", "--rows", "8", "--steps", "2", "--batch", "4", "--group", "8", "--response-tokens", "16"]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(EXAMPLE)]
    command = [sys.executable, *launch, *quick, "--lora", "8", "--model", str(folder)]
    subprocess.run([*command, "--output-dir", str(tmp_path / "out")], cwd=tmp_path, check=True, timeout=600)
    trained, initial = (load(path).state_dict() for path in (tmp_path / "out", folder))
    changed = {name for name, weights in trained.items() if not torch.equal(weights, initial[name])}
    assert changed
    assert all(".language_model.layers." in name for name in changed)


@pytest.mark.parametrize("code", [SINGLE_MOVES, EPISODES])
def test_code_of_the_page_runs(code: str, checkpoint: Path, tmp_path: Path) -> None:
    quick = "max_steps=1, per_device_train_batch_size=2, num_generations=2, use_cpu=True, bf16=False, report_to='none'"
    for part, stand_in in (
        (r'"Qwen/.*?"', repr(str(checkpoint))),
        (r'output_dir=".*?"', f"output_dir={str(tmp_path)!r}, {quick}"),
        ("1000", "4"),
        ("size=320", "size=64"),
        ("256|128", "8"),
    ):
        code, count = re.subn(part, stand_in, code)
        assert count == 1
    exec(code, {})
