"""Conformance tests for games::

    from vlmgym.testing import check_game
    check_game(MyGame)

or, with one pytest test per check::

    @pytest.mark.parametrize("check", CHECKS, ids=check_name)
    def test_my_game(check):
        run_check(check, MyGame(), seeds=(0, 1))

Games are checked in states reached by seeded random play, oracles also in states reached by their own play. A failure
names the check and the difference. `check_game` and `run_check` return notes about what could not be checked.
"""

from vlmgym.testing.run import CHECKS, CLASS_CHECKS, GAME_CHECKS, Check, check_game, check_name, run_check

__all__ = ["CHECKS", "CLASS_CHECKS", "GAME_CHECKS", "Check", "check_game", "check_name", "run_check"]
