"""What we rely on in EasyR1, and what we add to it; `tests/test_easyr1.py` runs this in .venv-train."""

from __future__ import annotations

import inspect
import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.easyr1_cpu import sharded
from training.easyr1 import without_vllm

without_vllm.install()

from PIL import Image  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402
from transformers import AutoModelForImageTextToText, AutoModelForTokenClassification  # noqa: E402
from verl.models.monkey_patch import apply_ulysses_patch  # noqa: E402
from verl.protocol import DataProto  # noqa: E402
from verl.single_controller.ray import RayWorkerGroup  # noqa: E402
from verl.trainer import core_algos, metrics, ray_trainer  # noqa: E402
from verl.trainer.config import DataConfig  # noqa: E402
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager  # noqa: E402
from verl.utils.dataset import process_image  # noqa: E402
from verl.workers.config import CriticConfig, ModelConfig  # noqa: E402
from verl.workers.critic.dp_critic import DataParallelPPOCritic  # noqa: E402
from verl.workers.fsdp_workers import FSDPWorker  # noqa: E402

from training.easyr1 import critics, machine, mends, resume, sizes  # noqa: E402
from training.easyr1.advantages import advantages_of, episode_advantages  # noqa: E402
from training.easyr1.batch import fill, judged_rows, places_of, replies_of, rows_multiple, turn_rows  # noqa: E402
from training.easyr1.check import check_run  # noqa: E402
from training.easyr1.config import RunConfig, read_config  # noqa: E402
from training.easyr1.export import export  # noqa: E402
from training.easyr1.prompts import PromptEncoder, load_processors  # noqa: E402
from training.easyr1.resume import ROWS  # noqa: E402
from training.easyr1.rows import RowStream  # noqa: E402
from training.easyr1.section import Section  # noqa: E402
from training.easyr1.table import Asked, Table  # noqa: E402
from training.easyr1.worker import WorkerMends  # noqa: E402
from training.tiny_vlm import make_tiny_vlm  # noqa: E402
from vlmgym.errors import UsageError  # noqa: E402
from vlmgym.evaluation.files import OutputError  # noqa: E402
from vlmgym.policies.base import Reply  # noqa: E402
from vlmgym.sandbox.registry import make_game  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "training" / "configs"
KINDS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
GIVEN: dict[str, Any] = {"step_weight": 1.0, "stock": ray_trainer.compute_advantage, "beyond": dict}
"""To `advantages_of`, besides what EasyR1 gives; no episode was cut off."""
SECTION = Section.read({"games": [{"game": "2048", "knobs": {"size": 128}}], "play": {"turns": 3}, "players": 0})
RIGHT = "<perception></perception><think></think><answer>{}</answer>"


@pytest.fixture(scope="session", params=KINDS)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    make_tiny_vlm(request.param, folder)
    return folder


@pytest.fixture(scope="session")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    make_tiny_vlm("qwen3_vl", folder)
    return folder


def encoder_of(checkpoint: Path, longest: int = 400) -> PromptEncoder:
    data = DataConfig(max_prompt_length=longest, min_pixels=None, max_pixels=None)
    return PromptEncoder(*load_processors(ModelConfig(str(checkpoint)), data), data)


def table_of(checkpoint: Path) -> Table:
    return Table(SECTION, encoder_of(checkpoint, 600), 0, "tiny")


def a_prompt(size: int = 128) -> tuple[str, list[Any]]:
    game = make_game("2048", size=size)
    state = game.start(np.random.default_rng(0))
    return game.prompt(state), list(game.images(state))


# Signatures -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (ray_trainer.RayPPOTrainer._make_batch_data, ["self", "metrics"]),
        (ray_trainer.RayPPOTrainer._validate, ["self"]),
        (ray_trainer.RayPPOTrainer.fit, ["self"]),
        (ray_trainer.compute_data_metrics, ["batch", "use_critic"]),
        (FSDPWorker._process_multi_modal_inputs, ["self", "data"]),
        (FSDPWorker.generate_sequences, ["self", "prompts"]),
    ],
)
def test_signatures(function: Any, parameters: list[str]) -> None:
    assert list(inspect.signature(function).parameters) == parameters


def test_fit_uses_what_is_replaced() -> None:
    source = inspect.getsource(ray_trainer.RayPPOTrainer.fit)
    for used in ("compute_advantage(", "compute_data_metrics(", '"token_level_scores" not in batch.batch'):
        assert used in source
    waits = inspect.getsource(RayWorkerGroup._init_with_resource_pool)
    assert "for _ in range(120):" in waits, "the first worker has 120 s"
    assert "time.sleep(1)" in waits
    assert "load_state_dict(dataloader_state_dict)" in inspect.getsource(ray_trainer.RayPPOTrainer._load_checkpoint)


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("workers/fsdp_workers.py:204", "AutoClass = AutoModelForTokenClassification"),
        ("workers/fsdp_workers.py:453", "config=self.config,"),
        ("workers/fsdp_workers.py:507", 'np.all(data.non_tensor_batch["uid"] == self._cache["uid"])'),
        ("workers/rollout/vllm_rollout_spmd.py:157", "for key in config.to_dict().keys():"),
        ("trainer/core_algos.py:163", "if response_mask[:, t]:"),
        ("trainer/metrics.py:48", "def compute_data_metrics("),
        ("single_controller/ray/base.py:303", "for _ in range(120):"),
        ("single_controller/ray/base.py:463", "worker_cls = cls.cls.__ray_actor_class__.__base__"),
        ("utils/logger/logger.py:72", '"experiment_log.jsonl"), "w")'),
        # and what sizes are read off
        ("workers/fsdp_workers.py:121", "fsdp_size = config.fsdp.fsdp_size"),
        ("workers/fsdp_workers.py:254", "p.data = p.to(torch.bfloat16)"),
        ("workers/fsdp_workers.py:265", "model.model.visual.requires_grad_(False)"),
        ("workers/fsdp_workers.py:329", "filter(lambda p: p.requires_grad, self.fsdp_module.parameters())"),
        ("workers/fsdp_workers.py:558", "load_fsdp_model(self.fsdp_module)"),
        ("workers/fsdp_workers.py:561", "load_fsdp_optimizer(optimizer=self.optimizer)"),
        ("utils/ulysses.py:325", "assert num_heads % ulysses_sequence_size == 0"),
        ("workers/rollout/vllm_rollout_spmd.py:149", "self.inference_engine.sleep(level=1)"),
    ],
)
def test_lines_of_easyr1_that_are_named(place: str, text: str) -> None:
    name, line = place.split(":")
    folder = Path(inspect.getfile(ray_trainer)).parents[1]
    assert text in (folder / name).read_text().splitlines()[int(line) - 1]


def test_a_checkpoint_is_loaded_from_the_files_that_are_looked_for() -> None:
    loads = inspect.getsource(FSDPCheckpointManager.load_checkpoint)
    for file in resume.FILES:
        assert f'"{file}_world_size_{{self.world_size}}_rank_{{self.rank}}.pt"' in loads
    source = inspect.getsource(ray_trainer.RayPPOTrainer._load_checkpoint)
    for used in ('"dataloader.pt"', '"actor"', '"critic"', "find_latest_ckpt(", '"global_step_" not in'):
        assert used in source


def test_gae_of_easyr1_still_needs_its_mend() -> None:
    two = torch.ones(2, 3)
    with pytest.raises(RuntimeError, match="ambiguous"):
        core_algos.compute_gae_advantage_return(two, two, two, 1.0, 1.0)


# Prompts --------------------------------------------------------------------------------------------------------------


def test_prompt(checkpoint: Path) -> None:
    encoder = encoder_of(checkpoint)
    text, pictures = a_prompt()
    encoded = encoder.encode(text, pictures)
    length = int(encoded["attention_mask"].sum())
    assert encoded["input_ids"].shape == encoded["attention_mask"].shape == (400,)
    assert encoded["position_ids"].shape == (4, 400)
    assert encoded["attention_mask"].tolist() == [0] * (400 - length) + [1] * length
    picture = encoder.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    assert list(encoded["raw_prompt_ids"]).count(picture) == 1
    side = 4 if checkpoint.name.startswith("qwen3") else 5  # 128 pixels in tokens of 32, or of 28
    assert (encoded["input_ids"] == picture).sum() == side**2
    model = AutoModelForImageTextToText.from_pretrained(checkpoint)
    found, _ = model.model.get_rope_index(
        encoded["input_ids"][None, -length:], torch.tensor([[1, 2 * side, 2 * side]]), None
    )
    assert torch.equal(found[:, 0], encoded["position_ids"][1:, -length:])
    assert encoded["position_ids"][0, -length:].tolist() == list(range(length))


def test_the_word_image_is_a_word(qwen3: Path) -> None:
    _, pictures = a_prompt()
    encoded = encoder_of(qwen3).encode("say <image> twice: <image>", pictures)
    assert "<image> twice: <image>" in encoder_of(qwen3).tokenizer.decode(encoded["input_ids"])


def test_prompt_that_is_too_long(qwen3: Path) -> None:
    with pytest.raises(UsageError, match=r"data\.max_prompt_length=100"):
        encoder_of(qwen3, 100).encode(*a_prompt())


def test_forward_of_easyr1_is_that_of_transformers(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = encoder_of(checkpoint)
    one, two = encoder.encode(*a_prompt()), encoder.encode("A longer one.", a_prompt(224)[1])
    batch = {key: torch.stack([one[key], two[key]]) for key in ("input_ids", "attention_mask", "position_ids")}
    images = [process_image(image, None, None) for each in (one, two) for image in each["multi_modal_data"]["images"]]
    seen = dict(encoder.processor.image_processor(images=images, return_tensors="pt"))
    model = AutoModelForImageTextToText.from_pretrained(checkpoint, attn_implementation="sdpa").eval()
    places = batch.pop("position_ids")
    with torch.no_grad():
        theirs = model(**batch, **seen).logits
        for kind, name in critics.KINDS.items():
            module = import_module(f"transformers.models.{kind}.modeling_{kind}")
            for patched in (getattr(module, f"{name}Model"), getattr(module, f"{name}ForConditionalGeneration")):
                monkeypatch.setattr(patched, "forward", patched.forward)  # so that it is put back
        apply_ulysses_patch(model.config.model_type)
        ours = model(**batch, **seen, position_ids=places.transpose(0, 1)).logits
    mask = batch["attention_mask"].bool()
    assert torch.allclose(ours[mask], theirs[mask], atol=1e-5)


# The worker -----------------------------------------------------------------------------------------------------------


def test_critic(checkpoint: Path) -> None:
    critics.register_critics()
    critic, loading = AutoModelForTokenClassification.from_pretrained(checkpoint, output_loading_info=True)
    assert loading["missing_keys"] == {"score.weight"} or loading["missing_keys"] == ["score.weight"]
    whole = AutoModelForImageTextToText.from_pretrained(checkpoint)
    for (name, ours), theirs in zip(critic.model.named_parameters(), whole.model.parameters()):
        assert torch.equal(ours, theirs), name
    encoder = encoder_of(checkpoint)
    encoded = encoder.encode(*a_prompt())
    images = [process_image(image, None, None) for image in encoded["multi_modal_data"]["images"]]
    values = critic(
        input_ids=encoded["input_ids"][None],
        attention_mask=encoded["attention_mask"][None],
        position_ids=encoded["position_ids"][:, None],
        **encoder.processor.image_processor(images=images, return_tensors="pt"),
    ).logits
    assert values.shape == (1, 400, 1)
    assert not values.any(), "it expects nothing before it has learned"
    (values[0, -1, 0] - 1).square().backward()
    assert critic.score.weight.grad.any()


def test_the_critic_judges_prompts(qwen3: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it expects of a prompt is what it says at its last token, by EasyR1's own code, however it is padded."""
    critics.register_critics()
    critic = AutoModelForTokenClassification.from_pretrained(qwen3, attn_implementation="sdpa").eval()
    torch.nn.init.normal_(critic.score.weight, generator=torch.Generator().manual_seed(0))
    encoder = encoder_of(qwen3)
    pictures = a_prompt()[1]
    asked = [Asked(row, 0, encoder.encode("Move. " * (row + 1), pictures)) for row in range(2)]
    rows = judged_rows(asked, {"min_pixels": None, "max_pixels": None, "video_fps": 2.0})
    MendedCache(encoder.processor)._process_multi_modal_inputs(rows)
    config = CriticConfig(dynamic_batching=False, micro_batch_size_per_device_for_experience=2)
    values = DataParallelPPOCritic(config, critic, None).compute_values(rows)
    for value, one in zip(values, asked):
        length = int(one.features["attention_mask"].sum())
        seen = encoder.processor.image_processor(
            images=[process_image(image, None, None) for image in one.features["multi_modal_data"]["images"]],
            return_tensors="pt",
        )
        whole = {key: one.features[key][..., -length:] for key in ("input_ids", "attention_mask", "position_ids")}
        places = whole.pop("position_ids")[:, None]
        with torch.no_grad():
            said = critic(**{key: part[None] for key, part in whole.items()}, position_ids=places, **seen).logits
        assert value.tolist() == pytest.approx([float(said[0, -1, 0])], abs=1e-4)
    assert values[0] != values[1]


class Cache(WorkerMends):
    """The picture cache of a worker."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor
        self._cache: dict[str, Any] = {}


class StockCache:
    _process_multi_modal_inputs = FSDPWorker._process_multi_modal_inputs


class MendedCache(Cache, StockCache): ...


def test_pictures_follow_their_uids(qwen3: Path) -> None:
    encoder = encoder_of(qwen3)
    cache = MendedCache(encoder.processor)

    def seen(uids: list[str], sizes: list[int]) -> list[float]:
        shown = np.empty(len(uids), dtype=object)
        shown[:] = [encoder.encode("x", [np.full((64, 64, 3), grey, np.uint8)])["multi_modal_data"] for grey in sizes]
        meta = {"min_pixels": None, "max_pixels": None, "video_fps": 2.0}
        data = DataProto.from_dict(
            tensors={"x": torch.zeros(len(uids))},
            non_tensors={"uid": np.array(uids, dtype=object), "multi_modal_data": shown},
            meta_info=meta,
        )
        cache._process_multi_modal_inputs(data)
        return [float(inputs["pixel_values"].mean()) for inputs in data.non_tensor_batch["multi_modal_inputs"]]

    dark, light = seen(["a", "b"], [0, 255])
    assert dark < light
    assert seen(["c", "d", "e"], [255, 0, 255]) == [light, dark, light], "another number of rows"
    assert seen(["c", "d", "f"], [255, 0, 0]) == [light, dark, dark]


# Turns and batches ----------------------------------------------------------------------------------------------------


def generated_of(asked: list[Any], times: int, responses: list[str], tokenizer: Any, length: int = 60) -> DataProto:
    """What a rollout gives for these responses, with an end each."""
    rows = [[*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id] for text in responses]
    ids = torch.tensor([row + [tokenizer.pad_token_id] * (length - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
    prompts = torch.stack([one.features["input_ids"] for one in asked]).repeat_interleave(times, 0)
    known = torch.stack([one.features["attention_mask"] for one in asked]).repeat_interleave(times, 0)
    return DataProto.from_dict(
        tensors={
            "prompts": prompts,
            "responses": ids,
            "input_ids": torch.cat([prompts, ids], 1),
            "attention_mask": torch.cat([known, mask], 1),
            "response_mask": mask,
            "position_ids": torch.zeros(len(ids), 4, prompts.shape[1] + length, dtype=torch.int64),
        }
    )


def played_turns(qwen3: Path) -> list[DataProto]:
    """Two rows of two episodes, three turns each; every answer is `up` but for one that is unparsable."""
    table, turns = table_of(qwen3), []
    tokenizer = table.encoder.tokenizer
    asked = table.sit([4, 7], 2, table.curriculum.begin())
    while asked:
        times = 2 if asked[0].copy is None else 1
        places = places_of(asked, 2)
        said = ["nothing" if place == (7, 1) else RIGHT.format("up") for place in places]
        generated = generated_of(asked, times, said, tokenizer)
        replies = replies_of(generated, tokenizer, [tokenizer.eos_token_id])
        assert [reply.text for reply in replies] == said
        assert {reply.finish_reason for reply in replies} == {"stop"}
        played = table.play(list(zip(places, replies)))
        turns.append(turn_rows(asked, 2, generated, played))
        asked = [one.next for one in played if one.next is not None]
    return turns


def test_turns(qwen3: Path) -> None:
    first, second, third = played_turns(qwen3)
    assert [len(turn) for turn in (first, second, third)] == [4, 4, 4]
    assert first.non_tensor_batch["uid"].tolist() == ["4 1", "4 1", "7 1", "7 1"]
    assert second.non_tensor_batch["uid"].tolist() == ["4 0 2", "4 1 2", "7 0 2", "7 1 2"]
    anchors = first.non_tensor_batch["anchor"]
    assert anchors[0] == anchors[1] != anchors[2], "the episodes of a row begin at one position"
    assert second.non_tensor_batch["anchor"][0] == second.non_tensor_batch["anchor"][1], "and have the same chance"
    scores, mask = first.batch["token_level_scores"], first.batch["response_mask"]
    last = mask.sum(-1) - 1
    assert not scores.scatter(1, last[:, None], 0.0).any(), "the reward is at the last token"


def test_records_of_what_was_played(qwen3: Path) -> None:
    table = table_of(qwen3)
    asked = table.sit([4], 2, table.curriculum.begin())
    table.play([((4, 0), Reply("nothing")), ((4, 1), Reply(RIGHT.format("up")))])
    found = table.leave(2)
    assert [(one.row, one.copy, one.turns, one.game) for one in found] == [(4, 0, 1, "2048-v0"), (4, 1, 1, "2048-v0")]
    assert len(asked) == 1
    assert '"seed":8' in found[0].record
    assert '"seed":9' in found[1].record
    assert table.leave(2) == []
    held_out = table.sit_held_out([0, 1])
    assert [one.row for one in held_out] == [0, 1]
    assert '"seed":1000001' in table.leave(None)[1].record


def test_what_is_beyond_the_limit_of_turns(qwen3: Path) -> None:
    """Of two episodes the limit of three turns cuts one off; the other is not over."""
    table = table_of(qwen3)
    table.sit([4, 7], 1, table.curriculum.begin())
    for turn in range(3):
        table.play([((4, 0), Reply("nothing"))])
        assert len(table.beyond()) == (turn == 2)
    ((place, asked),) = table.beyond()
    assert (place, asked.row, asked.copy) == ((4, 0), 4, 0)
    seat = table.seats[4, 0]
    left = table.encoder.encode(seat.beyond().prompt, seat.beyond().images)
    assert torch.equal(asked.features["input_ids"], left["input_ids"])


def test_filling_rows_teach_nothing(qwen3: Path) -> None:
    batch = DataProto.concat(played_turns(qwen3))
    filled = fill(batch, 8, seed=0)
    assert len(filled) == 16
    live = filled.non_tensor_batch["live"].astype(bool)
    assert live.sum() == 12
    assert not filled.batch["response_mask"][torch.from_numpy(~live)].any()
    assert not filled.batch["token_level_scores"][torch.from_numpy(~live)].any()
    facts = batch.non_tensor_batch
    after = filled[np.flatnonzero(live)].non_tensor_batch
    assert sorted(zip(after["uid"], after["copy"])) == sorted(zip(facts["uid"], facts["copy"]))
    assert fill(batch, 8, seed=0).non_tensor_batch["uid"].tolist() == filled.non_tensor_batch["uid"].tolist()
    filled.batch["token_level_rewards"] = filled.batch["token_level_scores"]
    learned = advantages_of(filled, "grpo", 1.0, 1.0, **GIVEN)
    assert not learned.batch["advantages"][torch.from_numpy(~live)].any()
    means = mends.metrics_of_live_rows(learned)
    expected = batch.batch["token_level_scores"].sum(-1).mean()
    assert means["critic/score/mean"] == pytest.approx(float(expected))
    assert set(means) == set(metrics.compute_data_metrics(learned))


@pytest.mark.parametrize(("dynamic", "multiple"), [(True, 24), (False, 72)])
def test_rows_of_a_batch(dynamic: bool, multiple: int) -> None:
    part = SimpleNamespace(global_batch_size=6, dynamic_batching=dynamic, micro_batch_size_per_device_for_experience=9)
    worker = SimpleNamespace(actor=part, critic=part, rollout=SimpleNamespace(n=4))
    assert rows_multiple(worker, 8, critic=False) == multiple


# Advantages -----------------------------------------------------------------------------------------------------------


def rows_of(rewards: list[float], rows: list[int], copies: list[int], turns: list[int], anchors: str) -> DataProto:
    """Rows of two tokens with the reward at the second."""
    count = len(rewards)
    scores = torch.zeros(count, 3)
    scores[:, 1] = torch.tensor(rewards)
    mask = torch.tensor([[1, 1, 0]] * count)
    facts = {"row": rows, "copy": copies, "turn": turns, "anchor": list(anchors), "live": [True] * count}
    facts["uid"] = [str(row) for row in rows]
    return DataProto.from_dict(
        tensors={"token_level_rewards": scores, "response_mask": mask},
        non_tensors={key: np.array(values, dtype=object) for key, values in facts.items()},
    )


def test_single_answers_are_left_to_easyr1() -> None:
    data = rows_of([1.0, 0.0, 2.0, 4.0], [0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 1], "aabb")
    ours = advantages_of(data, "grpo", 1.0, 1.0, **GIVEN)
    half = 0.5**0.5
    assert ours.batch["advantages"][:, 0].tolist() == pytest.approx([half, -half, -half, half], abs=1e-4)
    assert not ours.batch["advantages"][:, 2].any()


def test_advantages_of_episodes() -> None:
    # Episode 0 earns 1 + 1 from the positions a, b; episode 1 earns 0 + 0 from a, b.
    data = rows_of([1.0, 1.0, 0.0, 0.0], [0] * 4, [0, 0, 1, 1], [1, 2, 1, 2], "abab")
    half, near = 0.5**0.5, partial(pytest.approx, abs=1e-3)
    assert episode_advantages(data, 0.5, 0.0).tolist() == near([half, half, -half, -half])
    assert episode_advantages(data, 0.5, 1.0).tolist() == near([2 * half, 2 * half, -2 * half, -2 * half])
    # At a position that only one of them came to, there is nothing to compare with.
    data = rows_of([1.0, 1.0, 0.0, 0.0], [0] * 4, [0, 0, 1, 1], [1, 2, 1, 2], "abac")
    assert episode_advantages(data, 0.5, 1.0).tolist() == near([2 * half, half, -2 * half, -half])
    shuffled = data[np.array([3, 0, 2, 1])]
    assert episode_advantages(shuffled, 0.5, 1.0).tolist() == near([-half, 2 * half, -2 * half, half])


@pytest.mark.parametrize("left", [0.0, 0.5])
def test_gae_runs_over_the_tokens_of_an_episode(left: float) -> None:
    """The critic expects something of the position at which it was cut off."""
    data = rows_of([1.0, 2.0], [0, 0], [1, 1], [1, 2], "ab")
    data.batch["values"] = torch.tensor([[0.1, 0.2, 0.0], [0.3, 0.4, 0.0]])
    found = advantages_of(data, "gae", 0.9, 0.8, **{**GIVEN, "beyond": lambda: {(0, 0): 9.0, (0, 1): left}})
    rewards, values = [0.0, 1.0, 0.0, 2.0], [0.1, 0.2, 0.3, 0.4]
    expected, later = [0.0] * 4, 0.0
    for t in reversed(range(4)):
        delta = rewards[t] + 0.9 * (values[t + 1] if t < 3 else left) - values[t]
        later = expected[t] = delta + 0.9 * 0.8 * later
    returns = found.batch["returns"][:, :2].flatten()
    assert returns.tolist() == pytest.approx([a + v for a, v in zip(expected, values)], abs=1e-5)
    advantages = found.batch["advantages"][:, :2].flatten()
    assert float(advantages.mean()) == pytest.approx(0.0, abs=1e-5)
    assert np.argsort(advantages.numpy()).tolist() == np.argsort(expected).tolist()
    assert not found.batch["advantages"][:, 2].any()


def test_gae_of_one_row_is_easyr1s() -> None:
    data = rows_of([1.5], [0], [0], [1], "a")
    data.batch["response_mask"][:] = 1  # EasyR1's fails after the end of a response
    data.batch["values"] = torch.tensor([[0.1, 0.2, 0.3]])
    found = advantages_of(data, "gae", 0.9, 0.8, **GIVEN)
    theirs = core_algos.compute_gae_advantage_return(
        data.batch["token_level_rewards"], data.batch["values"], data.batch["response_mask"], 0.9, 0.8
    )
    assert torch.allclose(found.batch["returns"], theirs[1])


# Rows and configurations ----------------------------------------------------------------------------------------------


def test_rows_go_on_after_a_checkpoint() -> None:
    curriculum = SECTION.make_curriculum()
    whole = RowStream(curriculum, 3, 4)
    steps = iter(whole)
    first = [next(steps) for _ in range(2)]
    saved = whole.state_dict()
    again = RowStream(curriculum, 3, 4)
    again.load_state_dict(saved)
    assert [list(rows) for rows in first] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert next(iter(again)) == next(steps) == range(8, 12)
    with pytest.raises(UsageError, match=r"data\.seed=3, not 4"):
        RowStream(curriculum, 4, 4).load_state_dict(saved)


def test_positions_are_functions_of_seed_and_row(qwen3: Path) -> None:
    def asked(table: Table, rows: list[int]) -> list[tuple[int, bytes]]:
        found = table.sit(rows, 1, table.curriculum.begin())
        return [(one.row, one.features["multi_modal_data"]["images"][0]["bytes"]) for one in found]

    table = table_of(qwen3)
    some = asked(table, [5, 6])
    assert asked(table_of(qwen3), [6, 5]) == some[::-1]
    other = Table(SECTION, table.encoder, 1, "tiny")
    assert asked(other, [5]) != some[:1]


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({}, "vlmgym: name either games or a curriculum"),
        ({"games": [{"game": "chess"}]}, "there is no game 'chess'"),
        ({"curriculum": "geospot", "nothing": 1}, "nothing: extra inputs are not permitted"),
        ({"curriculum": "geospot", "states": {"moves": [5, 1]}}, "moves are the least and the most"),
        ({"curriculum": "geospot", "reward": {"shaping": "cubic"}}, "shaping"),
    ],
)
def test_sections_that_are_not_accepted(section: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Section.read(section).make_curriculum()


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
    config.worker.actor.ulysses_size = 3
    config.trainer.logger = ("vlmgym", "swanlab")
    config.trainer.save_checkpoint_path = str(tmp_path / "file" / "out")
    problems, facts = machine.look_at_machine(config)
    for words in (
        f"trainer.n_gpus_per_node=4, and this machine has {torch.cuda.device_count() or 'no'} GPU",
        "swanlab, which is not installed",
        "cannot be made",
        "worker.rollout.tensor_parallel_size=4 does not divide the 2 attention heads",
        "worker.actor.ulysses_size=3 does not divide the 2 attention heads",
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
    needed = sizes.gpu_bytes(config, sizes.Parameters(8 * 10**9, 0, 0, 0, 32))
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
    parameters = sizes.Parameters(whole=1000, eye=100, critic=950, critic_eye=100, heads=10)
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
    for part in ("actor", "critic"):
        (folder / part).mkdir(parents=True)
        for file in ("model", "optim", "extra_state"):
            (folder / part / f"{file}_world_size_4_rank_0.pt").touch()
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


def save_rows(folder: Path, **other: Any) -> None:
    """The rows of a run at its beginning, as a checkpoint has them."""
    torch.save({**RowStream(SECTION.make_curriculum(), DataConfig().seed, 8).state_dict(), **other}, folder / ROWS)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (save_rows, ""),
        (partial(save_rows, seed=7), "the checkpoint is of a run with data.seed=7, not 1; name another OUT"),
        (partial(save_rows, progress='{"entries": []}'), "; name another OUT to begin anew"),
        (partial(save_rows, progress="{"), "whose dataloader.pt cannot be read"),
        (lambda folder: (folder / ROWS).write_bytes(b"PK"), "whose dataloader.pt cannot be read"),
        (lambda folder: (folder / ROWS).touch(), "whose dataloader.pt cannot be read"),
        (lambda folder: torch.save([1], folder / ROWS), "whose dataloader.pt cannot be read"),
        (lambda folder: torch.save(Path("/"), folder / ROWS), "whose dataloader.pt cannot be read"),
    ],
)
def test_rows_that_a_run_cannot_go_on_with(tmp_path: Path, write: Callable[[Path], Any], words: str) -> None:
    folder = tmp_path / "global_step_25"
    (folder / "actor").mkdir(parents=True)
    for file in ("model", "optim", "extra_state"):
        (folder / "actor" / f"{file}_world_size_4_rank_0.pt").touch()
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


# Export ---------------------------------------------------------------------------------------------------------------


def test_export(qwen3: Path, tmp_path: Path) -> None:
    actor = tmp_path / "global_step_3" / "actor"
    actor.mkdir(parents=True)
    model = AutoModelForImageTextToText.from_pretrained(qwen3)
    torch.save(model.state_dict(), actor / "model_world_size_1_rank_0.pt")
    for part in (model.config, model.generation_config, load_processors(ModelConfig(str(qwen3)), DataConfig())[1]):
        part.save_pretrained(actor / "huggingface")
    export(actor.parent, tmp_path / "out", torch.float32)
    again = AutoModelForImageTextToText.from_pretrained(tmp_path / "out")
    for (name, ours), theirs in zip(again.named_parameters(), model.parameters()):
        assert torch.equal(ours, theirs), name
    assert encoder_of(tmp_path / "out").encode(*a_prompt())["input_ids"].any()
    with pytest.raises(UsageError, match="is there already"):
        export(actor.parent, tmp_path / "out")
    (actor / "model_world_size_1_rank_0.pt").rename(actor / "model_world_size_2_rank_0.pt")
    with pytest.raises(UsageError, match="lacks model_world_size_2_rank_1"):
        export(actor.parent, tmp_path / "other")
    with pytest.raises(UsageError, match="is no checkpoint of EasyR1"):
        export(tmp_path, tmp_path / "other")
    half = (actor / "model_world_size_2_rank_0.pt").read_bytes()[:5000]
    (actor / "model_world_size_2_rank_0.pt").unlink()
    (actor / "model_world_size_1_rank_0.pt").write_bytes(half)
    with pytest.raises(UsageError, match="cannot be read, perhaps as its writing was interrupted"):
        export(actor.parent, tmp_path / "other")


def test_export_to_a_full_disk(qwen3: Path, tmp_path: Path) -> None:
    actor = tmp_path / "actor"
    (actor / "huggingface").mkdir(parents=True)
    model = AutoModelForImageTextToText.from_pretrained(qwen3)
    torch.save(model.state_dict(), actor / "model_world_size_1_rank_0.pt")
    model.config.save_pretrained(actor / "huggingface")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))  # no file becomes larger
    try:
        with pytest.raises(OutputError, match=f"cannot write {tmp_path / 'out'}"):
            export(actor, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.fixture(scope="module")
def checkpoints(qwen3: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two processes, each with its half of the weights."""
    folder = tmp_path_factory.mktemp("sharded") / "checkpoints"
    command = [sys.executable, "-m", "tests.easyr1_cpu.sharded", str(qwen3), str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    return folder


@pytest.mark.parametrize("kind", sharded.KINDS)
def test_export_of_shards(qwen3: Path, checkpoints: Path, tmp_path: Path, kind: str) -> None:
    part = torch.load(checkpoints / kind / "actor" / "model_world_size_2_rank_1.pt", weights_only=False)
    assert any(isinstance(weights, DTensor) for weights in part.values()), "it is sharded"
    export(checkpoints / kind, tmp_path / "out", torch.float32)
    ours = dict(AutoModelForImageTextToText.from_pretrained(tmp_path / "out").named_parameters())
    saved = sharded.make_model(str(qwen3), kind)
    theirs = dict((saved.merge_and_unload() if kind == "lora" else saved).named_parameters())
    start = dict(AutoModelForImageTextToText.from_pretrained(qwen3).named_parameters())
    assert ours.keys() == theirs.keys()
    for name, weights in theirs.items():
        assert torch.allclose(ours[name], weights, atol=1e-6), name
    changed = {name for name, weights in ours.items() if not torch.equal(weights, start[name])}
    assert changed
    assert kind == "whole" or not any("visual" in name for name in changed)
