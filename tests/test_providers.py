"""Servers named by --provider, against a real HTTP server in their place, and rules for the tokens of images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.api_server import ApiServer
from tests.commands import BARE
from vlmgym.errors import UsageError
from vlmgym.policies.openai.policy import OpenAIOptions, OpenAIPolicy
from vlmgym.policies.openai.providers import BUILT_IN, _read, find_provider, image_tokens

PROVIDERS = _read(BUILT_IN)[0]
KEY = "k-0123456789abcdef"


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_provider_gets_its_key_and_its_fields(run, monkeypatch, name):
    provider = PROVIDERS[name]
    for other in PROVIDERS.values():
        monkeypatch.delenv(other.key or "UNSET", raising=False)
    if provider.key:
        monkeypatch.setenv(provider.key, KEY)
    with ApiServer().running() as server:
        args = ["--provider", name, "--base-url", server.url, "--model", "tiny", "--max-tokens", 9]
        done = run("eval", "2048", *BARE, *args, "--episodes", 1, "--max-turns", 1, "--output-dir", "o")
    assert done.code == 0, done.err
    (request,) = server.requests
    sent = {name: value for name, value in request.headers.items() if KEY in value}
    header = provider.key_header or "authorization"
    assert sent == ({} if provider.key is None else {header: KEY if provider.key_header else f"Bearer {KEY}"})
    assert request.body[provider.max_tokens] == 9
    assert KEY not in done.out + done.err


def test_check_vision_and_bench_model_take_a_provider(run, monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    with ApiServer().running() as server:
        where = ["--provider", "gemini", "--base-url", server.url, "--model", "tiny", "--retries", 0]
        run("check-vision", *where)
        run("bench-model", *where, "--prompt", "hi", "--runs", 2)
    assert len(server.requests) > 2
    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}


def test_urls(monkeypatch):
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://mine.openai.azure.com/")
    assert OpenAIOptions(provider="azure").url == "https://mine.openai.azure.com/openai/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere/v1")
    assert OpenAIOptions(provider="ollama").url == "http://localhost:11434/v1"
    for provider in PROVIDERS.values():
        assert provider.source is not None
        assert provider.checked is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"provider": "gemni"}, r"unknown provider 'gemni' \(did you mean gemini\?\): the providers are openai, "),
        ({"provider": "azure"}, "set the environment variable AZURE_OPENAI_ENDPOINT, or --base-url"),
        ({"provider": "anthropic", "sample_seed": 1}, r"anthropic ignores seed \(https://.*\): leave it out"),
        ({"provider": "anthropic", "temperature": 1.5}, "anthropic lowers temperatures above 1"),
    ],
)
def test_mistakes(monkeypatch, options, message):
    monkeypatch.delenv("AZURE_OPENAI_ENDPOINT", raising=False)
    with pytest.raises(UsageError, match=message):
        OpenAIOptions(model="m", **options)


def test_a_missing_key_is_named(monkeypatch):
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(UsageError, match="set the environment variable GEMINI_API_KEY"):
        OpenAIPolicy(OpenAIOptions(provider="gemini", model="m"))
    assert OpenAIPolicy(OpenAIOptions(provider="ollama", model="m"))._key is None


def test_providers_of_the_user(monkeypatch, tmp_path):
    text = '[mine]\nbase_url = "http://mine/v1"\nkey = "MINE"\nimages = { tokens = 64 }\n'
    (tmp_path / "vlmgym").mkdir()
    (tmp_path / "vlmgym" / "providers.toml").write_text(text)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("MINE", KEY)
    assert OpenAIPolicy(OpenAIOptions(provider="mine", model="m"))._key == KEY
    assert find_provider("gemini") == PROVIDERS["gemini"]
    file = tmp_path / "other.toml"
    file.write_text(text.replace("//mine", "//other"))
    assert find_provider(f"{file}:mine").url == "http://other/v1"
    rule = image_tokens("gpt-4o", find_provider("mine"))
    assert rule is not None
    assert rule.count(640, 640) == 64
    file.with_name("bad.toml").write_text(text.replace("key", "keys"))
    with pytest.raises(UsageError, match=r"bad.toml cannot be read: keys: extra inputs are not permitted$"):
        find_provider(f"{tmp_path}/bad.toml:mine")


@pytest.mark.parametrize(
    ("model", "sizes"),
    [  # published examples, and bills that users have measured; see the sources in providers.toml
        ("gpt-4o-2024-08-06", {(1024, 1024): 765, (2048, 4096): 1105, (128, 64): 255}),
        ("gpt-4o-mini", {(128, 64): 8500}),
        ("gpt-4.1-mini-2025-04-14", {(1024, 1024): 1659}),
        ("gpt-5-mini", {(256, 256): 77, (512, 512): 308, (768, 1024): 922, (1280, 720): 1104}),
        ("anthropic/claude-sonnet-4-5", {(256, 256): 100, (512, 512): 361, (1024, 1024): 1369, (1280, 720): 1196}),
        ("google/gemini-3-flash-preview", {(640, 640): 1120}),
        ("Qwen/Qwen2.5-VL-3B-Instruct", {(640, 640): 529, (1024, 1024): 1369}),
        ("Qwen/Qwen3-VL-4B-Instruct", {(640, 640): 400, (100, 100): 64}),
    ],
)
def test_tokens_of_images(model, sizes):
    rule = image_tokens(model, None)
    assert rule is not None
    assert rule.source is not None
    assert {size: rule.count(*size) for size in sizes} == sizes


def test_tokens_that_depend_on_the_provider_or_are_unknown():
    together = image_tokens("meta-llama/Llama-4-Scout", PROVIDERS["together"])
    assert together is not None
    assert [together.count(*size) for size in ((559, 559), (600, 559), (2000, 2000))] == [1601, 3202, 6404]
    assert image_tokens("somebody/new-model", PROVIDERS["openrouter"]) is None
    gpt = image_tokens("gpt-4o", None)
    assert gpt is not None
    assert gpt.count(2000, 2000, low=True) == 85


def test_a_provider_is_recorded_but_does_not_change_the_policy(run, tmp_path: Path):
    with ApiServer().running() as server:
        args = ["--provider", "lmstudio", "--base-url", server.url, "--model", "tiny", "--max-turns", 1]
        done = run("eval", "2048", *BARE, *args, "--episodes", 1, "--output-dir", "o")
        assert done.code == 0, done.err
        more = run("eval", "2048", *BARE, *args[2:], "--episodes", 2, "--resume", "o")
        assert more.code == 0, more.err
    config = json.loads((tmp_path / "o" / "run.json").read_text())
    assert config["policy"]["name"] == "openai"
    assert config["options"]["policy"]["base_url"] == server.url
