"""Calibration specs of the single-turn tasks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.calibration.spec import AnyGame, Naive, ReadingSpec, Spec
from benchmarks.calibration.task_crops import map_marks, photograph_parts, scene_objects
from vlmgym.sandbox.core.config import CalibrationPlayer, Criterion
from vlmgym.sandbox.games.geospot.gazetteer import gazetteer
from vlmgym.sandbox.games.geospot.place import Place, format_place, place_of

ONE_TURN: Mapping[CalibrationPlayer, int] = {"random": 1, "oracle": 1, "questions": 1}
WITH_NAIVE: Mapping[CalibrationPlayer, int] = {"random": 1, "naive": 1, "oracle": 1}
TRAINING_QUESTIONS = 300
"""Questions that the blind player is trained on."""
KNOWN_CITIES = 100
OBVIOUS = 2
"""Keywords in the naive caption."""


def _blind(game: AnyGame) -> Callable[[Any], str]:
    """Pick the most frequent answer among questions that begin with the same two words."""
    answers: dict[str, Counter[str]] = defaultdict(Counter)
    for number in range(TRAINING_QUESTIONS):
        state = game.start(np.random.default_rng([TRAINING_QUESTIONS, number]))
        answers[_beginning(state.question)][state.answers[0]] += 1
    return lambda state: answers[_beginning(state.question)].most_common(1)[0][0]


def _beginning(question: str) -> str:
    return " ".join(question.split()[:2])


def _large_city(game: AnyGame) -> Callable[[Any], str]:
    """Answer with the largest city that is nearest to the true coordinates."""
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
        name="vqa",
        title="Visual question answering",
        game="vqa",
        criterion=_OBJECTS,
        reading=ReadingSpec("object", scene_objects, haze=1.0, aspects=True),
        naive=Naive("sees the question but not the image", _blind),
        facts=_scene_facts,
        turns={**WITH_NAIVE, "questions": 1},
        oracle_share=1.0,
        notes="""\
The generated questions are measured. The number of objects is set by the config field `objects`: it shows that the
field works, not how hard the questions are, because no player without a model answers half of them. The naive player
knows 300 questions with their answers and picks the most frequent answer among those with the same first two words.
It does worse with more objects and attributes, but not significantly so at every step.""",
    ),
    Spec(
        name="nlvr2",
        title="NLVR2",
        game="nlvr2",
        criterion=_OBJECTS,
        reading=ReadingSpec("object", scene_objects, haze=1.0, aspects=True),
        facts=_scene_facts,
        turns=ONE_TURN,
        oracle_share=1.0,
        notes="""\
The generated statements are measured. Half of them are true at every level, even among those with the same wording,
so guessing does not separate the levels. The number of objects, set by the config field `objects`, and the length of
the statements show that the fields work, not how hard the statements are.""",
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
The generated maps are measured. A mark is read correctly if it is found in the right one of nine squares of four
degrees; maps of larger areas have fewer pixels per square. At all reasoning levels, readers see the 2,000 largest
cities, because larger cities are in brighter parts of the map. The remaining effect of reasoning is that fewer names
are printed, which makes marks easier to find.""",
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
The photographs of scikit-image are measured. No classical reader can name their content, so readers identify the
photograph and the quarter they see. The score of two keywords follows from the config field `keywords` alone (two
divided by their number): it shows that the field works, not how hard the other keywords are to see.""",
    ),
)
