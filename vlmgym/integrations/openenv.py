"""Serve games with OpenEnv, and play them as a client; docs/integrations/openenv.md."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import uuid4

from pydantic import BaseModel, Field

from vlmgym import Episode, Outcome, Scored
from vlmgym.errors import UsageError, importing

with importing("vlmgym.integrations.openenv", "openenv"):
    from openenv.core import EnvClient
    from openenv.core.client_types import StepResult
    from openenv.core.env_server import Action, Environment, Observation, State, create_app


class GameAction(Action):
    """The model's action in a turn: its full response."""

    response: str = Field(description="The model's full response, with <answer>...</answer>.")


class EncodedImage(BaseModel):
    """An image encoded as text."""

    media_type: Literal["image/png"] = "image/png"
    data: str = Field(description="PNG file, base64-encoded.")


class GameObservation(Observation):
    """Observation of a turn, with the outcome of the previous response."""

    system_prompt: str = Field("", description="Rules and response format, on reset in a chat; otherwise empty.")
    text: str = Field(
        description="Rules, response format and feedback, to show after the images; empty after the end of the episode."
    )
    images: list[EncodedImage] = Field(description="Images of the turn; empty after the end of the episode.")
    outcome: Outcome | None = Field(None, description="Outcome of the last response; null after a reset.")
    feedback: str = Field("", description="Why the last response was not played; otherwise empty.")
    score: float = Field(0.0, description="Sum of the game's own rewards so far.")
    accuracies: dict[str, float] = Field(
        default_factory=dict, description="Means so far of the accuracy of perception, prediction and reasoning."
    )
    end_reason: str | None = Field(None, description="Why the episode has ended, or null.")

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages of the turn in the format of the OpenAI API; in a chat, only the new messages."""
        urls = [f"data:{image.media_type};base64,{image.data}" for image in self.images]
        parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        system = [{"role": "system", "content": [{"type": "text", "text": self.system_prompt}]}]
        user = {"role": "user", "content": [*parts, {"type": "text", "text": self.text}]}
        return [*(system if self.system_prompt else []), user]


class GameState(State):
    """The running episode."""

    game: str | None = Field(None, description="Id of the game.")
    seed: int | None = Field(None, description="Seed of the episode, including a randomly drawn one.")


class GameEnvironment(Environment[GameAction, GameObservation, GameState]):
    """A session of the server, which plays one episode after another.

    Args:
        games: Games as given to `make_app`, keyed by the names and ids that clients can send; the first is the default.
        settings: See `make_app`.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, games: Mapping[str, str], settings: Mapping[str, Any]) -> None:
        super().__init__()
        self._games, self._settings = games, settings
        self._episode: Episode | None = None
        self._episode_id: str | None = None

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, game: str | None = None, **unknown: Any
    ) -> GameObservation:
        """Start an episode; a client gets an error if it names a game not served here, or sends unknown arguments."""
        if unknown:
            raise UsageError(
                f"reset takes seed, episode_id and game, got {', '.join(unknown)}: only the server sets the config"
            )
        game = game or next(iter(self._games))
        if game not in self._games:
            raise UsageError(f"this server has no game {game!r}, only {', '.join(dict.fromkeys(self._games.values()))}")
        self._episode = Episode(self._games[game], seed, **self._settings)
        self._episode_id = episode_id or str(uuid4())
        return _observe(self._episode)

    def step(self, action: GameAction, timeout_s: float | None = None, **ignored: Any) -> GameObservation:
        """Take a turn; if `Episode.respond` raises an error, the client gets its message."""
        if self._episode is None:
            raise UsageError("reset first, in the same WebSocket session: requests over HTTP have no session")
        return _observe(self._episode, self._episode.respond(action.response))

    @property
    def state(self) -> GameState:
        """The running episode."""
        if self._episode is None:
            return GameState()
        facts = {"game": self._episode.game.id, "seed": self._episode.seed}
        return GameState(episode_id=self._episode_id, step_count=self._episode.turn, **facts)


class GameClient(EnvClient[GameAction, GameObservation, GameState]):
    """A client with typed observations; use `.sync()` outside of asyncio."""

    def _step_payload(self, action: GameAction) -> dict[str, Any]:
        return action.model_dump()  # type: ignore[no-any-return]

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[GameObservation]:
        reward, done = payload["reward"], payload["done"]
        observation = GameObservation(**payload["observation"], reward=reward, done=done)
        return StepResult(observation=observation, reward=reward, done=done)

    def _parse_state(self, payload: dict[str, Any]) -> GameState:
        return GameState(**payload)


def make_app(games: Sequence[str] = ("2048",), *, max_sessions: int = 64, **settings: Any) -> Any:
    """Make the FastAPI app of a server.

    Args:
        games: Ids or names of the games that clients can choose; the first one is the default.
        max_sessions: Maximum number of concurrent sessions; further clients get an error.
        settings: Other arguments of `Episode`, for all games; invalid ones raise a `UsageError`.
    """
    ids = {Episode(game, 0, **settings).game.id: game for game in reversed(games)}  # fail here, not in a session
    names = dict(zip(games, games))
    return create_app(
        lambda: GameEnvironment(names | ids | names, settings),
        GameAction,
        GameObservation,
        env_name="vlmgym",
        max_concurrent_envs=max_sessions,
        state_cls=GameState,
    )


def _observe(episode: Episode, scored: Scored[Any, Any] | None = None) -> GameObservation:
    messages = [] if episode.done else episode.messages("bytes")
    system = [message["content"][0]["text"] for message in messages if message["role"] == "system" and scored is None]
    pngs = [part["image"] for message in messages[-1:] for part in message["content"] if part["type"] == "image"]
    return GameObservation(
        system_prompt="".join(system),
        text=episode.prompt,
        images=[EncodedImage(data=base64.b64encode(png).decode()) for png in pngs],
        outcome=scored and scored.outcome,
        feedback=episode.feedback,
        score=episode.score,
        accuracies=episode.accuracies,
        end_reason=episode.end_reason,
        reward=scored and scored.total,
        done=episode.done,
    )
