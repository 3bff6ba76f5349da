"""On-policy distillation: its loss and gradients, the prompts of the teacher, and its options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch.nn.functional import kl_div

from tests.in_training.gradients import TEMPERATURE, Gradients, assert_close, make_targets, make_trainer, run_update
from tests.in_training.reference import Reference
from tests.in_training.runs import NO_EPISODES, QUICK, SMALL, curve, fail, main
from tests.in_training.tiny import make_checkpoint, make_prompts
from vlmgym.training.config import TinySize
from vlmgym.training.engine.actor import roll_out
from vlmgym.training.engine.encoding import TrainSample
from vlmgym.training.states import start_rollouts
from vlmgym.training.tiny_vlm import make_tiny_vlm
from vlmgym.training.trainer import Trainer

DISTILL = (*QUICK, *NO_EPISODES, "--algorithm", "distill")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model with the same tokenizer."""
    return make_checkpoint(tmp_path_factory.mktemp("teacher"), seed=1)


def make_taught(trainer: Trainer) -> list[TrainSample]:
    """Create samples with advantages, whose prompts for the teacher have no images."""
    samples = make_targets(trainer.actor)
    for sample, (text, _) in zip(samples, make_prompts(len(samples))):
        sample.teacher_prompt = trainer.actor.encoder.encode(f"{text} in words", [])
    return samples


@pytest.mark.parametrize("loss_over", ["tokens", "responses"])
def test_the_loss_is_the_reverse_kl_divergence(checkpoint: Path, teacher: Path, tmp_path: Path, loss_over: str) -> None:
    """The divergence is computed from logits of Hugging Face's own code, sample by sample, by PyTorch's `kl_div`."""
    settings = (f"distill.teacher={teacher}", f"update.loss_over={loss_over}")
    trainer = make_trainer(checkpoint, tmp_path, *settings, algorithm="distill")
    samples = make_taught(trainer)
    student, other = Reference(checkpoint), Reference(teacher)
    rows = student.model.get_output_embeddings().weight.shape[0]
    kept = [token for token in range(rows) if token not in student.suppressed_tokens]
    divergences = []
    for sample, (text, images) in zip(samples, make_prompts(len(samples))):
        logits = (
            reference.logits(prompt, shown, sample.response)[:-1, kept]
            for reference, prompt, shown in ((student, text, images), (other, f"{text} in words", []))
        )
        ours, theirs = ((each / TEMPERATURE).log_softmax(-1) for each in logits)
        divergences.append(kl_div(theirs, ours, reduction="none", log_target=True).sum(-1))
    mean = torch.cat(divergences).mean()
    expected = mean if loss_over == "tokens" else torch.stack([each.mean() for each in divergences]).mean()
    for size in (64, 1):
        trainer.engine.micro_batch_size = size
        metrics, _ = run_update(trainer, samples)
        assert metrics["loss"] == pytest.approx(expected.item(), rel=1e-3)
        assert metrics["teacher_kl"] == pytest.approx(mean.item(), rel=1e-3)
    assert expected > 1e-3


def test_gradients_are_those_of_the_loss_and_reach_only_the_student(
    checkpoint: Path, teacher: Path, tmp_path: Path
) -> None:
    trainer = make_trainer(checkpoint, tmp_path, f"distill.teacher={teacher}", algorithm="distill")
    samples = make_taught(trainer)
    _, (gradients,) = run_update(trainer, samples)
    assert trainer.engine.teacher is not None
    assert all(parameter.grad is None for parameter in trainer.engine.teacher.actor.parameters())
    norm = torch.sqrt(torch.stack([(gradient**2).sum() for gradient in gradients.values()]).sum())
    losses = []
    with torch.no_grad():
        for step in (0.003, -0.006):  # to one side of the start, then to the other
            for name, parameter in trainer.actor.named_parameters():
                if name in gradients:
                    parameter += step * gradients[name] / norm
            with torch.enable_grad():
                losses.append(run_update(trainer, samples)[0]["loss"])
    assert (losses[0] - losses[1]) / 0.006 == pytest.approx(norm.item(), rel=0.02)


def test_rewards_are_added_to_the_divergence(checkpoint: Path, teacher: Path, tmp_path: Path) -> None:
    def gradients(algorithm: str, *settings: str) -> Gradients:
        trainer = make_trainer(checkpoint, tmp_path, *settings, algorithm=algorithm)
        return run_update(trainer, make_taught(trainer))[1][0]

    taught = gradients("distill", f"distill.teacher={teacher}")
    rewarded = gradients("grpo")
    both = gradients("distill", f"distill.teacher={teacher}", "distill.reward_coef=0.5")
    assert_close(both, {name: taught[name] + 0.5 * rewarded[name] for name in rewarded})


@pytest.mark.parametrize("observation", ["text", "both"])
def test_the_teacher_reads_the_description_of_each_state(checkpoint: Path, tmp_path: Path, observation: str) -> None:
    settings = (f"distill.observation={observation}", "max_turns=2")
    trainer = make_trainer(checkpoint, tmp_path, *settings, algorithm="distill")
    trainer.keep_reference()
    config, encoder = trainer.config, trainer.actor.encoder
    picks = trainer.curriculum.picks(trainer.progress, 0, range(2))
    episodes = list(start_rollouts(picks, 0, 3, config.play, config.states, config.reward))
    samples, _ = roll_out(trainer.actor, episodes, trainer.config.rollout, (0,), trainer.engine.teacher)
    for episode, turns in zip(episodes, samples):
        assert len(turns) == 2
        for turn, sample in zip(episode.turns, turns):
            assert sample.teacher_prompt is not None
            game = episode.setup.game
            board = game.describe(game.from_data(turn.state))
            student, reads = (encoder.text(prompt.ids.tolist()) for prompt in (sample.prompt, sample.teacher_prompt))
            assert board in reads
            assert board not in student
            assert bool(sample.teacher_prompt.images) == (observation == "both")
    assert len({id(turns[0].teacher_prompt) for turns in samples}) == 2, "responses to a state share the prompt"


def test_students_approach_their_teacher(checkpoint: Path, model: Path, tmp_path: Path) -> None:
    """The teacher, which answers with moves, sees what the student sees."""
    run = tmp_path / "run"
    args = ("--distill.teacher", str(model), "--distill.observation", "image", "--steps", "16")
    settings = ("--settings", "update.lr=1e-2", "rollout.max_tokens=8", "evaluation.states=0")
    main([*DISTILL, *SMALL, "--model", str(checkpoint), *args, *settings, "--output-dir", str(run)])
    divergences = [row["teacher_kl"] for row in curve(run)]
    assert divergences[-1] < 0.5 * divergences[0]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--distill.observation", "image"), "the model would be its own teacher, as both read image"),
        (("--observation", "text", "--distill.observation", "both"), "there are no images for a teacher of both"),
        (("--distill.group-size", "1", "--distill.reward-coef", "1"), "set distill.group_size above 1"),
        (("--distill.reward-coef", "1", "--algorithm", "grpo"), "distill.* only applies to DISTILL"),
    ],
)
def test_impossible_teachers_are_rejected(
    args: Sequence[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    game = () if "--games" in args else SMALL
    code, error = fail(capsys, *DISTILL, *game, *args, "--output-dir", str(tmp_path / "run"))
    assert (code, message in error) == (2, True), error


def test_teachers_of_another_vocabulary_are_rejected(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    make_tiny_vlm(TinySize(), other, ["other words"] * 2)
    args = ("--model", str(checkpoint), "--distill.teacher", str(other), "--output-dir", str(tmp_path / "run"))
    code, error = fail(capsys, *DISTILL, *SMALL, *args)
    assert (code, "has another vocabulary than the model" in error) == (2, True), error
