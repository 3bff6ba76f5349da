"""Captions: a picture is described in a free sentence, which is to name what a list of keywords names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from vlmgym.errors import IllegalAction, ParseError, StateError, shorten
from vlmgym.sandbox import response_form
from vlmgym.sandbox.config import knob
from vlmgym.sandbox.datasets.order import shuffled
from vlmgym.sandbox.datasets.photographs import PHOTOGRAPHS, photograph, read_keywords
from vlmgym.sandbox.datasets.rows import BadRow, Row, is_empty, shown, text_of
from vlmgym.sandbox.game import Picture
from vlmgym.sandbox.perception import LONGEST_PERCEPTION, Perception
from vlmgym.sandbox.rules.keywords import Keyword, named, shared_words, shortest, words_of
from vlmgym.sandbox.spaces import LineSpace
from vlmgym.sandbox.task import Task, TaskConfig, TaskState
from vlmgym.sandbox.task_perception import with_task_perception

LONGEST_CAPTION = 1000

PROMPT_V1 = """\
Describe what the picture shows in a sentence or two. The caption earns by the things that it names: the main ones \
first, then colours, the surroundings, and details. Only its first {words} words count.
Actions: the caption, on one line, at most {longest} characters.
{form}"""


class CaptionConfig(TaskConfig):
    """Difficulty of captions: how much is to be named in how many words."""

    of_data: ClassVar = ("split", "columns", "bad_rows", "urls")  # photographs have an order, too

    keywords: int = knob("reasoning", 4, "Keywords that a caption is to name, from the most evident.", ge=1, le=50)
    words: int = knob("reasoning", 20, "Words of a caption that count, from the first.", ge=1, le=200)

    dials = with_task_perception(
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
    """A picture and what is to be named.

    Attributes:
        keywords: What is asked for, each with its synonyms, the most evident first.
        photograph: Name in `datasets.photographs`; None for a picture out of data.
    """

    keywords: tuple[Keyword, ...]
    photograph: str | None = None


class Caption(Task[CaptionState, str]):
    """A picture is described in words of one's own; how many keywords the caption names is the reward.

    Action space: one line of text, at most 1000 characters.
    Observation: the picture.
    Reward: the share of the keywords that are named by a word of their synonyms among the first `words` words, 0 to 1;
    0 for an unparsable response. Words are compared whole, without case and accents; singular and plural are the same,
    see `rules.keywords.words_of`. What follows the first `words` words changes nothing, so that a list of everything
    that might be there earns little.
    Start: without `data`, a photograph of scikit-image; seeds in a row go through all. With `data`, a row: the column
    `image`, and `keywords`, `tags` or `label` (a list, or a text `cat|kitten, table`), or else `captions` or `caption`
    (reference captions, whose shared words are the keywords, see `rules.keywords.shared_words`). The first `keywords`
    are asked for.
    End: after one turn, whatever was said.
    Info of a step: `named` and `missed` keywords by their first synonym, and the number of `words`.
    Metrics: coverage (mean reward), and the share of captions that name every keyword.

    Version history: v0, first.
    """

    name = "caption"
    version = 0
    Config = CaptionConfig
    State = CaptionState
    longest_answer = LONGEST_CAPTION
    prompt_template: ClassVar[str] = PROMPT_V1
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "image": ("image", "picture", "img", "image_path", "file_name"),
        "keywords": ("keywords", "tags", "label"),
        "captions": ("captions", "caption", "sentences", "text"),
    }
    optional_fields = frozenset({"keywords", "captions"})
    picture_fields = ("image",)

    @cached_property
    def action_space(self) -> LineSpace:
        """One line."""
        return LineSpace(LONGEST_CAPTION)

    def generate(self, rng: np.random.Generator) -> CaptionState:
        """One of the photographs."""
        return self._photograph(int(rng.integers(len(PHOTOGRAPHS))))

    def start_at(self, seed: int, rng: np.random.Generator) -> CaptionState:
        """The row of a seed, or without data its photograph: as many seeds in a row show every one once."""
        if self.config.data is not None:
            return super().start_at(seed, rng)
        position = seed % len(PHOTOGRAPHS)
        return self._photograph(shuffled(position, len(PHOTOGRAPHS)) if self.config.order == "shuffled" else position)

    def _photograph(self, index: int) -> CaptionState:
        name = tuple(PHOTOGRAPHS)[index]
        return CaptionState(keywords=self._asked(PHOTOGRAPHS[name].keywords), photograph=name)

    def _asked(self, keywords: tuple[Keyword, ...]) -> tuple[Keyword, ...]:
        return keywords[: self.config.keywords]

    def from_row(self, fields: Row) -> CaptionState:
        """A picture of the user, with its keywords or those of its reference captions."""
        if not is_empty(fields["keywords"]):
            keywords = _keywords(fields["keywords"])
        elif not is_empty(fields["captions"]):
            keywords = shared_words(_captions(fields["captions"]))
            if not keywords:
                raise BadRow("the captions have no words in common that could be keywords")
        else:
            raise BadRow("there are neither keywords nor captions")
        asked = self._asked(keywords)
        if (needed := len(words_of(_bare(asked)))) > self.config.words:
            raise BadRow(f"its keywords have {needed} words, more than words={self.config.words}")
        return CaptionState(keywords=asked)

    def solution(self, state: CaptionState) -> str:
        """The keywords alone, each by its shortest synonym."""
        return _bare(state.keywords)

    def score(self, state: CaptionState, action: str) -> tuple[float, Mapping[str, Any]]:
        """The share of the keywords that are named."""
        if not self.action_space.contains(action):
            raise IllegalAction(f"{shorten(repr(action), 40)} is not one line of 1 to {LONGEST_CAPTION} characters")
        found = named(action, state.keywords, self.config.words)
        told = [(keyword[0], is_named) for keyword, is_named in zip(state.keywords, found)]
        info = {
            "named": [word for word, is_named in told if is_named],
            "missed": [word for word, is_named in told if not is_named],
            "words": len(words_of(action)),
        }
        return sum(found) / len(found), info

    def metrics(self, state: CaptionState, infos: Sequence[Mapping[str, Any]]) -> Mapping[str, float | str]:
        """The coverage; a response that was not played names nothing, and an episode without one has none."""
        if not state.answered:
            return {}
        count = len(infos[-1].get("named", ())) if infos else 0
        return {"coverage": count / len(state.keywords), "all named": float(count == len(state.keywords))}

    def paint(self, state: CaptionState) -> list[Picture]:
        """The photograph."""
        return [photograph(str(state.photograph), self.config.size).copy()]

    def describe(self, state: CaptionState) -> str:
        """The keywords, which is all that is known of the picture."""
        return _bare(state.keywords)

    def perceive(self, state: CaptionState, text: str) -> Perception:
        """The share of the keywords that a description names, as a caption is scored; exact: all of them."""
        found = named(text[:LONGEST_PERCEPTION], state.keywords, self.config.words)
        return Perception(sum(found) / len(found), float(all(found)))

    def prompt(self, state: CaptionState) -> str:
        """What is asked for, how much of it counts, and the response form."""
        form = response_form.INSTRUCTIONS_V1.format(perception="what the picture shows", answer="your caption")
        return self.prompt_template.format(words=self.config.words, longest=LONGEST_CAPTION, form=form)

    def parse_answer(self, text: str) -> str:
        """One line of text, as it stands but for blanks around it.

        Raises:
            ParseError: It has several lines, characters that cannot be printed, or is too long or empty.
        """
        caption = text.strip()
        if not self.action_space.contains(caption):
            raise ParseError(f"the caption {shorten(text, 40)!r} is not one line of 1 to {LONGEST_CAPTION} characters")
        return caption

    def format(self, action: str) -> str:
        """The caption."""
        return action

    def explain(self, state: CaptionState, action: str) -> str:
        """What is said of the picture."""
        return f"The picture shows {action}."

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
            if state.keywords != self._asked(known.keywords):
                raise StateError(f"these are not the {self.config.keywords} keywords of {state.photograph}")


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
