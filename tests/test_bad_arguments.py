"""Invalid arguments raise a one-line `UsageError` and change nothing."""

from collections.abc import Callable

import gymnasium
import numpy as np
import pytest

import vlmgym
from vlmgym import make_game, make_vec
from vlmgym.errors import UsageError
from vlmgym.evaluation import Budget, evaluate
from vlmgym.policies import make_policy
from vlmgym.policies.openai.policy import OpenAIOptions
from vlmgym.policies.transformers import TransformersOptions
from vlmgym.policies.vllm import VLLMOptions
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.reward import Outcome

BAD = ["x", 1.5, float("nan"), -1, 10**30, [0, 0, 0], [None, "x"], {"a": 1}, object(), np.zeros((2, 2))]
"""Values of kinds that users pass by mistake."""


def rejection(call: Callable[[], object]) -> str:
    """Return the message of the `UsageError` that a call raises, which is one line."""
    with pytest.raises(UsageError) as error:
        call()
    assert str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600
    return str(error.value)


MISTAKES: list[tuple[Callable[[], object], str]] = [
    (lambda: make_vec("2048", 0), "num_envs must be"),
    (lambda: make_vec("2048", 1, 0, autoreset_mode="Never"), "autoreset_mode must be"),
    (lambda: make_vec("geospot", 2, action_masks=True), "geospot has no action masks"),
    (lambda: vlmgym.Episode("2048", max_turns=0), "max_turns must be an integer of at least 1, got 0"),
    (lambda: vlmgym.Episode.restore("{}"), "not a snapshot of an episode: game: field required"),
    (lambda: vlmgym.make_dataset("2048", 1, 10**6), "seeds of split train must be below 1,000,000, got 1,000,000"),
    (lambda: vlmgym.make_dataset("2048", 1, states={"move": 1}), "states: move: unexpected keyword argument (got 1)"),
    (lambda: vlmgym.reward_fn([""], [None], [""]), "takes a completion of text or of one message with text, got None"),
    (lambda: vlmgym.reward_fn([""], ["a", "b"], [""]), "takes a snapshot for each completion, got 2 and 1"),
    (lambda: vlmgym.RewardConfig(shaping="tanh"), "reward: shaping: "),  # type: ignore[arg-type]
    (lambda: vlmgym.Episode("2048", images="grey"), "images must be true, blank, stale, shuffled or swapped"),
    (lambda: vlmgym.Episode("2048", images="blank", observation="both"), "images blank with observation both: "),
    (lambda: vlmgym.Episode("nlvr2", observation="text", data="questions.csv"), "images from data are not described"),
    (lambda: vlmgym.Episode("2048", goal_image=True), "has no goal image"),
    (lambda: vlmgym.Episode("geospot", rules=False), "asks a question"),
    (lambda: vlmgym.Episode("2048", rules=False, prompt="Move."), "without its rules: include {prompt} in it"),
    (lambda: vlmgym.Episode("2048", skin="gold"), "skin must be flat, wood, paper, sketch, screen"),
    (lambda: make_game("2048", interface="click"), "2048 is not played by clicks"),
    (lambda: make_game("rotation", data="rows.csv"), "unknown config field 'data'"),
    (lambda: make_game("canary", frames=1, asked=2), "asked must be at most frames, got 2 and 1"),
    (lambda: evaluate("2048", "random", backend="slurm"), "backend must be one of process, ray"),  # type: ignore[arg-type]
    (lambda: Budget(budget_cost=1.0), "budget_cost requires price_in"),
    (lambda: OpenAIOptions(temperature=float("nan")), "temperature must be at least 0, got nan"),
    (lambda: OpenAIOptions(base_url="localhost:8000/v1"), "base_url must be a URL"),
    (lambda: OpenAIOptions(extra_body='{"stream": true}'), "extra_body cannot set stream"),
    (lambda: TransformersOptions(dtype="int8"), "dtype must be one of auto, bfloat16, float16"),  # type: ignore[arg-type]
    (lambda: VLLMOptions(engine_args='{"hf_token": "x"}'), "engine_args cannot set hf_token"),
    (lambda: make_policy("transformers", TransformersOptions()), "needs --model"),
    (lambda: make_policy("vllm", VLLMOptions(model="./no/such")), "no folder ./no/such"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_are_named(call: Callable[[], object], message: str) -> None:
    assert message in rejection(call)


@pytest.mark.parametrize("game_id", ["2048", "swap", "geospot", "blocks", "forms", "packing"])
def test_invalid_actions_are_illegal(game_id: str) -> None:
    game = make_game(game_id)
    for value in BAD:
        if not (isinstance(value, str) and isinstance(game.answer.space, gymnasium.spaces.Text)):
            assert Episode(game, 0).act(value).outcome is Outcome.ILLEGAL
