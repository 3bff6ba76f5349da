"""Episodes, snapshots and scores for other trainers and evaluators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any, ClassVar, Literal

import numpy as np
from PIL import Image
from pydantic import BaseModel, ConfigDict, JsonValue, PositiveInt, ValidationError

from vlmgym.checks import check_instance
from vlmgym.errors import EpisodeEnded, StateError, UsageError, describe_validation_error, short_repr
from vlmgym.policies.base import storable
from vlmgym.policies.openai.policy import image_url
from vlmgym.rollout.settings import EpisodeSettings
from vlmgym.rollout.turn import GameSetup, LiveEpisode
from vlmgym.runs.record import GameRecord, allow_data
from vlmgym.sandbox.core.episode import Snapshot
from vlmgym.sandbox.core.game import Game, ImageArray
from vlmgym.sandbox.core.prompt import PastTurn, PromptConfig, chat_messages
from vlmgym.sandbox.core.reward import RewardConfig, Scored
from vlmgym.sandbox.drawing.encode import encode_png
from vlmgym.sandbox.registry import make_games

ImageForm = Literal["url", "pil", "bytes"]


class _Snapshot(BaseModel):
    """An episode with its config, so that it can be restored anywhere."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    game: GameRecord
    reward: RewardConfig
    max_turns: PositiveInt
    prompts: PromptConfig
    episode: Snapshot
    past: tuple[PastTurn[JsonValue], ...]
    """Earlier turns, with states as plain data."""


class Episode:
    """One episode of a game, played one response at a time.

    Rewards, prompts and images are exactly the same as in `vlmgym eval` with the same game, config, seed and responses.
    """

    ACCURACIES: ClassVar = ("perception_accuracy", "prediction_accuracy", "reasoning_accuracy")
    """All keys that `accuracies` may have."""

    def __init__(self, game: str | Game[Any, Any], seed: int | None = None, **settings: Any) -> None:
        """Start an episode.

        Args:
            game: Id or name, e.g. `2048`, or a game made by `vlmgym.make_game`, which keeps its own config.
            seed: Seed of the episode; None for a random one.
            settings: Fields of `EpisodeSettings` (`max_turns`, `observation`, `chat`, `history`,
                `history_images`, `images`, `reward`), the levels `perception` and `reasoning`, 1 to 5, and config
                fields of the game that override the levels, e.g. `size=320`.

        Raises:
            UsageError: An argument is invalid.
        """
        if not isinstance(game, str | Game):
            raise UsageError(f"game must be an id, a name or a Game, got {short_repr(game)}")
        (setup,) = game_setups(game, **settings)
        self._start(LiveEpisode(setup, seed))

    def _start(self, live: LiveEpisode) -> None:
        self._live = live
        self._accuracies: dict[str, list[float]] = {name: [] for name in self.ACCURACIES}

    @classmethod
    def of(cls, live: LiveEpisode) -> Episode:
        """Wrap a `LiveEpisode`, without copying it."""
        episode = cls.__new__(cls)
        episode._start(live)
        return episode

    @classmethod
    def restore(cls, snapshot: str, *, data: str | None = None) -> Episode:
        """Restore an episode from `snapshot()`, in any process; it continues exactly as the original.

        Args:
            snapshot: The snapshot.
            data: Data that the snapshot names, which from now on may be opened in this process. Not needed for data
                of games that were made in this process, as by `make_dataset`.

        Raises:
            StateError: The string is not a snapshot of an episode.
            UsageError: The game of the snapshot is not installed, or it names data that may not be opened.
        """
        if data is not None:
            allow_data(str(data))
        check_instance("snapshot", snapshot, str)
        try:
            parts = _Snapshot.model_validate_json(snapshot)
        except ValidationError as error:
            raise StateError(f"not a snapshot of an episode: {describe_validation_error(error)}") from None
        game = parts.game.game()
        settings = EpisodeSettings.from_parts(parts.prompts, parts.max_turns, parts.reward)
        past = tuple(replace(turn, state=game.from_data(turn.state)) for turn in parts.past)
        return cls.of(LiveEpisode(GameSetup(game, settings), parts.episode, past))

    def snapshot(self) -> str:
        """Snapshot the episode with its game and config, as one line of JSON."""
        setup, game = self._live.setup, self.game
        return _Snapshot(
            game=GameRecord.of(game),
            reward=setup.settings.reward,
            max_turns=setup.settings.max_turns,
            prompts=setup.prompts,
            episode=self._live.episode.snapshot(),
            past=tuple(replace(turn, state=game.to_data(turn.state)) for turn in self._live.past),
        ).model_dump_json()

    @property
    def game(self) -> Game[Any, Any]:
        """The game with its config."""
        return self._live.setup.game

    @property
    def seed(self) -> int:
        """Seed of the episode."""
        return self._live.episode.seed

    @property
    def turn(self) -> int:
        """Number of turns taken, including illegal and unparsable ones."""
        return self._live.episode.turn

    @property
    def max_turns(self) -> int:
        """Turn limit."""
        return self._live.setup.settings.max_turns

    @property
    def score(self) -> float:
        """Sum of the game's own rewards so far."""
        return self._live.episode.score

    @property
    def outcomes(self) -> dict[str, int]:
        """Number of turns per outcome: `played`, `illegal` and `unparsable`."""
        return {outcome.value: count for outcome, count in self._live.episode.outcomes.items()}

    @property
    def accuracies(self) -> dict[str, float]:
        """Means from 0 to 1 over the turns taken with this object, of those that apply to any of them.

        `perception_accuracy` and `prediction_accuracy` are fractions of correct cells, and `reasoning_accuracy` is the
        fraction of true statements, as in the summary of a run.
        """
        return {name: float(np.mean(values)) for name, values in self._accuracies.items() if values}

    @property
    def done(self) -> bool:
        """True once the game or the turn limit has ended the episode."""
        return self._live.done

    @property
    def truncated(self) -> bool:
        """True if the turn limit, not the game, ended the episode."""
        return self._live.truncated

    @property
    def end_reason(self) -> str | None:
        """Why the episode has ended, or None."""
        return self._live.observation.end

    @property
    def feedback(self) -> str:
        """Why the last response was not played, or an empty string."""
        return self._live.episode.feedback

    @property
    def prompt(self) -> str:
        """Text of the turn: rules, response format, history and feedback; in a chat, the last user message.

        Empty after the end.
        """
        return self._live.observation.prompt

    @property
    def repeats_turns(self) -> bool:
        """True if each prompt is a single message that also shows earlier turns.

        If a trainer appended this message to a conversation at every turn, it would show those turns twice.
        """
        prompts = self._live.setup.prompts
        return not prompts.chat and prompts.history != 0

    @property
    def images(self) -> list[ImageArray]:
        """Images of the turn, uint8 RGB arrays: earlier turns first, then the current one.

        After the end, they show the final state. A control experiment (`images="blank"`, ...) shows others instead.
        """
        return self._live.images()

    def messages(self, images: ImageForm = "url") -> list[dict[str, Any]]:
        """Return the chat messages of the turn, by default one user message with the images, then the text.

        With `chat`, they are the whole conversation; the images of each message precede its text.

        Args:
            images: `url` gives `image_url` parts with PNG data URLs, as the OpenAI API expects; `pil` and `bytes` give
                `image` parts with a PIL image or a PNG file, as Hugging Face chat templates expect.

        Raises:
            EpisodeEnded: There are no more turns.
        """
        self._check_running()
        if images not in ("url", "pil", "bytes"):
            raise UsageError(f"images must be url, pil or bytes, got {short_repr(images)}")
        return chat_messages(self._live.observation.messages, self.images, lambda image: _part(image, images))

    def __repr__(self) -> str:
        progress = f"ended: {self.end_reason}" if self.done else f"turn {self.turn + 1} of {self.max_turns}"
        return f"<Episode of {self.game.id}, seed {self.seed}, {progress}, score {self.score:g}>"

    def _repr_html_(self) -> str:
        """Show the images of the turn beside its text in a notebook."""
        title, style = escape(repr(self)[1:-1]), "width: 18em; max-width: 100%"
        images = "".join(f'<img src="{image_url(image)}" alt="{title}" style="{style}"> ' for image in self.images)
        text = f'<b>{title}</b><pre style="white-space: pre-wrap; word-break: normal">{escape(self.prompt)}</pre>'
        columns = f'<div style="flex: 0 1 auto">{images}</div><div style="flex: 1 1 24em">{text}</div>'
        return f'<div style="display: flex; flex-wrap: wrap; gap: 1em">{columns}</div>'

    def answer(self) -> str | None:
        """Return what the oracle would write inside `<answer>`, or None if the game has no oracle.

        Raises:
            EpisodeEnded: There are no more turns.
        """
        actions = self._best_actions()
        return self.game.format_actions(actions) if actions else None

    def oracle(self) -> str | None:
        """Return the oracle's full response: true perception, reasoning and answer; None if the game has no oracle.

        Raises:
            EpisodeEnded: There are no more turns.
        """
        actions = self._best_actions()
        return self.game.respond(self._live.episode.state, *actions) if actions else None

    def respond(self, response: str) -> Scored[Any, Any]:
        """Take a turn with a model's full response.

        Raises:
            EpisodeEnded: There are no more turns.
        """
        check_instance("response", response, str)
        self._check_running()
        scored = self._live.step(storable(response))
        accuracies = [None if part is None else part.partial for part in (scored.perception, scored.prediction)]
        accuracies.append(sum(scored.statements) / len(scored.statements) if scored.statements else None)
        for values, accuracy in zip(self._accuracies.values(), accuracies):
            if accuracy is not None:
                values.append(accuracy)
        return scored

    def _best_actions(self) -> list[Any]:
        """Return the oracle's actions in this turn; empty if it has none."""
        self._check_running()
        state = self._live.episode.state
        action = self.game.best_action(state)
        return [] if action is None else [action, *self.game.follow_up(state, action)]

    def _check_running(self) -> None:
        if self.done:
            raise EpisodeEnded(f"this episode of {self.game.name} has ended ({self.end_reason}): start another")


def game_setups(games: object, **settings: Any) -> list[GameSetup]:
    """Make the games, and check that they can be played with the settings; see `Episode`. Draws no images."""
    episode, options = EpisodeSettings.split(settings)
    setups = [GameSetup(game, episode) for game in make_games(games, **options)]
    for setup in setups:
        episode.check(setup.game)
    return setups


def _part(image: ImageArray, form: ImageForm) -> dict[str, Any]:
    if form == "pil":
        return {"type": "image", "image": Image.fromarray(image)}
    if form == "bytes":
        return {"type": "image", "image": encode_png(image)}
    return {"type": "image_url", "image_url": {"url": image_url(image)}}


def score(snapshot: str, response: str) -> Scored[Any, Any]:
    """Score a response to the turn of a snapshot, exactly as the episode would.

    Raises:
        StateError: The string is not a snapshot.
        EpisodeEnded: The episode has ended.
    """
    return Episode.restore(snapshot).respond(response)


def reward_fn(
    prompts: Sequence[Any], completions: Sequence[Any], snapshot: Sequence[str], **columns: Any
) -> list[float]:
    """Return the total reward (`Scored.total`) of each completion; a reward function for TRL's trainers.

    Args:
        prompts: Unused.
        completions: Responses, as strings or as lists with one assistant message each.
        snapshot: The `snapshot` column of `make_dataset`.
        columns: Unused.

    Raises:
        UsageError: A completion is neither text nor one message with text, a string is not a snapshot, or there is not
            one snapshot per completion.
        EpisodeEnded: An episode has ended.
    """
    if len(completions) != len(snapshot):
        raise UsageError(f"reward_fn takes a snapshot for each completion, got {len(completions)} and {len(snapshot)}")
    return [score(state, _response(completion)).total for state, completion in zip(snapshot, completions)]


def _response(completion: object) -> str:
    match completion:
        case str() as text:
            return text
        case [{"content": str() as text}]:
            return text
        case [{"content": [*parts]}]:
            texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
            if len(texts) == len(parts) and all(isinstance(text, str) for text in texts):
                return "".join(map(str, texts))
    raise UsageError(f"reward_fn takes a completion of text or of one message with text, got {short_repr(completion)}")
