"""Independent answers to generated questions and statements, derived from their text and the scene."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vlmgym.sandbox.drawing.shapes import COLOUR_NAMES, SHAPE_NAMES
from vlmgym.sandbox.games.scenes.scene import Scene, SceneObject

NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
WHERE = "to the left of|to the right of|above|below"
BESIDE = rf"(?P<one>.+) is (?P<where>{WHERE}) the (?P<other>.+)"
SUPERLATIVES = {"leftmost": "to the left of", "rightmost": "to the right of", "topmost": "above", "bottommost": "below"}


def named(scene: Scene, words: str) -> list[SceneObject]:
    """Select the objects described by words such as `large red circles`."""
    found = list(scene)
    for word in words.split():
        singular = word.removesuffix("es") if word == "crosses" else word.removesuffix("s")
        if word in ("small", "large"):
            found = [item for item in found if item.size == word]
        elif word in COLOUR_NAMES:
            found = [item for item in found if item.colour == word]
        elif singular in SHAPE_NAMES or word in SHAPE_NAMES:
            found = [item for item in found if item.shape in (word, singular)]
        else:
            assert singular == "object", f"{word!r} in {words!r}"
    return found


def is_beside(one: SceneObject, where: str, other: SceneObject) -> bool:
    return {
        "to the left of": one.x < other.x,
        "to the right of": one.x > other.x,
        "above": one.y < other.y,
        "below": one.y > other.y,
    }[where]


def match(pattern: str, text: str) -> re.Match[str]:
    found = re.fullmatch(pattern, text)
    assert found is not None, text
    return found


def only(items: Sequence[SceneObject]) -> SceneObject:
    assert len(items) == 1, items
    return items[0]


def answer(question: str, scene: Scene) -> str:
    """Answer a question."""
    if found := re.fullmatch(rf"How many objects are ({WHERE}) the (.+)\?", question):
        mark = only(named(scene, found[2]))
        return str(sum(is_beside(item, found[1], mark) for item in scene))
    if found := re.fullmatch(r"How many (.+) are there\?", question):
        return str(len(named(scene, found[1])))
    if found := re.fullmatch(rf"What (colour|shape|size) is the ({'|'.join(SUPERLATIVES)}) (.+)\?", question):
        items, where = named(scene, found[3]), SUPERLATIVES[found[2]]
        first = only([one for one in items if all(one is o or is_beside(one, where, o) for o in items)])
        assert len(items) > 1
        return str(getattr(first, found[1]))
    if found := re.fullmatch(r"What (colour|shape|size) is the (.+)\?", question):
        return str(getattr(only(named(scene, found[2])), found[1]))
    if found := re.fullmatch(rf"Is there an? (.+) ({WHERE}) the (.+)\?", question):
        mark = only(named(scene, found[3]))
        return "yes" if any(is_beside(one, found[2], mark) for one in named(scene, found[1])) else "no"
    found = match(r"Is there an? (.+)\?", question)
    return "yes" if named(scene, found[1]) else "no"


def holds(clause: str, scene: Scene) -> bool:
    """Return True if a clause (without its mention of the image) holds for a scene."""
    if found := re.fullmatch(rf"the {BESIDE}", clause):
        one, other = only(named(scene, found["one"])), only(named(scene, found["other"]))
        return is_beside(one, found["where"], other)
    if found := re.fullmatch(r"(exactly|at least) (\w+) (.+)", clause):
        count, number = len(named(scene, found[3])), NUMBERS.index(found[2])
        return count == number if found[1] == "exactly" else count >= number
    found = match(r"an? (.+)", clause)
    return bool(named(scene, found[1]))


FORMS = {
    "both": (r"both pictures contain (.+?)(?: each)?", r"in both pictures (.+)"),
    "one": (
        r"exactly one of the pictures contains (.+)",
        r"in one of the pictures, but not in the other, there (?:is|are) (.+)",
        r"in exactly one of the pictures (.+)",
    ),
    "neither": (r"neither picture contains (.+)",),
    "left": (r"the left picture contains (.+)", r"in the left picture (.+)"),
    "right": (r"the right picture contains (.+)", r"in the right picture (.+)"),
}


def parts(statement: str) -> tuple[str, tuple[str, ...]]:
    """Split a statement into its form and its clauses."""
    text = statement[0].lower() + statement[1:].removesuffix(".")
    if found := re.fullmatch(r"(?:either )?((?:in )?the left .+), (and|or) ((?:in )?the right .+)", text):
        return found[2], (found[1], found[3])
    if found := re.fullmatch(r"there (?:is|are) exactly (\w+) (.+) in the two pictures together", text):
        return "total", (found[1], found[2])
    if found := re.fullmatch(r"there are as many (.+) in the left picture as in the right picture", text):
        return "equal", (found[1],)
    if found := re.fullmatch(
        r"there are more (.+) in the (left|right) picture than in the (?:left|right) picture", text
    ):
        return f"more {found[2]}", (found[1],)
    for form, patterns in FORMS.items():
        for pattern in patterns:
            if found := re.fullmatch(pattern, text):
                return form, (found[1],)
    raise AssertionError(statement)


def is_true(statement: str, left: Scene, right: Scene) -> bool:
    """Return True if a statement is true of two scenes."""
    form, clauses = parts(statement)
    if form in ("and", "or"):
        one = is_true(f"{clauses[0]}.", left, right)
        other = is_true(f"{clauses[1]}.", left, right)
        return (one and other) if form == "and" else (one or other)
    if form == "total":
        return len(named(left, clauses[1])) + len(named(right, clauses[1])) == NUMBERS.index(clauses[0])
    if form == "equal" or form.startswith("more"):
        counts = len(named(left, clauses[0])), len(named(right, clauses[0]))
        return {"equal": counts[0] == counts[1], "more left": counts[0] > counts[1]}.get(form, counts[0] < counts[1])
    if form == "left":
        return holds(clauses[0], left)
    if form == "right":
        return holds(clauses[0], right)
    found = holds(clauses[0], left) + holds(clauses[0], right)
    return found == {"both": 2, "one": 1, "neither": 0}[form]
