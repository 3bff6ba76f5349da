"""Calibration specs by name: written here for games with special measurements, else derived from the game's class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from string import ascii_uppercase
from typing import Any, NamedTuple

from benchmarks.calibration.crops import boards_of, cells_in_play, dealt_boards, labelled_parts, picture_corners
from benchmarks.calibration.spec import CalibrationPlayer, Criterion, Effort, ReadingSpec, Spec
from benchmarks.calibration.task_specs import TASKS
from vlmgym.errors import UsageError
from vlmgym.sandbox.core.board_game import BoardGame
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.task import Task
from vlmgym.sandbox.drawing.shapes import EMPTY, MAX_COLOURS, MAX_SHAPES
from vlmgym.sandbox.games import game2048, swap
from vlmgym.sandbox.games.shisensho import boards as shisensho
from vlmgym.sandbox.registry import BUILT_IN, game_class, make_game, title_of

TURNS = 100
"""Maximum number of turns per episode, unless a spec sets others."""

_GUESS = "the probability that a random action is legal, in random legal play; levels are compared by their ratio"
_SURVIVED = "the number of turns until random legal play ends, at most 2,000; levels are compared by their ratio"
_LEGAL = Criterion("random-legal", "share legal", log=True, label="share of legal actions", why=_GUESS)
_NUMBERS = (0, *(2**power for power in range(1, 14)))
"""Cells of 2048 with their own colour; all tiles above 8192 share one."""


def _effort_2048(game: Any, state: Any) -> int:
    return game2048.Search(state.board, game.config.four_probability, game.config.goal).nodes


def _effort_shisensho(game: Any, state: Any) -> int:
    solver = shisensho.Solver(state.board, game.config.turns)
    for _ in solver.moves():
        pass
    return solver.nodes


def _effort_swap(game: Any, state: Any) -> int:
    """Return the number of cascades that the search simulates."""
    swaps = len(game.legal_actions(state)) // 2  # each is listed in both orders
    return swaps + min(swaps, swap.CANDIDATES) * swap.SAMPLES if swaps > 1 else 0


def _tiles_and_empty(game: Any) -> Sequence[str]:
    return (*game.kinds, EMPTY)


_SHISENSHO = Spec(
    name="shisensho",
    title="Shisen-Sho",
    game="shisensho",
    criterion=_LEGAL,
    reading=ReadingSpec(
        "cell",
        boards_of(_tiles_and_empty),
        haze=1.4,
        training_overrides={"colours": MAX_COLOURS, "shapes": MAX_SHAPES},
    ),
    effort=Effort("search nodes per board", _effort_shisensho, whole=True),
    notes="""\
At every level, most boards are cleared by simply removing any pair that can be connected. The difficulty is to find
such a pair among the many that no path connects; the criterion measures this. The oracle needs little search on boards
of the default size and much more on larger ones.""",
)

_BOARDS = (
    Spec(
        name="2048",
        title="2048",
        game="2048",
        criterion=Criterion("random-legal", "turns", log=True, label="turns survived", why=_SURVIVED),
        reading=ReadingSpec("cell", boards_of(lambda game: _NUMBERS), haze=1.4),
        effort=Effort("search nodes per move", _effort_2048),
        turns={"random": 100, "random-legal": 2000, "oracle": 100},
        notes="""\
Smaller boards are less forgiving. Nearly every move is legal at all levels, so the share of legal actions says
little. Scores of different levels are not comparable, because games on larger boards last longer: at levels 1 and 2,
no episode with a limit of 100 turns ended earlier. The oracle searches as deep as its budget allows, and deeper on
crowded boards, so its effort shows how crowded boards are.""",
    ),
    _SHISENSHO,
    replace(
        _SHISENSHO,
        name="shisensho_images",
        title="Shisen-Sho with images of handwritten digits",
        overrides={"tiles": "digits"},
        reading=ReadingSpec("cell", dealt_boards, haze=0.5, one_example=True),
        notes="""\
Boards and rules are the same as in [Shisen-Sho](shisensho.md), but from perception level 2, the images of a class
differ. The level-1 reader therefore labels each cell by the most similar image on the level-1 board of the same seed,
where every class has one image. In the comparison on common kinds, it knows the mean level-1 image of each class
instead. The config fields `colours`, `shapes` and `similarity` have no effect. CIFAR-10 and your own images are not
measured, because no classical reader recognises photographs well enough.""",
    ),
    Spec(
        name="swap",
        title="Swap",
        game="swap",
        criterion=_LEGAL,
        reading=ReadingSpec("cell", boards_of(lambda game: range(game.config.kinds)), haze=1.4),
        effort=Effort("cascades simulated per move", _effort_swap),
        notes="""\
Every legal swap scores 1, so the score of any player who knows the rules is the number of turns; players differ in how
many tiles they clear. With more kinds of tile on a larger board, fewer swaps are legal, cascades are shorter, and more
boards have no legal swap and are reshuffled. The oracle simulates every legal swap, so its effort measures how many
there are, not how hard they are to find.""",
    ),
)


_WINS = Criterion("random-legal", "score")
_CHOICES = Criterion(
    "random-legal",
    "legal actions",
    log=True,
    rises=True,
    label="number of choices",
    why="one of which is right; levels are compared by their ratio",
)


class Fact(NamedTuple):
    """A number that a question's difficulty depends on: its name in the plural, and its value."""

    name: str
    value: Callable[[Any, Any], int]


FACTS: Mapping[str, Fact] = {
    "charts": Fact("values", lambda game, state: len(state.values)),
    "clocks": Fact("clocks and durations", lambda game, state: len(state.times) + game.config.durations),
    "graph": Fact("nodes", lambda game, state: len(state.places)),
    "grids": Fact("cells", lambda game, state: game.config.side**2),
    "matrices": Fact("changing attributes", lambda game, state: game.config.rules),
    "routes": Fact("legs", lambda game, state: game.config.legs),
}
"""Facts about the initial states of tasks, for the criterion."""
NOTE = """\
The number of {name} follows from config fields, so the criterion shows that they work, not how hard the questions
are."""

CRITERIA = {
    "billiards": _CHOICES,
    "blocks": _CHOICES,
    "fallingblocks": _WINS,
    "fourinarow": _WINS,
    "tictactoe": replace(_WINS, log=True),
    "solitaire": Criterion("random-legal", "cards played", log=True),
    "rotation": _CHOICES,
    "tracking": _CHOICES,
    **{
        name: Criterion(
            "questions",
            fact.name,
            log=True,
            rises=True,
            label=f"number of {fact.name}",
            why="as set by the level; levels are compared by their ratio",
        )
        for name, fact in FACTS.items()
    },
}
"""Criteria of games without a spec of their own; the default is the number of turns of the oracle."""


def _why(criterion: Criterion) -> str:
    ratio = "; levels are compared by their ratio" if criterion.log else ""
    return f"the mean over episodes of {criterion.player} play{ratio}"


def _spec_of_class(name: str) -> Spec:
    """Derive the spec of a game without its own: cells of a board or `labelled_parts` are read."""
    cls = game_class(name)
    chosen = CRITERIA.get(cls.name, Criterion("oracle", "turns", rises=True))
    players: list[CalibrationPlayer] = ["random", "random-legal", "oracle"]
    if (fact := FACTS.get(name)) is not None:
        players.append("questions")
    listed = make_game(name).legal_actions(Episode(make_game(name), 0).state) is not None
    turns = 1 if issubclass(cls, Task) else TURNS
    words = f"{chosen.measure}, {chosen.player}"
    board = issubclass(cls, BoardGame)
    return Spec(
        name=cls.name,
        title=title_of(cls),
        game=cls.name,
        criterion=replace(chosen, label=chosen.label or words, why=chosen.why or _why(chosen)),
        reading=ReadingSpec(
            "cell" if board else "part",
            boards_of(cells_in_play) if board else labelled_parts,
            haze=None,
            all_variants=board,
        ),
        turns={player: turns for player in players if listed or player != "random-legal"},
        facts=None if fact is None else lambda game, state: {fact.name: float(fact.value(game, state))},
        notes="" if fact is None else NOTE.format(name=fact.name),
        oracle_share=1.0 if chosen.player == "oracle" else 0.1,
    )


_JIGSAW = replace(
    _spec_of_class("jigsaw"),
    reading=ReadingSpec("corner", picture_corners, haze=None, all_variants=True),
    notes="""\
Patches at the same place of different pictures have nothing in common, so the readers identify pictures instead of
places: they tell apart the upper corners of 16 pictures. A corner is a fifth of the picture wide, so that it lies
within one patch at every level.""",
)

_WORDSEARCH = replace(
    _spec_of_class("wordsearch"),
    reading=ReadingSpec(
        "cell", boards_of(lambda game: [(letter, -1) for letter in ascii_uppercase]), haze=None, all_variants=True
    ),
)

_OWN = {spec.name: spec for spec in (*_BOARDS, _JIGSAW, _WORDSEARCH, *TASKS)}
_NAMES = [game_id.rpartition("-v")[0] for game_id in BUILT_IN]

SPECS: Mapping[str, Spec] = {**_OWN, **{name: _spec_of_class(name) for name in _NAMES if name not in _OWN}}
"""Specs by name."""


def spec_of(name: str) -> Spec:
    """Look up the calibration spec of a game.

    Raises:
        UsageError: No spec has this name.
    """
    if name not in SPECS:
        raise UsageError(f"no calibration spec {name!r}, choose from: {', '.join(SPECS)}")
    return SPECS[name]
