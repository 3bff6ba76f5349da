"""Generated maps of geospot."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.games.places import PARIS, state_at
from vlmgym import make_game
from vlmgym.sandbox.games.geospot.drawing import MARK, Viewport, viewport_around
from vlmgym.sandbox.games.geospot.game import GeospotState
from vlmgym.sandbox.games.geospot.gazetteer import distance_km

latitudes = st.floats(-90, 90)
longitudes = st.floats(-180, 180)


def marked(game, state):
    """Find the mark by its colour; return its latitude and longitude."""
    (image,) = game.paint(state)
    near = np.abs(image.astype(int) - MARK).sum(axis=2) < 60
    down, right = np.nonzero(near)
    viewport, size = Viewport(*state.middle, game.config.span), game.config.size
    y, x = (down.min() + down.max() + 1) / 2, (right.min() + right.max() + 1) / 2
    latitude = viewport.latitude + viewport.span / 2 - y * viewport.span / size
    return latitude, viewport.longitude - viewport.width / 2 + x * viewport.width / size


@pytest.mark.parametrize("perception", [1, 3, 5])
def test_the_mark_is_at_the_city(perception):
    game = make_game("geospot", perception, 5, size=640)
    for seed in range(8):
        state = game.start(np.random.default_rng(seed))
        km = distance_km(*marked(game, state), state.latitude, state.longitude)
        assert km < 1.5 * game.config.span * 111.2 / game.config.size  # 1.5 pixels


@pytest.mark.parametrize("level", range(1, 6))
@pytest.mark.parametrize("overrides", [{}, {"crop": 0.2}, {"crop": 0.4}, {"crop": 0.4, "mark": 5.0, "cities": 34_000}])
def test_the_mark_is_never_cropped(level, overrides):
    game = make_game("geospot", perception=level, reasoning=level, **overrides)
    left = (1 - game.config.crop) / 2  # half of the visible part of the side
    for seed in range(60):
        state = game.generate(np.random.default_rng(seed))
        viewport = Viewport(*state.middle, game.config.span)
        east = (state.longitude - viewport.longitude + 180) % 360 - 180
        reach = max(abs(east) / viewport.width, abs(state.latitude - viewport.latitude) / viewport.span)
        assert reach + 1.7 * game.config.mark / 100 <= left, state


def test_labels_are_not_cropped():
    game = make_game("geospot", crop=0.2)
    state = game.generate(np.random.default_rng(1))
    written, plain = (game.paint(state)[0], make_game("geospot", degrees=False, names=0).paint(state)[0])
    rows, columns = np.nonzero((written != plain).any(axis=2))
    assert len(rows) > 500
    assert min(rows.min(), columns.min()) >= 63
    assert max(rows.max(), columns.max()) <= 576


@pytest.mark.parametrize(("longitude", "middle"), [(178.44, -178.0), (-171.77, 178.0)])
def test_maps_extend_beyond_the_date_line(longitude, middle):
    game = make_game("geospot", names=0)
    state = GeospotState(city="x", region="", country="", latitude=-15.0, longitude=longitude, middle=(-12.0, middle))
    assert distance_km(*marked(game, state), -15.0, longitude) < 1.5 * game.config.span * 111.2 / game.config.size


@given(latitudes, longitudes, st.integers(5, 160), st.floats(-0.3, 0.3), st.floats(-0.3, 0.3), st.floats(0, 0.4))
def test_a_place_is_inside_the_viewport_around_it(latitude, longitude, span, right, up, crop):
    viewport = viewport_around(latitude, longitude, span, right, up, crop)
    assert abs(viewport.latitude) + span * (1 - crop) / 2 <= 90 + 1e-3
    assert abs(viewport.longitude) <= 180
    assert abs(latitude - viewport.latitude) <= span * (1 - crop) / 2 + 1e-3
    east = (longitude - viewport.longitude + 180) % 360 - 180
    assert abs(east) <= viewport.width / 2 + 1e-3


def test_the_marked_city_is_never_labelled():
    game = make_game("geospot", reasoning=1)
    state = game.start(np.random.default_rng(0))
    plain = make_game("geospot", reasoning=1, names=0)
    assert not np.array_equal(game.paint(state)[0], plain.paint(state)[0])
    assert make_game("geospot", reasoning=4).config.names == 0
    alone = make_game("geospot", names=1, lights=1, cities=1)  # the only light is Shanghai, which is marked
    state = alone.start(np.random.default_rng(0))
    assert np.array_equal(alone.paint(state)[0], make_game("geospot", names=0, lights=1, cities=1).paint(state)[0])


def test_perception_scores_the_distance_from_the_mark():
    game = make_game("geospot")
    state = state_at(PARIS)
    assert game.describe(state) == "latitude 48.85, longitude 2.35"
    assert game.perceive(state, " 48.85 , 2.35 ") == (1.0, 1.0)
    assert game.perceive(state, "408.85, 2.35") == (0.0, 0.0)  # out of range
    near, far = game.perceive(state, "48.7, 2.35"), game.perceive(state, "Latitude: 40, Longitude: 2.35")
    assert near.exact == 1.0
    assert near.partial > far.partial > 0
    assert far.exact == 0.0
    for wrong in ("", "Paris", "48.85", "48.85, 2.35, 7", "latitude 48.85 longitude 2.35", "1, " * 9999):
        assert game.perceive(state, wrong) == (0.0, 0.0)
