"""DAgger: the model plays, and learns from the expert's responses in the states that it reaches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.in_training.gradients import assert_close, make_trainer, run_update
from tests.in_training.runs import NO_EPISODES, QUICK, SMALL, curve, fail, main
from tests.in_training.tiny import make_checkpoint
from vlmgym import RewardConfig, make_game
from vlmgym.errors import EpisodeError
from vlmgym.policies import Reply
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.training.engine.actor import roll_out
from vlmgym.training.states import expert_action, start_rollouts

DAGGER = (*QUICK, *NO_EPISODES, "--algorithm", "dagger")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"))


def test_the_model_learns_from_the_expert_where_its_own_responses_lead(checkpoint: Path, tmp_path: Path) -> None:
    """An untrained model's responses are unparsable, and its prompts say so; the expert answers them all the same."""
    trainer = make_trainer(checkpoint, tmp_path, "max_turns=3", algorithm="dagger")
    config, encoder = trainer.config, trainer.actor.encoder
    picks = trainer.curriculum.picks(trainer.progress, 0, range(2))
    episodes = list(start_rollouts(picks, 0, 1, config.play, config.states, config.reward))
    samples, _ = roll_out(trainer.actor, episodes, config.rollout, (0,), expert=config.expert)
    for episode, turns in zip(episodes, samples):
        assert [turn.outcome for turn in episode.turns] == [Outcome.UNPARSABLE] * 3
        assert len(turns) == 3
        game = episode.setup.game
        for turn, sample in zip(episode.turns, turns):
            response = encoder.text(sample.response)
            assert turn.response != response
            assert ("Your last response was not played" in encoder.text(sample.prompt.ids.tolist())) == (turn.turn > 1)
            state, answer = game.from_data(turn.state), response.rpartition("<answer>")[2].removesuffix("</answer>")
            assert f"<perception>{game.describe(state)}</perception>" in response
            action = game.answer.parse(answer)
            legal = game.legal_actions(state) or ()
            rewards = {move: game.step(state, move, episode.episode.rng).reward for move in legal}
            assert rewards[action] == max(rewards.values())

    responses = [sample for turns in samples for sample in turns]
    _, (gradients,) = run_update(trainer, responses)
    trainer.actor.zero_grad()
    out = trainer.actor.compute_logprobs(responses, 1.0)
    nll = -(out.logprobs * out.mask).sum() / out.mask.sum()
    expected = torch.autograd.grad(nll, [*trainer.actor.parameters()], allow_unused=True)
    names = (name for name, _ in trainer.actor.named_parameters())
    assert_close(gradients, {name: gradient for name, gradient in zip(names, expected) if gradient is not None})


def test_models_approach_the_expert(checkpoint: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = ("--settings", "update.lr=1e-2", "rollout.max_tokens=8", "evaluation.states=0")
    args = ("--steps", "12", "--max-turns", "2", *settings, "--output-dir", str(run))
    main([*DAGGER, *SMALL, "--model", str(checkpoint), *args])
    losses = [row["expert_loss"] for row in curve(run)]
    assert losses[-1] < 0.6 * losses[0]


def test_a_game_without_the_expert_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("--games", "scenes-questions", "--states.no-informative", "--output-dir", str(tmp_path / "run"))
    code, error = fail(capsys, *DAGGER, *args)
    assert (code, "greedy expert require: use --sft.expert oracle" in error) == (2, True), error


def test_episodes_end_where_the_expert_has_no_answer(checkpoint: Path, tmp_path: Path) -> None:
    """A box in a corner cannot be moved; the turns before are learned from."""
    settings = ('games=["sokoban"]', "max_turns=3", "sft.expert=oracle", "states.informative=false")
    trainer = make_trainer(checkpoint, tmp_path, *settings, algorithm="dagger")
    config = trainer.config
    picks = trainer.curriculum.picks(trainer.progress, 0, range(2))
    first, second = start_rollouts(picks, 0, 1, config.play, config.states, config.reward)
    first.respond(Reply("I do not know."))
    for episode in (first, second):
        room = ("########", "#$     #", "#      #", "#  .   #", "# @    #", "#      #", "#      #", "########")
        episode.episode.state = episode.setup.game.State(room)
    rng = np.random.default_rng(0)
    assert first.demonstrate("oracle", rng) is None
    assert first.truncated
    assert not first.failed
    with pytest.raises(EpisodeError, match="the oracle of sokoban has no answer to learn from in this state"):
        second.demonstrate("oracle", rng)


def test_the_greedy_expert_plays_legal_moves() -> None:
    """Illegal moves have the same reward as moves without an effect."""
    game: Any = make_game("sokoban")
    state = game.start(np.random.default_rng(0))
    rng = np.random.default_rng(1)
    actions = {expert_action(game, state, "greedy", RewardConfig(), rng) for _ in range(40)}
    assert actions == {*game.legal_actions(state)}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--update.kl-coef", "0.1"), "dagger learns from responses that are not the model's: remove update.kl_coef"),
        (("--control", "permuted"), "--control permuted has no effect on dagger"),
    ],
)
def test_what_has_no_effect_is_rejected(
    args: Sequence[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, error = fail(capsys, *DAGGER, *SMALL, *args, "--output-dir", str(tmp_path / "run"))
    assert (code, message in error) == (2, True), error
