"""NLVR2: judge whether a statement about two images is true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

from vlmgym.errors import short_repr
from vlmgym.sandbox.answers.choice import Choice
from vlmgym.sandbox.core.data_task import OwnDataTask
from vlmgym.sandbox.core.game import Info, Infos, Metrics
from vlmgym.sandbox.core.task import Task, TaskState, accuracy
from vlmgym.sandbox.data.rows import BadRow, DataRow, is_empty, text_of, truth_of
from vlmgym.sandbox.data.tables import Table, open_table

ANSWERS = ("false", "true")
"""Answer for each action."""

PROMPT_V1 = """\
You see two images: the left one, then the right one.{scene} Is this statement about the two images true?
Statement: {statement}
Answer true or false.
{form}"""


@dataclass(frozen=True, kw_only=True)
class StatementState(TaskState):
    """A statement about two images."""

    kind: str = ""
    """Kind of statement, for metrics; empty for data."""
    statement: str
    truth: bool


StatementStateT = TypeVar("StatementStateT", bound=StatementState)


class StatementTask(Task[StatementStateT, int]):
    """A task whose answer says whether a statement about two images is true."""

    prompt_template = PROMPT_V1
    images_per_state = 2
    answer = Choice(ANSWERS, others={"no": "false", "yes": "true"}, form="true or false")

    def legal_actions(self, state: StatementStateT) -> tuple[int, ...]:
        return () if state.answered else (0, 1)

    def solution(self, state: StatementStateT) -> int:
        return int(state.truth)

    def score(self, state: StatementStateT, action: int) -> tuple[float, Info]:
        self.answer.check(action)
        correct = action == state.truth
        return float(correct), {"correct": correct, "truth": ANSWERS[state.truth]}

    def metrics(self, state: StatementStateT, infos: Infos) -> Metrics:
        return {**super().metrics(state, infos), **accuracy(state, infos, state.kind)}

    def explain(self, state: StatementStateT, action: int) -> str:
        return f"The statement is {self.answer.format(action)}."


class Nlvr2(StatementTask[StatementState], OwnDataTask[StatementState, int]):
    """Judge whether a statement about two images of your data is true.

    Description:
        The images and statements are yours, for example those of NLVR2. Without `data`, the name `nlvr2` means
        `scenes-statements`, which generates both.

    Observation:
        Two RGB images: left, right.

    Action:
        `Discrete(2)`: 0 is `false`, 1 is `true`. In text, `no` and `yes` are accepted too. Any other answer is
        unparsable.

    Reward:
        1 if correct; 0 if wrong or unparsable.

    Episode end:
        After one turn. `info` has `correct` and the `truth` as a word. Metrics: `accuracy`.

    Arguments:
        `data`: Your statements. Columns: `left_image`, `right_image`, `sentence` and `label`, as in the official JSON
        files and in HuggingFaceM4/NLVR2 on the Hub.
    """

    name = "nlvr2"
    skills = ("perception", "spatial")
    title = "NLVR2"
    State = StatementState
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "left": ("left_image", "image_left", "image0", "image_0", "img0"),
        "right": ("right_image", "image_right", "image1", "image_1", "img1"),
        "statement": ("sentence", "statement", "sent", "text", "question"),
        "label": ("label", "answer", "truth"),
    }
    image_fields = ("left", "right")

    def open_data(self, data: str, split: str | None) -> Table:
        return open_nlvr2(data, split)

    def from_row(self, fields: DataRow) -> StatementState:
        return StatementState(statement=text_of(fields, "statement"), truth=truth_of(fields, "label"))

    def prompt(self, state: StatementState) -> str:
        return self.fill_prompt("what the two images show", scene="", statement=state.statement)


# Data in the published layout -----------------------------------------------------------------------------------------

COLUMNS = ("left_image", "right_image")


def open_nlvr2(data: str, split: str | None) -> Table:
    """Open a table; if it is an NLVR2 table in a local folder, add the paths of both images."""
    table = open_table(data, split)
    folder, columns = table.folder, set(table.columns)
    if folder is None or not columns >= {"identifier", "sentence"} or columns.intersection(COLUMNS):
        return table
    return table.with_columns(COLUMNS, lambda row: _image_paths(row, folder))


def _image_paths(row: DataRow, folder: Path) -> dict[str, str]:
    """Find both images of a row; return their paths relative to `folder`.

    The images are in `folder` or its subfolder `images`, either directly or in a folder named after the split. Training
    images are one level deeper, in the numbered folders that the column `directory` gives.
    """
    parts = str(row.get("identifier")).split("-")
    if len(parts) != 4 or not all(part.isalnum() for part in parts):
        raise BadRow(f"identifier must be split-set-pair-sentence, got {short_repr(row.get('identifier'))}")
    split, pair = parts[0], "-".join(parts[:3])
    folders = [f"{split}/", f"images/{split}/"]
    if not is_empty(row.get("directory")):
        folders = [f"{parent}{row['directory']}/" for parent in folders] + folders
    paths = [f"{parent}{pair}-img{{}}.png" for parent in (*folders, "images/", "")]
    path = next((path for path in paths if (folder / path.format(0)).is_file()), paths[0])
    return {column: path.format(side) for side, column in enumerate(COLUMNS)}
