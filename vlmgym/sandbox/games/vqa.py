"""Visual question answering: answer a short question about an image."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, TypeVar

from vlmgym.sandbox.answers.line import Line
from vlmgym.sandbox.core.config import setting
from vlmgym.sandbox.core.data_task import OwnDataConfig, OwnDataTask
from vlmgym.sandbox.core.game import Info, Infos, Metrics
from vlmgym.sandbox.core.task import Task, TaskState, accuracy
from vlmgym.sandbox.data.rows import DataRow, is_empty, text_of, texts_of
from vlmgym.sandbox.drawing.shapes import COLOUR_NAMES

PROMPT_V1 = """\
Answer the question about the image.{scene}
Question: {question}
Answer with {answers}.
{form}"""


@dataclass(frozen=True, kw_only=True)
class QuestionState(TaskState):
    """A question about an image."""

    type: str
    """Question type, for metrics: counting, attribute or existence, or as in the data row; may be empty."""
    question: str
    answers: tuple[str, ...]
    """Accepted answers, at least one; for data with several annotators, one per annotator."""


QuestionStateT = TypeVar("QuestionStateT", bound=QuestionState)


class QuestionTask(Task[QuestionStateT, str]):
    """A task whose answer is a word, a number or a short phrase.

    The property `guesses` of the config lists the answers of the random policy.
    """

    prompt_template = PROMPT_V1
    answer = Line("your answer", lambda config: (config.guesses, 1), longest=100)

    def solution(self, state: QuestionStateT) -> str:
        """The most frequent accepted answer among those that can be given."""
        return max(state.answers, key=lambda answer: (answer in self.answer.space, agreement(answer, state.answers)))

    def reward(self, state: QuestionStateT, answer: str) -> float:
        """Return 1 if an answer equals an accepted one, else 0."""
        return float(agreement(answer, state.answers) > 0)

    def score(self, state: QuestionStateT, action: str) -> tuple[float, Info]:
        self.answer.check(action)
        reward = self.reward(state, action)
        return reward, {"correct": reward, "answers": list(state.answers)}

    def metrics(self, state: QuestionStateT, infos: Infos) -> Metrics:
        return {**super().metrics(state, infos), **accuracy(state, infos, state.type)}

    def explain(self, state: QuestionStateT, action: str) -> str:
        return f"The answer to the question is {action}."


class VqaConfig(OwnDataConfig):
    """Configuration of vqa."""

    agreement: int = setting(
        1, "Number of a row's accepted answers that must match for the full reward; 3 in the VQA benchmark.", ge=1
    )

    @property
    def guesses(self) -> tuple[str, ...]:
        """Answers of the random policy: `yes`, `no`, the numbers below 10, and colours."""
        return ("yes", "no", *map(str, range(10)), *COLOUR_NAMES)


class Vqa(QuestionTask[QuestionState], OwnDataTask[QuestionState, str]):
    """Answer a question about an image of your data with a word or a number.

    Description:
        The images and questions are yours, for example those of TextVQA. Without `data`, the name `vqa` means
        `scenes-questions`, which generates both.

    Observation:
        One RGB image.

    Action:
        One line of text, at most 100 characters. Random actions are `yes`, `no`, a number or a colour. Answers are
        compared after normalisation (`vqa.normalise`): case, articles, markup, final punctuation and the spelling of
        numbers are ignored.

    Reward:
        1 if the answer equals an accepted answer; 0 otherwise and for an unparsable answer. With `agreement=n`, the
        reward is the number of equal accepted answers divided by n, at most 1; if a question has fewer than n
        accepted answers, their number replaces n.

    Episode end:
        After one turn. `info` has `correct` (the reward) and the accepted `answers`. Metrics: `accuracy` (mean
        reward), also for each type of question.

    Arguments:
        `data`: Your questions. Columns: `image`, `question`, `answer` or `answers` (one or a list) and optionally
        `question_type`.
    """

    name = "vqa"
    skills = ("arithmetic", "perception")
    title = "VQA"
    Config = VqaConfig
    State = QuestionState
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "image": ("image", "picture", "img", "image_url", "image_path", "file_name"),
        "question": ("question", "query", "text"),
        "answer": ("answers", "answer", "multiple_choice_answer", "label"),
        "type": ("question_type", "type", "answer_type", "category"),
    }
    optional_fields = frozenset({"type"})
    image_fields = ("image",)

    def from_row(self, fields: DataRow) -> QuestionState:
        items = fields["answer"] if isinstance(fields["answer"], list | tuple) else [fields["answer"]]
        answers = texts_of(
            [item.get("answer", item) if isinstance(item, Mapping) else item for item in items], "answer"
        )
        kind = "" if is_empty(fields.get("type")) else text_of(fields, "type")
        return QuestionState(type=kind, question=text_of(fields, "question"), answers=answers)

    def full_score(self, state: QuestionState) -> float:
        """1, or less if fewer than `agreement` annotators agree, as in the VQA benchmark."""
        return max(self.reward(state, answer) for answer in state.answers)

    def reward(self, state: QuestionState, answer: str) -> float:
        needed: int = min(self.config.agreement, len(state.answers))
        return min(1.0, agreement(answer, state.answers) / needed)

    def prompt(self, state: QuestionState) -> str:
        return self.fill_prompt(
            "what the image shows",
            scene="",
            question=state.question,
            answers="a word, a number or a short phrase on one line",
        )


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
