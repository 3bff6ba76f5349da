"""Caption: describe an image; the caption is scored by the keywords that it names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vlmgym.errors import UsageError, importing, short_repr
from vlmgym.sandbox.answers.line import Line
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.data_task import DataTask, DataTaskConfig
from vlmgym.sandbox.core.game import ImageArray, Info, Infos, Metrics
from vlmgym.sandbox.core.perception import Perception
from vlmgym.sandbox.core.task import TaskState
from vlmgym.sandbox.data.images import decode, letterbox
from vlmgym.sandbox.data.rows import BadRow, DataRow, is_empty, text_of, texts_of
from vlmgym.sandbox.games.caption.keywords import (
    Keyword,
    keywords_from_captions,
    named_keywords,
    shortest_synonym,
    tokenise,
    unmatched_words,
)

# Photographs ----------------------------------------------------------------------------------------------------------
# The documentation of `skimage.data` states their licences; most are CC0 or in the public domain. Each line of
# `photographs.tsv` holds a photograph's name, file in `skimage/data`, SHA-256 of the file (unchanged since scikit-image
# 0.22), and keywords.


class Photograph(NamedTuple):
    """A photograph in scikit-image and its keywords, the most obvious first."""

    file: str
    sha256: str
    keywords: tuple[Keyword, ...]


def read_keywords(text: str) -> tuple[Keyword, ...]:
    """Parse keywords separated by commas, semicolons or line breaks; `|` separates synonyms: `cat|kitten, table`."""
    for mark in ";\n":
        text = text.replace(mark, ",")
    groups = (tuple(filter(None, map(str.strip, group.split("|")))) for group in text.split(","))
    return tuple(group for group in groups if group)


def _read_photographs() -> dict[str, Photograph]:
    table = (files("vlmgym.sandbox.games.caption") / "photographs.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in table.splitlines())
    return {name: Photograph(file, sha256, read_keywords(words)) for name, file, sha256, words in rows}


PHOTOGRAPHS = _read_photographs()
"""Photographs by name; consecutive seeds follow this order."""


@lru_cache(maxsize=len(PHOTOGRAPHS))
def load_photograph(name: str, size: int) -> NDArray[np.uint8]:
    """Load a photograph, scaled to fit a square with grey margins: uint8 (size, size, 3), read-only."""
    photograph = PHOTOGRAPHS[name]
    try:
        with importing("a caption without data=", "tasks"):
            content = (files("skimage") / "data" / photograph.file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {photograph.file} of scikit-image: {error}") from None
    if hashlib.sha256(content).hexdigest() != photograph.sha256:
        raise UsageError(f"{photograph.file} of scikit-image is not the image that the keywords describe")
    image = letterbox(decode(content), size)
    image.flags.writeable = False
    return image


# The task -------------------------------------------------------------------------------------------------------------

PROMPT_V1 = """\
Describe the image in one or two sentences. Name the main objects first, then colours, surroundings and details: each \
of them scores. Only the first {words} words count.{cost}
Write the caption on one line of at most {longest} characters.
{form}"""
COST_V1 = " Words for things that are not in the image or do not matter lower the score."

MAX_PERCEPTION_LENGTH = 5_000
"""Maximum number of `<perception>` characters that are scored: 200 words of 25 characters."""


class CaptionConfig(DataTaskConfig):
    """Configuration of caption."""

    keywords: int = config_field(
        "reasoning", [2, 3, 4, 5, 6], "Number of keywords to name, starting with the most obvious.", ge=1, le=50
    )
    words: int = config_field(
        "reasoning", [20, 20, 20, 18, 15], "Number of words that are scored; later words are ignored.", ge=1, le=200
    )
    precision: float = config_field(
        "reasoning", 0.75, "Precision required for the full reward; 0 disables the penalty.", ge=0.0, le=1.0
    )

    def model_post_init(self, context: object) -> None:
        if self.words < self.keywords:
            raise ValueError(f"words must be at least the number of keywords ({self.keywords}), got {self.words}")


@dataclass(frozen=True, kw_only=True)
class CaptionState(TaskState):
    """An image and its keywords, the most obvious first; the caption must name the first `config.keywords` of them."""

    keywords: tuple[Keyword, ...]
    photograph: str | None = None
    """Key in `PHOTOGRAPHS`; None for an image from data."""


class _Score(NamedTuple):
    """Score of a caption.

    Attributes:
        named: For each keyword, whether the caption names it.
        unmatched: Words that lower the precision.
        coverage: Fraction of the required keywords that are named.
        precision: Number of named keywords / (named keywords + unmatched words).
        reward: The coverage, reduced if the precision is too low.
    """

    named: tuple[bool, ...]
    unmatched: tuple[str, ...]
    coverage: float
    precision: float
    reward: float


def _guesses(config: CaptionConfig) -> tuple[tuple[str, ...], int]:
    """The words of all photographs' keywords."""
    words = {word for known in PHOTOGRAPHS.values() for keyword in known.keywords for word in keyword}
    return tuple(sorted(words)), config.keywords


class Caption(DataTask[CaptionState, str]):
    """Describe an image; the caption is scored by the keywords that it names.

    Description:
        Without `data`, the image is one of 16 photographs of scikit-image; 16 consecutive seeds visit each of them.
        Each image has a list of keywords with synonyms. Only whole words match; case, accents and plurals are ignored.

    Observation:
        One RGB image.

    Action:
        One line of text, at most 1000 characters; only its first `words` words are scored. Random actions consist of up
        to `keywords` words from the keywords of all photographs.

    Reward:
        Coverage x min(1, precision / `precision`), 0 to 1. Coverage is the fraction of the first `keywords` keywords
        that the caption names. Precision is T / (T + F), where T counts all keywords that the caption names, including
        those after the first `keywords`, and F counts the other distinct words, except function words such as `the`.
        Hence a list of everything that may be in the image earns little. 0 for an unparsable response.

    Episode end:
        After one turn. `info` lists which of the first `keywords` keywords were `named` and `missed`, which later
        keywords were `also` named, and which words were `unmatched` by any keyword. It also has the number of `words`,
        `coverage` and `precision`. Metrics: `coverage`, `precision`, and `all named`, the fraction of captions that
        name all of the first `keywords`.

    Arguments:
        `data`: Your own images. Columns: `image` and either `keywords`, `tags` or `label` (a list, or text such as
        `cat|kitten, table`), or reference `captions`, whose common words become the keywords.
    """

    name = "caption"
    skills = ("perception",)
    Config = CaptionConfig
    State = CaptionState
    answer = Line("your caption", _guesses, longest=1000, noun="caption")
    prompt_template = PROMPT_V1
    no_text_observation = "its descriptions are the answers"
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "image": ("image", "picture", "img", "image_url", "image_path", "file_name"),
        "keywords": ("keywords", "tags", "label"),
        "captions": ("captions", "caption", "sentences", "text"),
    }
    optional_fields = frozenset({"keywords", "captions"})
    image_fields = ("image",)

    def generate(self, rng: np.random.Generator) -> CaptionState:
        return self._photograph(int(rng.integers(len(PHOTOGRAPHS))))

    @property
    def question_count(self) -> int:
        """Number of data rows, or of photographs if there is no data."""
        return super().question_count or len(PHOTOGRAPHS)

    def start_at(self, seed: int, rng: np.random.Generator) -> CaptionState:
        """Pick the data row or photograph for a seed; consecutive seeds visit each once."""
        if self.config.data is not None:
            return super().start_at(seed, rng)
        return self._photograph(seed % len(PHOTOGRAPHS))

    def _photograph(self, index: int) -> CaptionState:
        name = tuple(PHOTOGRAPHS)[index]
        return CaptionState(keywords=PHOTOGRAPHS[name].keywords, photograph=name)

    def from_row(self, fields: DataRow) -> CaptionState:
        if not is_empty(fields["keywords"]):
            keywords = _keywords(fields["keywords"])
        elif not is_empty(fields["captions"]):
            keywords = keywords_from_captions(_captions(fields["captions"]))
            if not keywords:
                raise BadRow("the captions have no words in common")
        else:
            raise BadRow("the row has neither keywords nor captions")
        if (needed := len(tokenise(_join(keywords[: self.config.keywords])))) > self.config.words:
            raise BadRow(f"the keywords have {needed} words, more than words={self.config.words}")
        return CaptionState(keywords=keywords)

    def solution(self, state: CaptionState) -> str:
        """The required keywords, each as its shortest synonym, comma-separated."""
        return _join(state.keywords[: self.config.keywords])

    def score(self, state: CaptionState, action: str) -> tuple[float, Info]:
        self.answer.check(action)
        scored = self._compare(state, action)
        count = len(state.keywords[: self.config.keywords])
        keywords = [(keyword[0], is_named) for keyword, is_named in zip(state.keywords, scored.named)]
        info = {
            "named": [word for word, is_named in keywords[:count] if is_named],
            "missed": [word for word, is_named in keywords[:count] if not is_named],
            "also": [word for word, is_named in keywords[count:] if is_named],
            "unmatched": list(scored.unmatched),
            "words": len(tokenise(action)),
            "coverage": scored.coverage,
            "precision": scored.precision,
        }
        return scored.reward, info

    def _compare(self, state: CaptionState, text: str) -> _Score:
        named = named_keywords(text, state.keywords, self.config.words)
        rest = unmatched_words(text, state.keywords, self.config.words)
        required = named[: self.config.keywords]
        coverage = sum(required) / len(required)
        precision = sum(named) / (sum(named) + len(rest)) if any(named) else 0.0
        enough = precision >= self.config.precision
        return _Score(named, rest, coverage, precision, coverage * (1 if enough else precision / self.config.precision))

    def metrics(self, state: CaptionState, infos: Infos) -> Metrics:
        """Coverage, precision and `all named`, each 0 for an invalid response."""
        metrics = super().metrics(state, infos)
        if not state.answered:
            return metrics
        info = infos[-1] if infos else {}
        coverage, precision = (float(info.get(name, 0.0)) for name in ("coverage", "precision"))
        return {**metrics, "coverage": coverage, "precision": precision, "all named": float(coverage == 1)}

    def paint(self, state: CaptionState) -> list[ImageArray]:
        return [load_photograph(str(state.photograph), self.config.size).copy()]

    def describe(self, state: CaptionState) -> str:
        return self.solution(state)

    @property
    def image_source(self) -> str:
        return super().image_source or "photographs of scikit-image; the documentation of skimage.data states licences"

    def perceive(self, state: CaptionState, text: str) -> Perception:
        """Score a description like a caption, but allow several lines; `exact` is 1 if it earns the full reward."""
        reward = self._compare(state, text[:MAX_PERCEPTION_LENGTH]).reward
        return Perception(reward, float(reward == 1))

    def prompt(self, state: CaptionState) -> str:
        cost = COST_V1 if self.config.precision else ""
        return self.fill_prompt(longest=self.answer.longest, cost=cost)

    def explain(self, state: CaptionState, action: str) -> str:
        return f"The image shows {action}."


def _join(keywords: Sequence[Keyword]) -> str:
    return ", ".join(map(shortest_synonym, keywords))


def _keywords(value: Any) -> tuple[Keyword, ...]:
    """Parse keywords: a list of strings, a list of lists of synonyms, or one string."""
    groups: list[Keyword] = []
    for item in value if isinstance(value, list | tuple) else [value]:
        if isinstance(item, list | tuple) and not is_empty(item):
            groups.append(texts_of(item, "keyword"))
        elif not is_empty(item):
            groups += read_keywords(text_of({"keywords": item}, "keywords"))
    if not groups:
        raise BadRow("the row has no keywords")
    for group in groups:
        if not group or not all(map(tokenise, group)):
            raise BadRow(f"keyword without letters and digits: {short_repr(group)}")
    return tuple(groups)


def _captions(value: Any) -> tuple[str, ...]:
    """Parse reference captions: one string, a list of strings, or a list of objects with `raw` or `caption`."""
    items = list(value) if isinstance(value, list | tuple) else [value]
    texts = [item.get("raw", item.get("caption", item)) if isinstance(item, Mapping) else item for item in items]
    return texts_of(texts, "caption")
