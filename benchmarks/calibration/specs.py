"""What is calibrated: the declarations of the games on a board, and all of them by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.calibration.crops import boards_of, dealt_boards
from benchmarks.calibration.spec import Criterion, Effort, Sight, Spec
from benchmarks.calibration.task_specs import TASKS
from vlmgym.errors import UsageError
from vlmgym.sandbox.games.game2048 import expectimax as game2048
from vlmgym.sandbox.games.shisensho import solver as shisensho
from vlmgym.sandbox.games.swap import solver as swap
from vlmgym.sandbox.games.tiles.names import EMPTY, MAX_COLOURS, MAX_SHAPES

_GUESS = "in random legal play, how often a guess is right, and so how much there is to rule out; compared as ratios"
_SURVIVED = "how many turns random legal moves survive, cut off after 2,000; compared as ratios"
_NUMBERS = (0, *(2**power for power in range(1, 14)))
"""The cells of 2048 that look different from each other: tiles above 8192 have one colour."""


def _effort_2048(game: Any, state: Any) -> int:
    return game2048.search(state.board, game.config.four_probability, game.config.goal).nodes


def _effort_shisensho(game: Any, state: Any) -> int:
    return shisensho.plan(state.board, game.config.turns).nodes


def _effort_swap(game: Any, state: Any) -> int:
    tiles = [tile for row in state.board for tile in row]
    return swap.search(game.rules, tiles, game.config.kinds).nodes


def _tiles_and_empty(game: Any) -> Sequence[str]:
    return (*game.kinds, EMPTY)


_SHISENSHO = Spec(
    name="shisensho",
    title="Shisen-Sho",
    game="shisensho",
    criterion=Criterion("share of legal actions", "random-legal", "share legal", _GUESS, log=True),
    sight=Sight(
        "cell",
        boards_of(_tiles_and_empty),
        haze=1.4,
        schooling={"colours": MAX_COLOURS, "shapes": MAX_SHAPES},
    ),
    effort=Effort("positions in the plan of a whole board", _effort_shisensho, whole=True),
    notes="""\
Joining whatever can be joined clears most boards of every level: most of the difficulty is in finding a pair that a
path joins, among ever more pairs of cells that none does. That is what the criterion counts. The oracle needs little
search at the published size and much more above it.""",
)

_BOARDS = (
    Spec(
        name="2048",
        title="2048",
        game="2048",
        criterion=Criterion("turns survived", "random-legal", "turns", _SURVIVED, log=True),
        sight=Sight("cell", boards_of(lambda game: _NUMBERS), haze=1.4),
        effort=Effort("boards in the tree of a move", _effort_2048),
        turns={"random": 100, "random-legal": 2000, "oracle": 100},
        notes="""\
A smaller board forgives less. Nearly every move is legal at every level, so that the share of legal actions says
little here. Scores of different levels do not compare: on a large board play goes on for longer. Within 100 turns,
levels 1 and 2 hardly ever end, whoever plays; give them more turns to see a difference in scores. The oracle looks as
far ahead as its budget allows, farther on a crowded board: its effort tells how crowded boards are.""",
    ),
    _SHISENSHO,
    replace(
        _SHISENSHO,
        name="shisensho_pictures",
        title="Shisen-Sho with images of handwritten digits",
        overrides={"tiles": "digits"},
        sight=Sight("cell", dealt_boards, haze=0.5, one_example=True),
        notes="""\
The boards and the rules are those of [Shisen-Sho](shisensho.md). What is hard to see at level 3 is that images of a
class differ, so the reader of level 1 is one that learns from the board itself: it is shown the board of the same
seed at level 1, on which every class has one image, and names each cell by the image that is most alike. How the
reasoning dial moves reading is asked of another reader, which knows the mean images of level 1 of each class.
`colours`, `shapes` and `similarity` have no meaning here. CIFAR-10 and images of your own are not measured: no
classical reader names photographs well enough to tell what is lost.""",
    ),
    Spec(
        name="swap",
        title="Swap",
        game="swap",
        criterion=Criterion("share of legal actions", "random-legal", "share legal", _GUESS, log=True),
        sight=Sight("cell", boards_of(lambda game: range(game.config.kinds)), haze=1.4),
        effort=Effort("cascades played before a move", _effort_swap),
        notes="""\
Every legal swap scores 1, so that all players who know the rules score the number of turns; the tiles they clear tell
them apart. With more kinds of tile on a larger board fewer swaps are legal, cascades are rarer, and boards come to
where no swap is left and are reshuffled. The oracle plays out every legal swap before a move, so that its effort falls
as fewer are legal: here it tells what there is to choose from, not how hard it is to find.""",
    ),
)

SPECS: Mapping[str, Spec] = {spec.name: spec for spec in (*_BOARDS, *TASKS)}
"""By name."""


def spec_of(name: str) -> Spec:
    """Look up the calibration spec of a game.

    Raises:
        UsageError: There is none of this name.
    """
    if name not in SPECS:
        raise UsageError(f"{name!r} is not declared for calibration; what is: {', '.join(SPECS)}")
    return SPECS[name]
