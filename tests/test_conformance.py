"""Every game keeps the contract, at several levels and with all knobs."""

from types import ModuleType

import pytest

from vlmgym import game_ids, make_game
from vlmgym.testing import CHECKS, CLASS_CHECKS, GAME_CHECKS, Check, check_game, check_name, run_check

LEVELS = [(1, 1), (3, 3), (5, 5)]


@pytest.mark.parametrize("check", CLASS_CHECKS, ids=check_name)
@pytest.mark.parametrize("game", game_ids())
def test_class_keeps_the_contract(game: str, check: Check) -> None:
    run_check(check, make_game(game))


@pytest.mark.parametrize("check", GAME_CHECKS, ids=check_name)
@pytest.mark.parametrize(("perception", "reasoning"), LEVELS)
@pytest.mark.parametrize("game", game_ids())
def test_game_keeps_the_contract(game: str, perception: int, reasoning: int, check: Check) -> None:
    run_check(check, make_game(game, perception, reasoning, size=320))


@pytest.mark.parametrize("check", GAME_CHECKS, ids=check_name)
@pytest.mark.parametrize(
    ("game", "knobs"),
    [("2048", {"goal": 8, "rows": 3, "columns": 5}), ("swap", {"rows": 5}), ("shisensho", {"rows": 4})],
)
def test_game_keeps_the_contract_with_other_knobs(game: str, knobs: dict[str, int], check: Check) -> None:
    run_check(check, make_game(game, size=320, origin=1, coordinates=True, theme="dark", **knobs))


def test_the_game_of_the_documentation_keeps_the_contract(lamps: ModuleType) -> None:
    check_game(lamps.Lamps, seeds=(0,))


def test_no_check_is_left_out() -> None:
    import vlmgym.testing

    written = {name for name in vars(vlmgym.testing) if name.startswith("check_")} - {"check_game", "check_name"}
    assert {check.__name__ for check in CHECKS} | {"check_env"} == written  # check_env is Gymnasium's
