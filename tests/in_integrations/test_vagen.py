"""VAGEN's evaluation, with its own runner, plays the same episodes as `vlmgym.Episode`; see docs/integrations/vagen.md.

PYTHONPATH=VAGEN .venv-integrations/bin/python -m pytest -W default tests/in_integrations/test_vagen.py
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf
from PIL import Image
from vagen.envs.registry import register_env
from vagen.evaluate import run_eval
from vagen.evaluate.utils.mm_utils import compile_text_images_for_order

from tests.api_server import ApiServer
from vlmgym import Episode, RewardConfig
from vlmgym.errors import UsageError
from vlmgym.integrations.vagen import GameEnvironment

EXAMPLES = Path(__file__).parents[2] / "examples" / "vagen"


def step(environment: GameEnvironment, response: str) -> Any:
    return asyncio.run(environment.step(response))


@pytest.mark.parametrize("concat", [True, False])
def test_vagen_evaluates_the_example(concat: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    register_env("VlmGym", GameEnvironment)
    config = OmegaConf.load(EXAMPLES / "evaluate.yaml")
    turns = 3
    config.envs[0].update({"n_envs": 3, "max_turns": turns, "concat_multi_turn": concat})
    config.envs[0].config.update({"size": 64, "max_turns": turns})
    OmegaConf.save(config, tmp_path / "evaluate.yaml")
    with ApiServer().running() as server:
        options = [f"backends.openai.base_url={server.url}", f"experiment.dump_dir={tmp_path / 'out'}"]
        monkeypatch.setattr(sys, "argv", ["run_eval", "--config", str(tmp_path / "evaluate.yaml"), *options])
        run_eval.main()
    assert len(server.requests) == 3 * turns
    assert max(len(request.images) for request in server.requests) == (turns if concat else 1)
    played = sorted(path.parent for path in tmp_path.rglob("metrics.json"))
    assert len(played) == 3
    for folder in played:
        metrics = json.loads((folder / "metrics.json").read_text())
        episode = Episode(
            "2048", metrics["seed"], max_turns=turns, size=64, reward=RewardConfig(**config.envs[0].config.reward)
        )
        assert episode.seed >= 1_000_000
        responses = json.loads((folder / "assistant_texts.json").read_text())
        for i, response in enumerate(responses):
            with Image.open(folder / "images" / f"turn_{i + 1:02d}_01.png") as shown:
                assert np.array_equal(np.asarray(shown), episode.images[0])
            scored = episode.respond(response)
            assert metrics["rewards"][i] == scored.total
            assert metrics["infos"][i + 1]["outcome"] == scored.outcome.value
        assert metrics["finish_reason"] == "done"
        assert metrics["infos"][-1]["score"] == episode.score
        assert episode.done


@pytest.mark.parametrize("name", ["evaluate", "train", "validation"])
def test_examples_configure_environments(name: str) -> None:
    (spec,) = OmegaConf.to_container(OmegaConf.load(EXAMPLES / f"{name}.yaml"))["envs"]
    environment = GameEnvironment(spec["config"])
    observation, _ = asyncio.run(environment.reset(spec["seed"][0]))
    assert len(observation["multi_modal_input"]["<image>"]) == 1
    assert (spec["seed"][0] >= 1_000_000) == (spec["seed"][1] >= 1_000_000) == (name != "train")


def test_placeholders_of_a_model_are_escaped() -> None:
    environment = GameEnvironment({"game": "2048", "size": 64, "history": 2, "history_images": 1})
    asyncio.run(environment.reset(0))
    observation, _, _, info = step(environment, "<image> I see <video>")
    images = observation["multi_modal_input"]["<image>"]
    parts = compile_text_images_for_order(observation["obs_str"], images)
    assert [kind for kind, _ in parts] == ["image", "image", "text"]
    assert "&lt;image&gt; I see &lt;video&gt;" in parts[-1][1]
    assert "<video>" not in observation["obs_str"]
    assert info["outcome"] == "unparsable"


@pytest.mark.parametrize(("needed", "success"), [(8, True), (1000, False)])
def test_success_requires_a_minimum_score(needed: float, success: bool) -> None:
    settings: dict[str, Any] = {"game": "2048", "size": 64, "rows": 3, "columns": 3, "goal": 8}
    environment = GameEnvironment({**settings, "success_score": needed})
    asyncio.run(environment.reset(0))
    episode = Episode(seed=0, **settings)
    done = False
    while not done:
        response = str(episode.oracle())
        episode.respond(response)
        observation, _, done, info = step(environment, response)
        assert info["success"] is (done and success)
    assert observation == {"obs_str": f"The episode has ended: {episode.end_reason}."}


@pytest.mark.parametrize("settings", [{"history": 0}, {"chat": True}, {"history": 16}])
def test_repeated_turns_are_only_shown_on_request(settings: dict[str, Any]) -> None:
    asyncio.run(GameEnvironment({"game": "pairs", **settings}).reset(0))
    with pytest.raises(UsageError, match=r"history: 0 or chat: true.* or history: 16"):
        asyncio.run(GameEnvironment({"game": "pairs"}).reset(0))
