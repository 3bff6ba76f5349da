"""Conformance tests for games::

    from vlmgym.testing import check_game
    check_game(MyGame)

or, with one pytest test per check::

    @pytest.mark.parametrize("check", CHECKS, ids=check_name)
    def test_my_game(check):
        run_check(check, MyGame(), seeds=(0, 1))

Games are checked in states reached by seeded random play; oracles are also checked in states that they reach
themselves. A failure names the check, the game and the fault. `check_game` and `run_check` return notes about what
could not be checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vlmgym.sandbox.core.game import Game
from vlmgym.testing.config import check_config_fields, check_identity, check_levels
from vlmgym.testing.images import check_environment, check_image_and_description, check_images
from vlmgym.testing.randomness import (
    check_determinism,
    check_determinism_over_processes,
    check_global_random_state,
    check_random_actions,
    check_seeds,
)
from vlmgym.testing.rules import (
    check_end,
    check_illegal_actions,
    check_legal_actions,
    check_metrics,
    check_oracle,
    check_steps,
    check_types,
)
from vlmgym.testing.states import AnyGame, Seeds, at_level
from vlmgym.testing.text import check_format_and_parse, check_prompt, check_responses
from vlmgym.testing.values import check_json_round_trip, check_purity, check_restored_episode

__all__ = ["CHECKS", "CLASS_CHECKS", "GAME_CHECKS", "Check", "check_game", "check_name", "run_check"]

Check = Callable[[AnyGame, Seeds], list[str] | None]
"""A check raises `AssertionError` if the game has a fault, and returns notes about what could not be checked."""

CLASS_CHECKS: tuple[Check, ...] = (check_identity, check_types, check_config_fields, check_levels)
"""Checks of a game class, which `check_game` runs at the first level only."""

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
"""Checks of a game object, which `check_game` runs at every level."""

CHECKS: tuple[Check, ...] = (*CLASS_CHECKS, *GAME_CHECKS)
"""All checks."""


def check_game(
    game: str | type[AnyGame] | AnyGame,
    levels: Sequence[tuple[int, int]] = ((3, 3), (1, 1), (5, 5)),
    seeds: Seeds = (0, 1),
) -> list[str]:
    """Check that a game satisfies the contract of `vlmgym.sandbox.core.game.Game`.

    Args:
        game: Id or class of a game, or a game object, which is checked with its own config.
        levels: Pairs of levels (perception, reasoning) at which the game is checked; ignored for a game object.
        seeds: Seeds of the episodes.

    Returns:
        Notes about what could not be checked, such as an end that random play does not reach. Empty if everything was
        checked.

    Raises:
        AssertionError: The game breaks the contract; the message names the check, the game and the fault.
    """
    games = [game] if isinstance(game, Game) else [at_level(game, *level) for level in levels]
    runs = [(check, games[0]) for check in CLASS_CHECKS] + [(check, each) for each in games for check in GAME_CHECKS]
    return [note for check, each in runs for note in run_check(check, each, seeds)]


def run_check(check: Check, game: AnyGame, seeds: Seeds = (0, 1)) -> list[str]:
    """Run one check and return its notes; errors and notes start with the name of the check and the game."""
    try:
        notes = check(game, seeds) or []
    except Exception as error:  # any unexpected error is a fault of the game
        reason = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        raise AssertionError(f"{check_name(check)} fails for {game!r}: {reason}") from error
    return [f"{check_name(check)} of {game!r}: {note}" for note in notes]


def check_name(check: Check) -> str:
    """Return the name of a check in messages and test ids."""
    return check.__name__.removeprefix("check_")
