"""What is calibrated: the declarations of the tasks of one turn."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.calibration.spec import AnyGame, Criterion, Naive, Player, Sight, Spec
from benchmarks.calibration.task_crops import map_marks, photograph_parts, scene_objects
from vlmgym.sandbox.games.geospot.gazetteer import gazetteer
from vlmgym.sandbox.games.geospot.place import Place, format_place, place_of

ONE_TURN: Mapping[Player, int] = {"random": 1, "oracle": 1, "questions": 1}
WITH_NAIVE: Mapping[Player, int] = {"random": 1, "naive": 1, "oracle": 1}
LESSONS = 300
"""Questions from which the blind player learns."""
KNOWN_CITIES = 100
EVIDENT = 2
"""Keywords that the naive caption names."""


def _blind(game: AnyGame) -> Callable[[Any], str]:
    """Answers what was right most often where a question began with the same two words."""
    answers: dict[str, Counter[str]] = defaultdict(Counter)
    for number in range(LESSONS):
        state = game.start(np.random.default_rng([LESSONS, number]))
        answers[_beginning(state.question)][state.answers[0]] += 1
    return lambda state: answers[_beginning(state.question)].most_common(1)[0][0]


def _beginning(question: str) -> str:
    return " ".join(question.split()[:2])


def _large_city(game: AnyGame) -> Callable[[Any], str]:
    """Answers with the nearest of the largest cities, sees exactly where the mark is, and knows no others."""
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


def _most_evident(game: AnyGame) -> Callable[[Any], str]:
    return lambda state: " ".join(keyword[0] for keyword in state.keywords[:EVIDENT])


def _scene_facts(game: AnyGame, state: Any) -> Mapping[str, float]:
    scenes = state.scenes if hasattr(state, "scenes") else (state.scene,)
    text = state.statement if hasattr(state, "statement") else state.question
    return {"objects": float(sum(map(len, scenes))), "words": float(len(text.split()))}


_OBJECTS = Criterion(
    "number of objects",
    "questions",
    "objects",
    "how many objects there are, all of which a question may be about; compared as ratios",
    log=True,
    rises=True,
)

TASKS = (
    Spec(
        name="vqa",
        title="Visual question answering",
        game="vqa",
        criterion=_OBJECTS,
        sight=Sight("object", scene_objects, haze=1.0, aspects=True),
        naive=Naive("knows the questions and not the image", _blind),
        facts=_scene_facts,
        turns={**WITH_NAIVE, "questions": 1},
        costly=1.0,
        notes="""\
Measured are the generated questions. How many objects an image has is set by the config field `objects`, so that
counting them
says that the config field does what it says, and not how hard that is for a mind: no player without a model answers
half of the
questions. The blind player, who has seen 300 questions with their answers and guesses what was right most often after
the same two words, tells how much the answers differ: with more to count and to choose from it guesses less, but not at
every step by more than its interval.""",
    ),
    Spec(
        name="nlvr2",
        title="NLVR2",
        game="nlvr2",
        criterion=_OBJECTS,
        sight=Sight("object", scene_objects, haze=1.0, aspects=True),
        facts=_scene_facts,
        turns=ONE_TURN,
        costly=1.0,
        notes="""\
Measured are the generated statements. Half of them are true at every level, also among those with the same words, so
that no guess tells levels apart. What is counted is how much there is to look at, which the config field `objects`
sets, and
how long the statements are: that the config fields do what they say, and not how hard that is for a mind.""",
    ),
    Spec(
        name="geospot",
        title="geospot",
        game="geospot",
        criterion=Criterion(
            "score of who knows 100 cities",
            "naive",
            "score",
            "what is earned by who sees exactly where the mark is, and answers with the nearest of the 100 largest "
            "cities on earth",
        ),
        sight=Sight("mark", map_marks),
        naive=Naive("knows the 100 largest cities, and where the mark is", _large_city),
        turns=WITH_NAIVE,
        costly=1.0,
        notes="""\
Measured are the maps. A mark is read rightly if it is found in the right one of nine squares of four degrees: the more
of the earth a map shows, the fewer pixels they have. Readers are asked about the 2,000 largest cities at every level
of reasoning, because larger cities lie in brighter parts of the earth: that the reasoning dial leaves reading as it is
holds with this put aside. What it still does is that fewer names are printed, among which marks are easier to find.""",
    ),
    Spec(
        name="caption",
        title="Captions",
        game="caption",
        criterion=Criterion(
            "score of naming two things",
            "naive",
            "score",
            "what a caption earns that names the two most evident things only",
        ),
        sight=Sight("part", photograph_parts, haze=0.7),
        naive=Naive("names the two most evident things", _most_evident),
        turns=WITH_NAIVE,
        costly=1.0,
        notes="""\
Measured are the photographs of scikit-image. What is in them no classical reader can name; it is told the quarters of
all photographs as they are at level 1, and has to say which quarter of which one it is shown. What the player of two
things earns follows from the config field `keywords` alone, two over their number: it says that the config field
does what it says, and
not how hard the further things are to see.""",
    ),
)
