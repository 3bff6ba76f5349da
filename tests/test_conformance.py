"""All games keep the contract, at several levels and with other config fields."""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import pytest

import vlmgym.testing
from vlmgym import game_ids, make_game
from vlmgym.testing import CHECKS, CLASS_CHECKS, GAME_CHECKS, Check, check_game, check_name, run_check
from vlmgym.testing.randomness import check_determinism_over_processes

LEVELS = [(1, 1), (5, 5)]
# Starting a process takes longer than all other checks together, so it is done once per game.
QUICK_CHECKS = [check for check in GAME_CHECKS if check is not check_determinism_over_processes]


@pytest.mark.parametrize("check", CLASS_CHECKS, ids=check_name)
@pytest.mark.parametrize("game", game_ids())
def test_class_keeps_the_contract(game: str, check: Check) -> None:
    run_check(check, make_game(game, size=320))


@pytest.mark.parametrize("check", QUICK_CHECKS, ids=check_name)
@pytest.mark.parametrize(("perception", "reasoning"), LEVELS)
@pytest.mark.parametrize("game", game_ids())
def test_game_keeps_the_contract(game: str, perception: int, reasoning: int, check: Check) -> None:
    run_check(check, make_game(game, perception, reasoning, size=320))


@pytest.mark.parametrize("check", QUICK_CHECKS, ids=check_name)
@pytest.mark.parametrize(
    ("game", "overrides"),
    [("2048", {"goal": 8, "rows": 3, "columns": 5}), ("swap", {"rows": 5}), ("shisensho", {"rows": 4})],
)
def test_game_with_other_config_fields(game: str, overrides: dict[str, int], check: Check) -> None:
    run_check(check, make_game(game, size=320, origin=1, coordinates=True, theme="dark", **overrides))


@pytest.mark.parametrize("game", game_ids())
def test_game_in_another_process(game: str) -> None:
    check_determinism_over_processes(make_game(game, 5, 5, size=320), seeds=(0, 1, 2))


def test_example_game_keeps_the_contract(lamps: ModuleType) -> None:
    notes = check_game(lamps.Lamps, levels=[(3, 3), (5, 5)], seeds=(0,))
    assert [note.partition(" of ")[0] for note in notes] == ["oracle", "oracle"]  # Lamps has none


def test_all_checks_are_listed() -> None:
    modules = [import_module(f"vlmgym.testing.{info.name}") for info in iter_modules(vlmgym.testing.__path__)]
    written = {
        name
        for module in modules
        for name, value in vars(module).items()
        if name.startswith("check_") and value.__module__ == module.__name__
    }
    assert {check.__name__ for check in CHECKS} | {"check_game", "check_name"} == written
