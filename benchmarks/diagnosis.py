"""Draw the picture of `vlmgym diagnose` in docs/evaluating.md, for a player with planted defects.

python -m benchmarks.diagnosis

The player of 2048 sees two cells exchanged in 30% of the turns, plays an illegal move, if there is one, in 20%, and a
random legal one in 20%. It needs Chromium.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tests.browser import chromium
from tests.playing import save_run
from vlmgym.evaluation import evaluate
from vlmgym.pages.diagnose import DiagnoseConfig, diagnose
from vlmgym.policies import StatePolicy
from vlmgym.sandbox.core.response_format import compose
from vlmgym.terminal import parse_options, reporting_errors

EPISODES, TURNS = 20, 30


@dataclass(frozen=True, kw_only=True)
class Options:
    """Draw the flow from seeing to acting."""

    picture: Path = Path("docs/diagnosis.png")
    """PNG to write."""


class Flawed(StatePolicy):
    """A player of 2048 that misreads boards, forgets rules and plans badly, each in some turns."""

    name = "flawed player"

    def respond(self, game: Any, state: Any, rng: np.random.Generator) -> str:
        """State a board, and play a move that is best there unless a rule or the plan is forgotten."""
        defect, perceived = rng.random(), state
        if defect < 0.3:
            cells = [cell for row in state.board for cell in row]
            first, second = rng.choice(len(cells), 2, replace=False)
            cells[first], cells[second] = cells[second], cells[first]
            perceived = replace(state, board=game.in_rows(tuple(cells)))
        action, legal = game.best_action(perceived), game.legal_actions(state)
        illegal = [move for move in range(4) if move not in legal]
        if 0.3 <= defect < 0.5 and illegal:
            action = int(rng.choice(illegal))
        elif action is None or 0.5 <= defect < 0.7:
            action = int(rng.choice(legal))
        return compose(game.describe(perceived), "", game.answer.format(action))


def main(options: Options) -> None:
    """Play, diagnose, and take a picture of the flow."""
    with TemporaryDirectory(prefix="vlmgym-diagnosis-") as root:
        run = Path(root) / "run"
        save_run(run, evaluate("2048", Flawed(), EPISODES, max_turns=TURNS, workers=0))
        diagnose(DiagnoseConfig(run=run, workers=0))
        with chromium() as browser:
            page = browser.new_page(viewport={"width": 1000, "height": 800})
            page.goto((run / "diagnose.html").as_uri())
            page.locator(".flow").screenshot(path=options.picture)


if __name__ == "__main__":
    with reporting_errors():
        main(parse_options(Options, None, "python -m benchmarks.diagnosis"))
