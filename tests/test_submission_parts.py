"""Parts of submissions: shortened paths, keys of services, and compressed records."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlmgym.errors import UsageError
from vlmgym.evaluation.submission.check import SECRETS
from vlmgym.evaluation.submission.pack import without_folders
from vlmgym.records import packed


def test_names_of_local_folders_are_shortened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoints" / "2048").mkdir(parents=True)
    (tmp_path / "checkpoints" / "policy.py").touch()
    paths = ["/data/tiny/", "/tiny", "~/tiny", r"C:\models\tiny", "../secret/tiny", "./tiny"]
    assert [*map(without_folders, paths)] == ["tiny"] * 6
    assert without_folders("checkpoints/2048") == "2048"
    assert without_folders("checkpoints/policy.py:play") == "policy.py:play"
    assert without_folders("Qwen/Qwen2.5-VL-3B-Instruct") == "Qwen/Qwen2.5-VL-3B-Instruct"


@pytest.mark.parametrize("start", ["sk-", "gsk_", "xai-", "nvapi-", "r8_", "pplx-", "fw_"])
def test_keys_of_common_services_are_found(start: str) -> None:
    key = (start + "0123456789abcdefghij").encode()
    assert SECRETS.search(b"token " + key)
    assert not SECRETS.search(b"x" + key)


def test_damaged_members_are_named(tmp_path: Path) -> None:
    (tmp_path / "records.gz").write_bytes(b"".join(packed.pack([b"{}"])) + b"rest")
    with pytest.raises(UsageError, match="incorrect header"):
        list(packed.packed_records(tmp_path / "records.gz"))
