"""verl's AgentLoopWorker plays whole episodes with a stub model server.

verl needs a separate environment: docs/integrations/verl.md has the commands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_module
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.protocol import DataProto
from verl.workers.rollout.replica import TokenOutput

from tests.in_training.tiny import make_checkpoint
from vlmgym import Episode, RewardConfig, make_dataset
from vlmgym.errors import UsageError
from vlmgym.integrations.verl import to_verl
from vlmgym.training import verl

AGENT_LOOP = Path(verl.__file__).with_name("agent_loop.yaml")
REWARD = RewardConfig(shaping="log2", illegal=-1.0, unparsable=-2.0)
RESPONSES = ["<answer>left</answer>", "I cannot tell.", "<answer>down</answer>"]
TURNS = len(RESPONSES)


class Server:
    """A stub model server that gives each episode the same responses, in order, and records requests by episode."""

    def __init__(self, responses: Sequence[str]) -> None:
        self.requests: dict[str, list[dict[str, Any]]] = {}
        self.responses = responses
        self.tokenizer: Any = None

    async def generate(self, request_id: str, **request: Any) -> TokenOutput:
        earlier = self.requests.setdefault(request_id, [])
        text = self.responses[len(earlier)] + self.tokenizer.eos_token
        earlier.append(request)
        tokens = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        tokens = tokens[: request["sampling_params"]["max_tokens"]]
        return TokenOutput(token_ids=tokens, log_probs=[-0.5] * len(tokens), num_preempted=0)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"), "qwen2_5_vl")


def roll_out(
    checkpoint: Path, rows: list[dict[str, Any]], *options: str, responses: Sequence[str] = RESPONSES
) -> tuple[DataProto, Server]:
    """Play each row with verl's own worker and configuration; return the output and the server."""
    overrides = [
        f"actor_rollout_ref.model.path={checkpoint}",
        "actor_rollout_ref.rollout.name=vllm",
        "actor_rollout_ref.rollout.prompt_length=4096",
        "actor_rollout_ref.rollout.response_length=16384",
        "actor_rollout_ref.rollout.calculate_log_probs=true",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={AGENT_LOOP}",
        *options,
    ]
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=overrides)
    server = Server(responses)
    worker = AgentLoopWorker(config, server)
    server.tokenizer = worker.tokenizer
    columns = {name: np.array([row[name] for row in rows], dtype=object) for name in ("agent_name", "extra_info")}
    prompts = np.empty(len(rows), dtype=object)
    prompts[:] = [row["prompt"] for row in rows]
    batch = DataProto.from_dict(
        tensors={"dummy_tensor": torch.zeros(len(rows), 1)}, non_tensors={**columns, "raw_prompt": prompts}
    )
    return asyncio.run(worker.generate_sequences(batch)), server


def test_verl_plays_episodes(checkpoint: Path) -> None:
    first, second = make_dataset("2048", 2, max_turns=TURNS, reward=REWARD, size=64)
    rows = [first, first, second]
    output, server = roll_out(checkpoint, to_verl(rows))
    decode = server.tokenizer.decode
    assert len(server.requests) == len(rows)
    for i, row in enumerate(rows):
        episode = Episode.restore(row["snapshot"])
        reward = sum(episode.respond(response).total for response in server.responses)
        assert episode.done
        mask = output.batch["response_mask"][i].bool()
        generated = decode(output.batch["responses"][i][mask], skip_special_tokens=True)
        assert generated == "".join(server.responses)
        assert output.batch["rm_scores"][i].sum() == pytest.approx(reward)
        assert torch.equal(output.batch["rollout_log_probs"][i][mask], torch.full((int(mask.sum()),), -0.5))
        assert output.non_tensor_batch["multi_modal_inputs"][i]["image_grid_thw"].shape == (TURNS, 3)
        facts = {name: output.non_tensor_batch[name][i] for name in ("score", "finished", *episode.outcomes)}
        assert facts == {"score": episode.score, "finished": 1.0, **episode.outcomes}
        assert output.non_tensor_batch["__num_turns__"][i] == 2 * TURNS


def test_an_episode_without_room_ends_before_an_image(checkpoint: Path) -> None:
    rows = make_dataset("2048", 1, max_turns=TURNS, reward=REWARD, size=64)
    output, server = roll_out(checkpoint, to_verl(rows), "actor_rollout_ref.rollout.response_length=64")
    (requests,) = server.requests.values()
    assert len(requests) == 1
    assert output.non_tensor_batch["multi_modal_inputs"][0]["image_grid_thw"].shape == (1, 3)
    assert output.non_tensor_batch["finished"][0] == 0.0
    expected = Episode.restore(rows[0]["snapshot"]).respond(server.responses[0]).total
    assert output.batch["rm_scores"][0].sum() == pytest.approx(expected)


def test_rows_without_snapshots_are_refused(checkpoint: Path) -> None:
    (row,) = to_verl(make_dataset("2048", 1, size=64))
    with pytest.raises(UsageError, match=r"no snapshots.*to_verl"):
        roll_out(checkpoint, [{**row, "extra_info": {"index": 0}}])


def test_repeated_turns_are_refused() -> None:
    rows = make_dataset(["2048", "pairs"], 2)
    with pytest.raises(UsageError, match="history=0 or chat=True"):
        to_verl(rows)


def test_responses_are_limited(checkpoint: Path) -> None:
    rows = make_dataset("2048", 1, max_turns=TURNS, reward=REWARD, size=64)
    _, server = roll_out(checkpoint, to_verl(rows))
    assert {each["sampling_params"]["max_tokens"] for each in next(iter(server.requests.values()))} == {256}
