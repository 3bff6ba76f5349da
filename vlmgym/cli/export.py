"""`vlmgym export RUN`: export turns of a run as SFT data, or its results for the Hugging Face Hub or Inspect."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vlmgym.benchmark.suites import read_suite, summarise
from vlmgym.errors import UsageError
from vlmgym.evaluation.config import RunArgument, SavedRunOptions
from vlmgym.evaluation.export import IMAGES, Format, Rows, TurnFilter, export_episode
from vlmgym.evaluation.progress import call_in_order
from vlmgym.evaluation.saved_runs import SavedRun, csv_lines
from vlmgym.rollout.trained import TrainedRecord
from vlmgym.runs.files import json_bytes, new_folder, replace_file, write_file, writing
from vlmgym.runs.record import version_changes, versions
from vlmgym.runs.store import StoredEpisode, StoredRun, open_run
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.terminal import make_console

FILTERS = ("outcome", "min_reward", "min_score", "top_fraction")
"""Options that filter episodes and turns."""

ROWS: dict[str, str] = {"sharegpt": "data.jsonl", "hf": "metadata.jsonl"}
"""Name of the file that contains the rows, by format; Hugging Face ImageFolder requires `metadata.jsonl`."""

TAGS = {f"{key}_tag": key for key in ("role", "content", "user", "assistant", "system")}
"""Tags that tell LLaMA-Factory that messages use the keys and roles of OpenAI's API."""


@dataclass(frozen=True, kw_only=True)
class ExportConfig(SavedRunOptions):
    """Options of `vlmgym export`."""

    run: RunArgument
    """Folder of the run."""
    format: Format | Literal["csv", "eval-results"]
    """SFT data: sharegpt for LLaMA-Factory (data.jsonl, dataset_info.json), or hf for TRL (metadata.jsonl).
    Results: csv, a row per episode (episodes.csv), or eval-results of a suite, YAML for a model's repository on the
    Hugging Face Hub."""
    output_dir: Path
    """New folder for the export."""
    outcome: tuple[Literal["played", "illegal", "unparsable"], ...] = ("played",)
    """Outcomes of exported turns."""
    min_reward: float | None = None
    """Minimum recorded total reward of a turn; vlmgym rescore applies other reward settings."""
    min_score: float | None = None
    """Minimum score of an episode."""
    top_fraction: float = 1.0
    """Fraction of the episodes of each game to export, best first; rounded up, and ties go to lower seeds."""
    dataset: str | None = None
    """Benchmark dataset on the Hugging Face Hub to which the results belong (eval-results)."""
    source_url: str | None = None
    """Address at which the run is published (eval-results)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.top_fraction <= 1:
            raise UsageError(f"top_fraction must be above 0 and at most 1, got {self.top_fraction:g}")
        filters = [name for name in FILTERS if getattr(self, name) != getattr(type(self), name)]
        if filters and self.format in ("csv", "eval-results"):
            raise UsageError(f"results are exported as a whole: remove --{filters[0].replace('_', '-')}")
        if self.format == "eval-results":
            if not re.fullmatch(r"[\w.-]+/[\w.-]+", self.dataset or ""):
                raise UsageError(f"eval-results needs a --dataset such as my-org/my-benchmark, got {self.dataset!r}")
        elif self.dataset is not None or self.source_url is not None:
            raise UsageError("only eval-results accepts --dataset and --source-url")


def export(config: ExportConfig) -> None:
    """Write an export, and print where it is, how much it contains and how much was left out."""
    run = open_run(config.run, config.data)
    if config.format == "csv":
        _export_episodes(run, config)
        return
    for game in run.config.games:
        game.game()  # raises if the game is not installed
    if config.format == "eval-results":
        _export_results(run, config)
        return
    chosen = _choose(run.episodes, config)
    if not chosen:
        raise UsageError(f"no episode of {run.folder.folder} passes the filters")
    console = make_console()
    if changed := version_changes(run.config):
        make_console(stderr=True).print(f"{changed}; images drawn now may differ", soft_wrap=True)
    with new_folder(config.output_dir) as folder:
        (folder / IMAGES).mkdir()
        path = folder / ROWS[config.format]
        count, left_out = 0, Counter[str]()

        def take(rows: Rows) -> None:
            nonlocal count
            with writing(path), path.open("a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in rows.lines)
            count += len(rows.lines)
            left_out.update(rows.left_out)

        turns = TurnFilter(frozenset(map(Outcome, config.outcome)), config.min_reward)
        calls = [(episode, turns, config.format, folder) for episode in chosen]
        with config.pool(len(chosen)) as workers:
            call_in_order(workers, export_episode, calls, take, label="episodes")
        if not count:
            raise UsageError(f"no turn of {run.folder.folder} passes the filters: {_counts(left_out)}")
        # LLaMA-Factory treats some characters as separators.
        dataset = re.sub(r"[^\w.-]", "_", config.output_dir.name)
        if config.format == "sharegpt":
            columns = {"messages": "messages", "images": "images"}
            info = {"file_name": path.name, "formatting": "sharegpt", "columns": columns, "tags": TAGS}
            replace_file(folder / "dataset_info.json", json_bytes({dataset: info}))
        TrainedRecord.of_run(run.config).write(folder)
        images = sum(1 for _ in (folder / IMAGES).rglob("*.png"))
        origin = {
            "format": config.format,
            "filters": {name: getattr(config, name) for name in FILTERS},
            "rows": count,
            "images": images,
            "turns_left_out": left_out,
            "drawn_with": versions(),
            "run": run.config.model_dump(mode="json", exclude={"options"}),
        }
        replace_file(folder / "export.json", json_bytes(origin))
    out = config.output_dir.absolute()
    console.print(f"{count:,} turns of {len(chosen):,} episodes, {images:,} distinct images")
    if left := len(run.episodes) - len(chosen):
        console.print(f"left out episodes: {left:,}")
    if left_out:
        console.print(f"left out turns: {_counts(left_out)}")
    console.print(f"rows    {out / ROWS[config.format]}", soft_wrap=True)
    if config.format == "sharegpt":
        how = f"dataset_dir: {out}, dataset: {dataset}"
    elif images:
        how = f"datasets.load_dataset('imagefolder', data_dir={str(out)!r})"
    else:
        how = f"datasets.load_dataset('json', data_files={str(out / ROWS['hf'])!r})"
    console.print(f"load    {how}", soft_wrap=True)


def _export_episodes(run: StoredRun, config: ExportConfig) -> None:
    """Write a row for each recorded episode."""
    rows = [*SavedRun(run.folder, run.config, config.data).episodes()]
    with new_folder(config.output_dir) as folder:
        write_file(folder / "episodes.csv", csv_lines(rows).encode())
    make_console().print(f"rows    {config.output_dir.absolute() / 'episodes.csv'}", soft_wrap=True)


def _export_results(run: StoredRun, config: ExportConfig) -> None:
    """Write the normalised scores of a run of a suite as task results of a benchmark dataset on the Hub.

    Tasks are named after the games and, if all games have all their results, the suite. The scores are not verified.
    Format: https://huggingface.co/docs/hub/eval-results.
    """
    played, suite = run.config, summarise(run).suite
    if played.suite is None or suite is None:
        raise UsageError(f"{run.folder.folder} is not a run of a suite: play one with vlmgym eval --suite")
    if differences := read_suite(played.suite).differences(played):
        raise UsageError(f"{run.folder.folder} differs from its suite: {differences[0]}")
    scores = {} if suite.score is None else {played.suite: suite.score}
    scores |= {game: result.normalised for game, result in suite.games.items()}
    observation = f"observation {played.prompts.observation}"
    entries = [
        {
            "dataset": {"id": config.dataset, "task_id": task},
            "value": round(value, 6),
            "date": played.started[:10],
            **({} if config.source_url is None else {"source": {"url": config.source_url, "name": "vlmgym"}}),
            "notes": observation if error is None else f"standard error {error:.2g}, {observation}",
        }
        for task, (value, error) in scores.items()
    ]
    name = f".eval_results/{played.suite}.yaml"
    with new_folder(config.output_dir) as folder:
        write_file(folder / name, json_bytes(entries))  # JSON is YAML
    make_console().print(f"results {config.output_dir.absolute() / name}", soft_wrap=True)


def _choose(episodes: Sequence[StoredEpisode], config: ExportConfig) -> list[StoredEpisode]:
    """Return the episodes with a score that pass the filters, in order."""
    chosen: set[StoredEpisode] = set()
    for game in {episode.game for episode in episodes}:
        scored = [
            (-episode.score, episode) for episode in episodes if episode.game == game and episode.score is not None
        ]
        scored.sort(key=lambda pair: (pair[0], pair[1].seed))
        count = math.ceil(round(config.top_fraction * len(scored), 9))  # rounded, so that 0.1 of 30 is exactly 3
        least = -math.inf if config.min_score is None else config.min_score
        chosen.update(episode for score, episode in scored[:count] if -score >= least)
    return [episode for episode in episodes if episode in chosen]


def _counts(left_out: Counter[str]) -> str:
    return ", ".join(f"{reason}: {count:,}" for reason, count in left_out.most_common())
