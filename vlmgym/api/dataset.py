"""Datasets of prompts with images, and with the snapshots from which responses are scored."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from PIL import Image
from pydantic import ConfigDict, TypeAdapter, ValidationError

from vlmgym.api.episode import Episode, episode_configs
from vlmgym.checks import as_int, check_int
from vlmgym.errors import UsageError, describe_validation_error, importing, short_repr
from vlmgym.rollout.states import FIRST_VALIDATION_SEED, VALIDATION_STREAM, StateConfig, sample_state, split_questions
from vlmgym.rollout.turn import EpisodeConfig, LiveEpisode
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.prompt import ObservationType
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.sandbox.drawing.encode import encode_png

if TYPE_CHECKING:
    import datasets

Split = Literal["train", "validation"]
States = StateConfig | Mapping[str, Any] | None
_STATES: TypeAdapter[StateConfig | None] = TypeAdapter(StateConfig | None, config=ConfigDict(extra="forbid"))


class Row(TypedDict):
    """One state of a game.

    Attributes:
        prompt: One user message, whose text goes after the images; in a chat, it follows the system prompt.
        images: The images, as PIL images that are decoded when first used.
        snapshot: The episode, for `score`, `reward_fn` and `Episode.restore`.
        seed: Seed of the episode.
        game: Id of the game.
        answer: What the oracle would write inside `<answer>`; None without an oracle.
    """

    prompt: list[dict[str, str]]
    images: list[Image.Image]
    snapshot: str
    seed: int
    game: str
    answer: str | None


def make_dataset(
    games: object,
    n: int,
    seed: int = 0,
    split: Split = "train",
    *,
    states: States = None,
    max_turns: int = 100,
    observation: ObservationType = "image",
    chat: bool = False,
    history: int | None = None,
    history_images: int | None = None,
    reward: RewardConfig | Mapping[str, Any] = RewardConfig(),  # noqa: B008 - frozen
    perception: int = 3,
    reasoning: int = 3,
    **overrides: Any,
) -> list[Row]:
    """Make a dataset of states. The same arguments always give the same rows.

    By default, row i is the initial state of the episode with seed `seed` + i (1,000,000 + `seed` + i for
    `validation`). Tasks over a finite dataset instead ask its training or validation questions in order, starting at
    index `seed` and wrapping around. With several games, rows alternate between them, and i counts the
    rows of each game.

    Args:
        games: One or more games, as ids, names or games made by `vlmgym.make_game`.
        n: Number of rows.
        seed: Selects the first row as described above; with `states`, the seed from which all rows are sampled.
        split: `train` or `validation`, which share no seeds; with `states`, they are sampled from different random
            streams.
        states: Distribution of states after some moves, as a `StateConfig` or a mapping of its fields. Default: the
            initial states of games.
        max_turns: Turn limit of an episode that starts at a row; see `Episode` for this and the other settings.
        observation: Show states as `image`, as `text` (the game's description) or as `both`.
        chat: Play a conversation: a system prompt with the rules, and a user and an assistant message per turn.
        history: Number of earlier turns in each prompt. Default: `game.history`, or all with `chat`.
        history_images: Number of earlier turns whose images (with `text`: descriptions) are in each prompt. Default:
            `game.history`, but at most `history`.
        reward: Weights and shaping of the reward, as a `RewardConfig` or a mapping of its fields.
        perception: Perceptual difficulty, 1 to 5.
        reasoning: Reasoning difficulty, 1 to 5.
        overrides: Config fields that override the levels, e.g. `size=320`.

    Raises:
        UsageError: An argument is invalid.
    """
    episodes = make_episodes(
        games,
        n,
        seed,
        split,
        states=states,
        max_turns=max_turns,
        observation=observation,
        chat=chat,
        history=history,
        history_images=history_images,
        reward=reward,
        perception=perception,
        reasoning=reasoning,
        **overrides,
    )
    return [_row(episode) for episode in episodes]


def make_episodes(
    games: object, n: int, seed: int = 0, split: Split = "train", *, states: States = None, **settings: Any
) -> Iterator[Episode]:
    """Yield the episodes that `make_dataset` makes into rows, given the same arguments, without drawing images.

    Raises:
        UsageError: An argument is invalid.
    """
    n, seed = as_int(n), as_int(seed)
    check_int("n", n, 1)
    check_int("seed", seed, 0)
    if split not in ("train", "validation"):
        raise UsageError(f"split must be train or validation, got {short_repr(split)}")
    distribution = state_config(states)
    configs = episode_configs(games, **settings)
    starts = (start(configs[i % len(configs)], seed, i // len(configs), split, distribution) for i in range(n))
    return map(Episode.of, starts)


def to_hf_dataset(rows: list[Row]) -> datasets.Dataset:
    """Convert rows of `make_dataset` to a `datasets.Dataset`.

    Raises:
        UsageError: The package datasets is not installed.
    """
    with importing("to_hf_dataset", "data"):
        from datasets import Dataset, Features, Image, Value
    text = Value("string")
    features = Features(
        {
            "prompt": [{"role": text, "content": text}],
            "images": [Image()],
            "snapshot": text,
            "seed": Value("int64"),
            "game": text,
            "answer": text,
        }
    )
    return Dataset.from_list(rows, features=features)


def state_config(states: States) -> StateConfig | None:
    """Validate a distribution of states and return it as a `StateConfig`; None for initial states.

    Raises:
        UsageError: The distribution is invalid.
    """
    try:
        return _STATES.validate_python(states)
    except ValidationError as error:
        raise UsageError(f"states: {describe_validation_error(error)}") from None


def start(config: EpisodeConfig, seed: int, index: int, split: Split, states: StateConfig | None) -> LiveEpisode:
    """Start the episode of a row; `index` counts the rows of its game."""
    if states is None:
        return LiveEpisode(config, _seed(config.game, seed + index, split))
    validation = split == "validation"
    stream = seed + VALIDATION_STREAM if validation else seed
    snapshot = sample_state(config.game, stream, index, states, config.reward, validation=validation)
    return LiveEpisode(config, snapshot)


def _seed(game: Game[Any, Any], index: int, split: Split) -> int:
    """Return the seed of an initial state."""
    questions = split_questions(game, StateConfig().validation_fraction)
    if questions is not None:
        seeds = questions.training if split == "train" else questions.validation
        return seeds[index % len(seeds)]
    if split == "validation":
        return FIRST_VALIDATION_SEED + index
    if index >= FIRST_VALIDATION_SEED:
        raise UsageError(f"seeds of split train must be below {FIRST_VALIDATION_SEED:,}, got {index:,}")
    return index


def _row(episode: Episode) -> Row:
    return Row(
        prompt=[{"role": message.role, "content": message.text} for message in episode._live.observation.messages],
        images=[Image.open(io.BytesIO(encode_png(image))) for image in episode.images],
        snapshot=episode.snapshot(),
        seed=episode.seed,
        game=episode.game.id,
        answer=episode.answer(),
    )
