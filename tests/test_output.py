import json
import resource
import subprocess
import sys
from itertools import pairwise

import av
import numpy as np
import pytest

import vlmgym
from vlmgym.errors import VlmgymError
from vlmgym.evaluation import EpisodeRecord, evaluate
from vlmgym.evaluation.curves import draw_curves
from vlmgym.evaluation.output import EpisodeLog, Output, replace_file
from vlmgym.evaluation.video import write_video

GAME = vlmgym.make_game("2048", size=160, reasoning=5)


@pytest.fixture(scope="module")
def episodes():
    return evaluate(GAME, "random", 3, turns=60, workers=0)


def frames(path):
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        facts = (stream.codec_context.name, stream.codec_context.pix_fmt, stream.average_rate)
        return facts, [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]


def test_a_video_shows_every_turn_in_a_form_browsers_play(tmp_path, episodes):
    path = tmp_path / "episode.mp4"
    write_video(path, GAME, episodes[0], fps=5)
    facts, pictures = frames(path)
    assert facts == ("h264", "yuv420p", 5)
    assert len(pictures) == len(episodes[0].turns) + 5  # the start, and one second of the last position
    board = GAME.draw(GAME.from_json(json.dumps(episodes[0].turns[7].state)))
    shown = pictures[7][: board.shape[0], : board.shape[1]]
    assert np.abs(shown.astype(int) - board).mean() < 8
    assert np.abs(pictures[9][: board.shape[0]].astype(int) - board).mean() > np.abs(shown.astype(int) - board).mean()
    # An atom `moov` before `mdat` lets a browser begin before it has the whole file.
    data = path.read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")


def test_a_video_of_an_odd_size_is_padded(tmp_path):
    game = vlmgym.make_game("2048", size=161)
    episode = evaluate(game, "random", 1, turns=2, workers=0)[0]
    write_video(tmp_path / "odd.mp4", game, episode, fps=4)
    _, pictures = frames(tmp_path / "odd.mp4")
    assert [side % 2 for side in pictures[0].shape[:2]] == [0, 0]


def test_the_strip_changes_with_every_turn(tmp_path, episodes):
    write_video(tmp_path / "episode.mp4", GAME, episodes[0], fps=4)
    _, pictures = frames(tmp_path / "episode.mp4")
    strips = [picture[GAME.config.size :] for picture in pictures[: len(episodes[0].turns)]]
    assert all(np.abs(a.astype(int) - b).max() > 60 for a, b in pairwise(strips))


def test_curves_are_a_png_of_any_number_of_episodes(episodes):
    for some in (episodes, episodes[:1], episodes * 5):
        png = draw_curves(some)
        assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert draw_curves(episodes) == draw_curves(episodes)


def test_episodes_are_on_the_disk_as_they_end(tmp_path, episodes):
    path = tmp_path / "log.jsonl"
    with EpisodeLog(path) as log:
        for i, episode in enumerate(episodes):
            log.write(episode)
            lines = path.read_text().splitlines()
            assert [EpisodeRecord.model_validate_json(line) for line in lines] == episodes[: i + 1]


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    replace_file(path, b"new")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file", b"new")]


def test_a_new_run_removes_what_the_last_one_left_and_nothing_else(tmp_path):
    output = Output(tmp_path, "test_2048")
    output.prepare(videos=True)
    for name in ("test_2048_0.mp4", "test_2048_11.mp4", "test_2048_mine.mp4", "other_0.mp4"):
        (tmp_path / "videos" / name).touch()
    output.run.touch()
    for text in ("first", "second"):
        output.episodes.write_text(text)
        output.prepare(videos=True)
    assert sorted(path.name for path in output.videos.iterdir()) == ["other_0.mp4", "test_2048_mine.mp4"]
    kept = sorted(output.logs.iterdir())
    assert [(path.name, path.read_text()) for path in kept] == [
        ("test_2048.1.jsonl", "first"),
        ("test_2048.2.jsonl", "second"),
    ]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(VlmgymError, match=r"cannot write .*file/logs: Not a directory"):
        Output(tmp_path / "file", "test_2048").prepare(videos=False)


def test_a_full_disk_is_one_sentence_and_keeps_what_was_written(tmp_path):
    script = f"""
import resource, vlmgym
from pathlib import Path
from vlmgym.evaluation import EvalConfig
from vlmgym.evaluation.output import Output
from vlmgym.evaluation.script import run_evaluation
from vlmgym.options import reporting_errors

resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, {resource.RLIM_INFINITY}))
with reporting_errors():
    config = EvalConfig(policy="random", size=64, turns=10, episodes=20, workers=0, video=False)
    run_evaluation("2048", config, Output(Path({str(tmp_path)!r}), "test_2048"))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: cannot write")
    assert "File too large" in last
    assert "finished episodes are in" in last
    whole = (tmp_path / "logs" / "test_2048.jsonl").read_text().split("\n")[:-1]
    assert whole
    assert all(EpisodeRecord.model_validate_json(line) for line in whole)
