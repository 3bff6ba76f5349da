"""The response format: `<perception>...</perception><think>...</think><answer>...</answer>`.

The grammar is in `docs/protocols.md`. Responses are never corrected or guessed at. Parsing takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from vlmgym.errors import ParseError
from vlmgym.sandbox.answers.base import ActionT, Answer

ThinkTag = Literal["think", "reasoning"]
"""Tag of the reasoning. Some chat templates delete everything up to `</think>` from earlier responses."""
SECTIONS = ("perception", "think", "answer")

INSTRUCTIONS_START = "Respond in exactly this form:"
"""First line of the format instructions."""

MOST_TAGS = 10_000
"""Maximum number of tags, including starts and ends of comments; a response with more has no answer."""

_TAG = re.compile(
    r"<(?=/?[aciprst][cehnor]|!-|\|)"  # rejects most text early
    r"(?:/?(answer|perception|prediction|think(?:ing)?|thoughts?|reason(?:ing)?|reflection|analysis|scratchpad|seed:think"
    r"|antthinking|cot|in(?:ner|ternal)_monologue)"
    r"(?:[\s/][^<>]*)?>|!--|\|(?:(?:START|END)_THINKING\|>|channel\|>(?:analysis|commentary|final)))"
    r"|-->|\[/?THINK\]|\u25c1/?think\u25b7",
    re.IGNORECASE | re.ASCII,
)
"""Tags, starts and ends of comments, and the special tokens that Command A, gpt-oss, Magistral and Kimi put around
thoughts."""
_COMMENT = "!--"
_CLOSING = ("</", "-->", "[/", "\u25c1/", "<|end_thinking", "<|channel|>final")
_OPENED_IN_RESPONSE = frozenset({"perception", "prediction", _COMMENT})
"""Kinds of thought that begin where the response opens them; the chat template may already have opened any other."""

Tag = re.Match[str]


def instructions(perception: str, answer: str, prediction: str | None = None, tag: ThinkTag = "think") -> str:
    """Write the format instructions of a prompt, with `<prediction>` if given, and with the `tag` of the reasoning."""
    form = compose(perception, "your reasoning", answer, prediction, tag)
    return f"{INSTRUCTIONS_START}\n{form}\nGive exactly one <answer>."


def compose(perception: str, think: str, answer: str, prediction: str | None = None, tag: ThinkTag = "think") -> str:
    """Write a response in the documented format, with `<prediction>` if given, and with the `tag` of the reasoning."""
    prediction_line = "" if prediction is None else f"<prediction>{prediction}</prediction>\n"
    return f"<perception>{perception}</perception>\n<{tag}>{think}</{tag}>\n{prediction_line}<answer>{answer}</answer>"


def answer_only(answer: str) -> str:
    """Write a response with only an answer, which can be played but earns no format or perception reward."""
    return f"<answer>{answer}</answer>"


@dataclass(slots=True)
class ParsedResponse:
    """Result of `parse_response`.

    Attributes:
        text: The whole response.
        fault: Why the response does not have exactly one answer; None if it does.
        tags: All tags except comments.
        answers: Answer tags outside thoughts, and tags that open a thought inside such an answer.
        perceptions: Perception tags outside other thoughts.
        predictions: Prediction tags outside other thoughts.
        thoughts: Kind, start and end of each outermost thought. Perceptions, predictions and comments count as such.
    """

    text: str
    fault: str | None = None
    tags: list[Tag] = field(default_factory=list)
    answers: list[Tag] = field(default_factory=list)
    perceptions: list[Tag] = field(default_factory=list)
    predictions: list[Tag] = field(default_factory=list)
    thoughts: list[tuple[str, int, int]] = field(default_factory=list)

    def answer(self, longest: int) -> str:
        """Return the only answer, stripped of surrounding whitespace.

        Raises:
            ParseError: There is not exactly one answer outside thoughts, or it is empty or too long.
        """
        if self.fault is not None:
            raise ParseError(self.fault)
        text = self._inside(self.answers)
        if not text:
            raise ParseError("the answer is empty")
        if len(text) > longest:
            raise ParseError(f"the answer has {len(text)} characters; at most {longest} are allowed")
        return text

    def action(self, kind: Answer[ActionT]) -> ActionT:
        """Return the action of the only answer; raise `ParseError` if there is none. `kind` is the game's `answer`."""
        return kind.parse(self.answer(kind.longest))

    @property
    def perception(self) -> str | None:
        """Text of the perception; None unless there is exactly one and it is closed."""
        return self._inside(self.perceptions) if _is_pair(self.perceptions) else None

    @property
    def prediction(self) -> str | None:
        """Text of the prediction; None unless there is exactly one and it is closed."""
        return self._inside(self.predictions) if _is_pair(self.predictions) else None

    @property
    def thought(self) -> str:
        """Text of all thoughts except perceptions, predictions and comments."""
        return "\n".join(self.text[start:end] for kind, start, end in self.thoughts if kind not in _OPENED_IN_RESPONSE)

    def format_reward(self, longest: int, prediction: bool = False, tag: ThinkTag = "think") -> float:
        """Return 1.0 if the response has exactly the documented format and `answer` accepts its answer, else 0.0.

        The format is exact if each of the sections, with or without a prediction, occurs once, in order, with its tags
        spelled as in the prompt, no other tags, and only whitespace outside the sections.
        """
        sections = ("perception", tag, *(("prediction",) if prediction else ()), "answer")
        edges = [0, *(edge for tag in self.tags for edge in tag.span()), len(self.text)]
        exact = [tag[0] for tag in self.tags] == [f"<{slash}{name}>" for name in sections for slash in ("", "/")]
        if not exact or any(self.text[edges[i] : edges[i + 1]].strip() for i in range(0, len(edges), 4)):
            return 0.0
        try:
            self.answer(longest)
        except ParseError:
            return 0.0
        return 1.0

    def spans(self) -> list[tuple[str, int, int]]:
        """Section name, start and end of each perception, thought, prediction and answer, with the tags, in order."""
        counts = {"perception": _is_pair(self.perceptions), "prediction": _is_pair(self.predictions)}
        spans = [(kind if counts.get(kind) else "think", start, end) for kind, start, end in self.thoughts]
        if self.fault is None:
            spans.append(("answer", self.answers[0].start(), self.answers[1].end()))
        return sorted(spans, key=lambda span: span[1])

    def _inside(self, pair: Sequence[Tag]) -> str:
        return self.text[pair[0].end() : pair[1].start()].strip()


@lru_cache(maxsize=8)  # policies without a model repeat their few responses
def parse_response(response: str) -> ParsedResponse:
    """Parse a response by the grammar in `docs/protocols.md`."""
    parsed = ParsedResponse(response)
    open_kinds: list[str] = []
    start, has_comment = 0, False
    for count, tag in enumerate(_TAG.finditer(response)):
        if count == MOST_TAGS:
            return ParsedResponse(response, f"the response has more than {MOST_TAGS:,} tags")
        kind = _kind(tag)
        if kind == _COMMENT:
            has_comment |= not _closes(tag)
        else:
            parsed.tags.append(tag)
        if kind in ("perception", "prediction") and open_kinds[:1] in ([], [kind]):
            (parsed.perceptions if kind == "perception" else parsed.predictions).append(tag)
        if kind == "answer":
            if not open_kinds:
                parsed.answers.append(tag)
        elif not _closes(tag):
            if _is_empty(tag) or kind in open_kinds:
                continue
            if not open_kinds:
                start = tag.start()
                if parsed.answers and not _closes(parsed.answers[-1]):
                    parsed.answers.append(tag)
            open_kinds.append(kind)
        elif kind in open_kinds:
            first = open_kinds[0]
            if kind in _OPENED_IN_RESPONSE:
                del open_kinds[open_kinds.index(kind) :]
            else:
                open_kinds.clear()
                parsed.answers.clear()
            if not open_kinds:
                parsed.thoughts.append((first, start, tag.end()))
        elif kind != _COMMENT or has_comment:  # the thought began in the prompt and includes everything so far
            open_kinds.clear()
            parsed.answers.clear()
            parsed.perceptions.clear()
            parsed.predictions.clear()
            parsed.thoughts[:] = [(kind, 0, tag.end())]
    if open_kinds:
        parsed.thoughts.append((open_kinds[0], start, len(response)))
    parsed.fault = _fault(parsed, open_kinds)
    return parsed


def _fault(parsed: ParsedResponse, open_kinds: Sequence[str]) -> str | None:
    if open_kinds:
        thought = "a comment" if open_kinds[0] == _COMMENT else f"<{open_kinds[0]}>"
        return f"the response ends inside {thought}, so it has no <answer>"
    answers = [tag for tag in parsed.answers if _kind(tag) == "answer"]
    openings = sum(not _closes(tag) for tag in answers)
    if not openings:
        hidden = sum(_kind(tag) == "answer" for tag in parsed.tags) > len(answers)
        return "the response has no <answer> outside its thoughts" if hidden else "the response has no <answer>"
    if openings > 1 or len(answers) > 2:
        return f"the response has {max(openings, len(answers) - openings)} <answer> sections; exactly one is allowed"
    if _is_empty(answers[0]):
        return "<answer/> is empty: write the answer between <answer> and </answer>"
    if len(answers) < len(parsed.answers):
        return "the answer has a thought or a comment inside it"
    return None if _is_pair(answers) else "<answer> is not closed by </answer>"


def _kind(tag: Tag) -> str:
    if tag[1]:
        return tag[1].lower()
    return _COMMENT if tag[0] in ("<!--", "-->") else "think"


def _closes(tag: Tag) -> bool:
    return tag[0].lower().startswith(_CLOSING)


def _is_empty(tag: Tag) -> bool:
    """True for a self-closing tag such as `<answer/>`."""
    return tag[0].endswith("/>") and not _closes(tag)


def _is_pair(tags: Sequence[Tag]) -> bool:
    return [_closes(tag) for tag in tags] == [False, True] and not _is_empty(tags[0])
