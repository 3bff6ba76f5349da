"""Several actions in a response, and clicks instead of rows and columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vlmgym
from vlmgym.cli.main import main
from vlmgym.evaluation import open_run
from vlmgym.sandbox.answers.cells import Cells
from vlmgym.sandbox.core.board_game import BoardGame
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.sandbox.registry import load_games, make_game
from vlmgym.testing import check_game

BOARDS = [game.name for game in load_games()[0].values() if issubclass(game, BoardGame)]
CLICKED = [name for name in BOARDS if isinstance(make_game(name).answer, Cells)]
ONE_AT_A_TIME = {"2048", "fallingblocks", "fourinarow", "minesweeper", "pairs", "swap", "tictactoe"}
"""Games in which chance, or what the image hides, decides the state after an action."""


def play(game: str, **settings: Any) -> vlmgym.Episode:
    episode = vlmgym.Episode(game, 3, max_turns=40, size=256, **settings)
    while not episode.done and (response := episode.oracle()) is not None:
        assert episode.respond(response).outcome is Outcome.PLAYED
    return episode


@pytest.mark.parametrize("game", BOARDS)
def test_the_oracle_scores_the_same_with_fewer_turns(game: str) -> None:
    single, several = play(game), play(game, actions_per_turn=4)
    if single.end_reason == "turn limit":  # it gets further with several actions
        assert several.score >= single.score
    else:
        assert several.score == pytest.approx(single.score)
    assert several.turn == single.turn if game in ONE_AT_A_TIME else several.turn <= single.turn / 2


@pytest.mark.parametrize("game", CLICKED)
def test_clicks_play_the_same_game(game: str) -> None:
    text, click = (play(game, interface=interface, actions_per_turn=4) for interface in ("text", "click"))
    assert (click.score, click.turn, click.end_reason) == (text.score, text.turn, text.end_reason)
    assert (click.images[-1] == text.images[-1]).all()


@pytest.mark.parametrize("text", ["(300, 300)", "300, 300", "click (300, 300)", "Click [300, 300]"])
def test_spellings_of_a_click(text: str) -> None:
    game = make_game("lightsout", interface="click")
    assert game.answer.parse(text) == game.answer.parse("(300, 300)")


@given(st.integers(0, 1000), st.integers(0, 1000), st.sampled_from([128, 333, 640]), st.booleans())
def test_a_click_names_the_cell_under_it(x: int, y: int, size: int, coordinates: bool) -> None:
    game = make_game("lightsout", interface="click", size=size, coordinates=coordinates, rows=5, columns=4)
    geometry = game.painter.geometry  # type: ignore[attr-defined]
    cell = geometry.cell_at(x * size // 1000, y * size // 1000)
    action = game.answer.parse(f"{x}, {y}")
    assert action == cell if cell is not None else game.answer.format(action) == f"({x}, {y})"
    assert game.answer.parse(game.answer.format(action)) == action


@pytest.mark.parametrize("game", CLICKED)
def test_a_click_off_the_board_is_an_illegal_action(game: str) -> None:
    """The outcome, its reward and the end are those of a cell off the board; the feedback names the point."""
    for point in ("(0, 0)", "(1000, 1000)", "(1280, 40)", "(-3, 500)"):
        click, text = (vlmgym.Episode(game, 3, interface=interface) for interface in ("click", "text"))
        clicked = click.respond(f"<answer>{' '.join([point] * click.game.answer.clicks)}</answer>")
        named = text.respond(f"<answer>{' '.join(['(50, 50)'] * text.game.answer.clicks)}</answer>")
        assert clicked.outcome is named.outcome is Outcome.ILLEGAL
        assert clicked.feedback == named.feedback.replace("(50, 50)", f"the point {point}")
        assert (clicked.game, clicked.terminated) == (named.game, named.terminated)
        assert f"was not played: the point {point} is outside the" in click.prompt
        assert "feedback names cells as (row, column)" in click.prompt


def test_actions_before_a_click_off_the_board_are_played() -> None:
    episode = vlmgym.Episode("lightsout", 3, interface="click", actions_per_turn=2)
    scored = episode.respond("<answer>(500, 500); (0, 0)</answer>")
    assert scored.outcome is Outcome.ILLEGAL
    assert scored.feedback.startswith("only the first 1 of 2 actions were played, because the point (0, 0) is outside")


@pytest.mark.parametrize("seed", range(5))
def test_actions_stop_at_the_first_illegal_one(seed: int) -> None:
    several, single = vlmgym.Episode("2048", seed, actions_per_turn=9), vlmgym.Episode("2048", seed)
    scored = several.respond("<answer>up; up; up; up; up; up; up; up; up</answer>")
    rewards = []
    while (step := single.respond("<answer>up</answer>")).outcome is Outcome.PLAYED:
        rewards.append(step.game)
    assert scored.outcome is Outcome.ILLEGAL
    assert scored.game == sum(rewards)
    assert scored.next_state == step.next_state
    assert len(scored.info["actions"]) == len(rewards) + 1
    if rewards:
        played = f"only the first {len(rewards)} of 9 actions were played, because {step.feedback}"
        assert scored.feedback == played
        assert several.prompt.endswith(f"Of your last response, {played}.")
    else:
        assert several.prompt.endswith(f"was not played: {step.feedback}. The image has not changed.")


def test_actions_after_the_end_are_not_played() -> None:
    episode = vlmgym.Episode("lightsout", 3, actions_per_turn=20)
    answer = str(episode.answer())
    scored = episode.respond(f"<answer>{answer}; (0, 0); (0, 0)</answer>")
    assert (episode.score, scored.outcome, scored.terminated) == (1, Outcome.PLAYED, True)


@pytest.mark.parametrize(
    ("answer", "feedback"),
    [
        ("up; left; up; left", "the answer has 4 actions; at most 3 are allowed"),
        ("up; sideways", "sideways"),
        ("up;; left", "is not"),
        ("", "empty"),
    ],
)
def test_unreadable_actions_play_none(answer: str, feedback: str) -> None:
    episode = vlmgym.Episode("2048", 0, actions_per_turn=3)
    image = episode.images[0]
    scored = episode.respond(f"<answer>{answer}</answer>")
    assert scored.outcome is Outcome.UNPARSABLE
    assert feedback in scored.feedback
    assert (episode.images[0] == image).all()


def test_markup_around_all_actions_is_stripped() -> None:
    game = make_game("2048", actions_per_turn=3)
    assert game.parse_actions("`up; left;`") == [0, 3]


@pytest.mark.parametrize("policy", ["oracle", "random"])
def test_runs_are_recorded_verified_and_reported(tmp_path: Path, policy: str) -> None:
    folder = tmp_path / "run"
    options = ["--actions", "3", "--interface", "click", "--size", "128", "--episodes", "2", "--max-turns", "6"]
    options += ["--videos", "1", "--workers", "0", "--output-dir", str(folder)]
    main(["eval", "shisensho", "minesweeper", "--policy", policy, *options])
    main(["verify", str(folder), "--workers", "0"])
    run = open_run(folder)
    assert {game.config["actions_per_turn"] for game in run.config.games} == {3}
    if policy == "oracle":
        actions = [turn.action for episode in run.episodes for turn in episode.read().turns]
        assert any(isinstance(action, list) and len(action) == 3 for action in actions)


@pytest.mark.slow
@pytest.mark.parametrize(
    "game", [make_game("2048", actions_per_turn=3), make_game("swap", interface="click")], ids=["actions", "click"]
)
def test_such_games_satisfy_the_contract(game: Any) -> None:
    assert not [note for note in check_game(game, seeds=(0,)) if not note.startswith(("end of", "skill of"))]
