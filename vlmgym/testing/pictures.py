"""Pictures, and the environment that shows them."""

from __future__ import annotations

import warnings
from itertools import islice

import numpy as np
from gymnasium.utils.env_checker import check_env

from vlmgym.sandbox.env import GameEnv
from vlmgym.testing.positions import AnyGame, Seeds, observation, positions, same_game_again
from vlmgym.testing.transcript import digest


def check_pictures(game: AnyGame, seeds: Seeds) -> None:
    """Pictures are uint8 RGB of the announced shape; writing into one does not change the next."""
    for state in islice(positions(game, seeds), 4):
        pictures = game.images(state)
        shapes = [picture.shape for picture in pictures]
        assert shapes == list(game.picture_shapes), f"draw returns shapes {shapes}, not {game.picture_shapes}"
        for picture in pictures:
            assert picture.dtype == np.uint8, f"the picture is {picture.dtype}, not uint8"
            assert picture.ndim == 3, f"the picture has {picture.ndim} axes, not 3"
            assert picture.shape[2] == 3, f"the picture has {picture.shape[2]} channels, not 3"
        assert game.observation_space.contains(observation(game, state)), (
            f"pictures of shapes {[p.shape for p in pictures]} are not in {game.observation_space}"
        )
        before = digest(game, state)
        for picture in pictures:
            if picture.flags.writeable:
                picture[...] = 255 - picture
        assert digest(game, state) == before, "writing into a picture changes what is drawn next"
        assert digest(same_game_again(game), state) == before, f"two games draw {game.to_json(state)} differently"


def check_picture_and_description(game: AnyGame, seeds: Seeds) -> None:
    """Positions with different descriptions have different pictures."""
    seen: dict[tuple[str, ...], str] = {}
    for state in positions(game, seeds):
        description = game.describe(state)
        assert description.strip(), f"the description of {game.to_json(state)} is empty"
        other = seen.setdefault(digest(game, state), description)
        assert other == description, f"one picture has two descriptions, {other!r} and {description!r}"


def check_environment(game: AnyGame, seeds: Seeds) -> None:
    """Gymnasium's own checker accepts the environment without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(GameEnv(game), skip_render_check=True)  # other render modes need an id to make them by
