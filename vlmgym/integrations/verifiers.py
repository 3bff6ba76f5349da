"""Evaluate and train with verifiers and prime-rl; docs/integrations/verifiers.md.

verifiers finds these classes by the name `vlmgym-verifiers`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from itertools import islice
from typing import Any, Literal

from pydantic import Field, model_validator

import vlmgym
from vlmgym.errors import importing

with importing("vlmgym.integrations.verifiers", "verifiers"):
    import verifiers.v1 as vf
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

os.environ.setdefault("PRIME_RUNS_MODE", "disabled")  # vf-eval uploads finished runs by default


class GameData(vf.TaskData):
    """A task: the snapshot of an episode."""

    snapshot: str


class GameTask(vf.Task[GameData, vf.State, vf.TaskConfig]):
    """An episode, which the environment plays."""


class GameTasksetConfig(vf.TasksetConfig):
    """States to start from: the rows of `vlmgym.make_dataset`."""

    games: list[str] = Field(["2048"], min_length=1)
    episodes: int = Field(1000, ge=1)
    """Number of tasks; they alternate between the games."""
    seed: int = Field(0, ge=0)
    split: Literal["train", "validation"] = "train"
    settings: dict[str, Any] = Field(default_factory=dict)
    """Other arguments of `vlmgym.make_dataset`, such as `{"max_turns": 10, "reward": {"illegal": -1}}`."""

    @model_validator(mode="after")
    def _check(self) -> GameTasksetConfig:
        if reserved := {"games", "n", "seed", "split"} & self.settings.keys():
            options = "games, episodes, seed and split are options of the taskset"
            raise ValueError(f"settings must not contain {', '.join(sorted(reserved))}: {options}")
        try:
            list(islice(self.starts(), len(self.games)))  # the first of each game
        except vlmgym.UsageError as error:
            raise ValueError(str(error)) from None
        return self

    def starts(self) -> Iterator[vlmgym.Episode]:
        """Return an iterator that starts the episode of each task."""
        return vlmgym.make_episodes(self.games, self.episodes, self.seed, self.split, **self.settings)


class GameTaskset(vf.Taskset[GameTask, GameTasksetConfig]):
    """Episodes of one or more games. Finite, so that a run also ends without `--select.limit`."""

    def load(self) -> Iterator[GameTask]:
        """Make the tasks lazily."""
        for episode in self.config.starts():
            game = episode.game.id
            data = GameData(id=f"{game}/{episode.seed}", name=game, snapshot=episode.snapshot())
            yield GameTask(data, self.config.task)


class GameHarness(vf.Harness[vf.HarnessConfig]):
    """Sends the messages of each turn to the model unchanged.

    The `null` harness of verifiers starts a program for every turn, which needs uv and a package index, and resends
    the whole conversation. `GameHarness` runs in this process, and `Episode.messages` decides what the model sees.
    """

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """Request one response; verifiers records it."""
        system = [] if data.system_prompt is None else [{"role": "system", "content": data.system_prompt}]
        prompt = [{"content": "", **message.model_dump(exclude_none=True)} for message in data.prompt]
        messages: Any = [*system, *prompt]
        http = DefaultAsyncHttpxClient(verify=False)  # loading certificates is slow, and the endpoint is local
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, timeout=None, http_client=http) as client:
            await client.chat.completions.create(model=ctx.model, messages=messages)
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")

    async def resume(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
        messages: vf.Messages,
        tool_interception_url: str | None = None,
    ) -> vf.ProgramResult:
        """Request the response to the messages of a turn."""
        data = data.model_copy(update={"prompt": messages})
        return await self.launch(ctx, trace, runtime, endpoint, secret, mcp_urls, data)


class GameEnvConfig(vf.EnvConfig):
    """One agent, which runs on this machine; by default, verifiers would run it in a remote sandbox."""

    player: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class GameEnv(vf.Env[GameEnvConfig]):
    """Plays an episode; its reward is the sum of `Scored.total` over its turns."""

    async def run(self, task: GameTask, agents: vf.Agents) -> None:
        """Play until the episode ends or verifiers stops the agent. If the agent failed, no reward is recorded."""
        episode, turns = vlmgym.Episode.restore(task.data.snapshot), []
        async with agents.player.interaction(task) as interaction:
            while not episode.done:
                segment = await interaction.turn(await asyncio.to_thread(episode.messages))
                if segment.terminated:
                    break
                turns.append(await asyncio.to_thread(episode.respond, segment.last_reply))
        trace = interaction.trace
        if trace.ok:
            rewards = [scored.total for scored in turns]
            trace.record_reward("game", sum(rewards))
            metrics = {"score": episode.score, "truncated": episode.truncated}
            trace.record_metrics(metrics | episode.outcomes | episode.accuracies)
            trace.info |= {"outcomes": [scored.outcome.value for scored in turns], "rewards": rewards}
            trace.info["end_reason"] = episode.end_reason


__all__ = ["GameEnv", "GameHarness", "GameTaskset"]
