"""geospot: rewards, answers, data and maps."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from vlmgym import make_game
from vlmgym.errors import IllegalAction, ParseError, UsageError
from vlmgym.sandbox.core.reward import Outcome, score_response
from vlmgym.sandbox.data.rows import BadRow, number_of
from vlmgym.sandbox.games.geospot.config import CURRICULA, GeospotConfig
from vlmgym.sandbox.games.geospot.drawing import MARK, Viewport
from vlmgym.sandbox.games.geospot.game import Geospot, GeospotState, state_of
from vlmgym.sandbox.games.geospot.gazetteer import distance_km, gazetteer
from vlmgym.sandbox.games.geospot.place import Place, compare_places, compute_reward, parse_place, place_of

DOCS = Path(__file__).parents[2] / "docs" / "tasks" / "geospot.md"

LATITUDE, LONGITUDE = 48.8534, 2.3488
PARIS = Place("Paris", "Île-de-France", "France", (LATITUDE, LONGITUDE))


def answer(city="unknown", region="unknown", country="unknown", latitude="unknown", longitude="unknown"):
    return f"city: {city}\nregion: {region}\ncountry: {country}\nlatitude: {latitude}\nlongitude: {longitude}"


def state_at(place):
    latitude, longitude = place.coordinates
    return GeospotState(
        city=place.city,
        region=place.region,
        country=place.country,
        latitude=latitude,
        longitude=longitude,
        middle=place.coordinates,
    )


# Rewards --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.slow)])
def test_the_oracle_earns_one_for_every_city(step):
    game, places = make_game("geospot"), gazetteer()
    for number in range(0, game.config.cities, step):
        city = places.city_at(number)
        state = state_of(city, (0.0, 0.0))
        assert game.score(state, game.solution(state))[0] == pytest.approx(1.0), city


def test_an_ambiguous_name_means_the_true_city():
    game = make_game("geospot")
    texan = state_at(Place("Paris", "Texas", "US", (33.6609, -95.5555)))
    for region, country in (("Texas", "US"), ("unknown", "US"), ("unknown", "unknown"), ("Freedonia", "US")):
        assert game.score(texan, answer("Paris", region, country))[1]["km"]["city"] == 0
    for region, country in (("unknown", "France"), ("Ile-de-France", "unknown"), ("Ile-de-France", "US")):
        assert game.score(texan, answer("Paris", region, country))[1]["km"]["city"] > 1000


@pytest.mark.parametrize("preset", sorted(CURRICULA))
@pytest.mark.parametrize("stage", range(1, 6))
def test_the_truth_earns_one_and_unknown_earns_zero(preset, stage):
    game = make_game("geospot", preset=preset, stage=stage)
    state = state_at(PARIS)
    assert game.score(state, game.solution(state))[0] == pytest.approx(1.0)
    assert game.score(state, answer())[0] == 0.0


@given(st.integers(0, 33_000), st.integers(0, 33_000), st.sampled_from(sorted(CURRICULA)), st.integers(1, 5))
def test_omitting_a_field_never_pays(true, said, preset, stage):
    places = gazetteer()
    truth = place_of(places.city_at(true))
    guess = place_of(places.city_at(said))
    weights, scales = CURRICULA[preset][stage - 1][1:]
    distances = compare_places(guess, truth, places).distances
    total, parts = compute_reward(distances, weights, scales)
    assert all(0 <= part <= 1 for part in (total, *parts.values()))
    guess_without_city = Place(None, guess.region, guess.country, guess.coordinates)
    fewer = compare_places(guess_without_city, truth, places).distances
    assert fewer["city"] is None
    assert compute_reward(fewer, weights, scales)[0] <= total + 1e-12


def test_unknown_names_earn_nothing_and_are_reported():
    game = make_game("geospot", preset="mixtrain")
    total, info = game.score(state_at(PARIS), answer("Xyzzyville", "Ile-de-France", "Freedonia", 48.8534, 2.3488))
    assert info["not found"] == ["country", "city"]
    assert info["km"]["country"] is None
    assert info["km"]["city"] is None
    assert total == pytest.approx(0.2 + 0.3)


def test_truths_with_missing_fields_or_outside_the_gazetteer():
    places = gazetteer()
    village = Place("Kleinkleckersdorf", None, "DE", (51.0, 10.0))
    right = Place("kleinkleckersdorf", None, "Germany", (51.0, 10.0))
    distances = compare_places(right, village, places).distances
    assert distances == {"country": 0, "city": 0, "coordinates": 0}
    assert compute_reward(distances, *CURRICULA["vlm-gym"][4][1:])[0] == 1
    erfurt = compare_places(Place("Erfurt", None, "DE", None), village, places).distances
    assert erfurt["city"] == pytest.approx(distance_km(51.0, 10.0, 50.98, 11.03), rel=0.05)
    elsewhere = compare_places(Place("Kleinkleckersdorf", None, "France", None), village, places).distances
    assert elsewhere["city"] is None


def test_the_docs_show_the_curricula():
    page = DOCS.read_text("utf-8")
    for preset, stages in CURRICULA.items():
        for number, stage in enumerate(stages, 1):
            numbers = [number, stage.begin, *stage.weights, *stage.scales]
            assert f"| `{preset}` | {' | '.join(f'{each:g}' for each in numbers)} |" in page
    assert all(stage.scales == (2000, 500, 100, 25) for stage in CURRICULA["vlm-gym"][1:])


def test_custom_weights_scales_and_tolerance():
    state, north = state_at(PARIS), answer(latitude=LATITUDE + 1, longitude=LONGITUDE)
    km = distance_km(48.0, 0, 49.0, 0)
    game = make_game("geospot", weights=[0, 0, 0, 2], scales=[1, 1, 1, 50], tolerance=2.0)
    assert game.score(state, north)[0] == pytest.approx(math.exp(-km / 100))
    assert Geospot(GeospotConfig.model_validate_json(game.config.model_dump_json())) == game
    for overrides in ({"scales": [-1, 1, 1, 1]}, {"weights": [0, 0, 0, 0]}, {"stage": 6}, {"preset": "x"}):
        with pytest.raises(UsageError, match=f"geospot: .*{next(iter(overrides))}"):
            make_game("geospot", **overrides)


# Answers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("48", 48.0), ("48.", 48.0), ("+48.5.", 48.5), ("\u221233.87", -33.87), (".5", 0.5), ("1e-05", 1e-05),
        ("-12.1234567890123456789", -12.123457),
    ],
)  # fmt: skip
def test_answers_and_data_accept_the_same_numbers(text, number):
    read = parse_place(answer(latitude=text, longitude=text)).coordinates
    assert read == pytest.approx((number, number), abs=1e-6)
    assert number_of({"latitude": text}, "latitude") == pytest.approx(number, abs=1e-6)


@pytest.mark.parametrize(
    "text", ["4_8", "48,5", "48..", "1e5", "nan", "inf", "0x30", "٤٨", "--4", "4 8", "1" * 400, "."]
)
def test_answers_and_data_reject_the_same_numbers(text):
    with pytest.raises(ParseError, match="latitude must be decimal degrees"):
        parse_place(answer(latitude=text, longitude="2"))
    with pytest.raises(BadRow, match="latitude must be a number"):
        number_of({"latitude": text}, "latitude")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Paris", "five values"),
        ("city: Paris\nregion: IDF\ncountry: France\nlatitude: 48.86", "no line for longitude"),
        ("city: Paris\ncity: Lyon\nregion: x\ncountry: y\nlatitude: 1\nlongitude: 2", "more than one line for city"),
        (answer("Paris", latitude="48.86° E", longitude="2"), "latitude must be decimal degrees"),
        (answer("Paris", latitude="48"), "both be numbers or both unknown"),
        (answer(""), "city must be a name"),
    ],
)
def test_other_answers_are_rejected(text, why):
    with pytest.raises(ParseError, match=re.escape(why)):
        parse_place(text)


@pytest.mark.parametrize(
    ("latitude", "longitude", "why"),
    [
        ("95", "2", "latitude must be between -90 and 90, got 95"),
        ("0", "-180.5", "longitude must be between -180 and 180, got -180.5"),
    ],
)
def test_coordinates_out_of_range_are_illegal(latitude, longitude, why):
    game = make_game("geospot")
    state = state_at(PARIS)
    response = f"<answer>{answer('Paris', latitude=latitude, longitude=longitude)}</answer>"
    scored = score_response(game, state, response, np.random.default_rng(0))
    assert (scored.outcome, scored.feedback, scored.game, scored.terminated) == (Outcome.ILLEGAL, why, 0.0, True)
    with pytest.raises(IllegalAction):
        game.step(state, "no place", np.random.default_rng(0))


def test_metrics():
    game = make_game("geospot")
    state = state_at(PARIS)
    step = game.step(state, answer("Lyon", "unknown", "France", 45.7491, 4.8479), np.random.default_rng(0))
    metrics = game.metrics(step.state, [step.info])
    km = distance_km(LATITUDE, LONGITUDE, 45.7491, 4.8479)
    assert metrics == {
        "distance km": pytest.approx(km),
        "geoscore": pytest.approx(5000 * math.exp(-km / 1492.7)),
        "city right": 0.0,
        "region right": 0.0,
        "country right": 1.0,
        "within 25 km": 0.0,
        "within 200 km": 0.0,
        "within 750 km": 1.0,
    }
    missed = game.metrics(game.on_invalid(state, np.random.default_rng(0)).state, [{}])
    assert "distance km" not in missed
    assert set(missed.values()) == {0.0}


# Data -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def photos(tmp_path):
    rows = [
        "image,lat,lon,country,region,city",
        "a.png,48.85,2.35,FR,Île-de-France,Paris",
        "b.png,95,2,FR,,",
        "c.png,1,2,Freedonia,,",
        "d.png,,2,FR,,",
        "e.png,-33.87,151.21,,,",
        "f.png,1,181,FR,,",
    ]
    for index, name in enumerate("abcdef"):
        Image.new("RGB", (40, 20), (40 * index, 90, 160)).save(tmp_path / f"{name}.png")
    path = tmp_path / "photos.csv"
    path.write_text("\n".join(rows), "utf-8")
    return str(path)


def test_photos_from_data_and_bad_rows(photos):
    game = make_game("geospot", data=photos, order="rows", size=64)
    paris = game.start_at(0, np.random.default_rng(0))
    assert (paris.city, paris.region, paris.country, paris.latitude) == ("Paris", "Île-de-France", "FR", 48.85)
    assert game.describe(paris) == "a photograph"
    assert game.perceive(paris, "a photograph") is None
    assert "<answer>" in game.prompt(paris)
    assert "mark" not in game.prompt(paris)
    assert tuple(game.images(paris)[0][32, 32]) == (0, 90, 160)
    assert game.score(paris, "Paris, IDF, France, 48.85, 2.35")[0] == 1.0
    sydney = game.start_at(1, np.random.default_rng(0))
    assert (sydney.city, sydney.latitude) == ("", -33.87)
    assert [skipped.reason for skipped in sydney.skipped] == [
        "latitude must be between -90 and 90, got 95",
        "country must be a country's name or ISO code, got 'Freedonia'",
        "latitude is empty",
    ]
    assert game.score(sydney, game.solution(sydney))[0] == 1.0  # only the coordinates count
    assert game.from_json(game.to_json(sydney)) == sydney
    with pytest.raises(UsageError, match=r"row 1 of .* latitude .* got 95"):
        make_game("geospot", data=photos, order="rows", bad_rows="fail").start_at(1, np.random.default_rng(0))


@pytest.fixture
def rows(tmp_path):
    """Return a function that writes one row per place and returns the game."""
    Image.new("RGB", (40, 20)).save(tmp_path / "a.png")

    def game(*places, **overrides):
        lines = ["image,lat,lon,country,region,city", *(",".join(("a.png", *map(str, place))) for place in places)]
        (tmp_path / "rows.csv").write_text("\n".join(lines), "utf-8")
        return make_game("geospot", data=str(tmp_path / "rows.csv"), order="rows", bad_rows="fail", **overrides)

    return game


@pytest.mark.parametrize("word", ["Unknown", "(N/A)", "", "nan", "-"])
@pytest.mark.parametrize("overrides", [{}, {"scales": [0, 0, 0, 0]}])
def test_words_for_unknown_mean_a_missing_name(rows, word, overrides):
    game = rows((52.5, 13.4, word, word, "Berlin"), (48.123456789, 11.6, "Germany", word, word), **overrides)
    for seed in range(2):
        state = game.start_at(seed, np.random.default_rng(0))
        assert not state.region
        assert game.score(state, game.solution(state))[0] == 1.0


def test_places_that_are_spelled_like_missing_values_are_names(rows):
    state = rows((18.78, 100.78, "Thailand", "Nan", "Nan")).start_at(0, np.random.default_rng(0))
    assert (state.region, state.city) == ("Nan", "Nan")
    state = rows((-22.56, 17.08, "NA", "NA", "Windhoek")).start_at(0, np.random.default_rng(0))
    assert (state.country, state.region) == ("NA", "")


def test_coordinates_with_hemispheres_are_read_as_in_answers(rows):
    game = rows(("33.87° S", "151.21°E", "AU", "", ""))
    state = game.start_at(0, np.random.default_rng(0))
    assert (state.latitude, state.longitude) == (-33.87, 151.21)


def test_a_row_without_any_rewarded_field_is_bad(photos):
    game = make_game("geospot", data=photos, order="rows", stage=1)
    state = game.start_at(4, np.random.default_rng(0))
    assert "the row has no country" in state.skipped[0].reason


# Maps -----------------------------------------------------------------------------------------------------------------


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
    for seed in range(4):
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


@pytest.mark.parametrize(("longitude", "middle"), [(178.44, -178.0), (-171.77, 178.0)])
def test_maps_extend_beyond_the_date_line(longitude, middle):
    game = make_game("geospot", names=0)
    state = GeospotState(city="x", region="", country="", latitude=-15.0, longitude=longitude, middle=(-12.0, middle))
    assert distance_km(*marked(game, state), -15.0, longitude) < 1.5 * game.config.span * 111.2 / game.config.size


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
