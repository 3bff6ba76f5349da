from __future__ import annotations

import asyncio
import re
import sys
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest

import vlmgym
from tests.commands import BARE
from vlmgym.errors import InfrastructureError, PolicyError, UsageError, importing
from vlmgym.evaluation import Budget, evaluate, read_run
from vlmgym.policies import ModelPolicy, Prompt, Reply, make_policy, random_response
from vlmgym.policies.base import policy_rng
from vlmgym.policies.custom import CustomOptions, CustomPolicy
from vlmgym.policies.openai.policy import OpenAIOptions
from vlmgym.policies.transformers import TransformersOptions
from vlmgym.policies.vllm import VLLMOptions
from vlmgym.sandbox.core.game import Game

GAME = vlmgym.make_game("2048", size=64)
STATE = GAME.start(np.random.default_rng(0))


def ask(function, prompts=3, timeout=5.0):
    """Send several prompts to a custom policy concurrently; return its responses."""
    policy = CustomPolicy(function, options=CustomOptions(timeout=timeout))

    async def all_at_once():
        await policy.open()
        policy.set_running_episodes(prompts)
        images = GAME.images(STATE)
        return await asyncio.gather(*(policy.respond(images, Prompt(f"p{i}", GAME, i, 0)) for i in range(prompts)))

    return [reply.text for reply in asyncio.run(all_at_once())]


def test_random_covers_all_actions():
    game = vlmgym.make_game("swap", size=256)
    policy = make_policy("random")
    actions = [game.answer.parse(policy.respond(game, None, policy_rng(seed, 0))[8:-9]) for seed in range(300)]
    for index, limit in enumerate(game.answer.space.nvec):
        assert {action[index] for action in actions} == set(range(limit))
    answers = Counter(policy.respond(GAME, STATE, policy_rng(seed, 0)) for seed in range(400))
    assert len(answers) == 4
    assert min(answers.values()) > 70


def test_game_without_oracle():
    class NoOracle(type(GAME)):
        best_action = Game.best_action

    with pytest.raises(UsageError, match="has no oracle"):
        make_policy("oracle").check(NoOracle())


def test_ready_prompts_share_a_batch():
    batches = []

    def function(images_batch, prompt_batch):
        batches.append(len(prompt_batch))
        assert all(image.shape == (64, 64, 3) for images in images_batch for image in images)
        return [prompt.upper() for prompt in prompt_batch]

    assert ask(function, prompts=8) == [f"P{i}" for i in range(8)]
    assert batches == [8]


def _raise_in_red(images, prompts):
    raise ValueError("\x1b[31mred\nand more")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda images, prompts: ["a"], "returned 1 responses to 3 prompts"),
        (lambda images, prompts: ["a", "b", None], r"must return a list of strings or Replies, got \['a', 'b', None\]"),
        (lambda images, prompts: 1 / 0, r"raised ZeroDivisionError: division by zero .*test_policies.py, line \d+"),
        (lambda images, prompts: sys.exit(3), "raised RuntimeError: SystemExit: 3"),
        (_raise_in_red, r"raised ValueError: \[31mred and more \("),
    ],
)
def test_custom_policy_errors(function, message):
    with pytest.raises(PolicyError, match=message):
        ask(function)


async def _block_event_loop(images, prompts):
    time.sleep(1)


@pytest.mark.parametrize("function", [lambda images, prompts: time.sleep(1), _block_event_loop])
def test_custom_policy_times_out(function):
    with pytest.raises(PolicyError, match=r"timed out after 0.2 s with 3 prompts"):
        ask(function, timeout=0.2)


def test_async_callables_share_an_event_loop():
    loops = set()

    class Client:
        async def __call__(self, images, prompts):
            loops.add(asyncio.get_running_loop())
            return [prompt + "!" for prompt in prompts]

    policy = CustomPolicy(Client())
    assert policy.name == "Client"
    for _ in range(2):  # a policy can be reused by another run

        async def both():
            await policy.open()
            policy.set_running_episodes(2)
            replies = (policy.respond([], Prompt(text, GAME, 0, 0)) for text in "ab")
            return [reply.text for reply in await asyncio.gather(*replies)]

        assert asyncio.run(both()) == ["a!", "b!"]
    assert len(loops) == 1


def test_load_function_from_module_and_file(tmp_path, monkeypatch):
    (tmp_path / "my_policy.py").write_text("def answer(images, prompts):\n    return ['x' for _ in prompts]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere"] + __import__("sys").path)
    for spec in ("my_policy:answer", "my_policy.py:answer", f"{tmp_path}/my_policy.py:answer"):
        policy = make_policy(spec, GAME)
        assert isinstance(policy, ModelPolicy)
        assert policy.name == spec


CLASS = """
from vlmgym.policies import ModelPolicy, Reply
class Mine(ModelPolicy):
    counts_tokens = True
    async def respond(self, images, prompt):
        return Reply("<answer>up</answer>", prompt_tokens=3, completion_tokens=len(images))
class Raising(ModelPolicy):
    async def respond(self, images, prompt):
        raise KeyError("lost")
class Slow(ModelPolicy):
    async def respond(self, images, prompt):
        import asyncio
        await asyncio.sleep(60)
class Plain(ModelPolicy):
    def respond(self, images, prompt):
        return "<answer>up</answer>"
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Mine", ""),
        ("Raising", r"Raising raised KeyError: 'lost' \(.*mine.py, line 9\)"),
        ("Plain", "Plain must respond in an async function"),
        ("Slow", r"Slow timed out after 0.1 s"),
    ],
)
def test_model_policies_from_files_work_as_functions_do(run, tmp_path, name, message):
    (tmp_path / "mine.py").write_text(CLASS)
    options = ["--policy", f"mine.py:{name}", "--episodes", 2, "--max-turns", 2, "--output-dir", "o"]
    done = run("eval", "2048", *BARE, *options, *(["--timeout", 0.1] if name == "Slow" else []))
    assert done.code == (1 if message else 0), done.err
    assert re.search(message, done.err)
    assert "Traceback" not in done.err
    if not message:
        assert {episode.policy.name for episode in read_run(tmp_path / "o").episodes} == {f"mine.py:{name}"}


def test_secrets_in_errors_of_user_code_are_redacted(monkeypatch, tmp_path):
    monkeypatch.setenv("MY_API_KEY", "sk-TheSecretOfThisTest")
    monkeypatch.setenv("HF_TOKEN", "short")

    def function(images, prompts):
        raise ValueError("https://host/v1?key=sk-TheSecretOfThisTest is short")

    with pytest.raises(PolicyError, match=r"https://host/v1\?key=\[redacted\] is short"):
        evaluate(GAME, function, 1, max_turns=1, workers=0)

    class Mine(ModelPolicy):
        async def respond(self, images, prompt):
            raise InfrastructureError("rejected sk-TheSecretOfThisTest")

    assert evaluate(GAME, Mine(), 1, max_turns=1, workers=0)[0].end_reason == "rejected [redacted]"
    (tmp_path / "broken.py").write_text("import os\nraise ValueError(os.environ['MY_API_KEY'])\n")
    with pytest.raises(UsageError, match=r"ValueError: \[redacted\]"):
        make_policy(f"{tmp_path}/broken.py:f")


def test_unloadable_policies(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("import not_there\n")
    (tmp_path / "empty.py").write_text("answer = 3\n")
    for spec, message in [
        ("nonsense", "unknown policy 'nonsense'; choose random, .* or MODULE:NAME"),
        ("not_a_module:f", "cannot load 'not_a_module': ModuleNotFoundError"),
        ("broken.py:f", "No module named 'not_there'"),
        ("missing.py:f", "cannot load 'missing.py': no such file"),
        ("empty.py:f", "'empty.py' has no function or policy 'f'"),
    ]:
        with pytest.raises(UsageError, match=message.replace("(", r"\(")):
            make_policy(spec, GAME)


FULL: dict[str, Any] = {"prompt_tokens": np.int32(100), "completion_tokens": 7, "finish_reason": "stop"}
FULL |= {"reasoning": "hm", "latency": np.float32(0.25), "requests": 2, "model": "mine"}


def full(prompt: Prompt) -> Reply:
    return Reply(random_response(prompt), **FULL)


def counted(images: Any, prompts: list[Prompt]) -> list[str | Reply]:
    """Return replies on odd turns and strings on even ones."""
    return [full(prompt) if prompt.turn % 2 else random_response(prompt) for prompt in prompts]


async def counted_async(images: Any, prompts: list[Prompt]) -> list[str | Reply]:
    return counted(images, prompts)


@pytest.mark.parametrize("function", [counted, counted_async])
def test_replies_are_recorded(function: Any) -> None:
    for record in evaluate(GAME, function, 2, max_turns=4, workers=0):
        for turn in record.turns:
            details = {name: getattr(turn, name) for name in FULL}
            if turn.turn % 2 == 0:  # records count turns from 1, prompts from 0
                assert details == FULL
            else:
                assert details.pop("latency") >= 0
                assert set(details.values()) == {None}


def test_budget_requires_token_counts() -> None:
    def mine(images: Any, prompts: list[Prompt]) -> list[Reply]:
        return [Reply("<answer>up</answer>", prompt_tokens=3) for _ in prompts]

    with pytest.raises(PolicyError, match=r"prompt_tokens and completion_tokens"):
        evaluate(GAME, mine, 1, max_turns=1, workers=0, budget=Budget(budget_tokens=10))


def test_prompt_attributes() -> None:
    seen = []

    def function(images: list[list[np.ndarray]], prompts: list[Prompt]) -> list[str]:
        for own, prompt in zip(images, prompts, strict=True):
            assert prompt.images is own
            seen.append(prompt)
        return [*map(random_response, prompts)]

    records = evaluate(GAME, function, 2, max_turns=3, seed=5, workers=0, history=1, history_images=1)
    by_id = {f"{record.game.id}/{record.seed}": record for record in records}
    assert len(seen) == sum(len(record.turns) for record in records) == 6
    for prompt in seen:
        record = by_id[prompt.episode_id]
        assert (prompt.game, prompt.seed) == (GAME, record.seed)
        assert prompt == prompt.text == record.turns[prompt.turn].prompt
        assert type(prompt.text) is str
        assert [image.shape for image in prompt.images] == [(64, 64, 3)] * (2 if prompt.turn else 1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"text": None}, "text .* string, got NoneType"),
        ({"prompt_tokens": -1}, "prompt_tokens .* at least 0, got -1"),
    ],
)
def test_invalid_replies(values: Any, message: str) -> None:
    def mine(images: Any, prompts: list[Prompt]) -> list[Reply]:
        return [Reply(**{"text": "up", **values}) for _ in prompts]

    with pytest.raises(UsageError, match=message):
        Reply(**{"text": "up", **values})
    with pytest.raises(PolicyError, match=rf"mine raised UsageError: {message} \(.*test_policies\.py, line \d+\)"):
        evaluate(GAME, mine, 1, max_turns=1, workers=0)


@pytest.mark.parametrize(
    ("name", "options", "package"),
    [
        ("transformers", TransformersOptions(model="a/b"), "torch"),
        ("vllm", VLLMOptions(model="a/b"), "vllm"),
        ("openai", OpenAIOptions(model="m", base_url="http://localhost:1/v1"), "aiohttp"),
    ],
)
def test_missing_package(name: str, options: Any, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for module in ("local_model", "openai.client"):
        monkeypatch.delitem(sys.modules, f"vlmgym.policies.{module}", raising=False)
    with pytest.raises(UsageError, match=f"{name}.* needs {package}: .*install"):
        make_policy(name, options)


def test_an_incompatible_version_of_a_library_is_named() -> None:
    message = r"^a cannot import its libraries \(cannot import name 'nothing' from 'json' .*vlmgym\[data\]"
    with pytest.raises(UsageError, match=message), importing("a", "data"):
        from json import nothing  # type: ignore[attr-defined]  # noqa: F401
