"""Files of a run: videos, curves, records, and the folder of a script."""

import json
from itertools import pairwise

import cv2
import imageio.v3 as imageio
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vlmgym
from tests.playing import summarise
from vlmgym.errors import UsageError
from vlmgym.evaluation import evaluate, read_run
from vlmgym.evaluation.curves import EpisodeRewards, draw_curves, mean_curve
from vlmgym.evaluation.video import write_video
from vlmgym.runs.files import LineLog
from vlmgym.runs.store import drop_torn_line, find_episodes

GAME = vlmgym.make_game("2048", size=160, reasoning=5)


@pytest.fixture(scope="module")
def episodes():
    return evaluate(GAME, "random", 3, max_turns=60, workers=0)


def read_lines(path):
    """Return the records in a JSON Lines file, and whether its last line is truncated."""
    found, torn = find_episodes(path)
    return [episode.read() for episode in found], torn


def frames(path):
    facts = imageio.immeta(path, plugin="FFMPEG")
    capture, images = cv2.VideoCapture(str(path)), []
    while (frame := capture.read())[0]:
        images.append(cv2.cvtColor(frame[1], cv2.COLOR_BGR2RGB))
    return (facts["codec"], facts["pix_fmt"], facts["fps"]), images


def test_video_shows_every_turn_and_plays_in_browsers(tmp_path, episodes):
    path = tmp_path / "episode.mp4"
    write_video(path, GAME, episodes[0])
    facts, images = frames(path)
    assert facts == ("h264", "yuv420p(progressive)", 4)
    assert len(images) == len(episodes[0].turns) + 4  # plus the first state, and one second of the last one
    board = GAME.draw(GAME.from_json(json.dumps(episodes[0].turns[7].state)))
    shown = images[7][: board.shape[0], : board.shape[1]]
    assert np.abs(shown.astype(int) - board).mean() < 8
    strips = [image[GAME.config.size :] for image in images[: len(episodes[0].turns)]]
    assert all(np.abs(a.astype(int) - b).max() > 60 for a, b in pairwise(strips))
    # With `moov` before `mdat`, a browser can start playing before it has the whole file.
    data = path.read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")


def test_odd_video_size_is_padded(tmp_path):
    game = vlmgym.make_game("2048", size=161)
    episode = evaluate(game, "random", 1, max_turns=2, workers=0)[0]
    write_video(tmp_path / "odd.mp4", game, episode)
    _, images = frames(tmp_path / "odd.mp4")
    assert [side % 2 for side in images[0].shape[:2]] == [0, 0]


@pytest.mark.parametrize("count", [1, 3, 15])
def test_curves_are_a_reproducible_png(episodes, count):
    png = draw_curves((episodes * 5)[:count])
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert draw_curves((episodes * 5)[:count]) == png


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, 2.5]), min_size=1, max_size=8), min_size=1, max_size=12))
def test_curve_interval_ends_at_that_of_the_summary(episodes, rewards):
    turn = episodes[0].turns[0]

    def record(gains):
        turns = (turn.model_copy(update={"reward": turn.reward.model_copy(update={"game": gain})}) for gain in gains)
        return episodes[0].model_copy(update={"turns": tuple(turns), "score": sum(gains), "status": "ended"})

    records = [record(one) for one in rewards]
    summary = summarise(records)
    curve = mean_curve([EpisodeRewards.of(record) for record in records], one_stage=True)
    assert curve.mean[-1] == pytest.approx(summary.score_mean)
    if summary.score_ci is not None:
        assert [end[-1] for end in curve.interval] == pytest.approx(summary.score_ci)
        assert curve.interval[0][0] == curve.interval[1][0] == 0  # no rewards before the first turn
    elif curve.interval is not None:  # equal scores
        assert curve.interval[0][-1] == curve.interval[1][-1]


@pytest.fixture
def log(tmp_path, episodes):
    path = tmp_path / "episodes.jsonl"
    with LineLog(path) as lines:
        for episode in episodes:
            lines.write(episode.model_dump_json())
    return path


@pytest.mark.parametrize("cut", [2, 1000, None])
def test_torn_last_line_is_dropped(log, episodes, cut):
    data = log.read_bytes()
    last = data.splitlines(keepends=True)[-1]
    log.write_bytes(data[: -len(last)] + (last[:-cut] if cut else b"\0" * (len(last) - 1) + b"\n"))
    assert read_lines(log) == (episodes[:-1], True)
    drop_torn_line(log)
    assert read_lines(log) == (episodes[:-1], False)
    with LineLog(log) as lines:
        lines.write(episodes[-1].model_dump_json())
    assert log.read_bytes() == data


@given(data=st.data(), line_end=st.sampled_from([b"\n", b"\r\n", b"\r"]))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_truncated_file_keeps_whole_records(tmp_path, episodes, data, line_end):
    log = tmp_path / "episodes.jsonl"
    records = [episode.model_dump_json().encode() for episode in episodes]
    whole = line_end.join(records) + line_end
    cut = data.draw(st.integers(0, len(whole)))
    log.write_bytes(whole[:cut])
    count = sum(cut >= len(line_end.join(records[: n + 1])) for n in range(len(records)))
    found, torn = read_lines(log)
    assert found == episodes[:count]
    assert torn == (cut > len(b"".join(record + line_end for record in records[:count])))


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda lines: [*lines[:-1], lines[-1][:-2]], "line 3 of .* invalid JSON"),
        (lambda lines: [lines[0], "{}", lines[2]], "line 2 of .* game: field required"),
    ],
)
def test_edited_line_is_named(log, edit, reason):
    log.write_text("".join(f"{line}\n" for line in edit(log.read_text().splitlines())))
    with pytest.raises(UsageError, match=reason):
        read_lines(log)


def test_folder_without_a_run(tmp_path):
    with pytest.raises(UsageError, match=r"run\.json: No such file"):
        read_run(tmp_path)
