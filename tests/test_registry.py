"""The registry of games: built-in games, registered games, games of installed packages, and presets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from vlmgym import game_ids, make_game, register_game
from vlmgym.errors import UsageError
from vlmgym.evaluation import evaluate
from vlmgym.sandbox import registry
from vlmgym.sandbox.games.game2048 import Game2048
from vlmgym.sandbox.registry import BUILT_IN, PRESETS, WITHOUT_DATA, game_class


@pytest.fixture
def registered() -> Iterator[None]:
    """Remove the games that a test registers."""
    import gymnasium

    games, envs = dict(registry._registered), dict(gymnasium.registry)
    yield
    for known, before in ((registry._registered, games), (gymnasium.registry, envs)):
        known.clear()
        known.update(before)  # type: ignore[arg-type]


def test_built_in_games_by_id_name_and_gymnasium_id() -> None:
    assert set(game_ids()) >= set(BUILT_IN)
    for game_id in BUILT_IN:
        found = game_class(game_id)
        assert f"{found.name}-v{found.version}" == game_id
        assert found is game_class(found.name) is game_class(f"vlmgym/{game_id}")
        assert make_game(game_id).id == game_id


@pytest.mark.parametrize(("name", "generated"), WITHOUT_DATA.items())
def test_names_of_tasks_on_data_without_data(name: str, generated: str) -> None:
    assert make_game(name, 2, 1, size=96) == make_game(generated, 2, 1, size=96)
    assert make_game(name, data="rows.csv").name == name
    assert f"{name}-v0" not in game_ids()
    with pytest.raises(UsageError, match=rf"^{name}: data=... is required: a .parquet, "):
        make_game(f"{name}-v0")
    with pytest.raises(UsageError, match=f"^{name}: split requires data=..."):
        make_game(name, split="test")


@pytest.mark.parametrize("game", ["chess", "2048-v99", "os:system"])
def test_unknown_game(game: str) -> None:
    with pytest.raises(UsageError, match=r"unknown game .*2048-v0, .*shisensho-v0, .*swap-v0"):
        make_game(game)


def game_named(name: str, version: int = 0) -> type[Game2048]:
    return type("Mine", (Game2048,), {"name": name, "version": version})


def test_newest_version_of_a_registered_game(registered: None) -> None:
    import gymnasium

    oldest, newest, older = (game_named("mine", version) for version in (0, 10, 9))
    for mine in (oldest, newest, older, oldest):
        assert register_game(mine) is mine
    assert {"mine-v0", "mine-v9", "mine-v10"} < set(game_ids())
    assert game_class("mine") is newest
    assert game_class("mine-v0") is oldest
    assert isinstance(make_game("mine-v9", rows=5), older)
    assert "vlmgym/mine-v10" in gymnasium.registry


def test_duplicates_and_invalid_names(registered: None) -> None:
    mine = register_game(game_named("mine"))
    for name, message in (
        ("2048", "the game id '2048-v0' is already taken"),
        ("mine", "the game id 'mine-v0' is already taken"),
        ("my game", "invalid game id 'my game-v0'"),
    ):
        with pytest.raises(UsageError, match=message):
            register_game(game_named(name))
    assert game_class("2048") is Game2048
    assert game_class("mine") is mine


MODULE = """
import vlmgym
from vlmgym.sandbox.games.game2048 import Game2048

class Tiny(Game2048):
    name = "tiny"
    version = 2

@vlmgym.register_game
class Declared(Game2048):
    'A game that has an entry point and registers itself.'

    name = "declared"

class Thief(Game2048):
    pass

not_a_game = int
"""

ENTRY_POINTS = """\
[vlmgym.games]
tiny-v2 = tiny_games:Tiny
2048-v0 = tiny_games:Thief
wrong-v0 = tiny_games:Tiny
missing-v0 = no_such_module:Game
number-v0 = tiny_games:not_a_game
declared-v0 = tiny_games:Declared
bad-v0 = bad:Bad
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an installed distribution of games; some of them fail to load."""
    site = tmp_path_factory.mktemp("site")
    (site / "tiny_games.py").write_text(MODULE)
    (site / "bad.py").write_text("raise RuntimeError('no\\ndevice')")
    info = site / "tiny_games-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny_games\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return site


def run_with(site: Path, *command: str) -> str:
    """Run Python with the distributions of `installed`; return its output."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


PROGRAM = """
import sys, vlmgym
print('tiny-v2' in vlmgym.game_ids(), 'tiny_games' in sys.modules)
for game in ('wrong', 'missing', 'number'):
    try:
        vlmgym.make_game(game)
    except vlmgym.UsageError as error:
        print(error)
print(vlmgym.make_game('tiny', rows=3).id, type(vlmgym.make_game('2048')).__module__)
import gymnasium
print('vlmgym/tiny-v2' in gymnasium.registry)
from vlmgym.cli.main import main
from vlmgym.pages.gallery import items_of
main(['games'])
print('gallery', *(shown.game for shown in items_of()))
"""


def test_games_of_packages_are_imported_on_demand_and_faults_hide_no_others(installed: Path) -> None:
    first, wrong, missing, number, made, known, *lines = run_with(installed, "-c", PROGRAM).splitlines()
    assert (first, made, known) == ("True False", "tiny-v2 vlmgym.sandbox.games.game2048", "True")
    assert "tiny_games:Tiny: its id is tiny-v2, not the name of the entry point" in wrong
    assert "failed to load the game 'missing-v0'" in missing
    assert "no_such_module" in missing
    assert "not a subclass" in number
    listed = {line.split()[0]: line for line in lines if line}
    assert "RuntimeError: no device" in listed["bad-v0"]
    assert "A game that has an entry point" in listed["declared-v0"]
    assert "failed to load" not in listed["2048-v0"]
    assert {"2048-v0", "bad-v0"} <= set(listed["gallery"].split())


HEAVY = {
    "import vlmgym.cli.main": {"PIL", "pygame", "vlmgym.evaluation", "vlmgym.policies", "vlmgym.runs"},
    "import vlmgym; vlmgym.make_game('2048')": {
        *("torch", "ray", "vllm", "openai", "transformers", "matplotlib", "cv2", "imageio", "scipy", "pygame")
    },
    "import vlmgym.cli.eval, vlmgym.policies; vlmgym.policies.options_type('openai')": {
        *("aiohttp", "torch", "ray", "scipy")
    },
}
"""Steps of a program, and modules that are not imported before its next step."""


def test_heavy_libraries_are_imported_on_demand() -> None:
    program = "; ".join(["import sys", *(f"{step}; print(*sys.modules)" for step in HEAVY)])
    for step, imported in zip(HEAVY, run_with(Path(), "-c", program).splitlines(), strict=True):
        assert not HEAVY[step] & {*imported.split()}, step


@pytest.mark.parametrize("name", PRESETS)
def test_presets_make_games_and_name_their_source(name: str) -> None:
    game = make_game(name)
    assert game.name == PRESETS[name].game
    assert game.config.model_dump().items() >= PRESETS[name].overrides.items()
    assert PRESETS[name].source
    (episode,) = evaluate(name, "random", 1, max_turns=1, workers=0)
    assert episode.game.game() == game


@pytest.mark.parametrize("side", [6, 12])
def test_g1_shisensho_has_four_tiles_per_kind(side: int) -> None:
    game = make_game(f"g1/shisensho-{side}x{side}")
    tiles, counts = np.unique(game.start(np.random.default_rng(0)).board, return_counts=True)
    assert set(counts) == {4}
    assert len(tiles) == side * side // 4
    assert not game.config.solvable


def test_config_fields_override_presets_but_levels_do_not() -> None:
    assert make_game("g1/swap", rows=7).config.rows == 7
    with pytest.raises(UsageError, match="g1/swap is a preset without difficulty levels"):
        make_game("g1/swap", reasoning=1)
