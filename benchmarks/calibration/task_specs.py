"""Calibration specs of the single-turn tasks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.calibration.spec import AnyGame, CalibrationPlayer, Criterion, Naive, ReadingSpec, Spec
from benchmarks.calibration.task_crops import map_marks, photograph_parts, scene_objects
from vlmgym.sandbox.games.geospot.gazetteer import gazetteer
from vlmgym.sandbox.games.geospot.place import Place, format_place, place_of

ONE_TURN: Mapping[CalibrationPlayer, int] = {"random": 1, "oracle": 1, "questions": 1}
WITH_NAIVE: Mapping[CalibrationPlayer, int] = {"random": 1, "naive": 1, "oracle": 1}
TRAINING_QUESTIONS = 300
"""Number of questions whose answers the blind player knows."""
KNOWN_CITIES = 100
OBVIOUS = 2
"""Number of keywords in the naive caption."""


def _blind(game: AnyGame) -> Callable[[Any], str]:
    """Return a player that picks the most frequent answer to known questions with the same first two words."""
    answers: dict[str, Counter[str]] = defaultdict(Counter)
    for number in range(TRAINING_QUESTIONS):
        state = game.start(np.random.default_rng([TRAINING_QUESTIONS, number]))
        answers[_beginning(state.question)][state.answers[0]] += 1
    return lambda state: answers[_beginning(state.question)].most_common(1)[0][0]


def _beginning(question: str) -> str:
    return " ".join(question.split()[:2])


def _large_city(game: AnyGame) -> Callable[[Any], str]:
    """Return a player that answers with whichever of the `KNOWN_CITIES` largest cities is nearest to the mark."""
    known = [gazetteer().city_at(number) for number in range(KNOWN_CITIES)]
    places = np.radians([(city.latitude, city.longitude) for city in known])
    upright = np.stack(
        [np.cos(places[:, 0]) * np.cos(places[:, 1]), np.cos(places[:, 0]) * np.sin(places[:, 1]), np.sin(places[:, 0])]
    )

    def answer(state: Any) -> str:
        latitude, longitude = np.radians((state.latitude, state.longitude))
        mark = np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)
        city = known[int((np.array(mark) @ upright).argmax())]
        named = place_of(city)
        return format_place(Place(city.name, named.region, named.country, (city.latitude, city.longitude)))

    return answer


def _obvious_keywords(game: AnyGame) -> Callable[[Any], str]:
    return lambda state: " ".join(keyword[0] for keyword in state.keywords[:OBVIOUS])


def _scene_facts(game: AnyGame, state: Any) -> Mapping[str, float]:
    scenes = state.scenes if hasattr(state, "scenes") else (state.scene,)
    text = state.statement if hasattr(state, "statement") else state.question
    return {"objects": float(sum(map(len, scenes))), "words": float(len(text.split()))}


_OBJECTS = Criterion(
    "questions",
    "objects",
    label="number of objects",
    why="counting all that a question may refer to; levels are compared by their ratio",
    log=True,
    rises=True,
)

TASKS = (
    Spec(
        name="scenes-questions",
        title="Scene questions",
        game="scenes-questions",
        criterion=_OBJECTS,
        reading=ReadingSpec("object", scene_objects, haze=1.0, aspects=True),
        naive=Naive("sees the question but not the image", _blind),
        facts=_scene_facts,
        turns={**WITH_NAIVE, "questions": 1},
        oracle_share=1.0,
        notes="""\
The number of objects is set by the config field `objects`, so the
criterion shows that the field works, not how hard the questions are. The naive player knows 300 questions with their
answers, and picks the most frequent answer to those with the same first two words. It answers fewer questions correctly
at higher levels, but the difference is not significant at every step.""",
    ),
    Spec(
        name="scenes-statements",
        title="Scene statements",
        game="scenes-statements",
        criterion=_OBJECTS,
        reading=ReadingSpec("object", scene_objects, haze=1.0, aspects=True),
        facts=_scene_facts,
        turns=ONE_TURN,
        oracle_share=1.0,
        notes="""\
At every level, half of the statements are true, even among those with
the same wording, so the accuracy of guessing does not separate the levels. The number of objects is set by the config
field `objects`. This number and the length of the statements show that the config fields work, not how hard the
statements are.""",
    ),
    Spec(
        name="geospot",
        title="geospot",
        game="geospot",
        criterion=Criterion(
            "naive",
            "score",
            label="score with 100 known cities",
            why="the score of answering with the nearest of the 100 largest cities, given the true coordinates",
        ),
        reading=ReadingSpec("mark", map_marks),
        naive=Naive("knows the 100 largest cities and the true coordinates", _large_city),
        turns=WITH_NAIVE,
        oracle_share=1.0,
        notes="""\
These are measurements of generated maps. Readers choose the square with the mark among nine squares with sides of four
degrees; on maps of larger areas, a square has fewer pixels. At all reasoning levels, readers see only marks at the
2,000 largest cities, because larger cities are in brighter parts of the map. Reasoning still affects reading because
fewer names are printed at higher levels, which makes marks easier to find.""",
    ),
    Spec(
        name="caption",
        title="Captions",
        game="caption",
        criterion=Criterion(
            "naive",
            "score",
            label="score of two keywords",
            why="the score of a caption with only the two most obvious keywords",
        ),
        reading=ReadingSpec("part", photograph_parts, haze=0.7),
        naive=Naive("names the two most obvious keywords", _obvious_keywords),
        turns=WITH_NAIVE,
        oracle_share=1.0,
        notes="""\
These are measurements of the photographs in scikit-image. No classical reader can name their content, so readers
identify the photograph and the quarter of it that they see. The score of two keywords is two divided by the config
field `keywords`, so the criterion shows that the field works, not how hard the other keywords are to see.""",
    ),
)
