"""Rows of every source, damaged, or with other columns: each is loaded or set aside with a reason, and nothing crashes.

    RAYPOLY_ROWS=10000 python -m pytest tests/raypoly/data/test_mutated_rows.py

`RAYPOLY_ROWS` is the number of rows, 400 where it is not set.
"""

from __future__ import annotations

import base64
import copy
import json
import os
import pickle
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from raypoly.core.errors import UsageError
from raypoly.data.formats import ProblemStream, problem_of, program_of, row_of
from tests.raypoly.data.format_rows import EXECUTION, TEST_OUTPUT
from tests.raypoly.data.source_rows import REFUSED, SAMPLES, packed
from tests.raypoly.data.trainer_rows import TRAINER_REFUSED, TRAINER_SAMPLES

ROWS = int(os.environ.get("RAYPOLY_ROWS", "400"))
SECONDS = 20.0
"""Of CPU for one row: no row takes minutes."""


@dataclass
class Inside:
    """What a text of a row holds, to be damaged as well, and how it becomes a text again."""

    value: Any
    close: Callable[[Any], str]


def opened(value: Any) -> Any:
    """The row with texts that are JSON, packed or not, opened."""
    if isinstance(value, dict):
        return {name: opened(item) for name, item in value.items()}
    if isinstance(value, list):
        return [opened(item) for item in value]
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return Inside(opened(json.loads(value)), json.dumps)
        except ValueError:
            return value
    if isinstance(value, str) and value.startswith("eJ"):
        return Inside(opened(json.loads(pickle.loads(zlib.decompress(base64.b64decode(value))))), packed)
    return value


def closed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: closed(item) for name, item in value.items()}
    if isinstance(value, list):
        return [closed(item) for item in value]
    return value.close(closed(value.value)) if isinstance(value, Inside) else value


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) below a value."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, Inside):
        found = [(value, None), *places(value.value)]
    elif isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            found += [(value, key), *places(value[key])]
    return found


TEXTS = st.text(st.characters(exclude_categories=()), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
EXTREMES = st.sampled_from(
    [
        *("", " ", "\x00", "\ud800", "[", "{}", "null", "[" * 100_000, "(" * 500, "-" * 20_000 + "1", "f(" * 150),
        *("<image>", "def check(", "assert f(1)", "-'a'", "x" * 100_000, "9" * 5000, "```python\n```", "#include"),
        *("2025-02-30", "99999-01-01", "Solution().f", "f()()", "@a\n" * 1000, "\n" * 100_000, "check(x)\n" * 1000),
        *(10**400, -1, 1e308, float("nan"), float("inf"), 1 << 70, [[[]]], {"input": None}, [None] * 50),
    ]
)


ALL_ROWS = [*(sample.row for sample in (*SAMPLES, *TRAINER_SAMPLES)), EXECUTION, TEST_OUTPUT]
ALL_ROWS += [row for row, _ in (*REFUSED, *TRAINER_REFUSED)]
COLUMNS = sorted({name for row in ALL_ROWS for name in row})


def damaged(value: Any, way: str, junk: Any) -> Any:
    if way == "junk":
        return junk
    if way == "text":
        return str(value)
    if way == "cut" and isinstance(value, str | list):
        return value[: len(value) // 2]
    if way == "grow" and isinstance(value, str | list):
        return value * 3
    return [value]


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """A row's line after one to three damages, and perhaps some to its bytes."""
    row = opened(copy.deepcopy(draw(st.sampled_from([*ALL_ROWS, {}]))))
    for name in draw(st.lists(st.sampled_from(COLUMNS) | TEXTS, max_size=2)) if draw(st.booleans()) else ():
        row[name] = copy.deepcopy(draw(VALUES | EXTREMES))
    for _ in range(draw(st.integers(1, 3))):
        there = places(row)
        if not there:
            break
        container, key = there[draw(st.integers(0, len(there) - 1))]
        way = draw(st.sampled_from(["junk", "junk", "text", "cut", "grow", "wrap", "drop"]))
        if isinstance(container, Inside):
            container.value = damaged(container.value, way, copy.deepcopy(draw(VALUES | EXTREMES)))
        elif way == "drop":
            del container[key]
        else:
            container[key] = damaged(container[key], way, copy.deepcopy(draw(VALUES | EXTREMES)))
    line = json.dumps(closed(row)).encode()
    if draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(0, len(line) - 1))
        line = line[:at] + draw(st.binary(max_size=3)).replace(b"\n", b"") + line[at + draw(st.integers(0, 3)) :]
    return line


def read(path: Path, rows: int) -> None:
    """Every row is a problem, or set aside with a reason."""
    stream = ProblemStream(path)
    problems = []
    try:
        problems = list(stream)
    except UsageError as error:
        if "has no usable row" not in str(error):
            raise
    assert len(problems) + len(stream.rejected) == rows
    for rejected in stream.rejected:
        assert rejected.reason.isprintable()
        assert 0 < len(rejected.reason) < 500
    for problem in problems:
        assert problem_of(row_of(problem), problem.source) == problem
        assert program_of(problem, "x = 1").endswith("x = 1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


@settings(max_examples=ROWS, suppress_health_check=list(HealthCheck))
@given(line=lines())
@example(line=b'{"prompt": "Add.", "answer": " "}')
def test_a_damaged_row_is_loaded_or_set_aside_with_a_reason(folder: Path, line: bytes) -> None:
    (folder / "rows.jsonl").write_bytes(b"\n" + line + b"\n")  # a file that begins as gzip does is one, or damaged
    begin = time.process_time()
    read(folder / "rows.jsonl", 1 if line.strip() else 0)
    assert time.process_time() - begin < SECONDS


@settings(max_examples=max(1, ROWS // 4), suppress_health_check=list(HealthCheck))
@given(line=lines())
def test_so_is_one_in_parquet(folder: Path, line: bytes) -> None:
    try:
        table = pa.Table.from_pylist([json.loads(line)])
        pq.write_table(table, folder / "rows.parquet")
    except (ValueError, TypeError, OverflowError, AttributeError, RecursionError, pa.ArrowException):
        return  # no row that Parquet could hold
    read(folder / "rows.parquet", table.num_rows)  # none where the row has no column
