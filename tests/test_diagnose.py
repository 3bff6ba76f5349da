"""Diagnoses of scripted players with planted defects."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.browser import AXE, check_accessible
from tests.playing import save_run
from vlmgym import UsageError, make_game
from vlmgym.cli.main import main
from vlmgym.evaluation import evaluate, read_run
from vlmgym.evaluation.diagnose import Diagnosis, GameDiagnosis, Judge, Worth
from vlmgym.pages.diagnose import DiagnoseConfig, diagnose
from vlmgym.policies import StatePolicy
from vlmgym.sandbox.core.board_game import BoardGame
from vlmgym.sandbox.core.perception import read_grid
from vlmgym.sandbox.core.response_format import answer_only, compose
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.sandbox.games import sokoban
from vlmgym.statistics import clustered_share, wilson
from vlmgym.testing import accepts

GAMES: dict[str, dict[str, Any]] = {"2048": {}, "shisensho": {"rows": 4, "columns": 6}, "swap": {}, "sokoban": {}}


def legal_moves(game: Any, state: Any) -> list[Any]:
    return [move for move in game.legal_actions(state) if accepts(game, state, move)]  # boards of Swap may have runs


def illegal_move(game: Any, state: Any, rng: np.random.Generator) -> Any:
    legal = set(game.legal_actions(state))
    return next((move for _ in range(200) if (move := game.answer.sample(rng)) not in legal), None)


class Player(StatePolicy):
    """States a board and plays the move that is best there: the oracle's or, if it has none, a random legal move."""

    name = "scripted"

    def respond(self, game: Any, state: Any, rng: np.random.Generator) -> str:
        move = self.move(game, state, rng)
        if move is None and (move := game.best_action(state)) not in (legal := legal_moves(game, state)):
            move = legal[int(rng.integers(len(legal)))]
        return compose(game.describe(state), "", game.answer.format(move))

    def move(self, game: Any, state: Any, rng: np.random.Generator) -> Any:
        """Return the move, or None for the best one."""


class Misreader(Player):
    """Misreads a fifth of the cells, and plays the best move on the board that it sees.

    In Sokoban, it mistakes inner floor for walls and inner walls for floor, so that it sees a possible room.
    """

    def respond(self, game: Any, state: Any, rng: np.random.Generator) -> str:
        seen = self.misread(game, state, rng)
        while not legal_moves(game, seen):
            seen = self.misread(game, state, rng)
        return super().respond(game, seen, rng)

    def misread(self, game: Any, state: Any, rng: np.random.Generator) -> Any:
        rows = [list(row) for row in state.board]
        for number, row in enumerate(rows):
            for column, cell in enumerate(row):
                if rng.random() >= 0.2:
                    continue
                if game.name != "sokoban":
                    line = state.board[int(rng.integers(len(rows)))]
                    row[column] = line[int(rng.integers(len(line)))]
                elif 0 < number < len(rows) - 1 and 0 < column < len(row) - 1:
                    row[column] = {"#": " ", " ": "#"}.get(cell, cell)
        return replace(state, board=tuple("".join(row) if game.name == "sokoban" else tuple(row) for row in rows))


class Forgetful(Player):
    """Plays an illegal move in half of the turns."""

    def move(self, game: Any, state: Any, rng: np.random.Generator) -> Any:
        return illegal_move(game, state, rng) if rng.random() < 0.5 else None


class Looping(Player):
    """Plays an illegal move, which depends on the state alone, in every fourth state; it never leaves this state."""

    def move(self, game: Any, state: Any, rng: np.random.Generator) -> Any:
        fixed = np.random.default_rng(list(game.to_json(state).encode()))
        return illegal_move(game, state, fixed) if fixed.random() < 0.25 else None


class Greedy(Player):
    """Plans one move ahead: plays a random one of the moves with the highest reward."""

    def move(self, game: Any, state: Any, rng: np.random.Generator) -> Any:
        moves = [*game.legal_actions(state)]
        rewards = [game.step(state, move, np.random.default_rng(0)).reward for move in moves]
        return moves[int(rng.choice([i for i, reward in enumerate(rewards) if reward == max(rewards)]))]


class Silent(Player):
    """States no board and plays random moves, legal or not; some answers cannot be read."""

    def respond(self, game: Any, state: Any, rng: np.random.Generator) -> str:
        return answer_only(f"{rng.random()}" if rng.random() < 0.2 else game.answer.format(game.answer.sample(rng)))


def diagnosed(folder: Path, game: Any, player: StatePolicy, episodes: int = 5, **options: Any) -> GameDiagnosis:
    save_run(folder, evaluate(game, player, episodes, max_turns=20, workers=0, **options))
    (result,) = diagnose(DiagnoseConfig(run=folder, workers=0)).games.values()
    counts = {cause: rate.count for cause, rate in result.causes.items()}
    best = sum(path.turns for path in result.paths if path.stages[3] in ("best", "legal"))
    assert sum(counts.values()) + best == result.turns == sum(path.turns for path in result.paths)
    return result


def causes(result: GameDiagnosis) -> dict[str, int]:
    return {cause: rate.count for cause, rate in result.causes.items() if rate.count}


def turns_with(folder: Path, outcome: Outcome) -> int:
    return sum(turn.outcome is outcome for episode in read_run(folder).episodes for turn in episode.turns)


@pytest.mark.parametrize("name", ["2048", *(pytest.param(name, marks=pytest.mark.slow) for name in [*GAMES][1:])])
def test_planted_defects_are_attributed(name: str, tmp_path: Path) -> None:
    game = make_game(name, size=200, **GAMES[name])
    flawless = diagnosed(tmp_path / "oracle", game, Player(), 3)
    assert causes(flawless) == {}
    assert {path.stages for path in flawless.paths} == {("right", "legal", "best", "best")}

    misread = diagnosed(tmp_path / "misread", game, Misreader())
    assert set(causes(misread)) <= {"see", "unjudged", "repeat"}
    assert misread.causes["see"].count > 0.1 * misread.turns
    assert misread.rates["board stated right"].share < 0.2
    legal = misread.rates["legal on the stated board"]
    assert legal.count == legal.total >= 0.95 * misread.turns, "some boards that it states cannot occur"

    forgetful = diagnosed(tmp_path / "forgetful", game, Forgetful())
    assert set(causes(forgetful)) <= {"know", "repeat"}
    assert sum(causes(forgetful).values()) == turns_with(tmp_path / "forgetful", Outcome.ILLEGAL)
    assert forgetful.causes["know"].count > forgetful.episodes
    assert forgetful.rates["rules in the prompt, if illegal"].share == 1

    loops = diagnosed(tmp_path / "loops", game, Looping())
    assert set(causes(loops)) == {"know", "repeat"}
    assert loops.causes["know"].count <= loops.episodes
    assert loops.rates["invalid answer repeated in the next turn"].share == 1

    greedy = diagnosed(tmp_path / "greedy", game, Greedy())
    assert set(causes(greedy)) <= {"plan"}
    assert (greedy.causes["plan"].count > 0.1 * greedy.turns) == (name in ("2048", "sokoban"))


def test_turns_without_a_stated_board_are_unclear(tmp_path: Path) -> None:
    game = make_game("swap", size=200)
    result = diagnosed(tmp_path / "image", game, Silent())
    assert set(causes(result)) == {"unclear", "unparsable"}
    assert result.causes["unparsable"].count == turns_with(tmp_path / "image", Outcome.UNPARSABLE)
    described = diagnosed(tmp_path / "text", game, Silent(), observation="text")
    assert set(causes(described)) == {"know", "unparsable"}, "the prompt describes the board"
    assert "board stated right" not in result.rates.keys() | described.rates.keys()
    unknown = diagnosed(tmp_path / "unknown", make_game("rotation"), Player(), 2)
    assert {path.stages[:3] for path in unknown.paths} == {("not known", "not known", "not known")}


@pytest.mark.parametrize("name", ["parking", "pegs"])
def test_answers_to_wrong_boards_that_no_state_has_are_unjudged(name: str, tmp_path: Path) -> None:
    class Blind(Player):
        def respond(self, game: Any, state: Any, rng: np.random.Generator) -> str:
            return compose("a unicorn", "", game.answer.format(illegal_move(game, state, rng)))

    result = diagnosed(tmp_path / "blind", make_game(name, size=200), Blind(), 2)
    assert set(causes(result)) <= {"unjudged", "repeat"}
    assert result.rates["board stated right"].share == 0
    assert "legal on the stated board" not in result.rates


class Chain(Misreader):
    """Misreads the board, and repeats its move until it is illegal."""

    def respond(self, game: Any, state: Any, rng: np.random.Generator) -> str:
        seen, move = self.misread(game, state, rng), game.best_action(state)
        return compose(game.describe(seen), "", game.format_actions([move] * 20))


def test_illegal_actions_after_random_effects_are_unjudged(tmp_path: Path) -> None:
    result = diagnosed(tmp_path / "run", make_game("2048", actions_per_turn=20), Chain(), 4)
    assert result.causes["unjudged"].count > 10
    assert "see" not in causes(result)


def test_returns_to_earlier_states_are_counted(tmp_path: Path) -> None:
    game = make_game("lightsout", size=200)

    class Pacing(Player):
        def move(self, game: Any, state: Any, rng: np.random.Generator) -> Any:
            return (0, 0)  # the second time undoes the first

    result = diagnosed(tmp_path / "pacing", game, Pacing(), 2)
    returns = result.rates["state seen before, after a move"]
    assert (returns.count, returns.total) == (2 * 18, 2 * 19)
    assert diagnosed(tmp_path / "oracle", game, Player(), 2).rates["state seen before, after a move"].count == 0


def test_rules_of_a_prompt_without_them(tmp_path: Path) -> None:
    game = make_game("swap", size=200, prompt="Play well. Answer in <answer></answer>.")
    assert diagnosed(tmp_path / "run", game, Forgetful(), 2).rates["rules in the prompt, if illegal"].share == 0


def test_moves_on_a_shortest_solution_are_best() -> None:
    """Equally short solutions of Sokoban that begin with another move are as good as the oracle's."""
    game: Any = make_game("sokoban", size=200, rows=7, columns=7, boxes=2)
    judge, best = Judge(game), 0
    for seed in range(20):
        state = game.start(np.random.default_rng(seed))
        length = solution_length(state)
        for action in game.legal_actions(state):
            after = solution_length(game.step(state, action, np.random.default_rng(0)).state)
            assert (judge.worth(state, [action]) is Worth.BEST) == (after == length - 1)
            best += after == length - 1
    assert best > 20


def solution_length(state: Any) -> float:
    plan = sokoban.solve(sokoban._room(state.board), len(state.board[0]))
    return float("inf") if plan is None else len(plan)


@pytest.mark.parametrize(
    "name", ["2048", "fourinarow", "jigsaw", "minesweeper", "shisensho", "sliding", "sokoban", "sudoku", "swap"]
)
@settings(max_examples=8)
@given(seed=st.integers(0, 2**32 - 1))
def test_descriptions_determine_states(name: str, seed: int) -> None:
    """A description of a later state gives that state; a description that no state has gives none."""
    game: Any = make_game(name, size=300)
    assert isinstance(game, BoardGame)
    rng = np.random.default_rng(seed)
    before = game.start(rng)
    after = before
    for _ in range(3):
        if moves := game.legal_actions(after):
            after = game.step(after, moves[int(rng.integers(len(moves)))], rng).state
    state = game.described_state(before, game.describe(after).upper())
    assert state is not None
    assert game.cells(state) == game.cells(after)
    assert state.variation_seed == before.variation_seed
    rows = read_grid(game.describe(after))
    for wrong in (rows[1:], [*rows[1:], rows[0][1:]], [[*rows[0][1:], "a unicorn"], *rows[1:]]):
        if name != "shisensho" or "a unicorn" not in wrong[0]:  # a tile can have any name
            assert game.described_state(before, "\n".join(map(", ".join, wrong))) is None


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("2048", lambda rows: [["3", *rows[0][1:]], *rows[1:]]),
        ("sliding", lambda rows: [[rows[0][1], rows[0][0], *rows[0][2:]], *rows[1:]]),  # wrong parity
        ("sliding", lambda rows: [rows[1], *rows[1:]]),
        ("sokoban", lambda rows: [[word.replace("player", "floor") for word in row] for row in rows]),
        ("sokoban", lambda rows: [["floor", *rows[0][1:]], *rows[1:]]),
    ],
)
def test_impossible_boards_are_no_states(name: str, changed: Any) -> None:
    game: Any = make_game(name, size=300)
    state = game.start(np.random.default_rng(0))
    rows = read_grid(game.describe(state))
    assert game.described_state(state, "\n".join(map(", ".join, changed(rows)))) is None


@given(st.lists(st.integers(0, 1), min_size=1, max_size=30))
def test_interval_of_independent_turns_is_wilson(values: list[int]) -> None:
    assert clustered_share(values, [1] * len(values)).interval == wilson(sum(values), len(values))


@pytest.mark.parametrize("episodes", [3, 20])
def test_interval_covers_the_mean_of_dependent_turns(episodes: int) -> None:
    """In 300 simulated runs whose turns share their chance of success; plain Wilson covers 59% to 61%."""
    rng, covered, naive = np.random.default_rng(0), 0, 0
    for _ in range(300):
        totals = rng.integers(5, 40, episodes)
        counts = rng.binomial(totals, rng.beta(0.6, 1.4, episodes))
        share = clustered_share(counts.tolist(), totals.tolist())
        covered += share.interval[0] <= 0.3 <= share.interval[1]
        low, high = wilson(int(counts.sum()), int(totals.sum()))
        naive += low <= 0.3 <= high
    assert covered > 0.9 * 300
    assert naive < 0.7 * 300


def test_command_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str], watched: Any) -> None:
    folder = tmp_path / "run"
    save_run(folder, evaluate(make_game("swap", size=200), Forgetful(), 3, max_turns=8, workers=0))
    main(["report", str(folder), "--workers", "0"])
    main(["diagnose", str(folder), "--workers", "0"])
    printed = capsys.readouterr().out
    diagnosis = Diagnosis.model_validate_json((folder / "diagnose.json").read_bytes())
    result = diagnosis.games["swap-v0"]
    assert f"{result.causes['know'].count} of 24" in printed
    assert "... and ... are not adjacent in a row or column" in {rule.rule for rule in result.rules}
    page = watched.visit(folder / "diagnose.html")
    page.evaluate(AXE)
    assert page.locator(".flow text.stage-name").all_text_contents() == ["see", "know", "plan", "act"]
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        check_accessible(page, width)
    seed, turn = result.examples["know"][0]
    page.get_by_role("link", name=f"seed {seed}, turn {turn}").first.click()
    page.wait_for_selector(".pane .badge.illegal")
    watched.check()


def test_run_without_turns(tmp_path: Path) -> None:
    (episode,) = evaluate(make_game("swap", size=200), Player(), 1, max_turns=1, workers=0)
    save_run(tmp_path / "run", [episode.model_copy(update={"turns": (), "score": None, "status": "stopped"})])
    with pytest.raises(UsageError, match="no turns to diagnose"):
        diagnose(DiagnoseConfig(run=tmp_path / "run", workers=0))
