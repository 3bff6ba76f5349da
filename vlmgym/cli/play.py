"""`vlmgym play GAME`: play a game in a window and see the prompts a model would get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import tyro

from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.options import GameOptions

SEEDS = 2**31


@dataclass(frozen=True, kw_only=True)
class PlayConfig(GameOptions):
    """Options of `vlmgym play`."""

    game: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="GAME")]
    """Id or name of the game, such as 2048."""
    seed: int | None = None
    """Seed of the first episode, increased by 1 for each further episode. None means random."""


def play(config: PlayConfig) -> None:
    """Open a window and let a person play until it is closed."""
    from vlmgym.sandbox.envs.human import Player, PlayWindow, check_screen  # imports pygame

    game = config.make_game(config.game)
    check_screen()
    seed = int(np.random.default_rng().integers(SEEDS)) if config.seed is None else config.seed
    player = Player(
        Episode(game, seed),
        f"{game.id}   perception {config.perception}   reasoning {config.reasoning}",
        "F5: next episode.  Esc: quit.",
    )
    window = PlayWindow(f"vlmgym play {game.id}")
    try:
        window.draw(player)
        while not window.closed_by_user:
            changed = False
            for key, _ in window.responses(player):
                changed = True
                if key == "f5":
                    player.begin(Episode(game, (player.episode.seed + 1) % SEEDS))
            if changed:
                window.draw(player)
    finally:
        window.close()
