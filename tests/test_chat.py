"""Multi-turn conversations as they reach policies, records and exports."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import vlmgym
from tests.api_server import Answer, ApiServer, Request, refusal, well_behaved
from tests.api_server import policy as server_policy
from tests.playing import as_bytes
from vlmgym.cli.eval import run_evaluation
from vlmgym.cli.export import ExportConfig, export
from vlmgym.errors import UsageError
from vlmgym.evaluation import EpisodeRecord, EvalConfig, evaluate, read_run
from vlmgym.policies import Prompt

GAME = vlmgym.make_game("2048", size=64)
ANSWERS = ("<answer>up</answer>", "<think>?</think><answer>left</answer>", "no answer", "<answer>down</answer>")
Messages = list[dict[str, Any]]


class Chatting:
    """A scripted policy that stores the messages it gets, by turn."""

    def __init__(self, answers: tuple[str, ...] = ANSWERS) -> None:
        self.answers = answers
        self.messages: list[Messages] = []

    def __call__(self, images_batch: Any, prompt_batch: list[Prompt]) -> list[str]:
        (prompt,) = prompt_batch
        assert prompt.messages[-1]["content"][-1]["text"] == prompt
        self.messages.append(prompt.messages)
        return [self.answers[prompt.turn % len(self.answers)]]


def play(**options: Any) -> tuple[list[Messages], EpisodeRecord]:
    policy = Chatting()
    (record,) = evaluate(GAME, policy, 1, max_turns=6, workers=0, chat=True, **options)
    return policy.messages, record


def text_of(message: dict[str, Any]) -> str:
    assert [part["type"] for part in message["content"][:-1]] == ["image"] * (len(message["content"]) - 1)
    text: str = message["content"][-1]["text"]
    return text


def images_of(messages: Messages) -> list[list[Any]]:
    return [[part["image"] for part in each["content"] if part["type"] == "image"] for each in messages]


@pytest.mark.parametrize(("history", "history_images"), [(None, 0), (None, 2), (None, 99), (3, 1), (1, 1), (0, 0)])
def test_conversations_have_the_rules_and_the_latest_turns(history: int | None, history_images: int) -> None:
    conversations, record = play(history=history, history_images=history_images)
    states = [GAME.from_data(turn.state) for turn in record.turns]
    for number, messages in enumerate(conversations):
        first = 0 if history is None else max(0, number - history)
        roles = ["system", *["user", "assistant"] * (number - first), "user"]
        assert [message["role"] for message in messages] == roles
        assert text_of(messages[0]) == record.turns[number].system == GAME.instructions(states[number])
        for turn, message in zip(record.turns[first:], messages[1::2]):
            assert text_of(message) == turn.prompt
        for turn, message in zip(record.turns[first:], messages[2::2]):
            assert text_of(message) == turn.response
        shown = [number - first - i <= history_images for i in range(number - first + 1)]
        drawn = [[GAME.draw(state)] if there else [] for state, there in zip(states[first:], shown)]
        np.testing.assert_equal(images_of(messages)[1::2], drawn)


def test_user_messages_tell_the_result_of_the_last_response() -> None:
    _, record = play()
    prompts = [turn.prompt for turn in record.turns]
    assert prompts[0] == "Turn 1."
    assert prompts[1] == f"Turn 2. Your last response was played, reward {record.turns[0].reward.game:g}."
    assert prompts[3].startswith("Turn 4. Your last response was not played: ")
    assert prompts[3].endswith("The image has not changed.")


def test_all_images_keep_the_beginning_for_prefix_caching() -> None:
    conversations, _ = play(history_images=99)
    for earlier, later in pairwise(conversations):
        assert as_bytes(later)[: len(earlier)] == as_bytes(earlier)


def test_rows_of_a_dataset_begin_a_conversation() -> None:
    _, record = play()
    (row,) = vlmgym.make_dataset(GAME, 1, record.seed, chat=True)
    assert row["prompt"] == [
        {"role": "system", "content": record.turns[0].system},
        {"role": "user", "content": record.turns[0].prompt},
    ]


def test_rules_are_in_the_first_user_message_if_the_server_rejects_system_messages() -> None:
    def behaviour(request: Request) -> Answer:
        roles = [message["role"] for message in request.body["messages"]]
        return refusal(400, "System role not supported") if "system" in roles else well_behaved(request)

    with ApiServer(behaviour).running() as server:
        openai = server_policy(server, retries=0)
        (record,) = evaluate(GAME, openai, 1, max_turns=3, workers=0, chat=True, history_images=1)
    assert record.score is not None
    assert len(server.requests) == 4, "the role is tried again"
    first, *_, last = [request.body["messages"] for request in server.requests[1:]]
    assert [message["role"] for message in last] == [*["user", "assistant"] * 2, "user"]
    system, prompt = record.turns[0].system, record.turns[0].prompt
    assert [part["type"] for part in first[0]["content"]] == ["image_url", "text"]
    assert first[0]["content"][1]["text"] == last[0]["content"] == f"{system}\n\n{prompt}"


def run(folder: Path, answers: tuple[str, ...] = ANSWERS, **options: Any) -> tuple[list[Messages], Path]:
    policy = Chatting(answers)
    quiet: dict[str, Any] = {"episodes": 1, "size": 64, "workers": 0, "videos": 0, "report": False}
    run_evaluation(
        ["2048"], EvalConfig(chat=True, max_turns=6, output_dir=folder, **quiet, **options), custom_policy=policy
    )
    return policy.messages, folder


def exported(folder: Path, format_: Any, **filters: Any) -> list[dict[str, Any]]:
    out = folder.with_name(f"{folder.name}-{format_}")
    export(ExportConfig(run=folder, format=format_, output_dir=out, workers=0, **filters))
    file = out / ("data.jsonl" if format_ == "sharegpt" else "metadata.jsonl")
    return [{**json.loads(line), "folder": out} for line in file.read_text().splitlines()]


def test_an_export_of_a_whole_conversation_is_one_row(tmp_path: Path) -> None:
    conversations, folder = run(tmp_path / "run", ANSWERS[:2], history_images=99)
    turns = next(iter(read_run(folder).episodes)).turns
    (row,) = exported(folder, "hf", outcome=("played", "illegal"))
    stored = iter(row["file_names"])
    for message in row["messages"]:
        for part in message["content"]:
            if part["type"] == "image":
                part["image"] = np.asarray(Image.open(row["folder"] / next(stored)))
    assert as_bytes(row["messages"][:-1]) == as_bytes(conversations[-1])
    (row,) = exported(folder, "sharegpt", outcome=("played", "illegal"))
    assert [message["role"] for message in row["messages"]] == ["system", *["user", "assistant"] * 6]
    assert [message["content"] for message in row["messages"][1::2]] == [f"<image>{turn.prompt}" for turn in turns]
    assert [message["content"] for message in row["messages"][2::2]] == [turn.response for turn in turns]
    assert len(row["images"]) == 6


def test_exported_conversations_have_only_responses_that_pass(tmp_path: Path) -> None:
    conversations, folder = run(tmp_path / "run", history=2, history_images=1)
    rows = exported(folder, "sharegpt", outcome=("played", "illegal"))
    assert [row["turn"] for row in rows] == [2, 6]  # conversations at turns 3 to 5 contain the unparsable turn 3
    for row in rows:
        sent = conversations[row["turn"] - 1]
        texts = ["<image>" * len(images) + text_of(each) for each, images in zip(sent, images_of(sent))]
        assert [message["content"] for message in row["messages"][:-1]] == texts
        assert len(row["images"]) == sum(map(len, images_of(sent)))


def test_resumed_and_replayed_runs_have_the_same_conversations(tmp_path: Path) -> None:
    _, folder = run(tmp_path / "run", history_images=1)
    (whole,) = (episode for episode in read_run(folder).episodes)
    cut = whole.model_copy(update={"turns": whole.turns[:3], "status": "stopped", "score": None})
    policy = Chatting()
    (resumed,) = evaluate(GAME, policy, 1, max_turns=6, workers=0, chat=True, history_images=1, resume=[cut])
    assert len(policy.messages) == 3
    assert [(turn.system, turn.prompt) for turn in resumed.turns] == [
        (turn.system, turn.prompt) for turn in whole.turns
    ]
    with pytest.raises(UsageError, match=r"prompts\.chat was True and is False"):
        evaluate(GAME, Chatting(), 1, max_turns=6, workers=0, resume=[cut])
