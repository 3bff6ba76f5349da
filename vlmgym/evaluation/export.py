"""`vlmgym export RUN`: turns of a saved run as a training set with images."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import tyro
from rich.console import Console
from rich.progress import Progress

from vlmgym.checks import check_int
from vlmgym.errors import UsageError
from vlmgym.evaluation.export_rows import IMAGES, Format, Rows, TurnFilter, export_episode
from vlmgym.evaluation.progress import COLUMNS
from vlmgym.records.episode import GameRecord, versions
from vlmgym.records.files import replace_file, writing
from vlmgym.records.output_folder import new_folder
from vlmgym.records.run import version_changes
from vlmgym.records.store import StoredEpisode, StoredRun, open_run
from vlmgym.rollout.event_loop import run_async
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.terminal import make_console
from vlmgym.workers.pool import ProcessPool
from vlmgym.workers.process import check_num_workers, num_workers_for

ROWS: dict[Format, str] = {"sharegpt": "data.jsonl", "hf": "metadata.jsonl"}
"""The file of rows; Hugging Face's ImageFolder looks for this name."""

TAGS = {
    "role_tag": "role",
    "content_tag": "content",
    "user_tag": "user",
    "assistant_tag": "assistant",
    "system_tag": "system",
}
"""How LLaMA-Factory is told that messages are spelled as OpenAI does."""


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Turn the turns of a saved run into supervised data: prompt and images as they were asked, and the response."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""
    format: Format
    """sharegpt: for LLaMA-Factory (data.jsonl, dataset_info.json). hf: for datasets.load_dataset and TRL
    (metadata.jsonl)."""
    output_dir: Path
    """Folder that is made; it is not there yet."""
    outcome: tuple[Literal["played", "illegal", "unparsable"], ...] = ("played",)
    """Turns with these outcomes."""
    min_reward: float | None = None
    """Turns whose recorded total reward is at least this; vlmgym rescore applies another reward setting."""
    min_score: float | None = None
    """Episodes whose score is at least this."""
    top: int | None = None
    """So many best episodes of each game; of equal ones those with the lower seed."""
    top_fraction: float | None = None
    """The best episodes of each game, this share of those that have a score, rounded up; above 0, at most 1."""
    unfinished: bool = False
    """Also turns of episodes that have no result, because the run was stopped or the model could not be asked."""
    workers: int | None = None
    """Worker processes that draw; 0 draws in this process. Default: one per core."""

    def __post_init__(self) -> None:
        for name, number in (("min_reward", self.min_reward), ("min_score", self.min_score)):
            if number is not None and not math.isfinite(number):
                raise UsageError(f"{name} is a finite number, not {number}")
        if not self.outcome:
            raise UsageError(f"outcome is one or more of {', '.join(outcome.value for outcome in Outcome)}")
        check_int("top", self.top, 1, optional=True)
        if self.top_fraction is not None and not 0 < self.top_fraction <= 1:
            raise UsageError(f"top_fraction is above 0 and at most 1, not {self.top_fraction:g}")
        if self.top is not None and self.top_fraction is not None:
            raise UsageError("top and top_fraction exclude each other")
        if self.unfinished and (self.min_score, self.top, self.top_fraction) != (None, None, None):
            raise UsageError("an unfinished episode has no score: leave out --unfinished or the choice by score")
        check_num_workers("workers", self.workers)


def export(config: ExportConfig) -> None:
    """Write an export, and print what is in it and what was left out.

    Raises:
        UsageError: There is no run to read, something is where the export would be, or nothing passes the filters.
        OutputError: It cannot be written.
    """
    run = open_run(config.run)
    for game in run.config.games:
        game.game()  # is it installed?
    chosen = _choose(run.episodes, config)
    if not chosen:
        raise UsageError(f"no episode of {run.folder.folder} passes the filters")
    console, progress_console = make_console(), make_console(stderr=True)
    if begun := version_changes(run.config):
        progress_console.print(f"{begun}; images drawn now may differ", soft_wrap=True)
    with new_folder(config.output_dir) as folder:
        (folder / IMAGES).mkdir()
        with (
            ProcessPool(num_workers_for(len(chosen), config.workers)) as workers,
            _rows_file(folder, config) as file,
        ):
            exporting = _Exporting(config, run.config.games, folder, file, progress_console)
            run_async(exporting.run(chosen, workers))
        if not exporting.rows:
            raise UsageError(f"no turn of {run.folder.folder} passes the filters: {_told(exporting.left_out)}")
        if config.format == "sharegpt":
            replace_file(folder / "dataset_info.json", _json(_dataset_info(config.output_dir)))
        images = sum(1 for _ in (folder / IMAGES).rglob("*.png"))
        replace_file(folder / "export.json", _json(_origin(run, config, exporting, images)))
    out = config.output_dir.absolute()
    left = len(run.episodes) - len(chosen)
    console.print(f"{exporting.rows:,} turns of {len(chosen):,} episodes, {images:,} different images", highlight=False)
    if left:
        console.print(f"left out: {left:,} episodes", highlight=False)
    if exporting.left_out:
        console.print(f"left out of the others: turns {_told(exporting.left_out)}", highlight=False)
    console.print(f"rows    {out / ROWS[config.format]}", soft_wrap=True)
    if config.format == "sharegpt":
        how = f"dataset_dir: {out}, dataset: {_dataset_name(out)}"
    else:
        how = f"datasets.load_dataset('imagefolder', data_dir={str(out)!r})"
    console.print(f"load    {how}", soft_wrap=True, markup=False, highlight=False)


def _choose(episodes: Sequence[StoredEpisode], config: ExportConfig) -> list[StoredEpisode]:
    """The episodes that pass the filters, in the order of the run."""
    if config.unfinished:
        return list(episodes)
    best: set[StoredEpisode] = set()
    for game in {episode.game for episode in episodes}:
        scored = [
            (episode.score, episode) for episode in episodes if episode.game == game and episode.score is not None
        ]
        scored.sort(key=lambda pair: (-pair[0], pair[1].seed))
        count = len(scored)
        if config.top is not None:
            count = config.top
        elif config.top_fraction is not None:
            count = math.ceil(round(config.top_fraction * len(scored), 9))  # 0.1 of 30 are 3, also in floating point
        best.update(
            episode for score, episode in scored[:count] if config.min_score is None or score >= config.min_score
        )
    return [episode for episode in episodes if episode in best]


class _Exporting:
    """Episode after episode through the workers into the file of rows; never more of them in memory than are drawn."""

    def __init__(
        self, config: ExportConfig, games: Sequence[GameRecord], folder: Path, file: BinaryIO, console: Console
    ) -> None:
        self.config, self.games, self.folder, self.file, self.console = config, games, folder, file, console
        self.turns = TurnFilter(frozenset(map(Outcome, config.outcome)), config.min_reward)
        self.rows = 0
        self.left_out: Counter[str] = Counter()

    async def run(self, episodes: Sequence[StoredEpisode], workers: ProcessPool) -> None:
        waiting: deque[asyncio.Task[Rows]] = deque()
        with Progress(*COLUMNS, console=self.console) as bar:
            task = bar.add_task("episodes", total=len(episodes))
            try:
                for call in self._calls(episodes, workers):
                    waiting.append(call)
                    if len(waiting) > 2 * workers.count:
                        self._write(await waiting.popleft())
                        bar.advance(task)
                while waiting:
                    self._write(await waiting.popleft())
                    bar.advance(task)
            finally:  # after a failure asyncio would print those of the others, which nobody awaits
                for call in waiting:
                    call.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)

    def _calls(self, episodes: Sequence[StoredEpisode], workers: ProcessPool) -> Iterator[asyncio.Task[Rows]]:
        for episode in episodes:
            arguments = (self.games, self.turns, self.config.format, self.folder)
            yield asyncio.create_task(workers.call(export_episode, episode, *arguments))

    def _write(self, rows: Rows) -> None:
        with writing(Path(self.file.name)):
            self.file.writelines(line.encode() + b"\n" for line in rows.lines)
        self.rows += len(rows.lines)
        self.left_out += rows.left_out


def _rows_file(folder: Path, config: ExportConfig) -> BinaryIO:
    path = folder / ROWS[config.format]
    with writing(path):
        return path.open("wb")


def _dataset_name(out: Path) -> str:
    """Name of the folder without what would separate names for LLaMA-Factory."""
    return re.sub(r"[^\w.-]", "_", out.name)


def _dataset_info(out: Path) -> dict[str, Any]:
    return {
        _dataset_name(out): {
            "file_name": ROWS["sharegpt"],
            "formatting": "sharegpt",
            "columns": {"messages": "messages", "images": "images"},
            "tags": TAGS,
        }
    }


def _origin(run: StoredRun, config: ExportConfig, exporting: _Exporting, images: int) -> dict[str, Any]:
    """What the export was made of and how; no path of this machine is among it."""
    asked = run.config.model_dump(mode="json", exclude={"options"})
    filters = {
        "outcome": config.outcome,
        "min_reward": config.min_reward,
        "min_score": config.min_score,
        "top": config.top,
        "top_fraction": config.top_fraction,
        "unfinished": config.unfinished,
    }
    left_out = dict(exporting.left_out)
    counts = {"rows": exporting.rows, "images": images, "turns_left_out": left_out}
    return {"format": config.format, "filters": filters, **counts, "drawn_with": versions(), "run": asked}


def _told(left_out: Counter[str]) -> str:
    return ", ".join(f"{reason}: {count:,}" for reason, count in left_out.most_common())


def _json(data: Any) -> bytes:
    return (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode()
