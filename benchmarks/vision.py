"""Train a tiny model to read canary, serve it with vLLM, and let check-vision name faults; writes docs/sight.md.

    .venv-train/bin/python -m benchmarks.vision               # about an hour on two cores, also needs .venv-train

The results of a step are files in `--output-dir` and in docs/sight, and are not measured again.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from rich.progress import track

from benchmarks.faulty_path import INJECTED, FaultyPath, serving
from benchmarks.learning.running import ROOT, once, train
from benchmarks.markdown import publish, table
from vlmgym import make_game
from vlmgym.errors import UsageError
from vlmgym.evaluation import evaluate
from vlmgym.evaluation.vision import (
    CHAT,
    CONVERSATION,
    FAULTS,
    FORMS,
    LARGE,
    PAIR,
    PAST,
    SINGLE,
    SMALL_DIGITS,
    canary_config,
    check_vision,
    small_digits,
)
from vlmgym.policies.openai.policy import OpenAIOptions, OpenAIPolicy
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.games.canary import CanaryState
from vlmgym.statistics import confidence_interval
from vlmgym.terminal import make_console, parse_options, reporting_errors

PRESET = """\
# A tiny Qwen3-VL that reads the digits of canary in conversations.
steps = 0
batch_size = 64
chat = true
history_images = 3
max_turns = 3
states = { moves = [0, 0], mover = "random-legal", informative = false }
tiny = { hidden = 64, vocabulary = 700, words = 100 }
rollout = { max_tokens = 60 }
sft = { steps = 1500, accuracy = 1.0, expert = "oracle", random_turns = 0, target = 2 }
evaluation = { states = 0, episodes = 0 }
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train, serve, check, and write the page."""

    seeds: int = 20
    """Number of checks of the server without a fault."""
    fault_seeds: int = 3
    """Number of checks with each fault."""
    output_dir: Path = Path("logs/vision")
    """Folder of the training run and the server's log."""
    results: Path = Path("docs/sight")
    """Folder of results; the page is written next to it."""


def curriculum() -> str:
    """Return a curriculum of the questions of check-vision, except for those about large images, as TOML."""
    kinds = [
        (3, CONVERSATION, FORMS[0]),
        (2, SINGLE, FORMS[1]),
        *((2, probe, FORMS[0]) for probe in PAIR),
        (1, PAST, FORMS[0]),
        *((0.5, small_digits(height), FORMS[0]) for height in SMALL_DIGITS),
    ]
    entries = []
    for number, (weight, probe, form) in enumerate(kinds):
        config = canary_config(probe.config, form)
        overrides = ", ".join(f"{name} = {json.dumps(value)}" for name, value in config.items())
        entries.append(
            f'[[entries]]\ngame = "canary"\nweight = {weight}\nperception = 1\nreasoning = 1\n'
            f'stages = [{{ name = "{number}", overrides = {{ {overrides} }} }}]\n'
        )
    return "\n".join(entries)


def train_reader(folder: Path) -> Path:
    """Train the tiny model; return its checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    preset, entries = folder / "preset.toml", folder / "canary.toml"
    preset.write_text(PRESET)
    entries.write_text(curriculum())
    train(folder / "reader", "--preset", str(preset), "--curriculum", str(entries))
    checkpoint = folder / "reader" / "model"
    processor = checkpoint / "preprocessor_config.json"  # of tiny models: reduces images to 512 pixels
    config = json.loads(processor.read_text())
    config["size"]["longest_edge"] = config["max_pixels"] = LARGE**2
    processor.write_text(json.dumps(config))
    return checkpoint


@contextmanager
def vllm_server(checkpoint: Path, folder: Path) -> Iterator[str]:
    """Serve a checkpoint with vLLM, as users do, until the block ends; yield its URL up to /v1."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    command = ["bash", str(ROOT / "training" / "scripts" / "serve_vllm.sh"), str(checkpoint), "--dtype", "float32"]
    command += ["--max-model-len", "4096", "--limit-mm-per-prompt", '{"image": 4, "video": 0}']
    environment = {**os.environ, "PORT": str(port), "NAME": "tiny", "HF_HUB_OFFLINE": "1"}
    with (
        (folder / "vllm.log").open("wb") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True) as server,
    ):
        try:
            while server.poll() is None:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                        break
                except OSError:
                    time.sleep(1)
            else:
                raise UsageError(f"vLLM has ended: see {folder / 'vllm.log'}")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            os.killpg(server.pid, signal.SIGTERM)


def check(upstream: str, fault: str, seed: int) -> list[dict[str, Any]]:
    """Check vision through a path with a fault; return the findings."""

    def run(url: str) -> list[dict[str, Any]]:
        policy = OpenAIPolicy(OpenAIOptions(base_url=url, model="tiny", temperature=0.0, max_tokens=60))
        return [asdict(finding) for finding in check_vision(policy, seed)]

    async def through_proxy() -> list[dict[str, Any]]:
        async with serving(FaultyPath(fault), upstream) as url:
            return await asyncio.to_thread(run, url)

    return asyncio.run(through_proxy())


def play_controls(url: str) -> dict[str, list[float]]:
    """Return the scores of games of three turns with the true images, and with grey ones."""
    game = make_game("canary", 1, 1, **canary_config(CONVERSATION.config, FORMS[0]))
    options = OpenAIOptions(base_url=url, model="tiny", temperature=0.0, max_tokens=60)
    return {
        images: [
            episode.score or 0.0
            for episode in evaluate(game, OpenAIPolicy(options), 60, workers=0, images=images, **CHAT)
        ]
        for images in ("true", "blank")
    }


def check_all(options: Options) -> None:
    """Train the model, serve it, and check it without and with faults."""
    folder = options.output_dir.resolve()
    options.results.mkdir(parents=True, exist_ok=True)
    checkpoint = train_reader(folder)
    (folder / "checks").mkdir(exist_ok=True)
    checks = [("", seed) for seed in range(options.seeds)]
    checks += [(fault, seed) for fault in INJECTED for seed in range(options.fault_seeds)]
    with vllm_server(checkpoint, folder) as url:
        for fault, seed in track(checks, "checks", console=make_console(stderr=True)):
            name = f"{fault or 'healthy'}-{seed}.json".replace(" ", "-")
            once(folder / "checks" / name, partial(check, url, fault, seed))
        once(options.results / "images.json", partial(play_controls, url))
    once(options.results / "checks.json", lambda: summarise(folder / "checks", checks))


def summarise(folder: Path, checks: Sequence[tuple[str, int]]) -> dict[str, list[list[str]]]:
    """Return the faults that each check named, by the injected fault."""
    faults_of: dict[str, list[list[str]]] = {}
    for fault, seed in checks:
        findings = json.loads((folder / f"{fault or 'healthy'}-{seed}.json".replace(" ", "-")).read_text())
        faults = {finding["fault"] for finding in findings if finding["verdict"] == "wrong"}
        is_unclear = any(finding["verdict"] == "unclear" for finding in findings)
        faults_of.setdefault(fault, []).append(sorted(faults or ({"unclear"} if is_unclear else ())))
    return faults_of


PAGE = """\
# Does the model see?

Written by `.venv-train/bin/python -m benchmarks.vision`.

The most frequent silent failure in training and serving vision-language models is that the pixels do not arrive: they
are dropped, cached for another request, taken from the first turn, reordered or reduced. Scores then fall, but nothing
fails. `vlmgym check-vision` asks a model some 60 questions that only the right images answer, and names what is wrong:

    .venv/bin/vlmgym check-vision --base-url http://localhost:8000/v1 --model Qwen/Qwen2.5-VL-3B-Instruct

It works with any OpenAI-compatible server and, with `--policy vllm`, `--policy transformers` or `--policy
FILE.py:FUNCTION`, without one. The exit code is 0 if all probes pass.

## How it works

The questions are turns of the game [canary](games/canary.md): images with a digit each, and a text that is always the
same. Without the right image, one answer in ten is right. The digits of an episode differ, so that wrong answers say
which image was seen instead:

![images that were sent, and those that the model saw, for each fault](sight.png)

| probe | names |
|---|---|
| single images, one request at a time | {SINGLE} |
| parallel requests: four images, each twice | {PARALLEL} |
| two images, asked for the first and for the second | {PAIR} |
| conversations of three turns, asked for the current image, and for the one before | {CONVERSATION} |
| digits of {heights} pixels in images of {LARGE} pixels | {SIZE} |
| grey images | {GREY} |

A probe passes if three quarters of its answers are right. If wrong answers are the digits that a fault would show, the
fault is named. If small digits in large images are not read, and prompts with large images have hardly more tokens than
prompts with small ones, images are reduced: by a server, or by the model's own preprocessing (vLLM's
`--mm-processor-kwargs`, OpenAI's `detail`).

**Weak models.** A model that reads nothing, or that looks at the first of several images whatever the question, answers
as if images were lost. The check therefore asks for the log-probabilities of a response to prompts that differ only in
the image that is asked for. If they are the same, the image is lost, and the fault is named. If they differ, or if the
server reports none, or other ones at each repetition, the result is *unclear*, with the fault that would explain the
answers, and the exit code is 1.

## In training

In the first step and in every twentieth, local training and EasyR1 compute the log-probabilities of some responses
again, with the images of other prompts. The mean change is the metric `sight/logprob_gap`, in nats per response. If
nothing changes, the images are lost on the way to the model, and training stops with an error message.

TRL's `GRPOTrainer` gets the same check, with the colours of its images inverted, from
[`check_sight(trainer)`](integrations/trl.md), and so do verl's trainers if they are started with
[`python -m vlmgym.training.verl`](integrations/verl.md).

## What it does not show

Many answers must be wrong for a fault to show: if every eighth image is lost, the check passes, and only its last line
says that some answers are wrong. A swap of red and blue passes, too, and so do a crop around the digits, and faults at
other times and loads. The check does not show that a model uses what it sees in a
game: for this, compare scores with those of [`--images blank`](protocols.md#image-controls).
"""
PROOF = """\

## Proof

A randomly initialised Qwen3-VL of 0.3 million parameters learned to read canary in {minutes:.0f} minutes on two cores.
vLLM served it on a CPU, and a proxy put one fault at a time in front of the server. The model does not read digits in
images of {LARGE} pixels, on which it was not trained, but their tokens show that they arrive. In 60 games of three
turns, {true:.0%} of its answers are right, and with `--images blank` {blank:.0%} ({low:.0%} to {high:.0%}), which is
chance.

{table}
"""


def write_page(results: Path, minutes: float) -> None:
    """Write the page and its image from the results."""
    words = {name: "; ".join(FAULTS[fault].meaning for fault in faults) for name, faults in NAMED.items()}
    text = PAGE.format(**words, heights=", ".join(map(str, SMALL_DIGITS)), LARGE=LARGE)
    if (results / "checks.json").exists():
        checks, images = (json.loads((results / f"{name}.json").read_text()) for name in ("checks", "images"))
        text += proof(checks, images, minutes)
    draw(results.with_suffix(".png"))
    publish(results.with_suffix(".md"), text)


def proof(results: Mapping[str, Sequence[Sequence[str]]], images: Mapping[str, Sequence[float]], minutes: float) -> str:
    """Return the section about what the checks named, by the injected fault, and about scores without images."""
    rows = []
    for fault, checks in results.items():
        passes = sum([*faults] == ([fault] if fault else []) for faults in checks)
        others = sorted({name for faults in checks for name in faults} - {fault})
        rows.append([FAULTS[fault].meaning if fault else "no fault", f"{passes} of {len(checks)}", ", ".join(others)])
    interval = confidence_interval(images["blank"], unit_interval=True) or (0.0, 1.0)
    return PROOF.format(
        minutes=minutes,
        LARGE=LARGE,
        true=np.mean(images["true"]),
        blank=np.mean(images["blank"]),
        low=interval[0],
        high=interval[1],
        table=table(["fault", "found, and nothing else", "found instead"], rows),
    )


NAMED = {
    "SINGLE": ("dropped", "cached", "late"),
    "PARALLEL": ("mixed",),
    "PAIR": ("first only", "last only", "reversed", "rejected"),
    "CONVERSATION": ("first kept", "turn late", "past lost"),
    "SIZE": ("downsized",),
    "GREY": ("leak",),
}
"""Faults that each probe names."""
REQUESTS: dict[str, list[list[int]]] = {
    "dropped": [[7]],
    "cached": [[7], [3]],
    "late": [[7], [3]],
    "mixed": [[7], [3]],
    "first only": [[7, 3]],
    "last only": [[7, 3]],
    "reversed": [[7, 3]],
    "first kept": [[7], [3], [5]],
    "turn late": [[7], [3], [5]],
    "past lost": [[7], [3], [5]],
    "downsized": [[7]],
}
"""Digits of the images of requests or turns of a conversation that show each fault."""


def draw(path: Path) -> None:
    """Draw what was sent and what the model saw, for each fault."""
    figure = Figure(figsize=(11.2, 8.0), dpi=110, facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, 118)
    axes.set_ylim(81, 0)
    axes.axis("off")
    for number, (fault, turns) in enumerate(REQUESTS.items()):
        x, y = 2 + 59 * (number % 2), 5 + 13 * (number // 2)
        axes.text(x, y - 1.2, FAULTS[fault].meaning, fontsize=8.5, weight="bold", va="bottom")
        conversation = FAULTS[fault].meaning.find("conversation") >= 0
        sent_images, seen_images = pictures(fault, turns, conversation=conversation)
        for title, left, images in (("sent", x, sent_images), ("seen", x + 29, seen_images)):
            axes.text(left, y + 3.2, title, fontsize=8, color="#777", va="center")
            for index, image in enumerate(images):
                at = (left + 4 + 7.5 * index, left + 11 + 7.5 * index, y + 7, y)
                if image is None:
                    axes.add_patch(Rectangle((at[0], y), 7, 7, fill=False, ls=":", ec="#999"))
                else:
                    axes.imshow(image, extent=at, interpolation="nearest", aspect="auto")
                    axes.add_patch(Rectangle((at[0], y), 7, 7, fill=False, ec="#bbb", lw=0.8))
    figure.savefig(path)


def pictures(
    fault: str, turns: Sequence[Sequence[int]], *, conversation: bool
) -> tuple[list[ImageArray | None], list[ImageArray | None]]:
    """Return the images that were sent in all turns, and those that were seen, None for a missing one."""
    height = 0.2 if fault == "downsized" else 0.5
    game = make_game("canary", 1, 1, size=160, frames=1, height=height)
    images = [[game.images(CanaryState(((digit,),)))[0] for digit in digits] for digits in turns]
    path, sent_images = FaultyPath(fault), [image for turn_images in images for image in turn_images]
    if fault in ("cached", "downsized"):
        blurred: Any = cv2.resize(cv2.resize(sent_images[0], (16, 16), interpolation=cv2.INTER_AREA), (160, 160))
        seen_images: dict[str, list[ImageArray | None]] = {"cached": [sent_images[0]] * 2, "downsized": [blurred]}
        return [*sent_images], seen_images[fault]
    groups = [images] if conversation or len(images) == 1 else [[turn_images] for turn_images in images]
    shown_images = list[ImageArray | None]()
    for group in groups:
        flat = [image for turn_images in group for image in turn_images]
        replaced = path.replaced_images(flat, at_once=2, turns=len(group))
        shown_images += flat if replaced is None else replaced
    return [*sent_images], shown_images


def main(args: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parse_options(Options, args, prog="python -m benchmarks.vision")
    check_all(options)
    minutes = train_minutes(options.output_dir)
    write_page(options.results, minutes)


def train_minutes(folder: Path) -> float:
    """Return the duration of the training in minutes."""
    return float((folder / "reader" / "minutes").read_text())


if __name__ == "__main__":
    with reporting_errors():
        main()
