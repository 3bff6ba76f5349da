"""Results for Every Eval Ever: an aggregate JSON file and a file with a line per episode.

Format: https://github.com/evaleval/every_eval_ever, schema 0.3.0
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from vlmgym.evaluation.results import Results
from vlmgym.evaluation.submission.metadata import SELF_HOSTED, Metadata
from vlmgym.evaluation.suite import read_suite
from vlmgym.evaluation.summary import GameTally
from vlmgym.records.episode import EpisodeRecord, recorded_action
from vlmgym.records.files import json_bytes, replace_file
from vlmgym.records.run import Estimate, SuiteResult

SCHEMA = "0.3.0"
METRIC = {
    "metric_id": "vlmgym.normalised_score",
    "metric_name": "Normalised score",
    "metric_kind": "normalised_score",
    "metric_unit": "proportion",
    "lower_is_better": False,
    "score_type": "continuous",
    "min_score": "-Infinity",
    "max_score": "Infinity",
    "evaluation_description": "Mean score, mapped to 0 for the random policy and 1 for the oracle.",
}


def write_every_eval_ever(folder: Path, results: Results) -> list[Path]:
    """Write a submission to the paths that the Every Eval Ever datastore uses, and return the paths.

    They are `data/SUITE/DEVELOPER/MODEL/UUID.json` and `UUID_samples.jsonl` next to it.
    """
    metadata, games, scores = results.submission()
    started = datetime.fromisoformat(results.run.config.started)
    epoch = f"{started.timestamp():.0f}"
    record: dict[str, Any] = {
        "schema_version": SCHEMA,
        "evaluation_id": f"{metadata.suite}/{metadata.model}/{epoch}",
        "evaluation_timestamp": results.run.config.started,
        "retrieved_timestamp": epoch,
        "source_metadata": {
            "source_name": "vlmgym",
            "source_type": "evaluation_run",
            "source_organization_name": metadata.submitter,
            "evaluator_relationship": metadata.relationship.replace("-", "_"),
        },
        "eval_library": {"name": "vlmgym", "version": results.run.config.versions.get("vlmgym", "unknown")},
        "model_info": _model_info(metadata, results.run.config.policy.name),
        "evaluation_results": [_result(metadata, name, score, games.get(name)) for name, score in scores.items()],
    }
    samples = b"".join(_samples(results, record))
    name = UUID(bytes=hashlib.sha256(json.dumps(record).encode() + samples).digest()[:16], version=4)
    place = "/".join(["data", *map(_component, (metadata.suite, metadata.developer, metadata.model.split("/")[-1]))])
    record["detailed_evaluation_results"] = {
        "format": "jsonl",
        "file_path": f"{place}/{name}_samples.jsonl",
        "hash_algorithm": "sha256",
        "checksum": hashlib.sha256(samples).hexdigest(),
        "total_rows": len(results.run.episodes),
    }
    path = folder / place / f"{name}.json"
    path.parent.mkdir(parents=True)
    replace_file(path, json_bytes(record))
    replace_file(path.with_name(f"{name}_samples.jsonl"), samples)
    return [path, path.with_name(f"{name}_samples.jsonl")]


def _component(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name).lstrip(".") or "_"


def _model_info(metadata: Metadata, policy: str) -> dict[str, Any]:
    hosted = metadata.provider == SELF_HOSTED
    platform: dict[str, Any] = {} if hosted else {"inference_platform": metadata.provider}
    if hosted and policy in ("vllm", "transformers"):
        platform = {"inference_engine": {"name": policy}}
    return {
        "name": metadata.model,
        "id": metadata.model,
        "developer": metadata.developer,
        **platform,
        "additional_details": {
            "deployment_type": "self_deployed" if hosted else "externally_managed",
            "model_availability": metadata.weights if metadata.weights == "unknown" else f"{metadata.weights}_weights",
        },
    }


def _result(metadata: Metadata, name: str, score: Estimate, result: SuiteResult | None) -> dict[str, Any]:
    """Describe the normalised score of a game or, without `result`, of all games."""
    known = ("temperature", "top_p", "top_k", "max_tokens")
    uncertainty: dict[str, Any] = {}
    if score[1] is not None:
        uncertainty["standard_error"] = {"value": score[1], "method": "analytic"}
    details = {}
    if result is not None:
        uncertainty["num_samples"] = result.episodes
        details = {"details": {key: f"{getattr(result, key):.10g}" for key in ("score_mean", "random", "oracle")}}
    return {
        "evaluation_result_id": f"{metadata.suite}/{name}",
        "evaluation_name": name,
        "source_data": {"dataset_name": metadata.suite, "source_type": "other"},
        "metric_config": METRIC,
        "score_details": {"score": score[0], **details, "uncertainty": uncertainty},
        "generation_config": {
            "generation_args": {key: metadata.sampling[key] for key in known if key in metadata.sampling}
        },
    }


def _samples(results: Results, record: dict[str, Any]) -> Iterator[bytes]:
    for episode in results.run.read():
        yield (json.dumps(_sample(episode, record, results), ensure_ascii=False) + "\n").encode()


def _sample(episode: EpisodeRecord, record: dict[str, Any], results: Results) -> dict[str, Any]:
    """Describe an episode, which counts as correct if its score is at least the oracle's mean score."""
    suite = results.run.config.suite or ""
    score, _ = read_suite(suite).games[episode.game.id].normalise(episode.score or 0.0, None)
    single, game, turns = episode.is_single_turn, episode.game.game(), episode.turns
    messages: list[dict[str, Any]] = []
    answers = []
    for turn in turns:
        if turn.system is not None and not messages:
            messages.append({"turn_idx": 0, "role": "system", "content": turn.system})
        messages.append({"turn_idx": len(messages), "role": "user", "content": turn.prompt})
        place = 0 if single else len(messages)
        reasoning = {} if turn.reasoning is None else {"reasoning_trace": turn.reasoning}
        messages.append({"turn_idx": len(messages), "role": "assistant", "content": turn.response, **reasoning})
        answers.append(
            {
                "turn_idx": place,
                "source": "output.raw" if single else f"messages[{place}].content",
                "extracted_value": recorded_action(game, turn) or "",
                "extraction_method": "vlmgym response grammar",
                "is_terminal": turn is turns[-1],
            }
        )
    output: dict[str, Any] = {"messages": messages}
    if single:
        traces = {} if turns[0].reasoning is None else {"reasoning_trace": [turns[0].reasoning]}
        output = {"output": {"raw": [turns[0].response], **traces}}
    return {
        "schema_version": SCHEMA,
        "evaluation_id": record["evaluation_id"],
        "model_id": record["model_info"]["id"],
        "evaluation_name": episode.game.id,
        "evaluation_result_id": f"{suite}/{episode.game.id}",
        "sample_id": f"{episode.game.id}/{episode.seed}",
        "interaction_type": "single_turn" if single else "multi_turn",
        "input": {"raw": turns[0].prompt if turns else "", "reference": []},
        **output,
        "answer_attribution": answers,
        "evaluation": {"score": score, "is_correct": score >= 1, **({"num_turns": len(turns)} if turns else {})},
        **_usage(episode),
        "metadata": {"score": f"{episode.score:.10g}", "end_reason": episode.end_reason},
    }


def _usage(episode: EpisodeRecord) -> dict[str, Any]:
    used: dict[str, Any] = {}
    totals = GameTally.of(episode)
    if len(totals.tokens) == 2:
        sent, written = totals.tokens["prompt"], totals.tokens["completion"]
        used["token_usage"] = {"input_tokens": sent, "output_tokens": written, "total_tokens": sent + written}
    if totals.latencies:
        used["performance"] = {"latency_ms": 1000 * sum(totals.latencies)}
    return used
