"""Conditions on the fields of a source's rows: the key `where`.

    conditions = RowConditions.of({"difficulty": ["Easy", "Medium"], "date": {"after": "2025-02-01"}})
    conditions.match({"difficulty": "hard", "date": "2025-03-01"}).unmet    # its difficulty does not meet where: hard

A field that a row does not have, or that is null or empty there, meets no condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
)

from raypoly.data.formats.row_fields import day_of, one_line

_LONGEST_VALUE = 60


def _several(given: Any) -> Any:
    return given if isinstance(given, list | tuple) else [given]


Scalar = StrictBool | StrictInt | StrictFloat | StrictStr | date
Scalars = Annotated[tuple[Scalar, ...], BeforeValidator(_several)]


class Condition(BaseModel):
    """On one field: all that is given must hold."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    any_of: Scalars | None = None
    """The value, or one of a list, is one of these. A plain value or list in the config means this."""
    has: Scalars | None = None
    """A list has all of these."""
    after: date | None = None
    """It is a later day."""
    before: date | None = None
    at_least: float | None = None
    at_most: float | None = None

    def holds(self, value: Any) -> bool:
        """Whether a value that is there meets it. Case does not count."""
        held = {_plain(one) for one in _several(value)}
        day = day_of(value)
        number = _number(value)
        return (
            (self.any_of is None or not held.isdisjoint(map(_plain, self.any_of)))
            and (self.has is None or held.issuperset(map(_plain, self.has)))
            and (self.after is None or (day != "" and day > self.after.isoformat()))
            and (self.before is None or (day != "" and day < self.before.isoformat()))
            and (self.at_least is None or (number is not None and number >= self.at_least))
            and (self.at_most is None or (number is not None and number <= self.at_most))
        )


@dataclass(frozen=True)
class RowMatch:
    unmet: str = ""
    """Why the row is left out; empty if it meets all."""
    absent: tuple[str, ...] = ()
    """Fields of conditions that it lacks."""
    present: tuple[str, ...] = ()
    """All its fields, if it lacks one."""


MATCHES = RowMatch()


@dataclass(frozen=True)
class RowConditions:
    """By field; a dot leads into a nested one: `extra_info.dataset`."""

    by_field: Mapping[str, Condition]

    @classmethod
    def of(cls, where: Mapping[str, Any]) -> RowConditions:
        """Raises `ValueError`, one sentence that names the field."""
        return cls({name: _parse(name, given) for name, given in where.items()})

    def match(self, row: Mapping[str, Any]) -> RowMatch:
        values = {name: _field(row, name) for name in self.by_field}
        absent = tuple(name for name, value in values.items() if _is_absent(value))
        if absent:
            present = tuple(str(name) for name, value in row.items() if not _is_absent(value))
            return RowMatch(f"its row says no {absent[0]}, and where asks for it", absent, present)
        for name, condition in self.by_field.items():
            if not condition.holds(values[name]):
                value = one_line(_words(values[name]), _LONGEST_VALUE)
                return RowMatch(f"its {name} does not meet where: {value}")
        return MATCHES


def _parse(name: str, given: Any) -> Condition:
    try:
        condition = Condition.model_validate(given if isinstance(given, Mapping) else {"any_of": given})
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            known = ", ".join(key for key in Condition.model_fields if key != "any_of")
            raise ValueError(
                f"where.{name} has no condition {key!r}; there are {known}, or a value or a list"
            ) from None
        takes = {"after": "a day such as 2025-03-01", "at_least": "a number"}
        takes |= {"before": takes["after"], "at_most": takes["at_least"]}
        wanted = takes.get(key, "a text, number, day, true or false, or a list of these")
        place = f"where.{name}" if key == "any_of" else f"where.{name}.{key}"
        raise ValueError(f"{place} takes {wanted}, not {one_line(str(first['input']), _LONGEST_VALUE)}") from None
    if condition == Condition() or () in (condition.any_of, condition.has):
        raise ValueError(f"where.{name} is empty: give it a value, a list or a condition, or drop it")
    return condition


def _field(row: Mapping[str, Any], name: str) -> Any:
    value: Any = row
    # a column may have a dot in its own name
    for part in [name] if name in row else name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _number(value: Any) -> float | None:
    """Also of a text; None for anything else."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _is_absent(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | tuple | Mapping) and not value)


def _plain(value: Any) -> str:
    """A text that equal values share."""
    if isinstance(value, date):
        return day_of(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip().casefold()


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
