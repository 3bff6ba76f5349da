"""Which places there are: countries, their first-level regions, and cities of 15,000 inhabitants and more.

Everything is looked up in the files of `data`, whose README says where they come from.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from operator import itemgetter

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from vlmgym.sandbox.games.geospot.distance import distance_km
from vlmgym.sandbox.games.geospot.names import normalise, without_kind

HOMONYM_KM = 100.0
"""A city of the right name that is farther than this from where it should be is another one."""
NAMES_KEPT = 2**16
"""Names whose cities are remembered."""
GZIP = 31
"""The parameter `wbits` of zlib for files of gzip."""


@dataclass(frozen=True, slots=True)
class Country:
    """A country or territory with an ISO 3166-1 code, for instance `FR`; its place is the mean of its people's."""

    code: str
    name: str
    latitude: float
    longitude: float


@dataclass(frozen=True, slots=True)
class Region:
    """A state, province or the like; `country` is a code, and the place is the mean of its people's."""

    country: str
    code: str
    name: str
    latitude: float
    longitude: float
    population: int


@dataclass(frozen=True, slots=True)
class City:
    """A city; `number` 0 is the largest, `country` a code, and `region` the code of a region in it or empty."""

    number: int
    name: str
    country: str
    region: str
    latitude: float
    longitude: float
    population: int


class Gazetteer:
    """Places by their names. `gazetteer()` is the one of this process."""

    def __init__(self) -> None:
        self._countries: dict[str, Country] = {}
        self._country_names: dict[str, str] = {}
        for code, _, name, latitude, longitude, _, keys in _rows("countries.tsv"):
            self._countries[code] = Country(code, name, float(latitude), float(longitude))
            self._country_names.update(dict.fromkeys(keys.split("|"), code))
        self._regions: dict[tuple[str, str], Region] = {}
        owners: dict[str, list[tuple[int, int, Region]]] = defaultdict(list)
        for country, code, name, latitude, longitude, population, keys in _rows("regions.tsv"):
            region = Region(country, code, name, float(latitude), float(longitude), int(population))
            self._regions[country, code] = region
            names = keys.split("|")
            for key in names:
                rank = 0 if key == names[0] else 1 if key == without_kind(names[0]) else 2
                owners[key].append((rank, -region.population, region))
        self._region_names = {
            key: tuple(region for *_, region in sorted(regions, key=itemgetter(0, 1)))
            for key, regions in owners.items()
        }
        self._cities = _read("cities.tsv.gz").decode().splitlines()
        self._names = _read("names.tsv.gz")
        self._name_ends = np.flatnonzero(np.frombuffer(self._names, np.uint8) == ord("\n")).tolist()
        self._cities_with_key = lru_cache(maxsize=NAMES_KEPT)(self._find)

    def __len__(self) -> int:
        """How many cities there are."""
        return len(self._cities)

    def country(self, name: str) -> Country | None:
        """A country by a name in any language or an ISO code (`US`, `USA`); None if there is none."""
        code = self._country_names.get(normalise(name))
        return None if code is None else self._countries[code]

    def region(self, name: str, country: Country | None = None) -> Region | None:
        """A region by its name or ISO 3166-2 code (`California`, `US-CA`, `CA`); None if there is none.

        Such words as `province`, `city` or `state of` may be left out or added. Of several that have the name, one in
        the country is taken, then one that has exactly this name, then one whose name it is without such a word, then
        the most populous.
        """
        key = normalise(name)
        elsewhere = None
        for form in (str, without_kind):
            for region in self._region_names.get(form(key), ()):
                if country is None or region.country == country.code:
                    return region
                elsewhere = elsewhere or region
        return elsewhere

    def city(self, name: str, country: Country | None = None, region: Region | None = None) -> City | None:
        """A city by any of its names; None if there is none.

        Of several that have the name, one in the region is taken, then one in the country, then the most populous.
        """
        found = self.cities_named(name)
        if region is not None:
            for city in found:
                if city.region == region.code and city.country == region.country:
                    return city
        if country is not None:
            for city in found:
                if city.country == country.code:
                    return city
        return found[0] if found else None

    def city_near(self, name: str, latitude: float, longitude: float) -> City | None:
        """The city that has a name and is nearest to a place, at most `HOMONYM_KM` away; None if there is none."""
        nearest, least = None, HOMONYM_KM
        for city in self.cities_named(name):
            distance = distance_km(latitude, longitude, city.latitude, city.longitude)
            if distance <= least:
                nearest, least = city, distance
        return nearest

    def cities_named(self, name: str) -> tuple[City, ...]:
        """All cities that have a name, the most populous first."""
        return self._cities_with_key(normalise(name))

    def city_at(self, number: int) -> City:
        """A city by its number, 0 for the most populous."""
        name, country, region, latitude, longitude, population = self._cities[number].split("\t")
        return City(number, name, country, region, float(latitude), float(longitude), int(population))

    def country_of(self, place: City | Region) -> Country:
        """The country that a place is in."""
        return self._countries[place.country]

    def region_of(self, city: City) -> Region | None:
        """The region that a city is in, None where it is not known."""
        return self._regions.get((city.country, city.region))

    @cached_property
    def places(self) -> NDArray[np.float64]:
        """Latitude and longitude of all cities in degrees, by number: shape (cities, 2)."""
        return np.array([line.split("\t")[3:5] for line in self._cities], np.float64)

    @cached_property
    def populations(self) -> NDArray[np.int64]:
        """Inhabitants of all cities, by number."""
        return np.array([line.split("\t")[5] for line in self._cities], np.int64)

    def _key_at(self, line: int) -> bytes:
        start = self._name_ends[line - 1] + 1 if line else 0
        return self._names[start : self._names.index(b"\t", start)]

    def _find(self, key: str) -> tuple[City, ...]:
        """The cities that have a normalised name, by a binary search in the sorted lines."""
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
    """The gazetteer, read when it is first needed."""
    return Gazetteer()
