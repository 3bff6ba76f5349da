"""Distances between places, and lookup of every city, region and country by its names."""

import re
import sys
from pathlib import Path

import pycountry
import pytest

from vlmgym.sandbox.games.geospot.gazetteer import distance_km, gazetteer, normalise, without_generic_words


@pytest.mark.parametrize(
    ("one", "other", "geodesic"),
    [
        ((-41.32, 174.81), (40.96, -5.50), 19959.679),  # Wellington, Salamanca: an example of GeographicLib
        ((0.0, 0.0), (90.0, 0.0), 10001.966),  # the quarter meridian of WGS 84
        ((0.0, 0.0), (0.0, 90.0), 10018.754),  # a quarter of the equator of WGS 84
        ((0.0, 179.5), (0.0, -179.5), 111.3195),
    ],
)
def test_distances_agree_with_the_ellipsoid(one, other, geodesic):
    assert distance_km(*one, *other) == pytest.approx(geodesic, rel=0.006)


def test_official_names_are_found():
    places, found = gazetteer(), 0
    for entry in pycountry.countries:
        if places.country(entry.alpha_2) is not None:  # some islands have no inhabitants
            for name in (entry.name, getattr(entry, "official_name", entry.name), entry.alpha_2, entry.alpha_3):
                for form in (name, name.upper(), ", ".join(reversed(name.split(" of ")))):
                    country = places.country(form)
                    assert country is not None, form
                    assert country.code == entry.alpha_2, form
            found += 1
    assert found > 240


@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.slow)])
def test_every_city_is_found(step):
    places = gazetteer()
    assert len(places) > 30_000
    for number in range(0, len(places), step):
        city = places.city_at(number)
        found = places.city(city.name, places.country_of(city), places.region_of(city))
        assert found is not None, city
        assert (found.country, found.region) == (city.country, city.region), city
        assert found.population >= city.population, city
        assert places.city_near(city.name, city.latitude, city.longitude) is not None


def test_every_region_is_found():
    places, others = gazetteer(), {}
    path = Path(sys.modules["vlmgym.sandbox.games.geospot"].__path__[0]) / "data" / "regions.tsv"
    for code, own, name, *_ in (line.split("\t") for line in path.read_text("utf-8").splitlines()):
        country = places.country(code)
        found = places.region(name, country)
        assert found is not None, name
        assert (found.country, found.code) == (code, own), name
        bare = places.region(without_generic_words(normalise(re.sub(r"\(.*?\)", "", name))), country)
        assert bare is not None, name
        if (bare.country, bare.code) != (code, own):
            others[code, own] = bare.name
    assert len(others) <= 18  # mostly a city and the region around it, such as Kyiv


@pytest.mark.parametrize(
    ("city", "region", "country", "latitude", "longitude"),
    [
        ("Paris", None, None, 48.85, 2.35),
        ("PARIS", "Texas", "USA", 33.66, -95.56),
        ("paris", "TX", None, 33.66, -95.56),
        ("Paris", None, "Germany", 48.85, 2.35),  # Germany has no city of this name
        ("München", "Bayern", "Deutschland", 48.14, 11.58),
        ("St. Petersburg", "Florida", "United States of America", 27.77, -82.68),
        ("東京", None, "日本", 35.69, 139.69),
        ("Saint-Étienne", None, None, 45.43, 4.39),
    ],
)
def test_preferred_city_of_a_name(city, region, country, latitude, longitude):
    places = gazetteer()
    known_country = places.country(country) if country else None
    known_region = places.region(region, known_country) if region else None
    assert (known_country is None) == (country is None)
    assert (known_region is None) == (region is None)
    found = places.city(city, known_country, known_region)
    assert found is not None
    assert (found.latitude, found.longitude) == pytest.approx((latitude, longitude), abs=0.02)


@pytest.mark.parametrize(
    ("region", "country", "same"),
    [
        ("Bavaria", "DE", "Bayern"), ("Bavaria", "DE", "DE-BY"), ("California", "US", "state of california"),
        ("Tokyo", "JP", "Tokyo Prefecture"), ("Moscow Oblast", "RU", "moscow oblast"),
        ("Ho Chi Minh City (HCMC)", "VN", "VN-SG"), ("Da Nang City", "VN", "Đà Nẵng"),
        ("Taipei", "TW", "New Taipei City"), ("Takao", "TW", "Kaohsiung City"), ("Tehran", "IR", "IR-23"),
    ],
)  # fmt: skip
def test_a_region_has_several_names(region, country, same):
    places = gazetteer()
    within = places.country(country)
    found = places.region(same, within)
    assert found is not None
    assert found == places.region(region, within)


def test_similar_names_are_distinguished():
    places = gazetteer()
    assert places.region("Moscow", places.country("RU")) != places.region("Moscow Oblast", places.country("RU"))
    assert places.region("State of Mexico", places.country("MX")) != places.region("Mexico City", places.country("MX"))
    for name in ("Xyzzyville", "", " ", "-", "\x00", "a" * 500):
        assert places.city(name) is None
        assert places.region(name) is None
        assert places.country(name) is None
