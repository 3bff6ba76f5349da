"""Tiny checkpoints, and stand-ins for vLLM, installed before EasyR1 is imported."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from vlmgym.training.easyr1 import stand_in_for_vllm

if find_spec("verl") is not None:
    stand_in_for_vllm()

KINDS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")


@pytest.fixture(scope="session", params=KINDS)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    from tests.tiny_model import make_model  # needs torch

    make_model(request.param, folder)
    return folder


@pytest.fixture(scope="session")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    from tests.tiny_model import make_model  # needs torch

    make_model("qwen3_vl", folder)
    return folder
