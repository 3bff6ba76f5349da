"""Measure the scores of the policies random, random-legal and oracle, at level 3 and in published settings.

nice python -m benchmarks.protocols --workers 2
python -m benchmarks.protocols --games scenes-statements scenes-questions --episodes 100

Episodes are played as by `vlmgym eval` and stored in `--output-dir`, in one file per configuration and policy. To
resume, run the same command again. Then the tables between markers in `docs/protocols.md` are rewritten; rows without
stored results stay. File names contain the configuration's fingerprint, so settings with the same configuration share
files, and changing a config field starts new files. Changing rules or oracles does not change fingerprints, so use an
empty folder afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from pydantic import BaseModel, ConfigDict
from rich.progress import Progress, TimeElapsedColumn

from vlmgym import make_game
from vlmgym.checks import check_int
from vlmgym.errors import UsageError
from vlmgym.evaluation import EpisodeRecord, evaluate
from vlmgym.policies import PolicySpec, StatePolicy
from vlmgym.runs.files import LineLog, replace_file
from vlmgym.runs.store import drop_torn_line
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.response_format import answer_only
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.sandbox.games.shisensho.boards import Solver
from vlmgym.sandbox.games.shisensho.game import ShisenSho, ShisenShoState
from vlmgym.sandbox.registry import BUILT_IN
from vlmgym.statistics import mean_and_stderr
from vlmgym.terminal import make_console, parse_options, reporting_errors
from vlmgym.workers.pool import ProcessPool

ROOT = Path(__file__).resolve().parents[1]
TURNS = 100
"""Maximum number of turns per episode."""
BATCH = 50
"""Episodes played before results are stored; an interrupted batch is played again."""


class Played(BaseModel):
    """Stored results of an episode."""

    model_config = ConfigDict(frozen=True)

    seed: int
    score: float
    turns: int
    moves: int
    """Number of turns with the outcome `played`."""
    metrics: dict[str, float | str]

    @classmethod
    def of(cls, record: EpisodeRecord) -> Played:
        """Extract the results from the record of a finished episode."""
        assert record.score is not None
        moves = sum(turn.outcome is Outcome.PLAYED for turn in record.turns)
        return cls(
            seed=record.seed, score=record.score, turns=len(record.turns), moves=moves, metrics=dict(record.metrics)
        )


class BoundedOracle(StatePolicy):
    """The oracle of Shisen-Sho with a limited search, because a full search of unsolvable boards takes too long."""

    name = "oracle-30"
    nodes = 30

    def respond(self, game: Game[Any, Any], state: ShisenShoState, rng: np.random.Generator) -> str:
        """Return a response that is only an answer, without perception or reasoning."""
        pair = next(Solver(state.board, game.config.turns, self.nodes).moves())
        return answer_only(game.answer.format(pair))


class G1Random(StatePolicy):
    """Random answers of G1's eval_shisensho.py, as G1's game interprets them.

    For boards of any size, the script draws rows and columns from 0 to 7 and packs them into one number in base 6,
    which the game unpacks. For example, row 1, column 7, row 2, column 7 becomes row 2, column 1, row 3, column 1.
    """

    name = "random as in G1"

    def check(self, game: Game[Any, Any]) -> None:
        """Raise `UsageError` for games other than Shisen-Sho."""
        if not isinstance(game, ShisenSho):
            raise UsageError(f"{self.name} plays shisensho, not {game.name}")

    def respond(self, game: Game[Any, Any], state: ShisenShoState, rng: np.random.Generator) -> str:
        """Return a response that is only an answer, without perception or reasoning."""
        packed = int(rng.integers(8, size=4) @ (216, 36, 6, 1))
        return answer_only(game.answer.format((packed // 216, packed % 216 // 36, packed % 36 // 6, packed % 6)))


Policies = Mapping[str, PolicySpec]
"""Policies by name."""

OPEN: Policies = {"random": "random", "oracle": "oracle"}
"""Policies for games whose legal actions cannot be listed."""
LISTED: Policies = {"random": "random", "random-legal": "random-legal", "oracle": "oracle"}
AS_IN_G1: Policies = {**LISTED, G1Random.name: G1Random()}
LARGE: Policies = {
    "random": "random",
    "random-legal": "random-legal",
    BoundedOracle.name: BoundedOracle(),
    G1Random.name: G1Random(),
}
"""Policies for Shisen-Sho on 12 x 12 boards, with the limited oracle."""


@dataclass(frozen=True)
class Setting:
    """A game configuration to measure.

    Attributes:
        name: Name on the page.
        game: The game.
        metric: Metric to show, which distinguishes policies with equal scores. Default: the first metric of the game.
        own_policies: Policies to measure. Default: random, oracle, and random-legal if legal actions can be listed.
    """

    name: str
    game: Game[Any, Any]
    metric: str | None = None
    own_policies: Policies | None = None

    @property
    def policies(self) -> Policies:
        """Policies to measure."""
        if self.own_policies is not None:
            return self.own_policies
        return OPEN if self.game.legal_actions(Episode(self.game, 0).state) is None else LISTED


METRICS = {"geospot": "geoscore"}
"""Metrics to show for games whose first metric is less informative."""
BUILT_IN_SETTINGS = [
    Setting(name, make_game(name), METRICS.get(name)) for name in (game_id.rpartition("-v")[0] for game_id in BUILT_IN)
]
SETTINGS = (
    *BUILT_IN_SETTINGS,
    Setting("shisensho tiles=digits", make_game("shisensho", tiles="digits"), "tiles left", AS_IN_G1),
    Setting("g1/2048", make_game("g1/2048"), "largest tile"),
    Setting("g1/shisensho-6x6", make_game("g1/shisensho-6x6"), "tiles left", AS_IN_G1),
    Setting("g1/shisensho-12x12", make_game("g1/shisensho-12x12"), "tiles left", LARGE),
    Setting("g1/swap", make_game("g1/swap"), "tiles cleared"),
    Setting("vlm-gym/geospot", make_game("vlm-gym/geospot"), "geoscore"),
)


PUBLISHED = ("Random", "GPT-4o", "Claude-3.7-Sonnet-Thinking", "G1")
"""Models with scores in figure 1 of the G1 paper."""


@dataclass(frozen=True)
class Comparison:
    """Scores published by G1 for a game, and the setting with which they are compared.

    Attributes:
        game: Name of the game on the page.
        counts: Field of `Played` that corresponds to G1's score.
        setting: Name of the setting.
        published: Scores of the models in `PUBLISHED`, from figure 1 of arxiv.org/abs/2505.13426 (assets/image.png of
            github.com/chenllliang/G1 at 716e666).
    """

    game: str
    counts: Literal["score", "moves"]
    setting: str
    published: tuple[str, str, str, str]


COMPARISONS = (
    Comparison("2048", "score", "g1/2048", ("701", "620", "892", "1070")),
    Comparison("Shisen-Sho, 6 x 6", "moves", "g1/shisensho-6x6", ("0.4", "1.5", "15.3", "17.5")),
    Comparison("Shisen-Sho, 12 x 12", "moves", "g1/shisensho-12x12", ("", "", "", "")),
    Comparison("Shisen-Sho-Cifar10", "moves", "shisensho tiles=digits", ("0.4", "4.7", "8.7", "14.1")),
    Comparison("Swap", "moves", "g1/swap", ("1", "1", "43", "78")),
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Play missing episodes and write the tables of the page."""

    games: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SETTING ...")] = ()
    """Settings to play, named as on the page. Default: all."""
    episodes: int = 1000
    """Episodes per policy and setting, with consecutive seeds from 0."""
    workers: int = 2
    """Number of worker processes; 0 plays in this process."""
    output_dir: Path = Path("logs/protocols")
    """Folder of stored results."""
    page: Path = ROOT / "docs" / "protocols.md"
    """Page to update."""

    def __post_init__(self) -> None:
        check_int("episodes", self.episodes, 1)
        check_int("workers", self.workers, 0)
        names = [setting.name for setting in SETTINGS]
        if unknown := [name for name in self.games if name not in names]:
            raise UsageError(f"unknown setting {unknown[0]!r}, choose from: {', '.join(names)}")


class Store:
    """Stored results. Each configuration and policy has a file with one line per episode, ordered by seed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def read(self, game: Game[Any, Any], policy: str) -> list[Played]:
        """Read the stored episodes of a policy, removing an incomplete last line from the file."""
        path = self._path(game, policy)
        if not path.exists():
            return []
        drop_torn_line(path)
        return [Played.model_validate_json(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def add(self, game: Game[Any, Any], policy: str, episodes: Sequence[Played]) -> None:
        """Append episodes of a policy."""
        path = self._path(game, policy)
        with LineLog(path) as log:
            for episode in episodes:
                log.write(episode.model_dump_json())

    def _path(self, game: Game[Any, Any], policy: str) -> Path:
        return self._folder / f"{game.id}-{game.fingerprint}-{policy.replace(' ', '-')}.jsonl"


def measure(options: Options, store: Store) -> None:
    """Play and store missing episodes; oracles play last, because they are slow."""
    selected = [setting for setting in SETTINGS if setting.name in options.games or not options.games]
    jobs = [(setting, policy) for setting in selected for policy in setting.policies]
    jobs.sort(key=lambda job: job[1].startswith("oracle"))
    with (
        ProcessPool(options.workers) as workers,
        Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=make_console(stderr=True)) as progress,
    ):
        for setting, policy in jobs:
            choice, done = setting.policies[policy], len(store.read(setting.game, policy))
            if done >= options.episodes:
                continue
            task = progress.add_task(f"{setting.name}: {policy}", total=options.episodes, completed=done)
            while done < options.episodes:
                count = min(BATCH, options.episodes - done)
                records = evaluate(setting.game, choice, count, max_turns=TURNS, seed=done, workers=workers)
                store.add(setting.game, policy, [Played.of(record) for record in records])
                done += count
                progress.update(task, completed=done)


def baselines(store: Store, before: str) -> Iterator[str]:
    """Yield the lines of the table of all settings; where nothing is stored, keep the row of the old page `before`."""
    rows = {tuple(line.split(" | ")[:2]): line for line in before.splitlines() if line.startswith("| `")}
    yield "| setting | policy | episodes | score | moves played | turns | metric |"
    yield "|---|---|---|---|---|---|---|"
    for setting in SETTINGS:
        first_setting = next(candidate for candidate in SETTINGS if candidate.game == setting.game)
        if first_setting is not setting:
            yield f"| `{setting.name}` | | | same game as `{first_setting.name}` | | | |"
            continue
        for policy in setting.policies:
            if episodes := store.read(setting.game, policy):
                cells = (mean([getattr(episode, name) for episode in episodes]) for name in ("score", "moves", "turns"))
                name = setting.metric or next(iter(episodes[0].metrics), "")
                metric = f"{name} {describe([episode.metrics.get(name) for episode in episodes])}" if name else ""
                yield f"| `{setting.name}` | {policy} | {len(episodes):,} | {' | '.join(cells)} | {metric} |"
            elif (row := rows.get((f"| `{setting.name}`", policy))) is not None:
                yield row


def comparison_table(store: Store, before: str) -> Iterator[str]:
    """Yield the lines of the table that compares policies with G1's published scores; for `before`, see `baselines`."""
    rows = {line.split(" | ")[0]: line for line in before.splitlines()}
    policies = ("random", G1Random.name, "random-legal", "oracle")
    yield f"| | counted | {' | '.join((*(f'published: {name}' for name in PUBLISHED), *policies))} |"
    yield "|---|---|" + "---|" * (len(PUBLISHED) + len(policies))
    settings = {setting.name: setting for setting in SETTINGS}
    for row in COMPARISONS:
        game, cells = settings[row.setting].game, []
        for policy in policies:
            episodes = store.read(game, policy) or (store.read(game, BoundedOracle.name) if policy == "oracle" else [])
            cells.append(mean([getattr(episode, row.counts) for episode in episodes]) if episodes else "")
        unit = "score" if row.counts == "score" else "moves played"
        if not any(cells) and f"| {row.game}" in rows:
            yield rows[f"| {row.game}"]
            continue
        yield f"| {row.game} | {unit} | {' | '.join((*row.published, *cells))} |"


def mean(values: Sequence[float]) -> str:
    """Format a mean, and its standard error unless that is 0 or undefined."""
    middle, error = mean_and_stderr(values)
    return f"{middle:.4g}" if not error or error < 1e-12 * abs(middle) else f"{middle:.4g} ± {error:.2g}"


def describe(values: Sequence[float | str | None]) -> str:
    """Format a metric: the mean of numbers, or the most frequent string and its share; None values are ignored."""
    numbers_or_words = [value for value in values if value is not None]
    if not numbers_or_words:
        return "not known"
    words = Counter(value for value in numbers_or_words if isinstance(value, str))
    if not words:
        return mean([float(value) for value in numbers_or_words])
    [(word, count)] = words.most_common(1)
    return f"most often {word} ({count / len(numbers_or_words):.0%})"


def write_between(text: str, name: str, lines: Iterable[str]) -> str:
    """Replace the lines between the markers `<!-- NAME -->` and `<!-- /NAME -->`.

    Raises:
        UsageError: A marker is missing.
    """
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, begins, rest = text.partition(begin)
    _, ends, after = rest.partition(end)
    if not (begins and ends):
        raise UsageError(f"the page has no markers {begin.strip()} and {end}")
    return before + begin + "\n".join(lines) + "\n" + end + after


def main(args: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    with reporting_errors():
        options = parse_options(Options, args, "python -m benchmarks.protocols")
        if not options.page.is_file():
            raise UsageError(f"page not found: {options.page}")
        store = Store(options.output_dir)
        options.output_dir.mkdir(parents=True, exist_ok=True)
        measure(options, store)
        text = options.page.read_text(encoding="utf-8")
        for name, rows in (("baselines", baselines(store, text)), ("published", comparison_table(store, text))):
            text = write_between(text, name, rows)
        replace_file(options.page, text.encode())
        print(f"page    {options.page}")


if __name__ == "__main__":
    main()
