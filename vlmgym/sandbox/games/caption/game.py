"""Captions: an image is described in a free sentence, which is to name what a list of keywords names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from vlmgym.errors import StateError
from vlmgym.sandbox.core import response_format
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.line_task import LineTask
from vlmgym.sandbox.core.perception import Perception
from vlmgym.sandbox.core.task import TaskConfig, TaskState
from vlmgym.sandbox.core.task_perception import with_task_perception
from vlmgym.sandbox.datasets.order import shuffled
from vlmgym.sandbox.datasets.rows import BadRow, Row, is_empty, shown, text_of
from vlmgym.sandbox.games.caption.keywords import Keyword, named, shared_words, shortest, unmatched, words_of
from vlmgym.sandbox.games.caption.photographs import PHOTOGRAPHS, photograph, read_keywords

PROMPT_V1 = """\
Describe what the image shows in a sentence or two. The caption earns by the things that it names: the main ones \
first, then colours, the surroundings, and details. Only its first {words} words count.{cost}
Actions: the caption, on one line, at most {longest} characters.
{form}"""
COST_V1 = " Words for what is not there, or is beside the point, cost."

LONGEST_DESCRIPTION = 5_000
"""Characters of a `<perception>` that are read: 25 for each of the 200 words that can count."""


class CaptionConfig(TaskConfig):
    """Difficulty of captions: how much is to be named in how many words."""

    of_data: ClassVar = ("split", "columns", "bad_rows", "urls", "url_hosts")  # photographs have an order, too

    keywords: int = config_field(
        "reasoning", 4, "Keywords that a caption is to name, from the most evident.", ge=1, le=50
    )
    words: int = config_field("reasoning", 20, "Words of a caption that count, from the first.", ge=1, le=200)
    precision: float = config_field(
        "reasoning", 0.75, "Precision that the full reward takes; a lower one costs. 0: no word costs.", ge=0.0, le=1.0
    )

    levels = with_task_perception(
        {
            1: {"keywords": 2},
            2: {"keywords": 3},
            3: {},
            4: {"keywords": 5, "words": 18},
            5: {"keywords": 6, "words": 15},
        }
    )

    def model_post_init(self, context: object) -> None:
        """Refuse fewer words than keywords."""
        if self.words < self.keywords:
            raise ValueError(f"{self.keywords} keywords cannot be named in words={self.words}")


@dataclass(frozen=True, kw_only=True)
class CaptionState(TaskState):
    """An image and what it shows.

    Attributes:
        keywords: What the image is known to show, each with its synonyms, the most evident first. The first
            `keywords` of the configuration are asked for.
        photograph: Name in `games.caption.photographs`; None for an image out of data.
    """

    keywords: tuple[Keyword, ...]
    photograph: str | None = None


class _Said(NamedTuple):
    """What a caption says: which keywords it names, which words cost, and what that earns."""

    named: tuple[bool, ...]
    unmatched: tuple[str, ...]
    coverage: float
    precision: float
    reward: float


_T = TypeVar("_T")


class Caption(LineTask[CaptionState]):
    """An image is described in words of one's own; what the caption names, and what else it says, is the reward.

    Action space: one line of text, at most 1000 characters. A sample is a list of at most `keywords` words out of the
    keywords of all photographs.
    Observation: the image.
    Reward: coverage x min(1, precision / `precision`), 0 to 1; 0 for an unparsable response. Coverage is the share of
    the keywords asked for that are named by one of their synonyms. Precision is the share of true ones among what the
    caption says: T / (T + F) with T keywords named, also those not asked for, and F different other words, function
    words such as `the` not counted. So a list of everything that might be there earns little; see docs/tasks/caption.md
    for how little. Only the first `words` words of a caption are read. Words are compared whole, without case and
    accents; singular and plural are the same, see `keywords.words_of`.
    Start: without `data`, a photograph of scikit-image; seeds in a row go through all. With `data`, a row: the column
    `image`, and `keywords`, `tags` or `label` (a list, or a text `cat|kitten, table`), or else `captions` or `caption`
    (reference captions, whose shared words are the keywords, see `keywords.shared_words`). The first `keywords`
    are asked for.
    End: after one turn, whatever was said.
    Info of a step: keywords asked for that are `named` or `missed`, by their first synonym; those not asked for that
    are named (`also`); the words that cost (`unmatched`); the number of `words`; `coverage` and `precision`.
    Metrics: coverage, precision, and the share of captions that name all that is asked for.

    Version history: v0, first.
    """

    name = "caption"
    version = 0
    Config = CaptionConfig
    State = CaptionState
    longest_answer = 1000
    answer_noun = "caption"
    prompt_template: ClassVar[str] = PROMPT_V1
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "image": ("image", "picture", "img", "image_path", "file_name"),
        "keywords": ("keywords", "tags", "label"),
        "captions": ("captions", "caption", "sentences", "text"),
    }
    optional_fields = frozenset({"keywords", "captions"})
    image_fields = ("image",)

    def guesses(self) -> tuple[tuple[str, ...], int]:
        """As many words as are asked for, of all keywords of the photographs and their synonyms."""
        words = {word for known in PHOTOGRAPHS.values() for keyword in known.keywords for word in keyword}
        return tuple(sorted(words)), self.config.keywords

    def generate(self, rng: np.random.Generator) -> CaptionState:
        """One of the photographs."""
        return self._photograph(int(rng.integers(len(PHOTOGRAPHS))))

    @property
    def question_count(self) -> int:
        """One for each photograph, or for each row of the data."""
        return super().question_count or len(PHOTOGRAPHS)

    def start_at(self, seed: int, rng: np.random.Generator) -> CaptionState:
        """The row of a seed, or without data its photograph: as many seeds in a row show every one once."""
        if self.config.data is not None:
            return super().start_at(seed, rng)
        position = seed % len(PHOTOGRAPHS)
        return self._photograph(shuffled(position, len(PHOTOGRAPHS)) if self.config.order == "shuffled" else position)

    def _photograph(self, index: int) -> CaptionState:
        name = tuple(PHOTOGRAPHS)[index]
        return CaptionState(keywords=PHOTOGRAPHS[name].keywords, photograph=name)

    def _asked(self, of_keywords: tuple[_T, ...]) -> tuple[_T, ...]:
        """The part that belongs to the keywords asked for."""
        return of_keywords[: self.config.keywords]

    def from_row(self, fields: Row) -> CaptionState:
        """An image of the user, with its keywords or those of its reference captions."""
        if not is_empty(fields["keywords"]):
            keywords = _keywords(fields["keywords"])
        elif not is_empty(fields["captions"]):
            keywords = shared_words(_captions(fields["captions"]))
            if not keywords:
                raise BadRow("the captions have no words in common that could be keywords")
        else:
            raise BadRow("there are neither keywords nor captions")
        if (needed := len(words_of(_bare(self._asked(keywords))))) > self.config.words:
            raise BadRow(f"its keywords have {needed} words, more than words={self.config.words}")
        return CaptionState(keywords=keywords)

    def solution(self, state: CaptionState) -> str:
        """The keywords that are asked for alone, each by its shortest synonym."""
        return _bare(self._asked(state.keywords))

    def score(self, state: CaptionState, action: str) -> tuple[float, Mapping[str, Any]]:
        """Coverage, less where precision is low."""
        self.check_line(action)
        said = self._compare(state, action)
        count = len(self._asked(state.keywords))
        told = [(keyword[0], is_named) for keyword, is_named in zip(state.keywords, said.named)]
        info = {
            "named": [word for word, is_named in told[:count] if is_named],
            "missed": [word for word, is_named in told[:count] if not is_named],
            "also": [word for word, is_named in told[count:] if is_named],
            "unmatched": list(said.unmatched),
            "words": len(words_of(action)),
            "coverage": said.coverage,
            "precision": said.precision,
        }
        return said.reward, info

    def _compare(self, state: CaptionState, text: str) -> _Said:
        """What a text says of the image."""
        found = named(text, state.keywords, self.config.words)
        rest = unmatched(text, state.keywords, self.config.words)
        asked = self._asked(found)
        coverage = sum(asked) / len(asked)
        precision = sum(found) / (sum(found) + len(rest)) if any(found) else 0.0
        enough = precision >= self.config.precision
        return _Said(found, rest, coverage, precision, coverage * (1 if enough else precision / self.config.precision))

    def metrics(self, state: CaptionState, infos: Sequence[Mapping[str, Any]]) -> Mapping[str, float | str]:
        """Coverage and precision: 0 of a response that was not played; an episode without one has none."""
        told = super().metrics(state, infos)
        if not state.answered:
            return told
        info = infos[-1] if infos else {}
        coverage, precision = (float(info.get(name, 0.0)) for name in ("coverage", "precision"))
        return {**told, "coverage": coverage, "precision": precision, "all named": float(coverage == 1)}

    def paint(self, state: CaptionState) -> list[ImageArray]:
        """The photograph."""
        return [photograph(str(state.photograph), self.config.size).copy()]

    def describe(self, state: CaptionState) -> str:
        """The keywords that are asked for."""
        return _bare(self._asked(state.keywords))

    def perceive(self, state: CaptionState, text: str) -> Perception:
        """Score a description as a caption, of any number of lines; exact: the full reward."""
        reward = self._compare(state, text[:LONGEST_DESCRIPTION]).reward
        return Perception(reward, float(reward == 1))

    def prompt(self, state: CaptionState) -> str:
        """What is asked for, how much of it counts, and the response form."""
        form = response_format.INSTRUCTIONS_V1.format(perception="what the image shows", answer="your caption")
        return self.prompt_template.format(
            words=self.config.words,
            longest=self.longest_answer,
            cost=COST_V1 if self.config.precision else "",
            form=form,
        )

    def explain(self, state: CaptionState, action: str) -> str:
        """What is said of the image."""
        return f"The image shows {action}."

    def check_state(self, state: CaptionState) -> None:
        """Refuse a position without keywords, or with others than its photograph has."""
        super().check_state(state)
        if not state.keywords or not all(keyword and all(map(words_of, keyword)) for keyword in state.keywords):
            raise StateError("a position of caption has at least one keyword, each of at least one word")
        if (state.photograph is None) != (state.row is not None):
            raise StateError("a position of caption has either a photograph or a row of data")
        if state.photograph is not None:
            known = PHOTOGRAPHS.get(state.photograph)
            if known is None:
                raise StateError(f"there is no photograph {state.photograph!r}")
            if state.keywords != known.keywords:
                raise StateError(f"these are not the keywords of {state.photograph}")


def _bare(keywords: Sequence[Keyword]) -> str:
    return ", ".join(map(shortest, keywords))


def _keywords(value: Any) -> tuple[Keyword, ...]:
    """Keywords as a list of texts or of lists of synonyms, or as one text."""
    if isinstance(value, list | tuple):
        groups = tuple(
            tuple(text_of({"a keyword": word}, "a keyword") for word in item)
            if isinstance(item, list | tuple)
            else tuple(filter(None, map(str.strip, text_of({"a keyword": item}, "a keyword").split("|"))))
            for item in value
        )
    else:
        groups = read_keywords(text_of({"keywords": value}, "keywords"))
    if not groups:
        raise BadRow("there are no keywords")
    for group in groups:
        if not group or not all(map(words_of, group)):
            raise BadRow(f"a keyword has no letters or digits: {shown(group)}")
    return groups


def _captions(value: Any) -> list[str]:
    """Reference captions as one text, a list of texts, or a list of objects with the text in `raw` or `caption`."""
    items = list(value) if isinstance(value, list | tuple) else [value]
    texts = [item.get("raw", item.get("caption")) if isinstance(item, Mapping) else item for item in items]
    return [text_of({"a caption": text}, "a caption") for text in texts]
