"""Runs checks, and says which one fails for which game."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vlmgym.sandbox.core.game import Game
from vlmgym.testing.about_class import check_config_fields, check_identity, check_levels
from vlmgym.testing.chance import (
    check_determinism,
    check_determinism_over_processes,
    check_global_random_state,
    check_random_actions,
    check_seeds,
)
from vlmgym.testing.images import check_environment, check_image_and_description, check_images
from vlmgym.testing.positions import AnyGame, Seeds, at_level
from vlmgym.testing.rules import (
    check_end,
    check_illegal_actions,
    check_legal_actions,
    check_metrics,
    check_oracle,
    check_steps,
)
from vlmgym.testing.values import check_json_round_trip, check_purity, check_restored_episode
from vlmgym.testing.words import check_format_and_parse, check_prompt, check_responses

Check = Callable[[AnyGame, Seeds], list[str] | None]
"""Raises what is wrong, and returns what it could not look at."""

CLASS_CHECKS: tuple[Check, ...] = (check_identity, check_config_fields, check_levels)
"""Checks that look at the class, at whatever level the game is."""

GAME_CHECKS: tuple[Check, ...] = (
    check_determinism,
    check_determinism_over_processes,
    check_seeds,
    check_random_actions,
    check_global_random_state,
    check_json_round_trip,
    check_restored_episode,
    check_purity,
    check_legal_actions,
    check_illegal_actions,
    check_steps,
    check_end,
    check_metrics,
    check_oracle,
    check_format_and_parse,
    check_responses,
    check_prompt,
    check_images,
    check_image_and_description,
    check_environment,
)
"""Checks that look at a game as it is configured."""

CHECKS: tuple[Check, ...] = (*CLASS_CHECKS, *GAME_CHECKS)


def check_game(
    game: str | type[AnyGame] | AnyGame,
    levels: Sequence[tuple[int, int]] = ((3, 3), (1, 1), (5, 5)),
    seeds: Seeds = (0, 1),
) -> list[str]:
    """Check that a game keeps the contract of `vlmgym.sandbox.core.game.Game`.

    Args:
        game: Id of a known game, a game's class, or a game, which is checked as it is configured.
        levels: Levels (perception, reasoning) to check at.
        seeds: Seeds of the episodes that are looked at.

    Returns:
        Notes on what was not reached and so not checked, one sentence each: an end that random play does not come to,
        an oracle that knows no action. Empty if everything was looked at.

    Raises:
        AssertionError: The game breaks the contract; the message names the check, the game and what is wrong.
    """
    games = [game] if isinstance(game, Game) else [at_level(game, *level) for level in levels]
    runs = [(check, games[0]) for check in CLASS_CHECKS] + [(check, each) for each in games for check in GAME_CHECKS]
    return [note for check, each in runs for note in run_check(check, each, seeds)]


def run_check(check: Check, game: AnyGame, seeds: Seeds = (0, 1)) -> list[str]:
    """Run one check, put its name and the game into the message of its failure, and return its notes likewise."""
    try:
        notes = check(game, seeds) or []
    except Exception as error:  # whatever a game raises where it must not is a finding about the game
        what = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        raise AssertionError(f"{check_name(check)} fails for {game!r}: {what}") from error
    return [f"{check_name(check)} of {game!r}: {note}" for note in notes]


def check_name(check: Check) -> str:
    """The name of a check, for messages and test ids."""
    return check.__name__.removeprefix("check_")
