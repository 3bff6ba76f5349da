"""`--dry-run` against what a server then counts."""

from __future__ import annotations

import base64
import io
import json
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.api_server import Answer, ApiServer, Request, completion
from tests.commands import BARE, names
from tests.playing import small_suite
from vlmgym.benchmark.suites import read_suite
from vlmgym.policies.base import policy_rng
from vlmgym.policies.baselines import RandomPolicy
from vlmgym.policies.openai.policy import image_url, request_messages
from vlmgym.rollout.settings import EpisodeSettings
from vlmgym.rollout.turn import GameSetup, LiveEpisode

# Without games that start in the same position with every seed: the server knows an episode by its images.
GAMES = ("2048-v0", "canary-v0", "scenes-statements-v0", "sliding-v0", "snake-v0", "tracking-v0")
QUIET = ("--workers", "0", "--videos", "0", "--no-report")
NUMBERS = ("episodes", "requests", "images", "image tokens", "text tokens")


def estimated(printed: str) -> dict[str, int]:
    """Return the numbers of a dry run."""
    return {
        name: int(found[1].replace(",", ""))
        for name in NUMBERS
        if (found := re.search(rf"^{name} +(?:about )?([\d,]+)", printed, re.MULTILINE))
    }


def random_player(suite: str, prompts: dict[str, Any]) -> Callable[[Request], Answer]:
    """Make a server that answers the prompts of a suite as random play does."""
    chosen, answers = read_suite(suite), defaultdict[str, list[str]](list)
    for game in chosen.make_games():
        setup = GameSetup(game, EpisodeSettings(max_turns=chosen.max_turns, **prompts), image_url)
        for seed in range(chosen.seed, chosen.seed + chosen.episodes):
            live = LiveEpisode(setup, seed)
            while not live.done:
                response = RandomPolicy().respond(game, live.episode.state, policy_rng(seed, live.episode.turn))
                messages = request_messages(live.observation.messages, live.observation.images, "auto")
                answers[json.dumps(messages)].append(response)
                live.step(response)

    def answer(request: Request) -> Answer:
        responses = answers[json.dumps(request.body["messages"])]
        return completion(responses.pop(0) if len(responses) > 1 else responses[0])  # rejected responses repeat prompts

    return answer


def image_sizes(request: Request) -> list[tuple[int, int]]:
    """Decode the images of a request."""
    files = [base64.b64decode(image["url"].partition(",")[2]) for image in request.images]
    return [Image.open(io.BytesIO(file)).size for file in files]


def characters(content: str | list[dict[str, Any]]) -> int:
    return len(content) if isinstance(content, str) else sum(len(part.get("text", "")) for part in content)


def patches(width: int, height: int, side: int) -> int:
    return sum(1 for _ in range(0, width, side) for _ in range(0, height, side))


def gpt_4o(width: int, height: int) -> int:
    assert max(width, height) <= 768, "these images are not scaled down"
    return 85 + 170 * patches(width, height, 512)


@pytest.mark.parametrize(
    ("model", "tokens", "prompts", "games", "episodes"),
    [
        ("gpt-4o", gpt_4o, {"chat": True, "history_images": 1}, GAMES, 3),
        pytest.param(  # 640 is a multiple of 32
            *("Qwen/Qwen3-VL-4B-Instruct", lambda w, h: (w // 32) * (h // 32), {}, GAMES[:2], 22),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_server_counts_what_was_estimated(run, tmp_path, model, tokens, prompts, games, episodes):
    (tmp_path / "suites").mkdir()
    options = [word for name, value in prompts.items() for word in (f"--{name.replace('_', '-')}", value)]
    options = [word for word in options if word is not True]
    with (
        small_suite(tmp_path / "suites", *games, episodes=episodes, max_turns=12) as suite,
        ApiServer(random_player(suite, prompts)).running() as server,
    ):
        args = ["eval", "--suite", suite, *options, "--base-url", server.url, "--model", model, *QUIET]
        dry = run(*args, "--dry-run")
        assert dry.code == 0, dry.err
        assert server.requests == []
        assert names(tmp_path) == ["suites"]
        played = run(*args, "--output-dir", "o")
        assert played.code == 0, played.err
    sizes = [size for request in server.requests for size in image_sizes(request)]
    contents = [m["content"] for request in server.requests for m in request.body["messages"]]
    counted = {
        "episodes": episodes * len(games),
        "requests": len(server.requests),
        "images": len(sizes),
        "image tokens": sum(tokens(*size) for size in sizes),
        "text tokens": sum(map(characters, contents)) // 4,
    }
    assert estimated(dry.out) == pytest.approx(counted, rel=0.05)
    if episodes <= 20:
        assert estimated(dry.out) == pytest.approx(counted, abs=1)


@pytest.mark.slow
def test_the_page_about_suites_states_requests_and_images(run):
    page = (Path(__file__).parents[1] / "docs" / "suites.md").read_text()
    numbers = estimated(run("eval", "--suite", "vlmgym-2026.2-lite", "--dry-run", "--workers", 0).out)
    assert f"| `vlmgym-2026.2-lite` | 10 | 50 | {numbers['requests']:,} | {numbers['images']:,} |" in page


def test_cost_and_what_cannot_be_known(run):
    args = ["eval", "2048", "--dry-run", "--episodes", 2, "--max-turns", 5, "--workers", 0]
    priced = ["--price-in", 2, "--price-out", 8]
    shown = run(*args, "--provider", "anthropic", "--model", "claude-x", *priced).out
    numbers = estimated(shown)
    paid = (numbers["image tokens"] + numbers["text tokens"]) * 2 / 1e6
    assert f"{paid:.4g} for prompts, and 8 per million output tokens" in shown
    assert "output tokens  unknown" in shown
    limited = run(*args, "--provider", "anthropic", "--model", "claude-x", *priced, "--max-tokens", 100).out
    most = numbers["requests"] * 100
    assert f"at most {most:,} (--max-tokens 100)" in limited
    assert f"at most {most * 8 / 1e6:,.4g} for responses" in limited
    listed = run(*args, "--provider", "anthropic", "--model", "claude-sonnet-4-5").out
    paid = (numbers["image tokens"] + numbers["text tokens"]) * 3 / 1e6
    assert f"{paid:.4g} for prompts, and 15 per million output tokens (dollars; prices of anthropic)" in listed
    unknown = run(*args, "--base-url", "http://localhost:9/v1", "--model", "new", *priced).out
    assert "image tokens   unknown: no rule for new in providers.toml" in unknown
    assert "cost           unknown, as are the image tokens" in unknown


def test_a_resumed_run_needs_only_the_rest(run):
    args = ["2048", *BARE, "--max-turns", 5]
    assert run("eval", *args, "--episodes", 2, "--output-dir", "o").code == 0
    shown = run("eval", *args, "--episodes", 3, "--resume", "o", "--dry-run").out
    assert estimated(shown)["episodes"] == 1


def test_progress_shows_the_cost_spent_and_projected(run):
    with ApiServer().running() as server:
        args = ["--base-url", server.url, "--model", "m", "--price-in", 1000, "--price-out", 0]
        done = run("eval", "2048", *BARE, *args, "--episodes", 2, "--max-turns", 3, "--output-dir", "o")
    assert "cost 0.6 of about 0.6" in done.err  # 6 requests of 100 prompt tokens
