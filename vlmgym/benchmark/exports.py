"""Results in the formats of other projects: evaluation results of the Hugging Face Hub, and logs of Inspect.

Formats: https://huggingface.co/docs/hub/eval-results, and version 2 of https://inspect.aisi.org.uk/eval-logs.html.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console

from vlmgym.benchmark.suites import read_suite, summarise
from vlmgym.errors import UsageError
from vlmgym.evaluation.progress import call_in_order
from vlmgym.evaluation.summary import GameTally
from vlmgym.runs.files import replace_file, writing
from vlmgym.runs.record import EpisodeRecord, GameRecord, RunSummary, TurnRecord, recorded_states
from vlmgym.runs.store import StoredEpisode, StoredRun, game_name
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.drawing.encode import encode_png
from vlmgym.workers.pool import ProcessPool

SCORER = "game_score"
STOP_REASONS = {"stop": "stop", "length": "max_tokens", "content_filter": "content_filter"}
"""Inspect's names for the finish reasons of the OpenAI API."""


def write_eval_results(folder: Path, run: StoredRun, dataset: str, source: str | None) -> list[Path]:
    """Write the normalised scores of a run of a suite as task results of a benchmark dataset on the Hub.

    The YAML file belongs into the repository of the model. Its tasks are named after the games and, if all games have
    all their results, the suite. The scores are not verified.

    Args:
        folder: Folder of the export.
        run: The run.
        dataset: Benchmark dataset on the Hub.
        source: URL at which the run is published.

    Returns:
        Path of the file.
    """
    config, suite = run.config, summarise(run).suite
    if config.suite is None or suite is None:
        raise UsageError(f"{run.folder.folder} is not a run of a suite: play one with vlmgym eval --suite")
    if differences := read_suite(config.suite).differences(config):
        raise UsageError(f"{run.folder.folder} differs from its suite: {differences[0]}")
    scores = {} if suite.score is None else {config.suite: suite.score}
    scores |= {game: result.normalised for game, result in suite.games.items()}
    observation = f"observation {config.prompts.observation}"
    entries: list[dict[str, Any]] = [
        {
            "dataset": {"id": dataset, "task_id": task},
            "value": round(value, 6),
            "date": config.started[:10],
            **({} if source is None else {"source": {"url": source, "name": "vlmgym"}}),
            "notes": observation if error is None else f"standard error {error:.2g}, {observation}",
        }
        for task, (value, error) in scores.items()
    ]
    path = folder / ".eval_results" / f"{config.suite}.yaml"
    path.parent.mkdir()
    replace_file(path, "".join(map(_yaml, entries)).encode())
    return [path]


def _yaml(entry: dict[str, Any]) -> str:
    """Format an entry as YAML; strings and numbers are written as in JSON."""
    lines = []
    for name, value in entry.items():
        if isinstance(value, dict):
            lines += [f"{name}:", *(f"  {key}: {json.dumps(text)}" for key, text in value.items())]
        else:
            lines.append(f"{name}: {json.dumps(value)}")
    return "- " + "\n  ".join(lines) + "\n"


def write_inspect_logs(folder: Path, run: StoredRun, workers: ProcessPool, console: Console) -> list[Path]:
    """Write a log per game for `inspect view` and `inspect_ai.log.read_eval_log`, and return the paths.

    A sample is an episode, with the same id and score as in `inspect eval vlmgym/GAME`; its user messages are the
    prompts of the turns with all images.
    """
    paths, summary, model = [], summarise(run), run.config.policy.label
    for game in summary.games:
        header = _header(game, summary, run)
        spec = header["eval"]
        created = spec["created"].replace(":", "-")
        path = folder / f"{created}_{game_name(game).replace('/', '-')}_{spec['task_id']}.json"
        calls = [(episode, run.config.games, model) for episode in run.episodes if episode.game == game]
        with writing(path), path.open("w", encoding="utf-8") as file:
            file.write(json.dumps(header)[:-1] + ', "samples": [')
            separator = "\n"

            def take(sample: str) -> None:
                nonlocal separator
                file.write(separator + sample)  # called within this iteration
                separator = ",\n"

            call_in_order(workers, sample_json, calls, take, label=game, console=console)
            file.write("\n]}\n")
        paths.append(path)
    return paths


def _header(game: str, run_summary: RunSummary, run: StoredRun) -> dict[str, Any]:
    """Make the log of a game without its samples, which come last."""
    config, summary, model = run.config, run_summary.games[game], run.config.policy.label
    sampling, version = config.policy.options, config.versions.get("vlmgym", "unknown")
    started = datetime.fromisoformat(config.started)
    run_id = hashlib.sha256(config.model_dump_json().encode()).hexdigest()[:22]
    seeds = [episode.seed for episode in run.episodes if episode.game == game]
    means = {"mean": summary.score_mean, "stderr": summary.score_stderr}
    if run_summary.suite is not None and (result := run_summary.suite.games.get(game)) is not None:
        means |= {"normalised": result.normalised[0], "normalised_stderr": result.normalised[1]}
    metrics = {name: {"name": name, "value": value} for name, value in means.items() if value is not None}
    score = {"name": SCORER, "scorer": SCORER, "scored_samples": summary.episodes, "metrics": metrics}
    names = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "max_tokens": "max_tokens"}
    names |= {"sample_seed": "seed"}
    generation = {names[name]: value for name, value in sampling.items() if name in names and value is not None}
    usage = _usage(summary.prompt_tokens, summary.completion_tokens, summary.cost)
    return {
        "version": 2,
        "status": "success" if run_summary.stop_reason is None else "cancelled",
        "eval": {
            "run_id": run_id,
            "created": config.started,
            "task": f"vlmgym/{game_name(game)}",
            "task_id": hashlib.sha256(f"{run_id} {game}".encode()).hexdigest()[:22],
            "task_version": f"{game}, vlmgym {version}",
            "dataset": {
                "name": config.suite or game,
                "samples": config.episodes_of(game),
                "sample_ids": [f"{game}/{seed}" for seed in seeds],
                "shuffled": False,
            },
            "model": model,
            "model_generate_config": generation,
            "config": {"epochs": 1},
            "packages": {"vlmgym": version},
            "metadata": {
                "suite": config.suite,
                "max_turns": config.max_turns,
                "seed": config.seed,
                "observation": config.prompts.observation,
            },
        },
        "plan": {"name": "plan", "steps": [{"solver": "vlmgym/play"}]},
        "results": {
            "total_samples": config.episodes_of(game),
            "completed_samples": summary.episodes,
            "scores": [score],
        },
        "stats": {
            "started_at": config.started,
            "completed_at": (started + timedelta(seconds=run_summary.seconds)).isoformat(),
            "model_usage": {} if usage is None else {model: usage},
        },
    }


def sample_json(stored: StoredEpisode, games: Sequence[GameRecord], model: str) -> str:
    """Return the sample of an episode as JSON; runs in a worker, because it draws the images."""
    episode = stored.read()
    if episode.game not in games:
        raise UsageError(f"{stored.location} has a game that is not in run.json")
    with stored.named():
        return json.dumps(_sample(episode, model))


def _sample(episode: EpisodeRecord, model: str) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    attachments: dict[str, str] = {}
    game, prompts = episode.game.game(), episode.prompts
    states = recorded_states(game, episode) if prompts.has_images else []
    for i, turn in enumerate(episode.turns):
        if turn.system is not None and not messages:
            messages.append({"role": "system", "content": turn.system})
        past = [] if prompts.chat else prompts.window(states[:i])  # a chat shows past images in earlier messages
        shown = prompts.shown_states(past, states[i]) if states else []
        images = [part for state in shown for part in _images(game, state, attachments)]
        messages += [{"role": "user", "content": [*images, _text(turn.prompt)]}, _assistant(turn, model)]
    turns = [
        {"outcome": turn.outcome.value, "reward": turn.reward.total, "feedback": turn.feedback}
        for turn in episode.turns
    ]
    sample: dict[str, Any] = {
        "id": f"{episode.game.id}/{episode.seed}",
        "epoch": 1,
        "input": episode.turns[0].prompt if episode.turns else "",
        "target": "",
        "messages": messages,
        "output": _output(episode.turns[-1], model) if episode.turns else {},
        "metadata": {"game": episode.game.id, "seed": episode.seed, **episode.metrics},
        "attachments": attachments,
        "started_at": episode.started,
        "turn_count": len(turns),
    }
    totals = GameTally.of(episode)
    cost = sum(totals.costs) if totals.costs else None
    if usage := _usage(totals.tokens.get("prompt"), totals.tokens.get("completion"), cost):
        sample["model_usage"] = {model: usage}
    if totals.latencies:
        sample |= {"total_time": sum(totals.latencies), "working_time": sum(totals.latencies)}
    if episode.score is None:
        error = f"{episode.status}: {episode.end_reason}"
        return {**sample, "error": {"message": error, "traceback": error, "traceback_ansi": error}}
    score = {
        "value": episode.score,
        "answer": episode.turns[-1].response if episode.turns else None,
        "explanation": episode.end_reason,
        "metadata": {"turns": turns, "reward": sum(turn.reward.total for turn in episode.turns)},
    }
    return {**sample, "scores": {SCORER: score}}


def _images(game: Game[Any, Any], state: Any, attachments: dict[str, str]) -> list[dict[str, str]]:
    """Draw the images of a state into the attachments, and return references to them."""
    parts = []
    for image in game.images(state):
        png = encode_png(image)
        name = hashlib.sha256(png).hexdigest()[:32]
        attachments[name] = f"data:image/png;base64,{b64encode(png).decode()}"
        parts.append({"type": "image", "image": f"attachment://{name}"})
    return parts


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _assistant(turn: TurnRecord, model: str) -> dict[str, Any]:
    thoughts = [] if turn.reasoning is None else [{"type": "reasoning", "reasoning": turn.reasoning}]
    return {"role": "assistant", "content": [*thoughts, _text(turn.response)], "source": "generate", "model": model}


def _output(turn: TurnRecord, model: str) -> dict[str, Any]:
    stop = STOP_REASONS.get(turn.finish_reason or "stop", "unknown")
    output = {
        "model": turn.model or model,
        "choices": [{"message": _assistant(turn, model), "stop_reason": stop}],
        "completion": turn.response,
    }
    usage = _usage(turn.prompt_tokens, turn.completion_tokens, turn.cost)
    return output if usage is None else {**output, "usage": usage}


def _usage(sent: int | None, written: int | None, cost: float | None) -> dict[str, Any] | None:
    """Describe tokens and cost; None if tokens were not counted."""
    if sent is None and written is None:
        return None
    counts = {"input_tokens": sent or 0, "output_tokens": written or 0, "total_tokens": (sent or 0) + (written or 0)}
    return counts if cost is None else {**counts, "total_cost": cost}
