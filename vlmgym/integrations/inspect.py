"""Evaluate with Inspect; docs/integrations/inspect.md. An entry point makes the tasks available as `vlmgym/GAME`."""

from __future__ import annotations

from typing import Any

import vlmgym
from vlmgym.checks import check_int
from vlmgym.errors import importing

with importing("vlmgym.integrations.inspect", "inspect"):
    from anyio.to_thread import run_sync
    from inspect_ai import Task, task
    from inspect_ai.dataset import Sample
    from inspect_ai.model import (
        ChatMessage,
        ChatMessageAssistant,
        ChatMessageSystem,
        ChatMessageUser,
        ContentImage,
        ContentText,
    )
    from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
    from inspect_ai.solver import Generate, Solver, TaskState, solver


@solver
def play() -> Solver:
    """Play the episode of a sample; each request contains exactly the messages of `Episode.messages`."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        episode = vlmgym.Episode.restore(state.metadata["snapshot"])
        turns: list[dict[str, Any]] = []
        while not episode.done:
            state.messages = [_message(message) for message in await run_sync(episode.messages)]
            state = await generate(state)
            scored = await run_sync(episode.respond, state.output.completion)
            turns.append({"outcome": scored.outcome.value, "reward": scored.total, "feedback": scored.feedback})
            facts = {"score": episode.score, "end_reason": episode.end_reason, "turns": turns}
            for name, value in (facts | {"accuracies": episode.accuracies}).items():
                state.store.set(name, value)
        return state

    return solve


@scorer(metrics=[mean(), stderr()])
def game_score() -> Scorer:
    """Score an episode by the sum of the game's own rewards, up to its end or an Inspect limit."""

    async def score(state: TaskState, target: Target) -> Score:
        turns = state.store.get("turns", [])
        return Score(
            value=state.store.get("score", 0.0),
            answer=state.output.completion,
            explanation=state.store.get("end_reason"),
            metadata={
                "turns": turns,
                "reward": sum(turn["reward"] for turn in turns),
                **state.store.get("accuracies", {}),
            },
        )

    return score


def make_task(game: str, episodes: int = 10, seed: int = 0, **settings: Any) -> Task:
    """Make a task whose samples are episodes with consecutive seeds, as in `vlmgym eval`.

    Args:
        game: Id or name of the game.
        episodes: Number of samples.
        seed: Seed of the first episode.
        settings: Other arguments of `Episode`, such as `max_turns=10` and `size=320`.

    Raises:
        UsageError: An argument is invalid.
    """
    check_int("episodes", episodes, 1)
    check_int("seed", seed, 0)
    starts = [vlmgym.Episode(game, number, **settings) for number in range(seed, seed + episodes)]
    samples = [
        Sample(
            id=f"{episode.game.id}/{episode.seed}",
            input=episode.prompt,
            metadata={"game": episode.game.id, "seed": episode.seed, "snapshot": episode.snapshot()},
        )
        for episode in starts
    ]
    version = f"{vlmgym.make_game(game).id}, vlmgym {vlmgym.__version__}"
    return Task(dataset=samples, solver=play(), scorer=game_score(), version=version)


def _message(message: dict[str, Any]) -> ChatMessage:
    content = message["content"]
    if not isinstance(content, str):
        content = [
            ContentText(text=part["text"]) if part["type"] == "text" else ContentImage(image=part["image_url"]["url"])
            for part in content
        ]
    kinds = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
    return kinds[message["role"]](content=content)


def _register(game_id: str) -> None:
    @task(name=game_id.rpartition("-v")[0])
    def play_game(episodes: int = 10, seed: int = 0, **settings: Any) -> Task:
        return make_task(game_id, episodes, seed, **settings)


for _id in vlmgym.game_ids():
    _register(_id)
