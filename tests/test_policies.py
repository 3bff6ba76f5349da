import asyncio
import re
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import vlmgym
from tests.commands import BARE
from vlmgym.errors import InfrastructureError, PolicyError, UsageError
from vlmgym.evaluation import evaluate, read_run
from vlmgym.policies import ModelPolicy, Prompt, Reply, make_policy
from vlmgym.policies.base import policy_rng
from vlmgym.policies.custom import CustomOptions, CustomPolicy, load_object
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.reward import score_response

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


def test_all_answers_are_legal_in_a_game_that_does_not_list_them():
    game = vlmgym.make_game("caption", size=128)
    state = game.start(np.random.default_rng(1))
    responses = [make_policy(name).respond(game, state, policy_rng(1, 0)) for name in ("random", "random-legal")]
    assert responses[0] == responses[1]
    assert score_response(game, state, responses[1], np.random.default_rng(0)).outcome == "played"


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


def _raise_unprintable(images, prompts):
    class Unprintable(Exception):
        def __str__(self):
            raise ValueError

    raise Unprintable


def _raise_timeout(images, prompts):
    raise TimeoutError("server is slow")


async def _raise_async(images, prompts):
    raise KeyError("lost")


async def _cancelled(images, prompts):
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda images, prompts: ["a"], "returned 1 responses to 3 prompts"),
        (lambda images, prompts: ["a", "b", None], "response 2 must be a string or a Reply, got NoneType"),
        (lambda images, prompts: "abc", "must return a list .* got str"),
        (lambda images, prompts: 1 / 0, r"raised ZeroDivisionError: division by zero .*test_policies.py, line \d+"),
        (lambda images, prompts: next(iter(())), "raised RuntimeError: StopIteration"),
        (lambda images, prompts: sys.exit(3), "raised RuntimeError: SystemExit: 3"),
        (lambda images: [], "raised TypeError"),
        (_raise_in_red, r"raised ValueError: \[31mred and more \("),
        (_raise_unprintable, "raised Unprintable: its message cannot be formatted"),
        (_raise_timeout, "raised TimeoutError: server is slow"),
        (_raise_async, "raised KeyError: 'lost'"),
        (_cancelled, "raised RuntimeError: CancelledError"),
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
mine = Mine()
class Careless(ModelPolicy):
    def __init__(self):
        pass
    async def respond(self, images, prompt):
        return "<answer>up</answer>"
class Failing(ModelPolicy):
    async def open(self):
        raise OSError("no model")
    async def respond(self, images, prompt):
        pass
class Raising(ModelPolicy):
    async def respond(self, images, prompt):
        raise KeyError("lost")
class Forgetful(ModelPolicy):
    async def respond(self, images, prompt):
        pass
class Slow(ModelPolicy):
    async def respond(self, images, prompt):
        import asyncio
        await asyncio.sleep(60)
class Offline(ModelPolicy):
    async def respond(self, images, prompt):
        from vlmgym.errors import InfrastructureError
        raise InfrastructureError("no answer")
class Other:
    pass
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Mine", ""),
        ("mine", ""),
        ("Careless", ""),
        ("Failing", r"Failing raised OSError: no model \(.*mine.py, line 15\)"),
        ("Raising", r"Raising raised KeyError: 'lost' \(.*mine.py, line 20\)"),
        ("Forgetful", "Forgetful must return a string or a Reply, got NoneType"),
        ("Slow", r"Slow timed out after 0.1 s"),
        ("Offline", "no answer"),
        ("Other", "'mine.py:Other' is neither a function nor a ModelPolicy"),
    ],
)
def test_model_policies_from_files_work_as_functions_do(run, tmp_path, name, message):
    (tmp_path / "mine.py").write_text(CLASS)
    options = ["--policy", f"mine.py:{name}", "--episodes", 2, "--max-turns", 2, "--output-dir", "o"]
    done = run("eval", "2048", *BARE, *options, *(["--timeout", 0.1] if name == "Slow" else []))
    assert done.code == (2 if name == "Other" else 1 if message else 0), done.err
    assert re.search(message, done.err)
    assert "Traceback" not in done.err
    if not message:
        assert {episode.policy.name for episode in read_run(tmp_path / "o").episodes} == {f"mine.py:{name}"}


def test_classes_and_instances_are_policies_from_python():
    class Mine(ModelPolicy):
        async def respond(self, images, prompt):
            return Reply("<answer>up</answer>")

    for policy in (Mine, Mine()):
        assert [len(record.turns) for record in evaluate(GAME, policy, 2, max_turns=2, workers=0)] == [2, 2]


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


def test_file_can_shadow_and_import_modules(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", list(sys.path))
    (tmp_path / "beside_it.py").write_text("WORD = 'x'\n")
    (tmp_path / "random.py").write_text(
        "from __future__ import annotations\n"
        "import random\n"
        "from dataclasses import dataclass\n"
        "import beside_it\n"
        "@dataclass\n"
        "class Said:\n"
        "    word: str = beside_it.WORD\n"
        "def answer(images, prompts):\n"
        "    return [random.choice([Said().word]) for _ in prompts]\n"
    )
    assert ask(load_object(f"{tmp_path}/random.py:answer")) == ["x"] * 3


def test_unloadable_policies(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("import not_there\n")
    (tmp_path / "empty.py").write_text("answer = 3\n")
    for spec, message in [
        ("nonsense", "unknown policy 'nonsense'; choose random, .* or MODULE:NAME"),
        ("not_a_module:f", "cannot load 'not_a_module': ModuleNotFoundError"),
        ("broken.py:f", "No module named 'not_there'"),
        ("missing.py:f", "no file missing.py"),
        ("empty.py:f", "'empty.py' has no function or policy 'f'"),
        ("empty.py:answer", "'empty.py:answer' is neither a function nor a ModelPolicy"),
    ]:
        with pytest.raises(UsageError, match=message.replace("(", r"\(")):
            make_policy(spec, GAME)


def test_policy_serves_one_run_at_a_time():
    started, release = threading.Event(), threading.Event()

    def function(images_batch, prompt_batch):
        started.set()
        assert release.wait(10)
        return ["" for _ in prompt_batch]

    policy = CustomPolicy(function)
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(evaluate, GAME, policy, 2, max_turns=2, workers=0)
        assert started.wait(10)
        try:
            with pytest.raises(UsageError, match=r"function is already used by another run"):
                evaluate(GAME, policy, 1, max_turns=1, workers=0)
        finally:
            release.set()
        assert [record.status for record in first.result()] == ["turn limit"] * 2
    assert len(evaluate(GAME, policy, 1, max_turns=1, workers=0)) == 1
