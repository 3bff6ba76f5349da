"""API keys and passwords reach only their own server, and neither files nor the terminal."""

import json

import pytest

from tests.api_server import UP, Answer, ApiServer, completion, play, refusal, well_behaved
from tests.commands import BARE
from vlmgym.errors import UsageError
from vlmgym.evaluation import evaluate
from vlmgym.policies.openai.policy import OpenAIOptions, OpenAIPolicy

KEY = "sk-4f9c/0a+TheSecretOfThisTest=="
pytestmark = pytest.mark.usefixtures("quick_retries")


def echo(status):
    """Return a server behaviour that echoes the key in every place."""

    def behaviour(request):
        sent = request.headers["authorization"]
        if status == 200:
            response = completion(f"{sent} {UP}", f"stop {sent}", reasoning=sent)
        else:
            response = refusal(status, f"{sent} is {'x' * 250} {sent} {sent[:300]}")
        headers = {**response.headers, "X-Sent": sent, "Location": f"http://h/{sent}"}
        return Answer(response.status, response.body, headers)

    return behaviour


def everything(done, folder):
    """Return the output of a command and the names and contents of its files."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files or "turns 0/" in done.err, "a run that played nothing leaves nothing"
    return "".join([done.out, done.err, *map(str, files), *(path.read_text("utf-8", "replace") for path in files)])


OPTIONS = ["--policy", "openai", "--model", "tiny", "--episodes", 2, "--max-turns", 2, "--retries", 1]
OPTIONS += ["--output-dir", "o"]


@pytest.mark.parametrize(("status", "code"), [(200, 0), (400, 1), (401, 1), (307, 1)])
def test_key_is_redacted_everywhere(run, tmp_path, monkeypatch, status, code):
    monkeypatch.setenv("MINE", KEY)
    with ApiServer(echo(status)).running() as server:
        done = run("eval", "2048", *BARE, *OPTIONS, "--base-url", server.url, "--api-key-env", "MINE")
    assert done.code == code, done.err
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    shown = everything(done, tmp_path / "o")
    assert "Traceback" not in done.err
    assert not [piece for piece in (KEY, KEY[:12], KEY[-12:]) if piece in shown]
    assert "[redacted]" in shown


def test_passwords_in_urls_are_rejected_and_not_shown():
    with pytest.raises(UsageError, match="without user, password") as raised:
        OpenAIOptions(model="tiny", base_url="http://someone:swordfish@h/v1")
    assert "swordfish" not in str(raised.value)


def test_errors_about_keys_do_not_show_them(monkeypatch):
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        OpenAIPolicy(OpenAIOptions(model="gpt"))
    for wrong_name in (KEY, "gsk_4f9c0aTheSecretOfThisTest"):
        with pytest.raises(UsageError) as raised:
            OpenAIPolicy(OpenAIOptions(model="tiny", base_url="http://localhost:1/v1", api_key_env=wrong_name))
        assert wrong_name not in str(raised.value)
    monkeypatch.setenv("MINE", KEY + "\n")
    with pytest.raises(UsageError) as raised:
        OpenAIPolicy(OpenAIOptions(model="tiny", api_key_env="MINE"))
    assert "whitespace" in str(raised.value)
    assert KEY not in str(raised.value)


@pytest.mark.parametrize(("name", "sent"), [(None, None), ("MINE", "another-key"), ("OPENAI_API_KEY", KEY)])
def test_other_servers_get_only_the_named_key(monkeypatch, name, sent):
    monkeypatch.setenv("MINE", "another-key")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    _, server = play(well_behaved, api_key_env=name)
    headers = server.requests[0].headers
    assert headers.get("authorization") == (sent and f"Bearer {sent}")
    assert str(headers).count(KEY) == (sent == KEY)


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("https://api.openai.com/v1", True),
        ("http://api.openai.com/v1", False),
        ("https://api.openai.com.example.org/v1", False),
    ],
)
def test_default_key_is_for_openai_only(monkeypatch, url, own):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert OpenAIPolicy(OpenAIOptions(model="gpt", base_url=url))._key == (KEY if own else None)


def test_the_server_and_its_key_come_from_the_environment(monkeypatch, tmp_path, run):
    with ApiServer().running() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        evaluate("2048", OpenAIPolicy(OpenAIOptions(model="tiny")), 1, max_turns=1, workers=0)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        done = run("eval", "2048", *BARE, *OPTIONS)
        assert done.code == 0, done.err
        monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:9/v1")
        evaluate("2048", OpenAIPolicy(OpenAIOptions(model="tiny", base_url=server.url)), 1, max_turns=1, workers=0)
    sent = [request.headers.get("authorization") for request in server.requests]
    assert sent == [None, *[f"Bearer {KEY}"] * 4, None]
    assert json.loads((tmp_path / "o" / "run.json").read_text())["options"]["policy"]["base_url"] == server.url
    monkeypatch.setenv("OPENAI_BASE_URL", "localhost:9")
    with pytest.raises(UsageError, match="OPENAI_BASE_URL must be a URL"):
        OpenAIOptions(model="tiny")


def test_extra_body_rejects_keys(monkeypatch):
    monkeypatch.setenv("MINE", KEY)
    monkeypatch.setenv("HF_TOKEN", "another-secret")
    where = {"model": "tiny", "base_url": "http://h/v1", "api_key_env": "MINE"}
    for secret in (KEY, "another-secret"):
        for fields in ({"a": [{"b": f"x{secret}"}]}, {secret: 1}):
            body = json.dumps(fields).replace("s", "\\u0073")
            with pytest.raises(UsageError, match="extra_body is recorded") as raised:
                OpenAIPolicy(OpenAIOptions(**where, extra_body=body))
            assert secret not in str(raised.value)
    with pytest.raises(UsageError) as raised:
        OpenAIOptions(extra_body=f'{{"a": {KEY}}}')
    assert KEY not in str(raised.value)
