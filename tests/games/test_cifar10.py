"""CIFAR-10 as tiles of Shisen-Sho."""

from __future__ import annotations

import io
import tarfile
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from vlmgym import make_game
from vlmgym.errors import UsageError
from vlmgym.sandbox.data.images import decode
from vlmgym.sandbox.games.shisensho.images import BATCHES, CLASSES, MAX_BATCH, RECORD, open_cifar10


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A copy of CIFAR-10 with 40 images per batch, as the folder of the extracted archive."""
    folder = tmp_path / "cifar" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in (*BATCHES["test"], *BATCHES["train"]):
        records = rng.integers(0, 256, (40, RECORD), dtype=np.uint8)
        records[:, 0] = np.arange(40) % 10
        (folder / name).write_bytes(records.tobytes())
    return folder.parent


def test_tiles_of_cifar10(archive: Path) -> None:
    for data in (archive, archive / "cifar-10-batches-bin"):
        game = make_game("shisensho", tiles="cifar10", data=str(data))
        state = game.start(np.random.default_rng(0))
        assert set(chain(*state.board)) <= set(CLASSES)
        assert "a photograph (airplane, automobile, bird" in game.prompt(state)
        assert game.from_json(game.to_json(state)) == state
    assert len(open_cifar10(archive, "train")) == 200
    assert len(open_cifar10(archive, "test")) == 40


def test_layout_of_a_cifar10_record(archive: Path) -> None:
    table = open_cifar10(archive, "test")
    content = (archive / "cifar-10-batches-bin" / "test_batch.bin").read_bytes()
    planes = np.frombuffer(content[3 * RECORD + 1 : 4 * RECORD], np.uint8).reshape(3, 32, 32)
    np.testing.assert_array_equal(np.asarray(decode(table[3]["image"])), planes.transpose(1, 2, 0))
    assert table[3]["label"] == "cat"


def test_archive_is_read_without_extracting(archive: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed" / "cifar-10-binary.tar.gz"
    packed.parent.mkdir()
    with tarfile.open(packed, "w:gz") as file:
        file.add(archive / "cifar-10-batches-bin", "cifar-10-batches-bin")
    for path in (packed, packed.parent):
        for split in ("test", "train"):
            read, expected = open_cifar10(path, split), open_cifar10(archive, split)
            assert len(read) == len(expected)
            assert read[17] == expected[17]
    packed.write_bytes(packed.read_bytes()[:2000])
    with pytest.raises(UsageError, match="cannot read"):
        open_cifar10(packed, "train")


@pytest.mark.parametrize("content", [b"", bytes(100), bytes([10]) * RECORD], ids=["empty", "cut off", "class of 10"])
def test_damaged_batch_is_rejected(content: bytes, archive: Path) -> None:
    (archive / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(content)
    with pytest.raises(UsageError, match="cannot read"):
        open_cifar10(archive, "test")


def test_oversized_batch_is_not_unpacked(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "bomb").mkdir()
    with tarfile.open(tmp_path / "bomb" / "cifar-10-binary.tar.gz", "w:gz", compresslevel=1) as file:
        member = tarfile.TarInfo("cifar-10-batches-bin/test_batch.bin")
        member.size = MAX_BATCH + 1
        file.addfile(member, io.BytesIO(bytes(member.size)))
    with pytest.raises(UsageError, match=r"test_batch\.bin is missing"):
        open_cifar10(tmp_path / "bomb", "test")


@pytest.mark.parametrize("name", ["cifar-10-batches-py/data_batch_1", "data_batch_1", "cifar-10-python.tar.gz"])
def test_pickled_version_is_rejected(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    with pytest.raises(UsageError, match=r"pickles.*cifar-10-binary\.tar\.gz"):
        make_game("shisensho", tiles="cifar10", data=str(tmp_path)).start(np.random.default_rng(0))


def test_missing_batches_and_splits_are_rejected(archive: Path) -> None:
    with pytest.raises(UsageError, match="test and train, got 'dev'"):
        make_game("shisensho", tiles="cifar10", data=str(archive), split="dev").start(np.random.default_rng(0))
    (archive / "cifar-10-batches-bin" / "data_batch_4.bin").unlink()
    with pytest.raises(UsageError, match=r"data_batch_4"):
        open_cifar10(archive, "train")
    with pytest.raises(UsageError, match="there is no file or folder"):
        make_game("shisensho", tiles="cifar10", data=str(archive / "nowhere")).start(np.random.default_rng(0))
