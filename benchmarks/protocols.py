"""What random, random-legal and oracle play score in every game at level 3 and in every published setting.

nice python benchmarks/protocols.py --workers 2
python benchmarks/protocols.py --games nlvr2 vqa --episodes 100

Episodes are played as `vlmgym eval` plays them and kept as lines of a file for each configuration and policy in
`--output-dir`; the same command again plays what is missing. Then the tables of `docs/protocols.md` are written between
their markers from all that has been played. Files are named after configurations: settings that are the same game share
them, and a config field that changes begins a new one. After a change of rules or oracles, begin with an empty folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from pydantic import BaseModel, ConfigDict
from rich.progress import Progress, TimeElapsedColumn

from vlmgym import make_game
from vlmgym.checks import check_int
from vlmgym.cli.console import parse_options, reporting_errors
from vlmgym.errors import UsageError
from vlmgym.evaluation import EpisodeRecord, evaluate
from vlmgym.evaluation.statistics import mean_and_stderr
from vlmgym.policies import PolicySpec, StatePolicy
from vlmgym.records.files import LineLog, replace_file
from vlmgym.records.output_folder import OutputFolder
from vlmgym.records.store import drop_torn_line
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.response_format import answer_only
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.sandbox.games.shisensho.game import ShisenSho, ShisenShoState
from vlmgym.sandbox.games.shisensho.solver import best_move
from vlmgym.terminal import make_console
from vlmgym.workers.pool import ProcessPool

TURNS = 100
"""Limit of turns of an episode."""
AT_ONCE = 50
"""Episodes that are played together; those of a batch that is interrupted are played again."""


class Played(BaseModel):
    """What is kept of an episode."""

    model_config = ConfigDict(frozen=True)

    seed: int
    score: float
    turns: int
    moves: int
    """Turns whose response was played."""
    metrics: dict[str, float | str]

    @classmethod
    def of(cls, record: EpisodeRecord) -> Played:
        """The episode of a record, which has a result."""
        assert record.score is not None
        moves = sum(turn.outcome is Outcome.PLAYED for turn in record.turns)
        return cls(
            seed=record.seed, score=record.score, turns=len(record.turns), moves=moves, metrics=dict(record.metrics)
        )


class BoundedOracle(StatePolicy):
    """The oracle of Shisen-Sho with a search that is cut short: on boards that cannot be cleared it takes long."""

    name = "oracle-30"
    positions = 30

    def respond(self, game: Game[Any, Any], state: ShisenShoState, rng: np.random.Generator) -> str:
        """An answer without perception and reasoning."""
        pair = best_move(state.board, game.config.turns, self.positions)
        assert pair is not None, "the episode has not ended"
        return answer_only(game.format(pair))


class G1Random(StatePolicy):
    """Random answers of G1's eval_shisensho.py, read as its game reads them.

    It draws rows and columns from 0 to 7, whatever the board, and packs them into one number in base 6, from which the
    game takes them out again: of row 1, column 7, row 2, column 7 it makes row 2, column 1, row 3, column 1.
    """

    name = "random as in G1"

    def check(self, game: Game[Any, Any]) -> None:
        """Refuse other games."""
        if not isinstance(game, ShisenSho):
            raise UsageError(f"{self.name} plays shisensho, not {game.name}")

    def respond(self, game: Game[Any, Any], state: ShisenShoState, rng: np.random.Generator) -> str:
        """An answer without perception and reasoning."""
        packed = int(rng.integers(8, size=4) @ (216, 36, 6, 1))
        return answer_only(game.format((packed // 216, packed % 216 // 36, packed % 36 // 6, packed % 6)))


Policies = Mapping[str, PolicySpec]
"""Who plays, by name."""

OPEN: Policies = {"random": "random", "oracle": "oracle"}
"""Who plays a task whose legal answers cannot be listed."""
LISTED: Policies = {"random": "random", "random-legal": "random-legal", "oracle": "oracle"}
AS_IN_G1: Policies = {**LISTED, G1Random.name: G1Random()}
LARGE: Policies = {
    "random": "random",
    "random-legal": "random-legal",
    BoundedOracle.name: BoundedOracle(),
    G1Random.name: G1Random(),
}
"""Who plays on 12 x 12, where the search of the oracle is cut short."""


@dataclass(frozen=True)
class Setting:
    """A game that is measured.

    Attributes:
        name: As on the page.
        game: The game.
        metric: The metric that tells players apart where scores do not.
        policies: Who plays.
    """

    name: str
    game: Game[Any, Any]
    metric: str
    policies: Policies = field(default_factory=lambda: LISTED)


SETTINGS = (
    Setting("2048", make_game("2048"), "largest tile"),
    Setting("shisensho", make_game("shisensho"), "tiles left"),
    Setting("shisensho tiles=digits", make_game("shisensho", tiles="digits"), "tiles left", AS_IN_G1),
    Setting("swap", make_game("swap"), "tiles cleared"),
    Setting("geospot", make_game("geospot"), "geoscore", OPEN),
    Setting("nlvr2", make_game("nlvr2"), "accuracy"),
    Setting("vqa", make_game("vqa"), "accuracy", OPEN),
    Setting("caption", make_game("caption"), "coverage", OPEN),
    Setting("g1/2048", make_game("g1/2048"), "largest tile"),
    Setting("g1/shisensho-6x6", make_game("g1/shisensho-6x6"), "tiles left", AS_IN_G1),
    Setting("g1/shisensho-12x12", make_game("g1/shisensho-12x12"), "tiles left", LARGE),
    Setting("g1/swap", make_game("g1/swap"), "tiles cleared"),
    Setting("vlm-gym/geospot", make_game("vlm-gym/geospot"), "geoscore", OPEN),
)


PUBLISHED = ("Random", "GPT-4o", "Claude-3.7-Sonnet-Thinking", "G1")
"""Players of G1's figure."""


@dataclass(frozen=True)
class Compared:
    """What G1 published of a game, and where the same was measured here.

    Attributes:
        game: As G1 calls it.
        counts: What a score counts: a field of `Played`.
        setting: Name of the setting.
        published: Scores of `PUBLISHED` as they are written in figure 1 of arxiv.org/abs/2505.13426, which is
            assets/image.png of github.com/chenllliang/G1 at 716e666.
    """

    game: str
    counts: Literal["score", "moves"]
    setting: str
    published: tuple[str, str, str, str]


COMPARED = (
    Compared("2048", "score", "g1/2048", ("701", "620", "892", "1070")),
    Compared("Shisen-Sho, 6 x 6", "moves", "g1/shisensho-6x6", ("0.4", "1.5", "15.3", "17.5")),
    Compared("Shisen-Sho, 12 x 12", "moves", "g1/shisensho-12x12", ("", "", "", "")),
    Compared("Shisen-Sho-Cifar10", "moves", "shisensho tiles=digits", ("0.4", "4.7", "8.7", "14.1")),
    Compared("Swap", "moves", "g1/swap", ("1", "1", "43", "78")),
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure what is missing, and write the tables of the page."""

    games: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SETTING ...")] = ()
    """Settings to play, as on the page; all if none is named."""
    episodes: int = 1000
    """Episodes of each policy in each setting, seeds from 0 on."""
    workers: int = 2
    """Worker processes; 0 plays in this one."""
    output_dir: Path = Path("logs/protocols")
    """Folder of the episodes."""
    page: Path = Path("docs/protocols.md")
    """The page whose tables are written."""

    def __post_init__(self) -> None:
        check_int("episodes", self.episodes, 1)
        check_int("workers", self.workers, 0)
        names = [setting.name for setting in SETTINGS]
        if unknown := [name for name in self.games if name not in names]:
            raise UsageError(f"there is no setting {unknown[0]!r}; there are {', '.join(names)}")


class Store:
    """Episodes on the disk: a file for each configuration and policy, a line an episode, in the order of seeds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def read(self, game: Game[Any, Any], policy: str) -> list[Played]:
        """What has been played; a line that an interrupt tore is dropped."""
        path = self._path(game, policy)
        if not path.exists():
            return []
        drop_torn_line(path)
        return [Played.model_validate_json(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def add(self, game: Game[Any, Any], policy: str, played: Sequence[Played]) -> None:
        """Keep more episodes."""
        path = self._path(game, policy)
        OutputFolder(self._folder).claim(path)
        with LineLog(path) as log:
            for one in played:
                log.write(one.model_dump_json())

    def _path(self, game: Game[Any, Any], policy: str) -> Path:
        return self._folder / f"{game.id}-{game.fingerprint}-{policy.replace(' ', '-')}.jsonl"


def measure(options: Options, store: Store) -> None:
    """Play what is missing, the quick policies of all settings first."""
    asked = [setting for setting in SETTINGS if setting.name in options.games or not options.games]
    jobs = [(setting, policy) for setting in asked for policy in setting.policies]
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
                more = min(AT_ONCE, options.episodes - done)
                records = evaluate(setting.game, choice, more, max_turns=TURNS, seed=done, workers=workers)
                store.add(setting.game, policy, [Played.of(record) for record in records])
                done += more
                progress.update(task, completed=done)


def baselines(store: Store) -> Iterator[str]:
    """The table of all settings as lines of Markdown."""
    yield "| setting | policy | episodes | score | moves played | turns | besides |"
    yield "|---|---|---|---|---|---|---|"
    for setting in SETTINGS:
        same = next(other for other in SETTINGS if other.game == setting.game)
        if same is not setting:
            yield f"| `{setting.name}` | | | the same game as `{same.name}` | | | |"
            continue
        for policy in setting.policies:
            if played := store.read(setting.game, policy):
                cells = (mean([getattr(one, name) for one in played]) for name in ("score", "moves", "turns"))
                besides = f"{setting.metric} {told([one.metrics.get(setting.metric) for one in played])}"
                yield f"| `{setting.name}` | {policy} | {len(played):,} | {' | '.join(cells)} | {besides} |"


def beside_published(store: Store) -> Iterator[str]:
    """The table of G1's figures and those measured here as lines of Markdown."""
    here = ("random", G1Random.name, "random-legal", "oracle")
    yield f"| | counted | {' | '.join((*(f'published: {name}' for name in PUBLISHED), *here))} |"
    yield "|---|---|" + "---|" * (len(PUBLISHED) + len(here))
    settings = {setting.name: setting for setting in SETTINGS}
    for row in COMPARED:
        game, cells = settings[row.setting].game, []
        for policy in here:
            played = store.read(game, policy) or (store.read(game, BoundedOracle.name) if policy == "oracle" else [])
            cells.append(mean([getattr(one, row.counts) for one in played]) if played else "")
        counted = "score" if row.counts == "score" else "moves played"
        yield f"| {row.game} | {counted} | {' | '.join((*row.published, *cells))} |"


def mean(values: Sequence[float]) -> str:
    """Mean and standard error; values that are all the same have none."""
    middle, error = mean_and_stderr(values)
    return f"{middle:.4g}" if not error else f"{middle:.4g} ± {error:.2g}"


def told(values: Sequence[float | str | None]) -> str:
    """The mean of numbers, or the commonest of words and how often it comes; of those that there are."""
    known = [value for value in values if value is not None]
    if not known:
        return "not known"
    words = Counter(value for value in known if isinstance(value, str))
    if not words:
        return mean([float(value) for value in known])
    [(word, count)] = words.most_common(1)
    return f"most often {word} ({count / len(known):.0%})"


def write_between(text: str, name: str, lines: Iterable[str]) -> str:
    """A page with other lines between its markers `<!-- NAME -->` and `<!-- /NAME -->`.

    Raises:
        UsageError: It does not have both.
    """
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise UsageError(f"the page has no markers {begin.strip()} and {end}")
    return before + begin + "\n".join(lines) + "\n" + end + after


def main(args: Sequence[str] | None = None) -> None:
    """Measure and write."""
    with reporting_errors():
        options = parse_options(Options, args, "benchmarks/protocols.py")
        if not options.page.is_file():
            raise UsageError(f"there is no page {options.page}")
        store = Store(options.output_dir)
        with OutputFolder(options.output_dir).reserved():
            measure(options, store)
        text = options.page.read_text(encoding="utf-8")
        for name, lines in (("baselines", baselines(store)), ("published", beside_published(store))):
            text = write_between(text, name, lines)
        replace_file(options.page, text.encode())
        print(f"page    {options.page}")


if __name__ == "__main__":
    main()
