"""Measure the speed of geospot's rewards and gazetteer, and find the best constant answers.

python -m benchmarks.geospot
python -m benchmarks.geospot --constant

One process scores answers with random cities against other random cities. `score` parses and compares the names;
`score_response` also scores perception and format of a whole response. After the first pass, caches are warm.

With `--constant`, it instead finds the best constant answer of each stage, for all cities of the default level. Each
field of the answer is optimised separately. Country, region and city name are chosen from all cities, and
coordinates from all cities and a grid with steps of two degrees.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from vlmgym.checks import check_int
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.reward import score_response
from vlmgym.sandbox.games.geospot.config import CURRICULA, GeospotConfig
from vlmgym.sandbox.games.geospot.game import Geospot, GeospotState, state_of
from vlmgym.sandbox.games.geospot.gazetteer import EARTH_RADIUS_KM, City, Country, Gazetteer, Region, gazetteer
from vlmgym.sandbox.games.geospot.place import Place, format_place
from vlmgym.terminal import parse_options, reporting_errors


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure the speed of rewards, or find the best constant answer of each stage, and print a table."""

    answers: int = 10_000
    """Answers per round."""
    rounds: int = 3
    """Measured rounds after the first pass."""
    constant: bool = False
    """Find the best constant answer of each stage instead."""

    def __post_init__(self) -> None:
        check_int("answers", self.answers, 1)
        check_int("rounds", self.rounds, 1)


def main() -> None:
    options = parse_options(Options, None, "python -m benchmarks.geospot")
    if options.constant:
        Console().print(constant_answers())
        return
    start = time.process_time()
    Gazetteer()
    loading = time.process_time() - start
    gazetteer()
    game = Geospot(GeospotConfig.at(reasoning=5))
    rng = np.random.default_rng(0)
    states = [game.generate(rng) for _ in range(options.answers)]
    answers = [game.solution(state) for state in reversed(states)]
    responses = [game.respond(state, answer) for state, answer in zip(states, answers)]

    table = Table(title=f"geospot, one process, {options.answers} answers per round")
    table.add_column("rewards")
    table.add_column("per CPU second", justify="right")
    table.add_row("score, first pass", f"{rate(lambda: score_all(game, states, answers), options):,.0f}")
    for name, work in (
        ("score", lambda: score_all(game, states, answers)),
        ("score_response", lambda: respond_all(game, states, responses)),
    ):
        rates = sorted(rate(work, options) for _ in range(options.rounds))
        table.add_row(name, f"{rates[len(rates) // 2]:,.0f}")
    Console().print(table)
    Console().print(f"loading the gazetteer takes {loading:.2f} s")


def constant_answers() -> Table:
    """Tabulate the best constant answer and its mean reward, by preset and stage."""
    table = Table(title="geospot: best constant answer")
    for column in ("preset", "stage", "reward", "answer"):
        table.add_column(column, justify="right" if column == "reward" else "left")
    places = gazetteer()
    cities = [places.city_at(number) for number in range(GeospotConfig().cities)]
    regions = [places.region_of(city) for city in cities]
    countries = [places.country_of(city) for city in cities]
    points = places_of(cities)
    degrees = np.array([(latitude, longitude) for latitude in range(-60, 80, 2) for longitude in range(-180, 180, 2)])
    has_region = np.array([region is not None for region in regions])
    kilometres = [
        distances(places_of(countries), places_of(countries)),
        distances(places_of(regions), places_of(regions)),
        distances(points, points),
        distances(np.concatenate([points, degrees]), points),
    ]
    for preset, stages in CURRICULA.items():
        for number, stage in enumerate(stages, 1):
            total = sum(stage.weights) - stage.weights.region * ~has_region  # without a region there is one field fewer
            best = []
            for km, weight, scale in zip(kilometres, stage.weights, stage.scales):
                kernels = np.exp(-km / scale) if scale else np.equal(km, 0).astype(np.float64)
                best.append(int(np.argmax(np.nan_to_num(kernels) @ (weight / total))))
            country, region, city, place = best
            best_region = regions[region]
            latitude, longitude = np.concatenate([points, degrees])[place]
            answer = Place(
                cities[city].name,
                None if best_region is None else best_region.name,
                countries[country].name,
                (float(latitude), float(longitude)),
            )
            game = Geospot(GeospotConfig(preset=preset, stage=number))
            text = format_place(answer)
            rewards = [game.score(state_of(target, (target.latitude, target.longitude)), text)[0] for target in cities]
            fields = ", ".join(line.partition(": ")[2] for line in text.splitlines())
            table.add_row(preset, str(number), f"{np.mean(rewards):.3f}", fields)
    return table


def places_of(places: Sequence[City | Country | Region | None]) -> NDArray[np.float64]:
    """Return latitudes and longitudes in degrees, shape (places, 2); NaN where the place is None."""
    return np.array([(np.nan, np.nan) if place is None else (place.latitude, place.longitude) for place in places])


def distances(answers: NDArray[np.float64], truths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return great-circle distances in km, shape (answers, truths), like `distance_km`."""
    latitude, longitude = np.radians(answers[:, None]).transpose(2, 0, 1)
    other_latitude, other_longitude = np.radians(truths[None]).transpose(2, 0, 1)
    across = np.sin((other_longitude - longitude) / 2) ** 2
    chord = np.sin((other_latitude - latitude) / 2) ** 2 + np.cos(latitude) * np.cos(other_latitude) * across
    km: NDArray[np.float64] = 2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.minimum(1.0, chord)))
    return km


def rate(work: Callable[[], None], options: Options) -> float:
    start = time.process_time()
    work()
    return options.answers / (time.process_time() - start)


def score_all(game: Geospot, states: list[GeospotState], answers: list[str]) -> None:
    for state, answer in zip(states, answers):
        game.score(state, answer)


def respond_all(game: Game[GeospotState, str], states: list[GeospotState], responses: list[str]) -> None:
    rng = np.random.default_rng(0)
    for state, response in zip(states, responses):
        score_response(game, state, response, rng)


if __name__ == "__main__":
    with reporting_errors():
        main()
