"""Datasets of prompts with images and snapshots, from which responses are scored, and their cards for the Hub."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from PIL import Image
from pydantic import ConfigDict, TypeAdapter, ValidationError

from vlmgym.checks import to_int
from vlmgym.errors import UsageError, describe_validation_error, importing, short_repr
from vlmgym.rollout.episode import Episode, game_setups
from vlmgym.rollout.states import FIRST_VALIDATION_SEED, VALIDATION_STREAM, StateConfig, sample_state, split_questions
from vlmgym.rollout.turn import GameSetup, LiveEpisode
from vlmgym.runs.record import versions
from vlmgym.sandbox.core.game import Game
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
    games: object, n: int, seed: int = 0, split: Split = "train", *, states: States = None, **settings: Any
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
        settings: Fields of `EpisodeSettings`, and levels and config fields of the games, as for `Episode`.

    Raises:
        UsageError: An argument is invalid.
    """
    episodes = make_episodes(games, n, seed, split, states=states, **settings)
    return [_row(episode) for episode in episodes]


def make_episodes(
    games: object, n: int, seed: int = 0, split: Split = "train", *, states: States = None, **settings: Any
) -> Iterator[Episode]:
    """Yield the episodes that `make_dataset` makes into rows, given the same arguments, without drawing images.

    Raises:
        UsageError: An argument is invalid.
    """
    n, seed = to_int("n", n, 1), to_int("seed", seed, 0)
    if split not in ("train", "validation"):
        raise UsageError(f"split must be train or validation, got {short_repr(split)}")
    distribution = _state_config(states)
    setups = game_setups(games, **settings)
    starts = (_start(setups[i % len(setups)], seed, i // len(setups), split, distribution) for i in range(n))
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


def _state_config(states: States) -> StateConfig | None:
    """Validate a distribution of states and return it as a `StateConfig`; None for initial states.

    Raises:
        UsageError: The distribution is invalid.
    """
    try:
        return _STATES.validate_python(states)
    except ValidationError as error:
        raise UsageError(f"states: {describe_validation_error(error)}") from None


def _start(setup: GameSetup, seed: int, index: int, split: Split, states: StateConfig | None) -> LiveEpisode:
    """Start the episode of a row; `index` counts the rows of its game."""
    if states is None:
        return LiveEpisode(setup, _seed(setup.game, seed + index, split))
    validation = split == "validation"
    stream = seed + VALIDATION_STREAM if validation else seed
    snapshot = sample_state(setup.game, stream, index, states, setup.settings.reward, validation=validation)
    return LiveEpisode(setup, snapshot)


def _seed(game: Game[Any, Any], index: int, split: Split) -> int:
    """Return the seed of an initial state."""
    questions = split_questions(game, StateConfig().validation_fraction)
    if questions is not None:
        return questions.seed(index, validation=split == "validation")
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


BODY = """\
# {title}

States of games ({rows}), made by `vlmgym.make_dataset` of vlmgym {version}, with the arguments in the metadata of \
this card.

| column | |
|---|---|
| `prompt` | chat messages; the images go before the text of the last one |
| `images` | images that the prompt refers to |
| `snapshot` | the episode, which `vlmgym.score`, `vlmgym.reward_fn` and `vlmgym.Episode.restore` take |
| `seed`, `game` | seed of the episode and id of the game |
| `answer` | what the oracle would write inside `<answer>` |
"""
SOURCES = """
## Sources of images

"""


def dataset_card(rows: Mapping[str, Sequence[Row]], seed: int = 0, states: States = None) -> str:
    """Return the text of a dataset card (README.md): licence, games, versions, and the arguments of `make_dataset`.

    The licence is vlmgym's, or `other`, with a list of image sources, if vlmgym did not generate all images.

    Args:
        rows: Rows of each split, in the order of `make_dataset`.
        seed: Argument of `make_dataset`, the same for all splits.
        states: Argument of `make_dataset`, the same for all splits.

    Raises:
        UsageError: `rows` is not a mapping from splits to rows.
    """
    if not isinstance(rows, Mapping) or not rows or not {*rows} <= {*get_args(Split)}:
        raise UsageError("rows must be a mapping from train, validation or both to rows of make_dataset")
    distribution = _state_config(states)
    settings: dict[str, dict[str, Any]] = {}
    sources: dict[str, str] = {}
    for split_rows in rows.values():
        for row in split_rows:
            game, snapshot = Episode.restore(row["snapshot"]).game, json.loads(row["snapshot"])
            setting = {name: snapshot[name] for name in ("game", "max_turns", "reward", "prompts")}
            settings.setdefault(json.dumps(setting), setting)
            if game.image_source is not None:
                sources[game.id] = game.image_source
    games = ", ".join(dict.fromkeys(setting["game"]["id"] for setting in settings.values()))
    has_images = any(row["images"] for split_rows in rows.values() for row in split_rows)
    title, package_versions = f"vlmgym: {games}", versions()
    counts = {split: len(split_rows) for split, split_rows in rows.items()}
    metadata = {
        "license": "other" if sources else "apache-2.0",
        "pretty_name": title,
        "task_categories": ["image-text-to-text" if has_images else "text-generation"],
        "tags": ["vlmgym", "games", "reinforcement-learning"],
        "vlmgym": {
            "versions": package_versions,
            "seed": seed,
            "splits": counts,
            "states": distribution and asdict(distribution),
            "settings": [*settings.values()],
        },
    }
    head = "".join(f"{name}: {json.dumps(value)}\n" for name, value in metadata.items())  # JSON is YAML
    row_counts = ", ".join(f"{split}: {count:,}" for split, count in counts.items())
    body = BODY.format(title=title, rows=row_counts, version=package_versions["vlmgym"])
    if sources:
        body += SOURCES + "".join(f"- {game}: {source}\n" for game, source in sources.items())
    return f"---\n{head}---\n\n{body}"
