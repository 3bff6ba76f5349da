"""Given the same responses, every adapter gives the texts, images, outcomes, rewards, score and accuracies of
`vlmgym.Episode`.

`DRIVERS` maps each adapter to a function that plays a case, through the framework's own entry point if possible.
Cases are skipped if the framework is not installed.
"""

from __future__ import annotations

import asyncio
import base64
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from PIL import Image

import vlmgym
from tests.api_server import ApiServer, completion, first
from vlmgym.integrations.trl import GameEnvironment

ORACLE, IN_FULL = "the oracle's answer", "the oracle's response"


@dataclass(frozen=True)
class Case:
    """The arguments of a `vlmgym.Episode`, and the model's responses, in order."""

    game: str
    seed: int
    options: dict[str, Any]
    script: tuple[str, ...]

    @property
    def episode(self) -> vlmgym.Episode:
        return vlmgym.Episode(self.game, self.seed, **self.options)

    @property
    def row(self) -> vlmgym.Row:
        (row,) = vlmgym.make_dataset(self.game, 1, self.seed, **self.options)
        return row

    @property
    def responses(self) -> list[str]:
        episode, responses = self.episode, []
        while not episode.done:
            response = self.script[episode.turn]
            if response is ORACLE:
                response = f"<answer>{episode.answer()}</answer>"
            responses.append(str(episode.oracle()) if response is IN_FULL else response)
            episode.respond(responses[-1])
        return responses


Message = tuple[str, list[str]]
"""Role and parts of a message; `parts` describes how an image is represented."""


@dataclass
class Played:
    """All that a model and a trainer see of an episode. `turns` has each turn's messages, or only the new ones."""

    turns: list[list[Message]] = field(default_factory=list)
    outcomes: Any = field(default_factory=list)
    rewards: Any = field(default_factory=list)
    score: float = 0.0
    accuracies: Any = None


REWARD = {"shaping": "log2", "illegal": -1.0, "unparsable": -2.0, "format_weight": 0.5}
SIZE = {"size": 64, "reward": REWARD}
LEFT = "<answer>left</answer>"
FAR = "<answer>(1, 1) (8, 1)</answer>"
UNPARSABLE = "I cannot see it."
ALL_OUTCOMES = (ORACLE, LEFT, LEFT, LEFT, LEFT, UNPARSABLE, ORACLE)
CASES = {
    "image": Case("2048", 3, {"max_turns": 7, **SIZE}, ALL_OUTCOMES),
    "game over": Case("2048", 4, {"max_turns": 50, "rows": 3, "columns": 3, "goal": 8, **SIZE}, (ORACLE,) * 50),
    "reasoning": Case("2048", 3, {"max_turns": 2, "prediction": True, **SIZE}, (IN_FULL, ORACLE)),
    "text": Case("2048", 3, {"max_turns": 7, "observation": "text", **SIZE}, ALL_OUTCOMES),
    "both": Case(
        "shisensho", 5, {"max_turns": 4, "observation": "both", "size": 160}, (ORACLE, UNPARSABLE, FAR, ORACLE)
    ),
    "history": Case("2048", 3, {"max_turns": 4, "history": 2, "history_images": 1, **SIZE}, ALL_OUTCOMES),
    "several images": Case("tracking", 2, {"size": 64}, (ORACLE,)),
    "canary": Case("canary", 4, {"frames": 2, "asked": 2, "back": 0, "turns": 3, "size": 64}, (ORACLE,) * 3),
    "canary in a chat": Case("canary", 5, {"chat": True, "history_images": 9, "size": 64}, (ORACLE,) * 6),
    "prefix": Case("qa/tictactoe", 1, {"size": 96, "reward": REWARD}, (ORACLE,)),
    "correct": Case("scenes-statements", 6, SIZE, (ORACLE,)),
    "unparsable": Case("scenes-statements", 7, SIZE, (UNPARSABLE,)),
    "chat": Case("2048", 3, {"max_turns": 4, "chat": True, "history_images": 9, **SIZE}, (ORACLE, LEFT, "", ORACLE)),
    "chat with fewer images": Case(
        "2048", 3, {"max_turns": 4, "chat": True, "history": 2, "history_images": 1, **SIZE}, (ORACLE, LEFT, "", ORACLE)
    ),
}


def pixels(image: Any) -> np.ndarray[Any, Any]:
    """Decode an image: an array, a PIL image, a PNG file, or base64 with or without the prefix of a data URL."""
    if isinstance(image, str):
        image = base64.b64decode(image.partition("base64,")[2] or image)
    if isinstance(image, bytes):
        image = Image.open(io.BytesIO(image))
    return np.asarray(image)


def parts(content: Any) -> list[str]:
    """Convert the content of a message; an image becomes its shape, its type and a hash of its pixels."""
    if isinstance(content, str):
        return [content]
    found = []
    for part in content:
        if part["type"] == "text":
            found.append(part["text"])
        else:
            image = pixels(part["image_url"]["url"] if part["type"] == "image_url" else part["image"])
            found.append(f"{image.shape} {image.dtype} {sha256(image.tobytes()).hexdigest()}")
    return found


def read(messages: Iterable[Any]) -> list[Message]:
    return [(message["role"], parts(message["content"])) for message in messages]


def with_images(prompt: Sequence[Any], images: Sequence[Any]) -> list[Message]:
    """Put the images of a row before the text of its last message, as trainers do."""
    *before, last = read(prompt)
    return [*before, (last[0], parts([{"type": "image", "image": image} for image in images]) + last[1])]


def accuracies(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the accuracies among the metrics of an episode; NaN if none applies."""
    return {name: value for name, value in metrics.items() if name.endswith("_accuracy") and not np.isnan(value)}


def by_hand(case: Case, turns: int | None = None, whole: bool = False) -> Played:
    """Play with `Episode`; with `whole`, each turn has all messages instead of only the new ones."""
    episode, played = case.episode, Played()
    for response in case.responses[:turns]:
        messages = read(episode.messages())
        played.turns.append(messages if whole or not played.turns else messages[-1:])
        scored = episode.respond(response)
        played.outcomes.append(scored.outcome.value)
        played.rewards.append(scored.total)
    played.score, played.accuracies = episode.score, episode.accuracies
    return played


def trl(case: Case) -> Played:
    """Call the tool as GRPOTrainer does; tests/in_training/test_trl.py uses the trainer itself."""
    environment = GameEnvironment()
    environment.reset(**case.row)
    played = Played([with_images(case.row["prompt"], case.row["images"])])
    for response in case.responses:
        played.turns.append([("user", parts(environment.respond(response)))])
    ((_, (end,)),) = played.turns.pop()
    assert end.startswith("The episode has ended")
    played.outcomes = [scored.outcome.value for scored in environment.turns]
    played.rewards = [scored.total for scored in environment.turns]
    assert environment.episode is not None
    played.score, played.accuracies = environment.episode.score, environment.episode.accuracies
    assert environment.get_reward() == sum(played.rewards)
    return played


def trl_moves(case: Case) -> Played:
    """Score a response with the single-move reward function, as GRPOTrainer does with a row of the dataset."""
    (row,) = vlmgym.to_hf_dataset([case.row])
    response = case.responses[0]
    scored = vlmgym.score(row["snapshot"], response)
    columns = {name: [row[name]] for name in row if name != "prompt"}
    rewards = vlmgym.reward_fn([row["prompt"]], [[{"role": "assistant", "content": response}]], **columns)
    return Played([with_images(row["prompt"], row["images"])], [scored.outcome.value], rewards, scored.game)


def lmms_eval(case: Case) -> Played:
    """Read a row with lmms-eval's loader, and score the response with its task."""
    tasks = pytest.importorskip("lmms_eval.tasks")
    from vlmgym.integrations.lmms_eval import write_tasks

    with TemporaryDirectory() as folder:
        names = write_tasks(folder, [case.row])
        manager = tasks.TaskManager(include_path=folder, include_defaults=False)
        task = tasks.get_task_dict(names, manager, task_type="chat")[names[0]]
        (doc,) = task.test_docs()
        ((message),) = task.doc_to_messages(doc)
        content = [{**part, "image": part.get("url")} for part in message["content"]]
        result = task.process_results(doc, case.responses[:1])
    outcomes = [outcome for outcome in vlmgym.Outcome if result[outcome]]
    accuracies = {name: result[name] for name in vlmgym.Episode.ACCURACIES if name in result}
    return Played([read([{**message, "content": content}])], outcomes, None, result["score"], accuracies)


def inspect(case: Case) -> Played:
    """Run Inspect's `eval` with a mock model."""
    inspect_ai = pytest.importorskip("inspect_ai")
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    from vlmgym.integrations.inspect import make_task

    responses, played = iter(case.responses), Played()

    def respond(messages: Any, *_: Any) -> Any:
        contents = [each.content if isinstance(each.content, str) else map(vars, each.content) for each in messages]
        played.turns.append([(each.role, parts(content)) for each, content in zip(messages, contents)])
        usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else Inspect downloads a tokenizer
        return ModelOutput.from_content("mockllm/model", next(responses)).model_copy(update={"usage": usage})

    model = get_model("mockllm/model", custom_outputs=respond)
    (log,) = inspect_ai.eval(make_task(case.game, 1, case.seed, **case.options), model=model, display="none")
    score = log.samples[0].scores["game_score"]
    played.outcomes, played.rewards = ([turn[key] for turn in score.metadata["turns"]] for key in ("outcome", "reward"))
    played.score, played.accuracies = score.value, accuracies(score.metadata)
    assert score.metadata["reward"] == sum(played.rewards)
    assert log.results.scores[0].metrics["mean"].value == score.value
    return played


def openenv(case: Case) -> Played:
    """Play over a WebSocket session of a running server."""
    pytest.importorskip("openenv")
    from tests.in_integrations.test_openenv import serve
    from vlmgym.integrations.openenv import GameAction, GameClient, make_app

    played = Played()
    with (
        serve(make_app([case.game], **case.options)) as url,
        GameClient(base_url=url, message_timeout_s=60).sync() as client,
    ):
        turn = client.reset(seed=case.seed)
        for response in case.responses:
            played.turns.append(read(turn.observation.messages()))
            turn = client.step(GameAction(response=response))
            played.outcomes.append(turn.observation.outcome.value)
            played.rewards.append(turn.reward)
        assert turn.done
        played.score, played.accuracies = turn.observation.score, turn.observation.accuracies
    return played


def skyrl(case: Case) -> Played:
    """Play a row of a dataset as SkyRL's generator for vision-language models does."""
    skyrl_gym = pytest.importorskip("skyrl_gym")
    import vlmgym.integrations.skyrl

    environment = skyrl_gym.make("vlmgym", env_config={}, extras={"snapshot": case.row["snapshot"]})
    played = Played()
    new, _ = environment.init(case.row["prompt"])
    for response in case.responses:
        played.turns.append(read(new))
        output = environment.step(response)
        played.outcomes.append(output["metadata"]["outcome"])
        played.rewards.append(output["reward"])
        new = output["observations"]
    assert output["done"]
    metrics = environment.get_metrics()
    assert [metrics[outcome] for outcome in vlmgym.Outcome] == [*map(played.outcomes.count, vlmgym.Outcome)]
    played.score, played.accuracies = metrics["score"], accuracies(metrics)
    return played


def vagen(case: Case) -> Played:
    """Play as VAGEN's agent loops do."""
    pytest.importorskip("vagen.envs.gym_image_env")
    from vagen.evaluate.utils.mm_utils import compile_text_images_for_order, extract_images

    from vlmgym.integrations.vagen import SYSTEM_PROMPT
    from vlmgym.integrations.vagen import GameEnvironment as Environment

    def new(observation: Any) -> Message:
        found = compile_text_images_for_order(observation["obs_str"], extract_images(observation))
        return "user", parts([{"type": kind, kind: value} for kind, value in found])

    environment, played = Environment({"game": case.game, **case.options}), Played()
    observation, _ = asyncio.run(environment.reset(case.seed))
    system = asyncio.run(environment.system_prompt())["obs_str"]
    for response in case.responses:
        played.turns.append([new(observation)])
        observation, reward, done, info = asyncio.run(environment.step(response))
        played.outcomes.append(info["outcome"])
        played.rewards.append(reward)
    assert done
    if case.options.get("chat"):
        played.turns[0].insert(0, ("system", [system]))
    else:
        assert system == SYSTEM_PROMPT  # VAGEN always has a system prompt
    played.score, played.accuracies = info["score"], accuracies(info)
    return played


def verifiers(case: Case) -> Played:
    """Run verifiers' evaluation against a server."""
    pytest.importorskip("verifiers.v1")
    from verifiers.v1.cli.eval.runner import run_eval
    from verifiers.v1.configs.cli.eval import EvalConfig

    taskset = {"games": [case.game], "episodes": 1, "seed": case.seed, "settings": case.options}
    with ApiServer(first([completion(response) for response in case.responses])).running() as server:
        client = {"base_url": server.url, "api_key_var": "NO_KEY"}
        env = {"taskset": {"id": "vlmgym-verifiers", **taskset}}
        (episode,) = asyncio.run(run_eval(EvalConfig(env=env, model="tiny", client=client, rich=None)))
    (trace,) = episode.traces
    played = Played(
        [read(request.body["messages"]) for request in server.requests],
        trace.info["outcomes"],
        trace.info["rewards"],
        trace.metrics["score"],
        accuracies(trace.metrics),
    )
    assert trace.reward == sum(played.rewards)
    assert [trace.metrics[each] for each in vlmgym.Outcome] == [*map(played.outcomes.count, vlmgym.Outcome)]
    return played


def verl(case: Case) -> Played:
    """Play a row with verl's worker and a stub model server. verl reports only outcome counts."""
    pytest.importorskip("verl.experimental.agent_loop.agent_loop")
    from tests.in_integrations.test_verl import roll_out
    from tests.in_training.tiny import make_checkpoint
    from vlmgym.integrations.verl import to_verl

    with TemporaryDirectory() as folder:
        output, server = roll_out(make_checkpoint(Path(folder)), to_verl([case.row]), responses=case.responses)
    facts, played, seen, read_so_far = output.non_tensor_batch, Played(), 0, 0
    for request in next(iter(server.requests.values())):
        images = [{"type": "image", "image": image} for image in (request["image_data"] or [])[seen:]]
        seen += len(images)
        text = re.sub(
            r"<\|vision_start\|>(<\|image_pad\|>)+<\|vision_end\|>", "", server.tokenizer.decode(request["prompt_ids"])
        )
        found = re.findall(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", text, re.DOTALL)
        new = [(role, [text]) for role, text in found[read_so_far:]]
        read_so_far = len(found) + 1  # the next message is the response
        played.turns.append([*new[:-1], (new[-1][0], [*parts(images), *new[-1][1]])])
    played.outcomes = {outcome.value: facts[outcome][0] for outcome in vlmgym.Outcome}
    played.rewards, played.score = facts["turn_scores"][0], facts["score"][0]
    played.accuracies = accuracies({name: values[0] for name, values in facts.items()})
    assert float(output.batch["rm_scores"].sum()) == pytest.approx(sum(played.rewards))
    return played


DRIVERS: dict[str, Callable[[Case], Played]] = {
    "inspect": inspect,
    "lmms_eval": lmms_eval,
    "openenv": openenv,
    "skyrl": skyrl,
    "trl": trl,
    "trl_moves": trl_moves,
    "vagen": vagen,
    "verifiers": verifiers,
    "verl": verl,
}
SINGLE_MOVES = ("lmms_eval", "trl_moves")
WHOLE_REQUESTS = ("inspect", "verifiers")
"""Adapters that send all messages of `Episode.messages` in each turn; the others add new ones to a conversation."""
PLAYED = [
    (adapter, name)
    for adapter in DRIVERS
    for name, case in CASES.items()
    if not (adapter == "lmms_eval" and case.options.get("chat"))  # refused, see test_lmms_eval.py
    and not (adapter in ("skyrl", "verl") and name == "history")
]


def test_cases_have_all_outcomes_and_ends() -> None:
    played = {name: by_hand(case) for name, case in CASES.items()}
    for name in ("image", "text", "both"):
        assert {*played[name].outcomes} == {"played", "illegal", "unparsable"}
    assert 1 < len(played["game over"].turns) < CASES["game over"].options["max_turns"]
    assert len(played["several images"].turns[0][0][1]) > 2
    assert all(len(content) == 1 for turn in played["text"].turns for _, content in turn)
    assert any(case.episode.messages()[0]["role"] == "system" for case in CASES.values())
    assert played["reasoning"].accuracies == {
        "perception_accuracy": 0.5,
        "prediction_accuracy": 0.5,
        "reasoning_accuracy": 1.0,
    }


def test_new_messages_of_a_chat_add_up_to_all_its_messages() -> None:
    case = CASES["chat"]
    conversation: list[Message] = []
    for new, whole, response in zip(by_hand(case).turns, by_hand(case, whole=True).turns, case.responses):
        conversation += new
        assert conversation == whole
        conversation.append(("assistant", [response]))


@pytest.mark.parametrize(("adapter", "name"), PLAYED)
def test_adapters_play_as_episode(adapter: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # frameworks write logs there
    case = CASES[name]
    played = DRIVERS[adapter](case)
    expected = by_hand(case, 1 if adapter in SINGLE_MOVES else None, adapter in WHOLE_REQUESTS)
    if adapter == "lmms_eval":  # has the score but no rewards
        expected.rewards = None
    if adapter == "trl_moves":
        expected.accuracies = None
    if adapter == "verl":
        expected.outcomes = {outcome.value: expected.outcomes.count(outcome) for outcome in vlmgym.Outcome}
    assert played == expected
