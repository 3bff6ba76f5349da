"""Countries, first-level regions and cities with at least 15,000 inhabitants, and distances between them.

The data files and their sources are described in `data/README.md`; official names of countries come from pycountry.
Names are normalised for lookup.
"""

from __future__ import annotations

import math
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from operator import itemgetter

import numpy as np
import pycountry
from isal import isal_zlib
from numpy.typing import NDArray

_LETTERS = {
    "ø": "o",
    "ł": "l",
    "đ": "d",
    "ð": "d",
    "ħ": "h",
    "\u0131": "i",
    "æ": "ae",
    "œ": "oe",
    "þ": "th",
    "ŋ": "n",
    "ə": "a",
}
"""Replacements for letters that have no Unicode decomposition."""
_WITHIN_WORDS = "'`.\u00b4\u02b9\u02ba\u02bb\u02bc\u02be\u02bf\u2018\u2019"
"""Apostrophes and similar characters, which are removed; all other punctuation separates words."""
_ABBREVIATED = {"saint": "st", "sainte": "st", "ste": "st", "sankt": "st", "mount": "mt", "fort": "ft", "and": ""}
_GENERIC = (
    "administrative area autonomous canton capital city comarca commune community council county department "
    "departement departamento dependency district division emirate federal federation free governorate krai kray lan "
    "metropolitan municipality muhafazah oblast of okrug parish prefecture province provincia provinz region republic "
    "respublika rural sheng state territory union unitary voivodeship wilaya de la el du des the y"
)
_GENERIC_WORDS = frozenset(_GENERIC.split())
"""Generic words in names of regions, such as `state` and `province`."""


class _Translation(dict[int, str]):
    """Table for `str.translate`, filled as characters occur."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        letter = _LETTERS.get(char, char)
        removed = char in _WITHIN_WORDS or unicodedata.combining(char)
        self[code] = letter if char.isalnum() else "" if removed else " "
        return self[code]


_translation = _Translation()


@lru_cache(maxsize=2**16)
def normalise(name: str) -> str:
    """Normalise a name: lower case, no accents or punctuation, single spaces. `São Paulo` becomes `sao paulo`.

    Saint, Mount and Fort are abbreviated; `and`, `&` and a leading `the` are dropped.
    """
    words = unicodedata.normalize("NFKD", name.casefold()).translate(_translation).split()
    kept = [_ABBREVIATED.get(word, word) for word in words[words[:1] == ["the"] :]]
    return " ".join(filter(None, kept)) or " ".join(words)


def without_generic_words(key: str) -> str:
    """Drop generic words from a normalised name: `state of bavaria` becomes `bavaria`. Never returns an empty name."""
    return " ".join(word for word in key.split() if word not in _GENERIC_WORDS) or key


_SHORTENED = {
    "dem": "democratic",
    "dr": "democratic republic",
    "fed": "federal",
    "federated": "federal",
    "pdr": "peoples democratic republic",
    "rb": "bolivarian republic",
    "rep": "republic",
    "sar": "special administrative region",
    "sts": "states",
}
"""Abbreviations in names of countries, as in lists of the World Bank, and the words that they stand for."""


OFFICIAL_NAMES = ("name", "official_name", "common_name")
"""Names that pycountry has of a country."""


def in_any_order(key: str) -> str:
    """Spell out the abbreviations of a normalised country name, drop `of` and `the`, and sort its words.

    Hence `iran islamic rep` and `islamic republic of iran` become equal.
    """
    words = " ".join(_SHORTENED.get(word, word) for word in key.split()).split()
    return " ".join(sorted(set(words) - {"of", "the"})) or key


EARTH_RADIUS_KM = 6371.0088
"""Mean radius of the WGS 84 ellipsoid (Moritz, Geodetic Reference System 1980)."""
MAX_NAMESAKE_KM = 100.0
"""Maximum distance from the true coordinates to a city with the true name; a city farther away is a different one."""
CACHED_NAMES = 2**16
GZIP = 31
"""`wbits` of zlib for the gzip format."""


def distance_km(latitude: float, longitude: float, other_latitude: float, other_longitude: float) -> float:
    """Great-circle distance in km between two points in degrees, by the haversine formula.

    Differs from the geodesic of the WGS 84 ellipsoid by at most 0.6%.
    """
    phi, other_phi = math.radians(latitude), math.radians(other_latitude)
    across = math.sin(math.radians(other_longitude - longitude) / 2)
    along = math.sin((other_phi - phi) / 2)
    chord = along * along + math.cos(phi) * math.cos(other_phi) * across * across
    return 2 * EARTH_RADIUS_KM * math.asin(math.sqrt(min(1.0, chord)))


@dataclass(frozen=True, slots=True)
class Country:
    """A country or territory with its ISO 3166-1 code, located at the population-weighted mean of its cities."""

    code: str
    name: str
    latitude: float
    longitude: float


@dataclass(frozen=True, slots=True)
class Region:
    """A state, province or similar, located at the population-weighted mean of its cities; `country` is a code."""

    country: str
    code: str
    name: str
    latitude: float
    longitude: float
    population: int


@dataclass(frozen=True, slots=True)
class City:
    """A city; `number` is its rank by population, from 0. `country` and `region` are codes; `region` may be empty."""

    number: int
    name: str
    country: str
    region: str
    latitude: float
    longitude: float
    population: int


class Gazetteer:
    """Lookup of places by name. Use the shared instance `gazetteer()`."""

    def __init__(self) -> None:
        self._countries: dict[str, Country] = {}
        self._country_names: dict[str, str] = {}
        for code, _, name, latitude, longitude, _, keys in _rows("countries.tsv"):
            self._countries[code] = Country(code, name, float(latitude), float(longitude))
            self._country_names.update(dict.fromkeys(keys.split("|"), code))
        for entry in pycountry.countries:
            official = (getattr(entry, kind, None) for kind in OFFICIAL_NAMES)
            for key in map(normalise, filter(None, official if entry.alpha_2 in self._countries else ())):
                self._country_names.setdefault(key, entry.alpha_2)
                self._country_names.setdefault(in_any_order(key), entry.alpha_2)
        self._regions: dict[tuple[str, str], Region] = {}
        owners: dict[str, list[tuple[int, int, Region]]] = defaultdict(list)
        for country, code, name, latitude, longitude, population, keys in _rows("regions.tsv"):
            region = Region(country, code, name, float(latitude), float(longitude), int(population))
            self._regions[country, code] = region
            names = keys.split("|")
            for key in names:
                rank = 0 if key == names[0] else 1 if key == without_generic_words(names[0]) else 2
                owners[key].append((rank, -region.population, region))
        self._region_names = {
            key: tuple(region for *_, region in sorted(regions, key=itemgetter(0, 1)))
            for key, regions in owners.items()
        }
        self._cities = _read("cities.tsv.gz").decode().splitlines()
        self._names = _read("names.tsv.gz")
        self._name_ends = np.flatnonzero(np.frombuffer(self._names, np.uint8) == ord("\n")).tolist()
        self._cities_with_key = lru_cache(maxsize=CACHED_NAMES)(self._find)

    def __len__(self) -> int:
        """Number of cities."""
        return len(self._cities)

    def country(self, name: str) -> Country | None:
        """Find a country by its name in any language or its ISO code (`US`, `USA`).

        An official English name may be inverted or abbreviated (`Egypt, Arab Rep.`).
        """
        key = normalise(name)
        code = self._country_names.get(key) or self._country_names.get(in_any_order(key))
        return None if code is None else self._countries[code]

    def region(self, name: str, country: Country | None = None) -> Region | None:
        """Find a region by its name or ISO 3166-2 code (`California`, `US-CA`, `CA`).

        Generic words such as `province`, `city` or `state of` are optional. If several regions match, those in
        `country` come first, then matches that include the generic words, then official names, then larger populations.
        """
        key = normalise(name)
        elsewhere = None
        for form in (str, without_generic_words):
            for region in self._region_names.get(form(key), ()):
                if country is None or region.country == country.code:
                    return region
                elsewhere = elsewhere or region
        return elsewhere

    def city(self, name: str, country: Country | None = None, region: Region | None = None) -> City | None:
        """Find a city by any of its names, preferring cities of the region, then of the country, then larger cities."""
        cities = self.cities(name)
        preferred = (
            *(city for city in cities if region and (city.country, city.region) == (region.country, region.code)),
            *(city for city in cities if country and city.country == country.code),
            *cities,
        )
        return preferred[0] if preferred else None

    def city_near(self, name: str, latitude: float, longitude: float) -> City | None:
        """Find the city with this name nearest to a location in degrees; None if over `MAX_NAMESAKE_KM` away."""
        nearest, least = None, MAX_NAMESAKE_KM
        for city in self.cities(name):
            distance = distance_km(latitude, longitude, city.latitude, city.longitude)
            if distance <= least:
                nearest, least = city, distance
        return nearest

    def cities(self, name: str) -> tuple[City, ...]:
        """Find all cities with a name, the most populous first."""
        return self._cities_with_key(normalise(name))

    def city_at(self, number: int) -> City:
        """Return a city by its rank by population, from 0."""
        name, country, region, latitude, longitude, population = self._cities[number].split("\t")
        return City(number, name, country, region, float(latitude), float(longitude), int(population))

    def country_of(self, place: City | Region) -> Country:
        """Return the country of a city or region."""
        return self._countries[place.country]

    def region_of(self, city: City) -> Region | None:
        """Return the region of a city; None if unknown."""
        return self._regions.get((city.country, city.region))

    @cached_property
    def coordinates(self) -> NDArray[np.float64]:
        """Latitude and longitude of all cities in degrees, shape (cities, 2)."""
        return np.array([line.split("\t")[3:5] for line in self._cities], np.float64)

    @cached_property
    def populations(self) -> NDArray[np.int64]:
        """Population of all cities, shape (cities,)."""
        return np.array([line.split("\t")[5] for line in self._cities], np.int64)

    @cached_property
    def shores(self) -> list[NDArray[np.float64]]:
        """Outlines of land and of seas within it, latitudes and longitudes in degrees, each of shape (points, 2)."""
        return [np.array(row, np.float64).reshape(-1, 2) for row in _rows("land.tsv.gz")]

    @cached_property
    def shore_boxes(self) -> NDArray[np.float64]:
        """Lowest and highest latitude and longitude of each outline, shape (2, outlines, 2)."""
        return np.array([[of(shore, axis=0) for shore in self.shores] for of in (np.min, np.max)])

    def _key_at(self, line: int) -> bytes:
        start = self._name_ends[line - 1] + 1 if line else 0
        return self._names[start : self._names.index(b"\t", start)]

    def _find(self, key: str) -> tuple[City, ...]:
        """Find the cities with a normalised name by binary search in the sorted lines."""
        wanted = key.encode()
        line = bisect_left(range(len(self._name_ends)), wanted, key=self._key_at)
        if line == len(self._name_ends) or self._key_at(line) != wanted:
            return ()
        end = self._name_ends[line]
        numbers = self._names[self._names.rindex(b"\t", 0, end) + 1 : end]
        return tuple(self.city_at(int(number)) for number in numbers.split())


def _read(name: str) -> bytes:
    content = (files("vlmgym.sandbox.games.geospot") / "data" / name).read_bytes()
    return isal_zlib.decompress(content, wbits=GZIP) if name.endswith(".gz") else content


def _rows(name: str) -> list[list[str]]:
    return [line.split("\t") for line in _read(name).decode().splitlines()]


@lru_cache(maxsize=1)
def gazetteer() -> Gazetteer:
    """Return the gazetteer of this process, loading it on first use."""
    return Gazetteer()
