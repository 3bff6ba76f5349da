"""`vlmgym rescore RUN`: apply other reward settings to a saved run without playing; scores stay the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vlmgym.errors import UsageError
from vlmgym.evaluation.config import RunArgument
from vlmgym.evaluation.summary import Tally
from vlmgym.evaluation.tables import PageTable
from vlmgym.runs.files import LineLog, json_bytes, new_folder, replace_file
from vlmgym.runs.record import EpisodeRecord, changes
from vlmgym.runs.run import RunFolder
from vlmgym.runs.store import open_run
from vlmgym.sandbox.core.perception import Perception
from vlmgym.sandbox.core.reward import RewardConfig, TextScores, weigh
from vlmgym.terminal import make_console


@dataclass(frozen=True, kw_only=True)
class RescoreConfig:
    """Options of `vlmgym rescore`."""

    run: RunArgument
    """Folder of the run, which is not changed."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    """The new settings. Omitted options take their defaults, not the values of the run."""
    output_dir: Path | None = None
    """Folder of the new run. None means RUN-rescored."""


def rescore(config: RescoreConfig) -> Path:
    """Write a copy of a run with other rewards into a new folder, print what changed, and return the folder."""
    run = open_run(config.run)
    old = run.folder.folder
    out = old.with_name(f"{old.name}-rescored") if config.output_dir is None else config.output_dir.absolute()
    if not run.episodes:
        raise UsageError(f"{old} has no episodes")
    totals: dict[str, list[tuple[float, float]]] = {game: [] for game in run.config.game_ids}
    tally = Tally(run.config)
    with new_folder(out) as part:
        folder = RunFolder(part)
        with LineLog(folder.episodes) as log:
            for stored in run.episodes:
                before = stored.read()
                after = rescored(before, config.reward)
                log.write(after.model_dump_json())
                tally[after.game.id].add(after)
                if before.score is not None:
                    totals.setdefault(after.game.id, []).append((before.total_reward, after.total_reward))
        summary = run.last_summary().model_copy(update={"games": tally.summaries()})
        folder.write_summary(summary)
        replace_file(folder.run, json_bytes(run.config.model_copy(update={"reward": config.reward})))
    console = make_console()
    console.print(_changes(run.config.reward, config.reward), soft_wrap=True)
    console.print(_table(totals).rich())
    console.print(f"run     {out}", soft_wrap=True)
    return out


def rescored(episode: EpisodeRecord, reward: RewardConfig) -> EpisodeRecord:
    """Recompute the rewards of a record with other settings."""
    turns = []
    for turn in episode.turns:
        parts = turn.reward
        seen = _accuracy(parts.perception, parts.perception_exact)
        predicted = _accuracy(parts.prediction, parts.prediction_exact)
        text = TextScores(parts.format, seen, predicted, turn.reasoning_accuracy or 0.0)
        total = weigh(reward, turn.outcome, parts.actions or [parts.game], text)
        turns.append(turn.model_copy(update={"reward": parts.model_copy(update={"total": total})}))
    return episode.model_copy(update={"reward": reward, "turns": tuple(turns)})


def _accuracy(partial: float | None, exact: float | None) -> Perception | None:
    return None if partial is None or exact is None else Perception(partial, exact)


def _changes(before: RewardConfig, after: RewardConfig) -> str:
    changed = [f"{path} {old} -> {new}" for path, old, new in changes(before.model_dump(), after.model_dump())]
    return f"reward: {', '.join(changed) or 'unchanged'}; scores do not change"


def _table(totals: Mapping[str, Sequence[tuple[float, float]]]) -> PageTable:
    rows = []
    for game, episodes in totals.items():
        row = [game, f"{len(episodes):,}"]
        if episodes:
            before, after = (math.fsum(rewards) / len(episodes) for rewards in zip(*episodes))
            row += [f"{before:,.4g}", f"{after:,.4g}", f"{after - before:+,.4g}"]
        rows.append(row)
    return PageTable("mean reward of episodes with a result", ("game", "episodes", "before", "after", "change"), rows)
