"""One-turn tasks: questions about one or more images, generated or from user data."""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike, fspath
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
from pydantic import field_validator, model_validator

from vlmgym.errors import IllegalAction, ParseError, StateError, UsageError, truncate
from vlmgym.sandbox.core.config import LIST, DegradedConfig, setting
from vlmgym.sandbox.core.game import OWN_DATA, ActionT, Game, ImageArray, Step
from vlmgym.sandbox.core.spaces import LineSpace
from vlmgym.sandbox.datasets.images import letterbox
from vlmgym.sandbox.datasets.opening import open_table
from vlmgym.sandbox.datasets.rows import BadRow, DataRow, RowRef, SkippedRow, Table
from vlmgym.sandbox.datasets.source import Source, map_columns, shuffled
from vlmgym.sandbox.drawing.degrade import degrade

ANSWERED = "answered"
MOST_SKIPPED = 100
"""Number of consecutive bad rows after which an error is raised."""
IMAGES_KEPT = 8
"""Number of rows whose decoded images are cached, so that reading and then drawing a row decodes them once."""


@dataclass(frozen=True, kw_only=True)
class TaskState:
    """State fields shared by all tasks; subclasses add the question and its solution."""

    answered: bool = False
    """True after the only turn."""
    row: RowRef | None = None
    """Source row in the user's data; None for a generated question."""
    skipped: tuple[SkippedRow, ...] = ()
    """Bad rows skipped before this one."""


TaskStateT = TypeVar("TaskStateT", bound=TaskState)
TaskConfigT = TypeVar("TaskConfigT", bound="TaskConfig")


class TaskConfig(DegradedConfig):
    """Config fields of every task: image degradation and data source."""

    of_data: ClassVar[tuple[str, ...]] = ("split", "columns", "order", "bad_rows", "urls", "url_hosts")
    """Names of the settings that require `data`."""

    data: str | None = setting(
        None,
        "Your own questions: a .parquet, .csv, .jsonl or .json file, a folder, a URL or a Hub id. Default: generated.",
    )
    split: str | None = setting(None, "Split of the data, e.g. test.")
    columns: Annotated[tuple[str, ...], LIST] = setting(
        (), "Column names that differ from the defaults: FIELD=COLUMN, comma-separated."
    )
    order: Literal["shuffled", "rows"] = setting(
        "shuffled", "Order of rows for seeds 0, 1, 2, ...: a fixed shuffle, or file order."
    )
    bad_rows: Literal["skip", "fail"] = setting("skip", "Skip and record invalid rows, or fail on them.")
    urls: bool = setting(False, "Load images from URLs in the data: http, https, s3, gs, file.")
    url_hosts: Annotated[tuple[str, ...], LIST] = setting(
        (), "Hosts to allow in URLs although they are not public: private hosts, buckets, localhost (also for files)."
    )

    @field_validator("data", mode="before")
    @classmethod
    def _name_data(cls, value: Any) -> Any:
        if isinstance(value, PathLike):
            return fspath(value)
        if value is not None and not isinstance(value, str):
            how = "store a table with vlmgym.sandbox.datasets.save_table(...)"
            raise ValueError(f"must be a path or a Hub id, got {type(value).__name__}; {how}")
        return value

    @model_validator(mode="after")
    def _fits_data(self: TaskConfigT) -> TaskConfigT:
        set_ = [name for name in self.of_data if getattr(self, name) != type(self).model_fields[name].default]
        if self.data is None and set_:
            raise ValueError(f"{set_[0]} requires data=...")
        if self.url_hosts and not self.urls:
            raise ValueError("url_hosts needs urls=true")
        if self.prompt is not None and "{prompt}" not in self.prompt:
            raise ValueError("prompt must contain {prompt}, which inserts the question")
        return self


class Task(Game[TaskStateT, ActionT]):
    """A game of one turn, which ends with any response, even an unparsable one.

    Subclasses implement `generate`, `paint`, `solution` and `score`, and, like every game, `describe`, `prompt`,
    `parse_answer` and `format`. To support user data, list the fields of a row in `columns`, list those that hold
    images also in `image_fields`, and implement `from_row`.
    """

    Config = TaskConfig
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Accepted column names for each field of a row; the first one that the table has is used.

    The field `id` is added implicitly. A row that repeats the id of an earlier row is bad.
    """
    optional_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields that may be missing from a table; their value is then None."""
    image_fields: ClassVar[tuple[str, ...]] = ()
    """Fields of `columns` that hold images, in the order of `row_images`."""
    generated_field: ClassVar[str | None] = None
    """State field that is set in generated questions and empty in questions from data; checked by `check_state`."""

    @property
    def image_source(self) -> str | None:
        """Return `OWN_DATA` for questions from data; None if they are generated."""
        return None if self.config.data is None else OWN_DATA

    @abstractmethod
    def generate(self, rng: np.random.Generator) -> TaskStateT:
        """Generate a question; needs no data and no network."""

    @abstractmethod
    def paint(self, state: TaskStateT) -> Sequence[ImageArray]:
        """Render a generated question without degradation: uint8 arrays of the shapes in `image_shapes`."""

    def draw(self, state: TaskStateT) -> list[ImageArray]:
        """Render the images with the configured degradation; identical before and after the answer."""
        images = self.paint(state) if state.row is None else self.row_images(state)
        seed = zlib.crc32(self.to_json(replace(state, answered=False)).encode())
        return [degrade(image, self.config, seed, index) for index, image in enumerate(images)]

    def draw_into(self, state: TaskStateT, out: Sequence[ImageArray], shown: TaskStateT | None = None) -> None:
        """Render a state, unless it differs from `shown` at most in `answered`, which does not affect the images."""
        if shown is None or replace(shown, answered=state.answered) != state:
            super().draw_into(state, out)

    @abstractmethod
    def solution(self, state: TaskStateT) -> ActionT:
        """Correct answer to the question."""

    @abstractmethod
    def score(self, state: TaskStateT, action: ActionT) -> tuple[float, Mapping[str, Any]]:
        """Return an answer's reward and facts for `Step.info`; raise `IllegalAction` if the answer is out of range."""

    def from_row(self, fields: DataRow) -> TaskStateT:
        """Build a question from a row of user data; the caller sets `row` and `skipped`.

        `fields` has the value of each field in `columns` except images: a string if read from CSV, None if missing. The
        helpers `text_of`, `number_of` and `truth_of` of `vlmgym.sandbox.datasets.rows` read typed values.

        Raises:
            BadRow: The row is invalid, e.g. has a latitude of 95; the message says why.
        """
        raise UsageError(f"{self.name} does not support user data")

    # User data ------------------------------------------------------------------------------------------------------

    @cached_property
    def source(self) -> Source:
        """The data with its columns mapped to fields of this task; opened on first use."""
        if self.config.data is None:
            raise UsageError(f"{self.name} has no data: set data=...")
        if not self.columns:
            raise UsageError(f"{self.name} does not support user data")
        table = self.open_data(self.config.data, self.config.split)
        if not len(table):
            raise UsageError(f"{self.config.data} has no rows")
        chosen = map_columns(self.columns, self.optional_fields, self.config.columns, table, self.config.data)
        hosts = frozenset(map(str.lower, self.config.url_hosts)) if self.config.urls else None
        return Source(table, chosen, self.image_fields, hosts)

    def open_data(self, data: str, split: str | None) -> Table:
        """Open the data. Override to add columns, such as image paths of a dataset with a fixed folder layout."""
        return open_table(data, split)

    @property
    def question_count(self) -> int | None:
        """Number of questions in the data, bad rows included; None if questions are generated."""
        return None if self.config.data is None else len(self.source)

    def start(self, rng: np.random.Generator) -> TaskStateT:
        """Sample a question from the data, or generate one."""
        if self.config.data is None:
            return self.generate(rng)
        return self._from_position(int(rng.integers(len(self.source))))

    def start_at(self, seed: int, rng: np.random.Generator) -> TaskStateT:
        """Pick the question for a seed, or generate one. `question_count` consecutive seeds visit every row once.

        A seed whose row is bad gets the next good row instead, which is therefore visited twice.
        """
        return self.start(rng) if self.config.data is None else self._from_position(seed)

    def _from_position(self, position: int) -> TaskStateT:
        count, skipped = len(self.source), []
        for step in range(min(count, MOST_SKIPPED)):
            index = (position + step) % count
            if self.config.order == "shuffled":
                index = shuffled(index, count)
            try:
                state = self.read_row(index)
            except BadRow as error:
                if self.config.bad_rows == "fail":
                    raise UsageError(f"row {index} of {self.config.data} is bad: {error}") from None
                skipped.append(SkippedRow(index, str(error)))
            else:
                return replace(state, skipped=tuple(skipped))
        raise UsageError(
            f"{len(skipped)} consecutive rows of {self.config.data} are bad; the last, row {skipped[-1].index}: "
            f"{skipped[-1].reason}. `vlmgym data check` lists all of them"
        )

    def read_row(self, index: int) -> TaskStateT:
        """Load the question of a row and cache its images for drawing; raise `BadRow` if the row is invalid."""
        return self._load(index)[0]

    def _load(self, index: int) -> tuple[TaskStateT, list[ImageArray]]:
        example = self.source.read(index)
        row = RowRef(self.config.data, index, example.digest)
        state = replace(self.from_row(example.fields), row=row)
        images = [letterbox(image, self.config.size) for image in example.images]
        kept = self._kept_images
        kept[row] = images
        while len(kept) > IMAGES_KEPT:
            kept.pop(next(iter(kept), row), None)
        return state, images

    @cached_property
    def _kept_images(self) -> dict[RowRef, list[ImageArray]]:
        return {}

    def row_images(self, state: TaskStateT) -> list[ImageArray]:
        """Images of the state's row in the order of `image_fields`: new uint8 arrays of shape (size, size, 3).

        Each image is letterboxed: scaled to fit and centred on a grey square.

        Raises:
            StateError: The state has no row, or the row or one of its images has changed since the state was created.
        """
        if state.row is None:
            raise StateError(f"this state of {self.name} has no data row")
        images = self._kept_images.get(state.row)
        if images is None:
            self.require_valid(state)
            which = f"row {state.row.index} of {state.row.data}"
            if state.row.index >= len(self.source):
                raise StateError(f"{which} no longer exists")
            try:
                found, images = self._load(state.row.index)
            except BadRow as error:
                raise StateError(f"{which} is no longer valid: {error}") from None
            if found.row != state.row:
                raise StateError(f"{which} has changed since the question was created")
        return [image.copy() for image in images]

    def check_state(self, state: TaskStateT) -> None:
        """Check that a state belongs to the configured data. Overrides must call this."""
        data = None if state.row is None else state.row.data
        if data != self.config.data:
            raise StateError(f"the state has data={data}, but the config has data={self.config.data}")
        field = self.generated_field
        if field is not None and bool(getattr(state, field)) != (state.row is None):
            raise StateError(f"the state must have either a {field} or a data row")

    # One turn -------------------------------------------------------------------------------------------------------

    def step(self, state: TaskStateT, action: ActionT, rng: np.random.Generator) -> Step[TaskStateT]:
        """Score the answer and end the episode."""
        if state.answered:
            raise IllegalAction("the question has been answered")
        reward, info = self.score(state, action)
        return Step(replace(state, answered=True), reward, True, info)

    def on_invalid(self, state: TaskStateT, rng: np.random.Generator) -> Step[TaskStateT]:
        """End the episode, regardless of the response."""
        return Step(replace(state, answered=True), self.illegal_reward, True)

    def ended(self, state: TaskStateT) -> str | None:
        """Return `ANSWERED` after the only turn."""
        return ANSWERED if state.answered else None

    def legal_actions(self, state: TaskStateT) -> tuple[ActionT, ...] | None:
        """Return None, or an empty tuple after the answer. Override if answers can be enumerated."""
        return () if state.answered else None

    def metrics(self, state: TaskStateT, infos: Sequence[Mapping[str, Any]]) -> Mapping[str, float | str]:
        """Number of bad rows skipped, for user data. Overrides should include this."""
        return {} if state.row is None else {"bad rows skipped": float(len(state.skipped))}

    def best_action(self, state: TaskStateT) -> ActionT | None:
        """Return the correct answer, or None after the only turn."""
        return None if state.answered else self.solution(state)


class LineTask(Task[TaskStateT, str]):
    """A task whose answer is one line of at most `max_answer_length` characters.

    Subclasses implement `guesses` and the abstract methods of `Task`, except those for actions, which this class
    implements. Their `score` must call `check_line`.
    """

    answer_noun: ClassVar[str] = "answer"
    """Name of an answer in messages."""

    @abstractmethod
    def guesses(self) -> tuple[tuple[str, ...], int]:
        """Return the words of random answers, and the maximum number of words in one answer."""

    @cached_property
    def action_space(self) -> LineSpace:
        """Space of lines, whose samples consist of words from `guesses`."""
        return LineSpace(self.max_answer_length, *self.guesses())

    def parse_answer(self, text: str) -> str:
        """Strip surrounding whitespace and check the line."""
        line = text.strip()
        if (fault := self.action_space.fault(line)) is not None:
            raise ParseError(self._wrong(line, fault))
        return line

    def check_line(self, action: str) -> None:
        """Raise `IllegalAction` unless an action is a valid line. For `score`, as actions may bypass `parse_answer`."""
        if (fault := self.action_space.fault(action)) is not None:
            raise IllegalAction(self._wrong(action, fault))

    def _wrong(self, text: str, fault: str) -> str:
        return f"the {self.answer_noun} {truncate(str(text), 40)!r} {fault}"


def accuracy(state: TaskState, infos: Sequence[Mapping[str, Any]], kind: str) -> dict[str, float]:
    """Return the metrics `accuracy` and, unless `kind` is empty, `accuracy KIND`, from `correct` in the step's info.

    Invalid responses count as incorrect; an unanswered question has no accuracy.
    """
    if not state.answered:
        return {}
    correct = float(infos[-1].get("correct", 0.0)) if infos else 0.0
    return {"accuracy": correct} | ({f"accuracy {kind}": correct} if kind else {})
