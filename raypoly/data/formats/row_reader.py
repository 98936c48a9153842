"""Read a user's file of JSON rows, plain or gzipped; a bad row is a `UsageError` that names file and line.

for row in read_rows(Path("groups.jsonl")):
    row.parse_as(GroupRow)                       # checked by a pydantic model
groups = read_rows_by_id(path, build_group, "group")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from raypoly.core.errors import UsageError
from raypoly.data.formats.long_integers import loads
from raypoly.data.formats.row_files import read_lines

Model = TypeVar("Model", bound=BaseModel)


class HasId(Protocol):
    @property
    def id(self) -> str: ...


Item = TypeVar("Item", bound=HasId)


@dataclass(frozen=True)
class FileRow:
    path: Path
    number: int
    """Of the line, from 1."""
    text: bytes
    """Empty where the line is too long to be held."""

    def error(self, reason: str) -> UsageError:
        """An error that names this row; raise it."""
        return UsageError(f"{self.path} line {self.number}: {reason}.")

    def parse(self) -> Any:
        """The row's JSON value. Raises `UsageError`."""
        if not self.text:
            raise self.error("the row is too long")
        try:
            return loads(self.text)
        except ValueError as error:
            raise self.error(f"this is not JSON in UTF-8: {error}") from None

    def parse_as(self, model: type[Model]) -> Model:
        """The row as a model. Raises `UsageError` that names the first column that is wrong."""
        try:
            return model.model_validate(self.parse())
        except ValidationError as error:
            first = error.errors()[0]
            column = ".".join(map(str, first["loc"])) or "the row"
            raise self.error(f"{column}: {first['msg'].removeprefix('Value error, ')}") from None


def read_rows(path: Path) -> Iterator[FileRow]:
    """The rows one by one; the file is never held. Raises `UsageError` where it can't be read."""
    return (FileRow(path, number, line) for number, line in read_lines(path))


def read_rows_by_id(path: Path, build: Callable[[FileRow], Item], what: str) -> list[Item]:
    """One item for each row, made by `build`, in the file's order.

    Raises `UsageError` where an id appears twice, and where the file has no row. `what` names one item in messages.
    """
    items: dict[str, Item] = {}
    for row in read_rows(path):
        item = build(row)
        if item.id in items:
            raise row.error(f"{item.id!r} appears a second time; ids have to differ")
        items[item.id] = item
    if not items:
        raise UsageError(f"{path} has no {what}.")
    return list(items.values())
