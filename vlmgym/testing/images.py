"""Checks of images and of the Gymnasium environment."""

from __future__ import annotations

import warnings
from itertools import islice

import numpy as np
from gymnasium.utils.env_checker import check_env

from vlmgym.sandbox.envs.single import GameEnv
from vlmgym.testing.states import AnyGame, Seeds, observation, same_game_again, sample_states
from vlmgym.testing.transcript import digest


def check_images(game: AnyGame, seeds: Seeds) -> None:
    """Check that images are uint8 RGB with the declared shapes, and that writing into one does not change the next."""
    for state in islice(sample_states(game, seeds), 4):
        images = game.images(state)
        shapes = [image.shape for image in images]
        assert shapes == list(game.image_shapes), f"draw returns shapes {shapes}, expected {game.image_shapes}"
        for image in images:
            assert image.dtype == np.uint8, f"the image is {image.dtype}, not uint8"
            assert image.ndim == 3, f"the image has {image.ndim} axes, not 3"
            assert image.shape[2] == 3, f"the image has {image.shape[2]} channels, not 3"
        assert game.observation_space.contains(observation(game, state)), (
            f"images of shapes {[p.shape for p in images]} are not in {game.observation_space}"
        )
        before = digest(game, state)
        for image in images:
            if image.flags.writeable:
                image[...] = 255 - image
        assert digest(game, state) == before, "writing into an image changes the next image"
        assert digest(same_game_again(game), state) == before, f"two games draw {game.to_json(state)} differently"


def check_image_and_description(game: AnyGame, seeds: Seeds) -> None:
    """Check that states with different descriptions have different images."""
    seen: dict[tuple[str, ...], str] = {}
    for state in sample_states(game, seeds):
        description = game.describe(state)
        assert description.strip(), f"the description of {game.to_json(state)} is empty"
        other = seen.setdefault(digest(game, state), description)
        assert other == description, f"one image has two descriptions, {other!r} and {description!r}"


def check_environment(game: AnyGame, seeds: Seeds) -> None:
    """Check that Gymnasium's environment checker accepts the environment without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(GameEnv(game), skip_render_check=True)  # other render modes require a registered id
