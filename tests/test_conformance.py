"""All games pass the checks of `vlmgym.testing`, at several levels and with other config fields."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from vlmgym import game_ids, make_game, testing
from vlmgym.testing import (
    CHECKS,
    CLASS_CHECKS,
    GAME_CHECKS,
    check_determinism_over_processes,
    check_game,
    check_levels,
    check_skill,
    run_check,
)

QUICK_CHECKS = [check for check in GAME_CHECKS if check is not check_determinism_over_processes]
"""All checks except that games are the same in other processes, which the golden episodes show."""
OTHER_FIELDS: dict[str, dict[str, Any]] = {
    "2048": {"goal": 8, "rows": 3, "columns": 5},
    "swap": {"rows": 5},
    "shisensho": {"rows": 4, "tiles": "digits"},
}


@pytest.fixture(scope="module", autouse=True)
def short_episodes() -> Iterator[None]:
    """Check fewer episodes, states and actions, because there are many games."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("TURNS", 4), ("ACTIONS", 100), ("ORACLE_TURNS", 4), ("MIN_SKILL_EPISODES", 4)):
            patch.setattr(testing, name, value)
        yield


@pytest.mark.parametrize("level", [1, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("game", game_ids())
def test_game_keeps_the_contract(game: str, level: int) -> None:
    made = make_game(game, level, level, size=160)
    for check in (*CLASS_CHECKS, *QUICK_CHECKS):
        if level == 5 or check not in (check_levels, check_skill):  # which take longest
            run_check(check, made, seeds=(level,))


@pytest.mark.parametrize("game", OTHER_FIELDS)
def test_game_with_other_config_fields(game: str) -> None:
    made = make_game(game, size=320, origin=1, coordinates=True, theme="dark", **OTHER_FIELDS[game])
    for check in QUICK_CHECKS:
        run_check(check, made)


def test_example_game_keeps_the_contract(lamps: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing, "TURNS", 8)  # as in other processes
    (note,) = check_game("lamps", levels=[(3, 3)], seeds=(0,))
    assert note.startswith("oracle of ")  # Lamps has no oracle


def test_all_checks_are_listed() -> None:
    written = {name for name, value in vars(testing).items() if name.startswith("check_") and callable(value)}
    assert {check.__name__ for check in CHECKS} == written - {"check_env", "check_game", "check_name"}
