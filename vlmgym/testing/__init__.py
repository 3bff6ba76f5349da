"""Conformance tests for games: what DESIGN.md promises of every game, checked on a game of yours.

    from vlmgym.testing import check_game
    check_game(MyGame)

or, with one test for each check under pytest:

    @pytest.mark.parametrize("check", CHECKS, ids=check_name)
    def test_my_game(check):
        run_check(check, MyGame(), seeds=(0, 1))

Everything is checked on positions that seeded random play reaches, and the oracle also on those that its own play
reaches; a failure names the check and what differed. What could not be looked at, because no such position was reached,
is told by the notes that `check_game` and `run_check` return.
"""

from vlmgym.testing.run import CHECKS, CLASS_CHECKS, GAME_CHECKS, Check, check_game, check_name, run_check

__all__ = ["CHECKS", "CLASS_CHECKS", "GAME_CHECKS", "Check", "check_game", "check_name", "run_check"]
