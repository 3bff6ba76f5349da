"""Results for the Hugging Face Hub: a YAML file for `.eval_results/` in a model's repository.

Format: https://huggingface.co/docs/hub/eval-results
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vlmgym.evaluation.results import Results
from vlmgym.records.files import replace_file


def write_eval_results(folder: Path, results: Results, dataset: str, source: str | None) -> list[Path]:
    """Write the normalised scores of `Results.submission` as task results of a benchmark dataset on the Hub.

    The tasks are named after the suite and its games; `source` is the URL of the submission, if it is published.
    Returns the path of the file.
    """
    metadata, _, scores = results.submission()
    seen = results.run.config.prompts.observation
    entries: list[dict[str, Any]] = [
        {
            "dataset": {"id": dataset, "task_id": task},
            "value": round(value, 6),
            "date": metadata.date.isoformat(),
            **({} if source is None else {"source": {"url": source, "name": f"vlmgym, {metadata.submitter}"}}),
            "notes": f"{'' if error is None else f'standard error {error:.2g}, '}observation {seen}",
        }
        for task, (value, error) in scores.items()
    ]
    path = folder / ".eval_results" / f"{metadata.suite}.yaml"
    path.parent.mkdir()
    replace_file(path, "".join(map(_entry, entries)).encode())
    return [path]


def _entry(entry: dict[str, Any]) -> str:
    """Format an entry as YAML; strings and numbers are written as in JSON."""
    lines = []
    for name, value in entry.items():
        if isinstance(value, dict):
            lines += [f"{name}:", *(f"  {key}: {json.dumps(text)}" for key, text in value.items())]
        else:
            lines.append(f"{name}: {json.dumps(value)}")
    return "- " + "\n  ".join(lines) + "\n"
