"""One-turn tasks that ask about the user's own data, if any."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from os import PathLike, fspath
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import field_validator, model_validator

from vlmgym.errors import IllegalAction, ParseError, StateError, UsageError, short_repr
from vlmgym.sandbox.answers.base import ActionT
from vlmgym.sandbox.core.config import LIST, GameConfig, setting
from vlmgym.sandbox.core.game import NOT_DESCRIBED, OWN_DATA, ImageArray, Infos, Metrics
from vlmgym.sandbox.core.response_format import answer_only, parse_response
from vlmgym.sandbox.core.task import Task, TaskConfig, TaskStateT
from vlmgym.sandbox.data.images import letterbox
from vlmgym.sandbox.data.rows import BadRow, DataRow, RowRef, SkippedRow
from vlmgym.sandbox.data.tables import Source, Table, map_columns, open_table

MOST_SKIPPED = 100
"""Number of consecutive bad rows after which an error is raised."""
ROWS_KEPT = 8
"""Number of rows that are cached with their images, so that reading and then drawing a row decodes them once."""


class DataTaskConfig(TaskConfig):
    """Config fields of tasks that take data."""

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
    urls: bool = setting(False, "Load images from URLs in the data, which you must trust: http, https, s3, gs, file.")

    @field_validator("data", mode="before")
    @classmethod
    def _name_data(cls, value: Any) -> Any:
        if isinstance(value, PathLike):
            return fspath(value)
        if value is not None and not isinstance(value, str):
            raise ValueError(f"must be a path or a Hub id, got {type(value).__name__}: save a table as Parquet")
        return value

    @model_validator(mode="after")
    def _check_data(self) -> DataTaskConfig:
        fields = type(self).model_fields
        changed = [name for name in DATA_SETTINGS[1:] if getattr(self, name) != fields[name].default]
        if self.data is None and changed:
            raise ValueError(f"{changed[0]} requires data=...")
        return self


class OwnDataConfig(DataTaskConfig):
    """Config fields of tasks without built-in questions."""

    data: str | None = setting(
        None, "Required: a .parquet, .csv, .jsonl or .json file, a folder, a URL or a Hub id with your questions."
    )


DATA_SETTINGS = tuple(name for name in DataTaskConfig.model_fields if name not in TaskConfig.model_fields)
"""Config fields that specify where questions come from; all others require `data`."""


class DataTask(Task[TaskStateT, ActionT]):
    """A task whose questions are built in or come from the user's data.

    In addition to the methods of `Task`, subclasses list the fields of a row in `columns`, list those that hold images
    also in `image_fields`, and implement `from_row`.
    """

    Config = DataTaskConfig
    columns: ClassVar[Mapping[str, tuple[str, ...]]]
    """Accepted column names for each field of a row; the first one that the table has is used.

    The field `id` is added implicitly; `vlmgym data check` reports repeated ids.
    """
    optional_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields that may be missing from a table; their value is then None."""
    image_fields: ClassVar[tuple[str, ...]]
    """Fields of `columns` that hold images, in the order of `row_images`."""

    @abstractmethod
    def from_row(self, fields: DataRow) -> TaskStateT:
        """Build a question from a row of user data; the caller sets `row` and `skipped`.

        `fields` has the value of each field in `columns` except images: a string if read from CSV, None if missing. The
        helpers `text_of`, `number_of` and `truth_of` of `vlmgym.sandbox.data.rows` read typed values.

        Raises:
            BadRow: The row is invalid, e.g. has a latitude of 95; the message says why.
        """

    def full_score(self, state: TaskStateT) -> float:
        """Score of the correct answer to a question from data; a row whose `solution` scores less is bad."""
        return 1.0

    @property
    def image_source(self) -> str | None:
        """Return `OWN_DATA` for questions from data; None if they are generated."""
        return None if self.config.data is None else OWN_DATA

    @property
    def no_text_observation(self) -> str | None:
        """Reason why prompts must not contain `describe` for questions from data, which have no description."""
        return "images from data are not described" if self.config.data else None

    # Rows -----------------------------------------------------------------------------------------------------------

    @cached_property
    def source(self) -> Source:
        """The data with its columns mapped to fields of this task; opened on first use."""
        c = self.config
        if c.data is None:
            raise UsageError(f"{self.name} has no data: set data=...")
        table = self.open_data(c.data, c.split)
        if not len(table):
            raise UsageError(f"{c.data} has no rows")
        columns = map_columns(self.columns, self.optional_fields, c.columns, table, c.data)
        return Source(table, columns, self.image_fields, c.urls)

    def open_data(self, data: str, split: str | None) -> Table:
        """Open the data. Override to add columns, such as image paths of a dataset with a fixed folder layout."""
        return open_table(data, split)

    @property
    def question_count(self) -> int | None:
        """Number of rows, bad rows included; None if questions are generated."""
        return None if self.config.data is None else len(self.source)

    def start(self, rng: np.random.Generator) -> TaskStateT:
        """Sample a question from the data, or generate one."""
        if self.config.data is None:
            return super().start(rng)
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
                index = int(self.source.shuffled[index])
            try:
                state = self.read_row(index)
            except BadRow as error:
                if self.config.bad_rows == "fail":
                    raise UsageError(f"row {index} of {self.config.data} is bad: {error}") from None
                skipped.append(SkippedRow(index, str(error)))
            else:
                return replace(state, skipped=tuple(skipped))
        raise UsageError(
            f"no good row of {self.config.data} in {len(skipped)} consecutive ones; the last, row {skipped[-1].index}: "
            f"{skipped[-1].reason}. `vlmgym data check` lists all bad rows"
        )

    def read_row(self, index: int) -> TaskStateT:
        """Load the question of a row and cache its images for drawing.

        Raises:
            BadRow: The row is invalid, or no answer to its question can earn the full score.
        """
        return self._load(index)[0]

    @cached_property
    def _load(self) -> Callable[[int], tuple[TaskStateT, list[ImageArray]]]:
        return lru_cache(maxsize=ROWS_KEPT)(self._read)

    def _read(self, index: int) -> tuple[TaskStateT, list[ImageArray]]:
        """Read a row and decode its images."""
        example = self.source.read(index)
        state = replace(self.from_row(example.fields), row=RowRef(self.config.data, index, example.digest))
        self._check_solution(state)
        return state, [letterbox(image, self.config.size) for image in example.images]

    def _check_solution(self, state: TaskStateT) -> None:
        """Raise `BadRow` unless a response with the correct answer is accepted and earns the full score."""
        try:
            action = parse_response(answer_only(self.answer.format(self.solution(state)))).action(self.answer)
            score, _ = self.score(state, action)
        except (ParseError, IllegalAction) as error:
            raise BadRow(f"no response can be correct: {error}") from None
        if score < self.full_score(state) - 1e-9:
            raise BadRow(
                f"no response can be correct: {short_repr(self.answer.format(action))} scores only {score:.3g}"
            )

    def row_images(self, state: TaskStateT) -> list[ImageArray]:
        """Images of the state's row in the order of `image_fields`: new uint8 arrays of shape (size, size, 3).

        Each image is letterboxed: scaled to fit and centred on a grey square.

        Raises:
            StateError: The state has no row, or the row or one of its images has changed since the state was created.
        """
        if state.row is None:
            raise StateError(f"this state of {self.name} has no data row")
        self.require_valid(state)
        row_name = f"row {state.row.index} of {state.row.data}"
        if state.row.index >= len(self.source):
            raise StateError(f"{row_name} no longer exists")
        try:
            current, images = self._load(state.row.index)
        except BadRow as error:
            raise StateError(f"{row_name} is no longer valid: {error}") from None
        if current.row != state.row:
            raise StateError(f"{row_name} has changed since the question was created")
        return [image.copy() for image in images]

    # As every task --------------------------------------------------------------------------------------------------

    def clean_images(self, state: TaskStateT) -> Sequence[ImageArray]:
        """Images without degradation: painted, or those of the row."""
        return self.paint(state) if state.row is None else self.row_images(state)

    def check_state(self, state: TaskStateT) -> None:
        """Check that a state belongs to the configured data."""
        data = None if state.row is None else state.row.data
        if data != self.config.data:
            raise StateError(f"the state has data={data}, but the config has data={self.config.data}")

    def metrics(self, state: TaskStateT, infos: Infos) -> Metrics:
        """Number of bad rows skipped, for user data. Overrides should include this."""
        return {} if state.row is None else {"bad rows skipped": float(len(state.skipped))}


class OwnDataTask(DataTask[TaskStateT, ActionT]):
    """A task without built-in questions, which requires `data`."""

    Config = OwnDataConfig

    def __init__(self, config: GameConfig | None = None) -> None:
        super().__init__(config)
        if self.config.data is None:  # configs without data exist, to compare levels
            raise UsageError(
                "data=... is required: a .parquet, .csv, .jsonl or .json file, a folder, a URL or a Hub id"
            )

    def generate(self, rng: np.random.Generator) -> TaskStateT:
        """Never called."""
        raise NotImplementedError

    def paint(self, state: TaskStateT) -> Sequence[ImageArray]:
        """Never called."""
        raise NotImplementedError

    def describe(self, state: TaskStateT) -> str:
        """Images of the user's data have no description."""
        return NOT_DESCRIBED
