"""Every adapter gives the prompts, images, outcomes and rewards of `vlmgym.Episode` for the same responses.

An adapter is added to `DRIVERS` with a function that plays a case through it, if possible through the framework's own
entry point. Cases are skipped where the framework is not installed.
"""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from PIL import Image

import vlmgym
from tests.api_server import ApiServer, completion, first
from vlmgym.integrations.trl import GameEnvironment

ORACLE = "the oracle's answer"


@dataclass(frozen=True)
class Case:
    """An episode, as the arguments of `vlmgym.Episode`, and the responses of the model in turn."""

    game: str
    seed: int
    options: dict[str, Any]
    script: tuple[str, ...]

    @property
    def responses(self) -> list[str]:
        episode, responses = vlmgym.Episode(self.game, self.seed, **self.options), []
        while not episode.done:
            response = self.script[episode.turn]
            responses.append(f"<answer>{episode.answer()}</answer>" if response is ORACLE else response)
            episode.respond(responses[-1])
        return responses


@dataclass
class Played:
    """Everything that a model and a trainer see of an episode; None where the framework does not show it."""

    images: list[list[np.ndarray[Any, Any]]] = field(default_factory=list)
    prompts: Any = None
    outcomes: Any = None
    rewards: Any = None
    reward: float | None = None
    score: float | None = None


SIZE = {"size": 64}
LEFT = "<answer>left</answer>"
FAR = "<answer>(1, 1) (8, 1)</answer>"
UNPARSABLE = "I cannot see it."
CASES = [
    Case("2048", 3, {"max_turns": 7, **SIZE}, (ORACLE, LEFT, LEFT, LEFT, LEFT, UNPARSABLE, ORACLE)),
    Case("2048", 4, {"max_turns": 50, "rows": 3, "columns": 3, "goal": 8, **SIZE}, (ORACLE,) * 50),
    Case("shisensho", 5, {"max_turns": 4, "observation": "both", "size": 160}, (ORACLE, UNPARSABLE, FAR, ORACLE)),
    Case("nlvr2", 6, SIZE, (ORACLE,)),
    Case("nlvr2", 7, SIZE, (UNPARSABLE,)),
]


def pixels(image: Any) -> np.ndarray[Any, Any]:
    """Decode an image: PIL, a PNG file, or base64 with or without the head of a data URL."""
    if isinstance(image, str):
        image = base64.b64decode(image.partition("base64,")[2] or image)
    if isinstance(image, bytes):
        image = Image.open(io.BytesIO(image))
    return np.asarray(image)


def by_hand(case: Case) -> Played:
    episode, played = vlmgym.Episode(case.game, case.seed, **case.options), Played(prompts=[], outcomes=[], rewards=[])
    for response in case.responses:
        parts = [part for message in episode.messages() for part in message["content"]]
        played.images.append([pixels(part["image_url"]["url"]) for part in parts if "image_url" in part])
        played.prompts.append(parts[-1]["text"])
        scored = episode.respond(response)
        played.outcomes.append(scored.outcome.value)
        played.rewards.append(scored.total)
    played.reward, played.score = sum(played.rewards), episode.score
    return played


def trl(case: Case) -> Played:
    """Call the tool as GRPOTrainer does; tests/in_training/test_trl.py does so through the trainer."""
    (row,) = vlmgym.make_dataset(case.game, 1, case.seed, **case.options)
    environment = GameEnvironment()
    environment.reset(**row)
    played = Played(images=[[pixels(image) for image in row["images"]]], prompts=[row["prompt"][-1]["content"]])
    for response in case.responses:
        *images, text = environment.respond(response)
        played.images.append([pixels(part["image"]) for part in images])
        played.prompts.append(text["text"])
    assert played.images.pop() == []
    assert played.prompts.pop().startswith("The episode has ended")
    played.reward = environment.get_reward()
    return played


def inspect(case: Case) -> Played:
    """Run Inspect's `eval` with a mock model."""
    inspect_ai = pytest.importorskip("inspect_ai")
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    from vlmgym.integrations.inspect import make_task

    responses, played = iter(case.responses), Played(prompts=[])

    def respond(messages: Any, *_: Any) -> Any:
        parts = [part for message in messages for part in message.content]
        played.images.append([pixels(part.image) for part in parts if part.type == "image"])
        played.prompts.append(parts[-1].text)
        usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else it downloads a tokenizer
        return ModelOutput.from_content("mockllm/model", next(responses)).model_copy(update={"usage": usage})

    model = get_model("mockllm/model", custom_outputs=respond)
    (log,) = inspect_ai.eval(make_task(case.game, 1, case.seed, **case.options), model=model, display="none")
    score = log.samples[0].scores["game_score"]
    played.outcomes, played.rewards = ([turn[key] for turn in score.metadata["turns"]] for key in ("outcome", "reward"))
    played.reward, played.score = score.metadata["reward"], score.value
    assert log.results.scores[0].metrics["mean"].value == score.value
    return played


def openenv(case: Case) -> Played:
    """Play over a WebSocket session of a running server."""
    pytest.importorskip("openenv")
    from openenv import GenericEnvClient

    from tests.in_integrations.test_openenv import serve
    from vlmgym.integrations.openenv import make_app

    played = Played(prompts=[], outcomes=[], rewards=[])
    with (
        serve(make_app([case.game], **case.options)) as url,
        GenericEnvClient(base_url=url, message_timeout_s=60).sync() as client,
    ):
        turn = client.reset(seed=case.seed)
        for response in case.responses:
            played.images.append([pixels(image["data"]) for image in turn.observation["images"]])
            played.prompts.append(turn.observation["text"])
            turn = client.step({"response": response})
            played.outcomes.append(turn.observation["outcome"])
            played.rewards.append(turn.reward)
        assert turn.done
        played.score = turn.observation["score"]
    played.reward = sum(played.rewards)
    return played


def skyrl(case: Case) -> Played:
    """Play a row of a dataset as SkyRL's generator for vision-language models does."""
    skyrl_gym = pytest.importorskip("skyrl_gym")
    import vlmgym.integrations.skyrl

    (row,) = vlmgym.make_dataset(case.game, 1, case.seed, **case.options)
    environment = skyrl_gym.make("vlmgym", env_config={}, extras={"snapshot": row["snapshot"]})
    played = Played(prompts=[], outcomes=[], rewards=[])
    (message,), _ = environment.init(row["prompt"])
    for response in case.responses:
        played.images.append([pixels(part["image_url"]["url"]) for part in message["content"][:-1]])
        played.prompts.append(message["content"][-1]["text"])
        output = environment.step(response)
        played.outcomes.append(output["metadata"]["outcome"])
        played.rewards.append(output["reward"])
        (message,) = output["observations"] or (None,)
    assert output["done"]
    played.reward, played.score = sum(played.rewards), environment.get_metrics()["score"]
    return played


def vagen(case: Case) -> Played:
    """Play as VAGEN's agent loops do."""
    pytest.importorskip("vagen.envs.gym_image_env")
    from vagen.evaluate.utils.mm_utils import compile_text_images_for_order, extract_images

    from vlmgym.integrations.vagen import GameEnvironment as Environment

    environment = Environment({"game": case.game, **case.options})
    played = Played(prompts=[], outcomes=[], rewards=[])
    observation, _ = asyncio.run(environment.reset(case.seed))
    for response in case.responses:
        *images, (_, text) = compile_text_images_for_order(observation["obs_str"], extract_images(observation))
        played.images.append([pixels(image) for _, image in images])
        played.prompts.append(text)
        observation, reward, done, info = asyncio.run(environment.step(response))
        played.outcomes.append(info["outcome"])
        played.rewards.append(reward)
    assert done
    played.reward, played.score = sum(played.rewards), info["score"]
    return played


def verifiers(case: Case) -> Played:
    """Run the evaluation of verifiers against a server."""
    pytest.importorskip("verifiers.v1")
    from verifiers.v1.cli.eval.runner import run_eval
    from verifiers.v1.configs.cli.eval import EvalConfig

    taskset = {"games": [case.game], "episodes": 1, "seed": case.seed, "settings": case.options}
    with ApiServer(first([completion(response) for response in case.responses])).running() as server:
        client = {"base_url": server.url, "api_key_var": "NO_KEY"}
        env = {"taskset": {"id": "vlmgym-verifiers", **taskset}}
        (episode,) = asyncio.run(run_eval(EvalConfig(env=env, model="tiny", client=client, rich=None)))
    (trace,) = episode.traces
    return Played(
        images=[[pixels(image["url"]) for image in request.images] for request in server.requests],
        prompts=[request.texts[-1] for request in server.requests],
        outcomes=trace.info["outcomes"],
        rewards=trace.info["rewards"],
        reward=trace.reward,
        score=trace.metrics["score"],
    )


def verl(case: Case) -> Played:
    """Play a row with verl's worker and a stub of the model's server."""
    pytest.importorskip("verl.experimental.agent_loop.agent_loop")
    from tests.in_integrations.test_verl import roll_out
    from tests.in_training.tiny import make_checkpoint
    from vlmgym.integrations.verl import to_verl

    with TemporaryDirectory() as folder:
        rows = vlmgym.make_dataset(case.game, 1, case.seed, **case.options)
        output, server = roll_out(make_checkpoint(Path(folder)), to_verl(rows), responses=case.responses)
    played, seen = Played(), 0
    for request in next(iter(server.requests.values())):
        played.images.append([pixels(image) for image in request["image_data"][seen:]])
        seen = len(request["image_data"])
    played.reward = float(output.batch["rm_scores"].sum())
    played.score = output.non_tensor_batch["score"][0]
    return played


DRIVERS: dict[str, Callable[[Case], Played]] = {
    "inspect": inspect,
    "openenv": openenv,
    "skyrl": skyrl,
    "trl": trl,
    "vagen": vagen,
    "verifiers": verifiers,
    "verl": verl,
}


CHAT = Case("2048", 3, {"max_turns": 4, "chat": True, "history_images": 1, **SIZE}, (ORACLE, LEFT, "", ORACLE))
WITH_CHAT = ("inspect", "verifiers")


def test_cases_have_all_outcomes_and_ends() -> None:
    played = [by_hand(case) for case in CASES]
    for game in ("2048", "shisensho"):
        outcomes = {outcome for case, each in zip(CASES, played) if case.game == game for outcome in each.outcomes}
        assert outcomes == {"played", "illegal", "unparsable"}
    assert any(1 < len(each.images) < case.options.get("max_turns", 1) for case, each in zip(CASES, played))


@pytest.mark.parametrize(
    ("adapter", "case"),
    [*((adapter, case) for adapter in DRIVERS for case in CASES), *((adapter, CHAT) for adapter in WITH_CHAT)],
    ids=lambda each: each if isinstance(each, str) else f"{each.game}-{'chat' if each is CHAT else each.seed}",
)
def test_adapters_play_as_episode(adapter: str, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where frameworks write logs
    expected, played = by_hand(case), DRIVERS[adapter](case)
    assert len(played.images) == len(expected.images)
    for shown, same in zip(played.images, expected.images):
        assert len(shown) == len(same)
        assert all(map(np.array_equal, shown, same))
    for name in ("prompts", "outcomes", "rewards", "score"):
        assert getattr(played, name) in (None, getattr(expected, name)), name
    assert played.reward == pytest.approx(expected.reward)
