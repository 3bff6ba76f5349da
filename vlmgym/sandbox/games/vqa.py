"""Visual question answering: answer a short question about an image."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from vlmgym.sandbox.answers.line import Line
from vlmgym.sandbox.core.config import config_field, setting
from vlmgym.sandbox.core.game import Info, Infos, Metrics
from vlmgym.sandbox.core.task import TaskState, accuracy
from vlmgym.sandbox.data.rows import DataRow, is_empty, text_of, texts_of
from vlmgym.sandbox.games.scenes.placement import SceneConfig
from vlmgym.sandbox.games.scenes.scene import (
    ATTRIBUTES,
    DIRECTIONS,
    LINE_FORMAT,
    SIZES,
    SUPERLATIVES,
    Scene,
    SceneObject,
    Selector,
    is_in_direction,
    is_unambiguous,
    offset,
    pick,
    random_disjoint_pair,
    random_distractors,
)
from vlmgym.sandbox.games.scenes.task import SceneTask

PROMPT_V1 = """\
Answer the question about the image.{scene}
Question: {question}
Answer with {answers}.
{form}"""

_SCENE_ANSWERS = "a number, yes, no, or one of the words above"
_PHOTO_ANSWERS = "a word, a number or a short phrase on one line"
_SCENE_PERCEPTION = "the objects in the image, " + LINE_FORMAT
_PHOTO_PERCEPTION = "what the image shows"


class VqaConfig(SceneConfig):
    """Configuration of vqa."""

    relations: bool = config_field(
        "reasoning", [False, False, True, True, True], "Ask half of the questions about spatial relations."
    )
    agreement: int = setting(
        1, "Number of a row's accepted answers that must match for the full reward; 3 in the VQA benchmark.", ge=1
    )


@dataclass(frozen=True, kw_only=True)
class VqaState(TaskState):
    """A question about an image."""

    type: str
    """Question type, for metrics: counting, attribute or existence, or as in the data row; may be empty."""
    question: str
    answers: tuple[str, ...]
    """Accepted answers, at least one; for data with several annotators, one per annotator."""
    scene: Scene | None = None
    """Objects in the image; None for images from data."""


def _guesses(config: VqaConfig) -> tuple[tuple[str, ...], int]:
    """All possible answers to generated questions, each one word."""
    numbers = map(str, range(min(config.min_objects, MAX_COUNT) + 1))
    return ("yes", "no", *numbers, *SIZES, *config.vocabulary.colours, *config.vocabulary.shapes), 1


class Vqa(SceneTask[VqaState, str]):
    """Answer a question about an image with a word or a number.

    Description:
        Without `data`, the image is a generated scene of overlapping coloured shapes, and the question asks for a
        count, for an attribute or for the existence of an object. All answers to the same question are equally likely.

    Observation:
        One RGB image.

    Action:
        One line of text, at most 100 characters. Random actions are `yes`, `no`, a number, a size, a colour or a shape.
        Answers are compared after normalisation (`vqa.normalise`): case, articles, markup, final punctuation
        and the spelling of numbers are ignored.

    Reward:
        1 if the answer equals an accepted answer; 0 otherwise and for an unparsable answer. With `agreement=n`, the
        reward is the number of equal accepted answers divided by n, at most 1; if a question has fewer than n
        accepted answers, their number replaces n.

    Episode end:
        After one turn. `info` has `correct` (the reward) and the accepted `answers`. Metrics: `accuracy` (mean
        reward), also for each type of question.

    Arguments:
        `data`: Your own questions. Columns: `image`, `question`, `answer` or `answers` (one or a list) and optionally
        `question_type`.
    """

    name = "vqa"
    skills = ("arithmetic", "perception")
    title = "VQA"
    Config = VqaConfig
    State = VqaState
    answer = Line("your answer", _guesses, longest=100)
    prompt_template = PROMPT_V1
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "image": ("image", "picture", "img", "image_url", "image_path", "file_name"),
        "question": ("question", "query", "text"),
        "answer": ("answers", "answer", "multiple_choice_answer", "label"),
        "type": ("question_type", "type", "answer_type", "category"),
    }
    optional_fields = frozenset({"type"})
    image_fields = ("image",)

    def generate(self, rng: np.random.Generator) -> VqaState:
        kind = pick(rng, tuple(QUESTIONS))
        text, answer, scene = QUESTIONS[kind](rng, self.config)
        return VqaState(type=kind, question=text, answers=(answer,), scene=scene)

    def scenes(self, state: VqaState) -> tuple[Scene, ...]:
        return () if state.scene is None else (state.scene,)

    def from_row(self, fields: DataRow) -> VqaState:
        items = fields["answer"] if isinstance(fields["answer"], list | tuple) else [fields["answer"]]
        answers = texts_of(
            [item.get("answer", item) if isinstance(item, Mapping) else item for item in items], "answer"
        )
        kind = "" if is_empty(fields.get("type")) else text_of(fields, "type")
        return VqaState(type=kind, question=text_of(fields, "question"), answers=answers)

    def solution(self, state: VqaState) -> str:
        """The most frequent accepted answer among those that can be given."""
        return max(state.answers, key=lambda answer: (answer in self.answer.space, agreement(answer, state.answers)))

    def full_score(self, state: VqaState) -> float:
        """1, or less if fewer than `agreement` annotators agree, as in the VQA benchmark."""
        return max(self._reward(state, answer) for answer in state.answers)

    def _reward(self, state: VqaState, answer: str) -> float:
        needed: int = min(self.config.agreement, len(state.answers))
        return min(1.0, agreement(answer, state.answers) / needed)

    def score(self, state: VqaState, action: str) -> tuple[float, Info]:
        self.answer.check(action)
        reward = self._reward(state, action)
        return reward, {"correct": reward, "answers": list(state.answers)}

    def metrics(self, state: VqaState, infos: Infos) -> Metrics:
        return {**super().metrics(state, infos), **accuracy(state, infos, state.type)}

    def prompt(self, state: VqaState) -> str:
        answers, perception = _PHOTO_ANSWERS, _PHOTO_PERCEPTION
        if state.scene is not None:
            answers, perception = _SCENE_ANSWERS, _SCENE_PERCEPTION
        scene = self.scene_rules(state)
        return self.fill_prompt(perception, scene=scene, question=state.question, answers=answers)

    def explain(self, state: VqaState, action: str) -> str:
        return f"The answer to the question is {action}."


# Generated questions --------------------------------------------------------------------------------------------------
# First a question is generated, then its answer is sampled uniformly from all possible answers, then a scene is made
# in which this answer is correct. Hence the question alone says nothing about its answer.

MAX_COUNT = 8
"""Largest answer to a counting question."""


Question = tuple[str, str, Scene]
"""A question, its only answer, and the scene."""


def counting(rng: np.random.Generator, config: VqaConfig) -> Question:
    """Ask for the number of objects with given attributes, or in a direction from an object."""
    if config.relations and rng.random() < 0.5:
        return _counting_in_direction(rng, config)
    vocabulary, total = config.vocabulary, config.random_count(rng)
    selector = config.random_selector(rng)
    answer = int(rng.integers(min(config.min_objects, MAX_COUNT) + 1))
    kinds = selector.random_kinds(rng, vocabulary, answer)
    kinds += random_distractors(rng, vocabulary, [selector], total - answer)
    return f"How many {selector.plural} are there?", str(answer), config.place(kinds, rng)


def _counting_in_direction(rng: np.random.Generator, config: VqaConfig) -> Question:
    vocabulary, total = config.vocabulary, config.random_count(rng)
    landmark, direction = config.random_selector(rng), pick(rng, DIRECTIONS)
    answer = int(rng.integers(min(config.min_objects - 1, MAX_COUNT) + 1))
    kinds = landmark.random_kinds(rng, vocabulary, 1)
    kinds += random_distractors(rng, vocabulary, [landmark], total - 1)

    def is_placed(objects: Sequence[SceneObject]) -> bool:
        mark, *others = objects
        clear = all(is_unambiguous(other, direction, mark) for other in others)
        return clear and sum(is_in_direction(other, direction, mark) for other in others) == answer

    text = f"How many objects are {direction} the {landmark.singular}?"
    return text, str(answer), config.place(kinds, rng, is_placed)


def attribute(rng: np.random.Generator, config: VqaConfig) -> Question:
    """Ask for an attribute of an object identified by other attributes and possibly its position."""
    vocabulary, total = config.vocabulary, config.random_count(rng)
    attribute = pick(rng, ATTRIBUTES)
    others = [name for name in ATTRIBUTES if name != attribute]
    most = min(config.attributes, len(others))
    selector = Selector.random(rng, vocabulary, int(rng.integers(1, most + 1)), others)
    answer = pick(rng, vocabulary.values(attribute))
    if not (config.relations and rng.random() < 0.5):
        target = selector.random_kinds(rng, vocabulary, 1)[0].replace(**{attribute: answer})
        kinds = [target, *random_distractors(rng, vocabulary, [selector], total - 1)]
        return f"What {attribute} is the {selector.singular}?", answer, config.place(kinds, rng)
    superlative = pick(rng, list(SUPERLATIVES))
    direction = SUPERLATIVES[superlative]
    rivals = int(rng.integers(1, min(3, total - 1) + 1))
    kinds = selector.random_kinds(rng, vocabulary, 1 + rivals)
    kinds += random_distractors(rng, vocabulary, [selector], total - 1 - rivals)
    kinds[0] = kinds[0].replace(**{attribute: answer})
    if all(getattr(kind, attribute) == answer for kind in kinds[1 : 1 + rivals]):
        different = [value for value in vocabulary.values(attribute) if value != answer]
        kinds[1] = kinds[1].replace(**{attribute: pick(rng, different)})

    def is_placed(objects: Sequence[SceneObject]) -> bool:
        return all(is_in_direction(objects[0], direction, rival) for rival in objects[1 : 1 + rivals])

    text = f"What {attribute} is the {superlative} {selector.singular}?"
    return text, answer, config.place(kinds, rng, is_placed)


def existence(rng: np.random.Generator, config: VqaConfig) -> Question:
    """Ask whether an object with given attributes exists, anywhere or in a direction from another object."""
    vocabulary, total = config.vocabulary, config.random_count(rng)
    exists = int(rng.integers(2))
    answer = "yes" if exists else "no"
    if not (config.relations and rng.random() < 0.5):
        selector = config.random_selector(rng)
        kinds = selector.random_kinds(rng, vocabulary, exists)
        kinds += random_distractors(rng, vocabulary, [selector], total - exists)
        return f"Is there {selector.with_article}?", answer, config.place(kinds, rng)
    selector, landmark = random_disjoint_pair(rng, vocabulary, config.attributes)
    direction = pick(rng, DIRECTIONS)
    count = int(rng.integers(1, min(2, total - 1) + 1))
    kinds = landmark.random_kinds(rng, vocabulary, 1) + selector.random_kinds(rng, vocabulary, count)
    kinds += random_distractors(rng, vocabulary, [selector, landmark], total - len(kinds))

    def is_placed(objects: Sequence[SceneObject]) -> bool:
        mark, candidates = objects[0], objects[1 : 1 + count]
        clear = all(is_unambiguous(item, direction, mark) for item in candidates)
        return clear and any(offset(item, direction, mark) > 0 for item in candidates) == exists

    text = f"Is there {selector.with_article} {direction} the {landmark.singular}?"
    return text, answer, config.place(kinds, rng, is_placed)


QUESTIONS: dict[str, Callable[[np.random.Generator, VqaConfig], Question]] = {
    "counting": counting,
    "attribute": attribute,
    "existence": existence,
}
"""Question generators by type; the type is sampled uniformly."""


# Comparison of answers ------------------------------------------------------------------------------------------------
# Nothing that may carry meaning is dropped: signs, units, currencies, comparison operators and anything ambiguous stay.

_WORDS_BELOW_20 = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_BELOW_20 = _WORDS_BELOW_20.split()
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
NUMBERS: dict[str, int] = {
    "none": 0,
    **{word: number for number, word in enumerate(_BELOW_20)},
    **{word: 10 * number for number, word in enumerate(_TENS, start=2)},
}
"""Number words and their values; tens may be followed by a space or a hyphen and a number below 10."""

_EQUIVALENT = ("<wide>", "<narrow>", "<small>", "<font>", "<noBreak>")
"""Compatibility decompositions that preserve meaning (decomposing exponents and fractions does not)."""
_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\N{MINUS SIGN}", "-"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\N{LEFT-POINTING DOUBLE ANGLE QUOTATION MARK}", '"'),
        **dict.fromkeys("\u300c\u300d\u300e\u300f", '"'),  # corner brackets
        "\N{RIGHT-POINTING DOUBLE ANGLE QUOTATION MARK}": '"',
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
    }
)
"""Plain characters for variants of dashes and quotation marks."""

_PAIRED = re.compile(
    r"""(?<![^\s"'`*_(\[{])                     # at the start of a word
    (?: (\*+|_+|`+|") (?=\S) ((?:(?!\1).)+) (?<=\S) \1
      | ' (?=\S) ((?:[^']|(?<=\w)'(?=\w))+) (?<=\S) '
      | \(([^()]*)\) | \[([^\[\]]*)\] | \{([^{}]*)\}
    ) (?![^\W_])""",
    re.VERBOSE,
)
_NUMBER_WORD = re.compile(
    rf"""(?<!\bno\ )\b
    (?: ({"|".join(_TENS)})(?:[\ -]({"|".join(_BELOW_20[1:10])}))? | ({"|".join(_BELOW_20)}|none) )
    \b(?:!+(?!\S))?""",
    re.VERBOSE,
)
_NUMBER = re.compile(r"(?<![\w.,:])(?=\.?[0-9])([1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]*)(?:\.([0-9]+))?(?!\w|[.,:][0-9])")
_UNIT = re.compile(r"\s*([%°$€£¥<>=≤≥≈≠~¬±\u00d7\u00f7/^&@#|])\s*")
_BETWEEN_WORDS = re.compile(r"(?<=[^\W\d_])[,;_](?=[^\W\d_])")
_STOPS = ".?,;:\u2026\u3001\u3002\u060c\u061b\u061f\u06d4\u0964\u0965\u0589\u0f0d\u104a\u104b\u1362\u17d4"
"""Full stops, commas and similar punctuation, also Chinese, Japanese, Arabic, Urdu, Hindi, Armenian, Tibetan, Burmese,
Ethiopic and Khmer."""
_FINAL = re.compile(rf"(?<=[^\s\d!{_STOPS}])[!{_STOPS}]+(?!\S) | (?<=[\d!])[{_STOPS}]+(?!\S)", re.VERBOSE)
"""Punctuation after a word or a number, except `!` after a number, which may be a factorial."""
_ARTICLE = re.compile(r"(?<!\S)(?:the (?=\S)|an? (?!(?:and|or)\b)(?=[^\W\d_]{2}))")


@lru_cache(maxsize=4096)
def normalise(answer: str) -> str:
    """Normalise an answer for comparison.

    The result is in lower case, with straight quotes and plain hyphens. Paired quotation marks, brackets and Markdown
    emphasis are removed, as are thousands separators, trailing zeros of decimals, punctuation after words and numbers,
    and articles before words. Commas, semicolons and underscores between letters become spaces, and number words up to
    ninety-nine become digits. For example, `The Red one!` becomes `red 1`, `twenty one` becomes `21`, `None` becomes
    `0`, `1,000.0` becomes `1000` and `.5` becomes `0.5`; nothing is removed from `-3`, `<3`, `3%`, `1/2`, `3!` and
    `vitamin A`.
    """
    previous, text = None, answer
    while text != previous:
        previous, text = text, _simplify(text)
    return text


def agreement(answer: str, accepted: tuple[str, ...]) -> int:
    """Count the accepted answers that equal an answer after normalisation."""
    normalised = normalise(answer)
    return sum(normalise(other) == normalised for other in accepted)


def _simplify(text: str) -> str:
    text = unicodedata.normalize("NFC", "".join(map(_plain, text)).translate(_SIGNS).casefold())
    text = " ".join(text.split())
    if (bare := _PAIRED.sub(lambda match: next(filter(None, match.groups()[1:]), ""), text)) != text:
        return bare  # look for nested pairs first: spaces around signs would hide them
    text = _NUMBER_WORD.sub(_in_digits, text)  # before commas are removed: `twenty, one` is not 21
    text = _NUMBER.sub(_without_zeros, _BETWEEN_WORDS.sub(" ", _FINAL.sub("", text)))
    text = _UNIT.sub(r" \1 ", text)
    return _ARTICLE.sub("", " ".join(text.split()))


def _plain(char: str) -> str:
    form = unicodedata.decomposition(char)
    return unicodedata.normalize("NFKC", char) if form.startswith(_EQUIVALENT) else char


def _in_digits(match: re.Match[str]) -> str:
    return str(sum(NUMBERS[word] for word in match.groups() if word))


def _without_zeros(match: re.Match[str]) -> str:
    whole, fraction = match[1].replace(",", "") or "0", (match[2] or "").rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole
