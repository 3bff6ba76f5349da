"""Control experiments that show a policy other images than those of the turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vlmgym
from tests.playing import small_suite
from vlmgym.benchmark.leaderboard import make_entry, ranked
from vlmgym.cli.eval import run_evaluation
from vlmgym.cli.export import ExportConfig, export
from vlmgym.cli.main import main
from vlmgym.errors import UsageError
from vlmgym.evaluation import EvalConfig, open_run
from vlmgym.evaluation.summary import summarise_run
from vlmgym.pages.compare import CompareConfig, compare

OPTIONS: dict[str, Any] = {"episodes": 16, "max_turns": 3, "size": 128, "workers": 0, "videos": 0, "report": False}


def reader(images_batch: Any, prompt_batch: Any) -> list[str]:
    """Answer a statement about scenes right if the images are the true ones, in any order, otherwise `false`."""
    answers = []
    for images, prompt in zip(images_batch, prompt_batch, strict=True):
        truth = vlmgym.Episode(prompt.game, prompt.seed)
        shown = sorted(image.tobytes() for image in images)
        answers.append(truth.answer() if shown == sorted(image.tobytes() for image in truth.images) else "false")
    return [f"<answer>{answer}</answer>" for answer in answers]


def test_controls_show_other_images_with_the_same_prompts() -> None:
    episodes = {name: vlmgym.Episode("2048", 5, size=128, history=1, history_images=1, images=name)
                for name in ("true", "blank", "stale", "shuffled", "swapped")}  # fmt: skip
    start, other = (vlmgym.Episode("2048", seed, size=128).images[0] for seed in (5, 6))
    for episode in episodes.values():
        for _ in range(2):
            action = episode.answer()
            episode.respond(f"<answer>{action}</answer>")
    assert len({episode.prompt for episode in episodes.values()}) == 1
    before, now = episodes["true"].images
    assert not np.array_equal(before, now)
    expected = {
        "blank": [np.full_like(now, 128)] * 2,
        "stale": [start] * 2,
        "shuffled": [other] * 2,
        "swapped": [now, before],
    }
    for name, images in expected.items():
        np.testing.assert_array_equal(episodes[name].images, images)
    restored = vlmgym.Episode.restore(episodes["stale"].snapshot())
    np.testing.assert_array_equal(restored.images, expected["stale"])


def test_comparison_shows_the_sight_gap_and_warns_without_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def played(game: str, images: Any, policy: Any = None) -> Path:
        folder = tmp_path / f"{game}-{images}-{policy}"
        config = EvalConfig(images=images, policy=policy, output_dir=folder, **OPTIONS)
        run_evaluation([game], config, custom_policy=reader)
        return folder

    def compared(first: Path, second: Path) -> tuple[str, ...]:
        return compare(CompareConfig(runs=(first, second), labels=("a", "b"), page=False, workers=0)).notes

    seen, grey = played("scenes-statements", "true"), played("scenes-statements", "blank")
    assert "Control experiment: the policy was shown grey images." in capsys.readouterr().out
    gap = "the policy is the same, so the difference in score is the sight gap"
    for runs in ((seen, grey), (grey, seen)):
        notes = compared(*runs)
        assert gap in notes
        assert "no sight" not in notes[0]
    notes = compared(played("2048", "true", "random"), played("2048", "blank", "random"))
    assert notes[0] == "2048-v0: the score shows no sight, because grey images do not lower it"
    assert gap not in compared(seen, played("scenes-statements", "blank", "random"))
    with pytest.raises(UsageError, match="the policy was shown grey images"):
        export(ExportConfig(run=grey, format="hf", output_dir=tmp_path / "out", workers=0))


def test_leaderboard_shows_the_sight_gap_and_ranks_controls_last(tmp_path: Path) -> None:
    (tmp_path / "reading.py").write_text("from tests.test_image_controls import reader\n")
    with small_suite(tmp_path, "scenes-statements-v0", "scenes-questions-v0", episodes=6, max_turns=1):
        entries = []
        for images in ("blank", "true"):
            folder = tmp_path / images
            options = ["--workers", "0", "--videos", "0", "--no-report", "--output-dir", str(folder)]
            policy = f"{tmp_path / 'reading.py'}:reader"
            main(["eval", "--suite", "small-1", "--policy", policy, "--images", images, *options])
            run = open_run(folder)
            entries.append(make_entry(run, summarise_run(run), 0))
        first, second = ranked(entries)
        assert (first.prompt, second.prompt) == ("image", "image, images blank")
    assert second.sight_gap is None
    assert first.sight_gap is not None
    assert first.sight_gap[0] == pytest.approx(first.mean[0] - second.mean[0])
    assert first.sight_gap[0] > 0
