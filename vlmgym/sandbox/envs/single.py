"""Gymnasium environment for any game."""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pydantic import ValidationError

from vlmgym.checks import check_instance
from vlmgym.errors import UsageError, describe_validation_error
from vlmgym.sandbox.core.episode import Episode, Snapshot
from vlmgym.sandbox.core.game import Game, ImageArray
from vlmgym.sandbox.core.prompt import turn_prompt
from vlmgym.sandbox.core.reward import RewardConfig, Scored
from vlmgym.sandbox.drawing.encode import side_by_side
from vlmgym.sandbox.registry import make_games

if TYPE_CHECKING:
    from vlmgym.sandbox.envs.human import Window

LARGEST_SEED = 2**31
"""Exclusive upper bound of the episode seeds that the environment draws."""
LONGEST_RESPONSE = 2**16
"""Maximum response length in the action space. `step` also accepts longer responses and any Unicode text."""


class ImageSpace(spaces.Box):
    """`Box(0, 255, shape, uint8)` whose bounds are broadcast from one number and therefore take no memory."""

    def __init__(self, shape: tuple[int, ...], seed: int | np.random.Generator | None = None) -> None:
        super().__init__(0, 255, (1,), np.uint8, seed)
        self._shape = tuple(shape)
        self.low, self.high = np.broadcast_to(self.low, shape), np.broadcast_to(self.high, shape)
        self.bounded_below = np.broadcast_to(self.bounded_below, shape)
        self.bounded_above = np.broadcast_to(self.bounded_above, shape)

    def sample(self, mask: None = None, probability: None = None) -> NDArray[Any]:
        """Sample uniform noise."""
        return self.np_random.integers(0, 256, self.shape, np.uint8)

    def contains(self, x: Any) -> bool:
        """Return True for a uint8 array of this shape."""
        return isinstance(x, np.ndarray) and x.shape == self.shape and x.dtype == np.uint8

    def __eq__(self, other: object) -> bool:
        return self.shape == other.shape if isinstance(other, ImageSpace) else super().__eq__(other)

    def __reduce__(self) -> tuple[Any, ...]:
        return ImageSpace, (self.shape, self._np_random)


def observation_space(shapes: Sequence[tuple[int, ...]], *batch: int) -> spaces.Space[Any]:
    """Return an `ImageSpace` for one image shape, or a `Tuple` of them for several.

    Args:
        shapes: Shape of each image.
        batch: Dimensions to add before each shape.
    """
    images = [ImageSpace((*batch, *shape)) for shape in shapes]
    return images[0] if len(images) == 1 else spaces.Tuple(images)


@dataclass(frozen=True, slots=True)
class Response:
    """A model's response as an action for `GameEnv.step`; see `ResponseWrapper`."""

    text: str

    def __post_init__(self) -> None:
        check_instance("the text of a response", self.text, str)


class GameEnv(gymnasium.Env[Any, Any]):
    """Gymnasium environment for any game, registered as `vlmgym/<name>-v<version>`.

    Observation: the image, a uint8 `Box` of shape (height, width, 3), or a `Tuple` of several images.
    Action: a native action of the game. An illegal action takes a turn; its reward and effect are described in
    `RewardConfig` and `Game.on_invalid`. A value outside the action space raises `UsageError`.
    Reward: `Scored.total`, weighted and shaped by `reward`.
    End: `terminated` when the game has ended. There is no turn limit unless `max_episode_steps` of `gymnasium.make`
    sets one. The environment never resets itself: `step` after the end raises `EpisodeEnded`.
    Seeds: `reset(seed=s)` starts the same episode as `Episode(game, s)`. `reset()` without a seed draws the seed of the
    next episode from `np_random`; it does not depend on the actions played. `info["seed"]` has the seed.
    Info: see `facts` and `turn_facts`.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array"], "render_fps": 4}  # noqa: RUF012 - as in Env

    _options: ClassVar[frozenset[str]] = frozenset({"snapshot"})

    def __init__(
        self,
        game: str | Game[Any, Any],
        perception: int = 3,
        reasoning: int = 3,
        render_mode: str | None = None,
        reward: RewardConfig | None = None,
        **overrides: Any,
    ) -> None:
        """Make an environment.

        Args:
            game: Id or name of a game, or a `Game`, which keeps its own config.
            perception: Perceptual difficulty, 1 to 5.
            reasoning: Reasoning difficulty, 1 to 5.
            render_mode: None, `rgb_array` (`render` returns the image), or `human` (opens a window).
            reward: Weights and shaping; None for the game's own reward.
            overrides: Config fields that override the levels, e.g. `size=320`.

        Raises:
            UsageError: The game, level, config field or render mode is unknown, or a value is invalid.
        """
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise UsageError(f"render_mode must be None, 'human' or 'rgb_array', got {render_mode!r}")
        (self.game,) = make_games([game], perception, reasoning, **overrides)
        self.reward = RewardConfig() if reward is None else reward
        self.render_mode = render_mode
        self._episode: Episode[Any, Any] | None = None
        self._images: list[ImageArray] = []
        self._window: Window | None = None

    # Copied because environments may share a game, and seeding the spaces of one must not affect another. Lazy because
    # vector environments never use them.
    @cached_property
    def action_space(self) -> spaces.Space[Any]:  # type: ignore[override]  # a cached property can be set
        """Action space of the game."""
        return deepcopy(self.game.answer.space)

    @cached_property
    def observation_space(self) -> spaces.Space[Any]:  # type: ignore[override]
        """Observation space of the game."""
        return observation_space(self.game.image_shapes)

    @property
    def episode(self) -> Episode[Any, Any]:
        """The running episode.

        Raises:
            UsageError: `reset` was never called.
        """
        if self._episode is None:
            raise UsageError(f"call reset() on the environment of {self.game.name} first")
        return self._episode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode or restore a snapshot.

        Args:
            seed: Seed of this episode, from which the seeds of the following episodes are also derived.
            options: `{"snapshot": s}` restores a `snapshot()` or its JSON. With a seed, the episode branches with new
                randomness. Without one, it continues exactly as the original, and the seeds of the following episodes
                are derived from the snapshot's seed.

        Raises:
            UsageError: An option is unknown, or the snapshot is invalid or belongs to another game or config.
        """
        options = {} if options is None else options
        check_instance("options", options, dict)
        if unknown := sorted(set(options) - self._options):
            raise UsageError(f"unknown reset option {unknown[0]!r}; the only option is 'snapshot'")
        if options.get("snapshot") is not None:
            snapshot = _read(options["snapshot"])
            rng = None if seed is None else np.random.default_rng(seed)
            self._episode = Episode.restore(self.game, snapshot, self.reward, rng=rng)
            super().reset(seed=snapshot.seed if seed is None else seed)
        else:
            super().reset(seed=seed)
            seed = int(self.np_random.integers(LARGEST_SEED)) if seed is None else seed
            self._episode = Episode(self.game, seed, self.reward)
        self._draw()
        return self._observation(), self._info(None)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a turn with a native action, or with a `Response`.

        Raises:
            UsageError: `reset` was never called, or the action is not in the action space.
            EpisodeEnded: The episode has ended; call `reset`.
        """
        scored = self._take_turn(self.to_action(action))
        self._draw()
        return self._observation(), scored.total, scored.terminated, False, self._info(scored)

    def to_action(self, action: Any) -> Any:
        """Convert an action to the game's action type; a `Response` is returned unchanged.

        Raises:
            UsageError: The action is not in the action space.
        """
        return action if isinstance(action, Response) else self.game.answer.to_action(action)

    def render(self) -> ImageArray | None:
        """Return the image, uint8 (height, width, 3), in mode `rgb_array`; in mode `human`, show it and return None."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() does nothing without a render_mode; choose 'rgb_array' or 'human'")
            return None
        _ = self.episode  # a clear error before the first reset
        if self.render_mode == "human":
            self._show()
            return None
        return side_by_side(self._images)

    def close(self) -> None:
        """Close the window, if open; may be called repeatedly."""
        if self._window is not None:
            self._window.close()
            self._window = None

    def snapshot(self) -> Snapshot:
        """Snapshot the running episode, to be restored by `reset(options={"snapshot": ...})`."""
        return self.episode.snapshot()

    def prompt(self) -> str:
        """Return the prompt for the current state, with feedback if the last response was invalid."""
        return turn_prompt(self.game, self.episode.state, self.episode.feedback)

    def _take_turn(self, action: Any) -> Scored[Any, Any]:
        return self.episode.respond(action.text) if isinstance(action, Response) else self.episode.act(action)

    def _draw(self) -> None:
        self._images = self.game.images(self.episode.state)
        if self.render_mode == "human":
            self._show()

    def _observation(self) -> Any:
        # Copied so that writing into an observation does not affect `render`.
        copies = [image.copy() for image in self._images]
        return copies[0] if len(copies) == 1 else tuple(copies)

    def _info(self, scored: Scored[Any, Any] | None) -> dict[str, Any]:
        return facts(self.episode) if scored is None else {**facts(self.episode), **turn_facts(scored)}

    def _show(self) -> None:
        from vlmgym.sandbox.envs.human import Window  # imports pygame

        if self._window is None:
            self._window = Window(f"vlmgym {self.game.id}")
        self._window.show(side_by_side(self._images), self.metadata["render_fps"])
        for _event in self._window.events():
            pass  # keeps the window responsive


def facts(episode: Episode[Any, Any]) -> dict[str, Any]:
    """Return facts about the current state, for `info`.

    Keys: `description` (text description of the image), `legal_actions` (a tuple; missing if actions cannot be
    enumerated), `score` (sum of the game's own rewards), `turn` (number of turns taken), `seed` (of the episode),
    `feedback` (why the last turn was invalid, or empty), `end` (why the episode has ended, or empty).
    """
    game, state = episode.game, episode.state
    legal = game.legal_actions(state)
    return {
        "description": game.describe(state),
        **({} if legal is None else {"legal_actions": tuple(legal)}),
        "score": episode.score,
        "turn": episode.turn,
        "seed": episode.seed,
        "feedback": episode.feedback,
        "end": episode.ended or "",
    }


def turn_facts(scored: Scored[Any, Any]) -> dict[str, Any]:
    """Return facts about a turn, for `info`.

    Keys: `outcome` (`played`, `illegal` or `unparsable`), `action` (the native action; missing after an unparsable
    response, because vector environments of Gymnasium need values of one type), `reward_parts` (`game`, `format`, and,
    if perception was scored, `perception` and `perception_exact`), `step` (the game's own facts).
    """
    action = {} if scored.action is None else {"action": scored.action}
    accuracy = scored.perception
    perception = {} if accuracy is None else {"perception": accuracy.partial, "perception_exact": accuracy.exact}
    return {
        "outcome": scored.outcome.value,
        **action,
        "reward_parts": {"game": scored.game, "format": scored.format, **perception},
        "step": dict(scored.info),
    }


def _read(snapshot: object) -> Snapshot:
    if isinstance(snapshot, Snapshot):
        return snapshot
    try:
        return Snapshot.model_validate_json(snapshot if isinstance(snapshot, str) else json.dumps(snapshot))
    except (ValidationError, TypeError) as error:
        reason = describe_validation_error(error) if isinstance(error, ValidationError) else error
        raise UsageError(f"invalid snapshot: {reason}") from None


class ResponseWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Takes a model's responses as actions: the action space is text, and `info["prompt"]` has the prompt.

    Wrappers between this one and the environment, such as a time limit, get `Response` objects as actions.

        env = ResponseWrapper(gymnasium.make("vlmgym/2048-v0"))
        image, info = env.reset(seed=0)
        image, reward, terminated, truncated, info = env.step(model(image, info["prompt"]))
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        """Wrap an environment of vlmgym.

        Raises:
            UsageError: The environment is not a `GameEnv`.
        """
        if not isinstance(env.unwrapped, GameEnv):
            raise UsageError(f"ResponseWrapper needs a vlmgym environment, got {env}")
        super().__init__(env)
        self.game_env = env.unwrapped
        self.action_space = spaces.Text(LONGEST_RESPONSE, min_length=0, charset=string.printable)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Same as `GameEnv.reset`, with `prompt` in the info."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, {**info, "prompt": self.game_env.prompt()}

    def step(self, action: str) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a turn with a response, which may be unparsable.

        Raises:
            UsageError: The response is not a string.
            EpisodeEnded: The episode has ended; call `reset`.
        """
        if not isinstance(action, str):
            raise UsageError(f"a response must be a string, got {type(action).__name__}")
        observation, reward, terminated, truncated, info = self.env.step(Response(action))
        return observation, reward, terminated, truncated, {**info, "prompt": self.game_env.prompt()}
