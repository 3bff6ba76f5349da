"""Write single moves as lmms-eval tasks; docs/integrations/lmms_eval.md."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vlmgym import Episode, Row, to_hf_dataset
from vlmgym.errors import UsageError

NOT_RESPONSES = ("[LMMS_EVAL_REQUEST_FAILED", "[LMMS_EVAL_BUDGET_EXCEEDED]")
"""Prefixes of what lmms-eval returns instead of a response when a request fails."""

TASK = """\
task: vlmgym_{name}
dataset_path: {data}
dataset_kwargs:
  load_from_disk: true
test_split: test
output_type: generate_until
doc_to_visual: !function vlmgym_functions.doc_to_visual
doc_to_text: !function vlmgym_functions.doc_to_text
doc_to_target: !function vlmgym_functions.doc_to_target
process_results: !function vlmgym_functions.process_results
generation_kwargs:
  max_new_tokens: {max_tokens}
  temperature: 0
  do_sample: false
  until: []
metric_list: {metrics}
metadata:
  version: {version}
"""
METRICS = [
    {"metric": name, "aggregation": "mean", "higher_is_better": name not in ("illegal", "unparsable", "failed")}
    for name in ("score", "played", "illegal", "unparsable", *Episode.ACCURACIES, "failed")
]
FUNCTIONS = """\
from vlmgym.integrations.lmms_eval import doc_to_target, doc_to_text, doc_to_visual, process_results
"""


def write_tasks(folder: Path | str, rows: Sequence[Row], max_tokens: int = 1024) -> list[str]:
    """Write one task per game, for `lmms-eval --include_path FOLDER --tasks "vlmgym_*"`.

    Args:
        folder: New or empty folder.
        rows: Rows of `vlmgym.make_dataset`.
        max_tokens: Maximum number of tokens per response.

    Returns:
        Names of the tasks.

    Raises:
        UsageError: The folder is not empty, rows were made with `chat`, or the package datasets is not installed.
    """
    folder = Path(folder).absolute()
    if any(len(row["prompt"]) > 1 for row in rows):
        raise UsageError("lmms-eval shows one user message: make the dataset without chat")
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty: choose a new folder")
    games = sorted({row["game"] for row in rows})
    tables = {game: to_hf_dataset([row for row in rows if row["game"] == game]) for game in games}
    from datasets import DatasetDict

    names = []
    for game, table in tables.items():
        name, _, version = game.rpartition("-v")
        name = re.sub(r"\W", "_", game if ":" in game else name)  # Gymnasium may have several versions of one name
        data = folder / "data" / name
        DatasetDict(test=table).save_to_disk(data)
        metrics = json.dumps(METRICS)  # JSON is YAML
        task = TASK.format(name=name, data=data, max_tokens=max_tokens, version=version, metrics=metrics)
        (folder / f"vlmgym_{name}.yaml").write_text(task, encoding="utf-8")
        names.append(f"vlmgym_{name}")
    (folder / "vlmgym_functions.py").write_text(FUNCTIONS, encoding="utf-8")
    return names


def doc_to_visual(doc: Mapping[str, Any]) -> list[Any]:
    """Return the images of a row."""
    return [image.convert("RGB") for image in doc["images"]]


def doc_to_text(doc: Mapping[str, Any], lmms_eval_specific_kwargs: Any = None) -> str:
    """Return the prompt of a row."""
    text: str = doc["prompt"][0]["content"]
    return text


def doc_to_target(doc: Mapping[str, Any]) -> str:
    """Return the oracle's answer, for the logs."""
    return doc["answer"] or ""


def process_results(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
    """Return the score of a response (the game's own reward), its outcome, one-hot over all outcomes, and accuracies.

    Metrics that a response lacks do not count toward their means: accuracies of what it does not state, and all but
    `failed` = 1 after a failed request.
    """
    (response,) = results
    if response.startswith(NOT_RESPONSES):
        return {"failed": 1.0}
    episode = Episode.restore(doc["snapshot"])
    episode.respond(response)
    return {"score": episode.score, **episode.outcomes, **episode.accuracies, "failed": 0.0}
