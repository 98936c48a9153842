"""A row of every source, as its authors publish it, goes from its file to the right verdict."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.errors import UsageError
from raypoly.core.values import Problem
from raypoly.data.formats import FORMATS, ProblemStream, problem_of, program_of, read_problems
from raypoly.data.preparing.prepare_config import SourceConfig
from raypoly.data.preparing.sources import load_sources
from raypoly.verifier import LocalPool
from tests.raypoly.data.source_rows import CODE_CONTESTS, REFUSED, SAMPLES, Row, Sample
from tests.raypoly.data.trainer_rows import TRAINER_REFUSED, TRAINER_SAMPLES


def name_of(sample: Sample) -> str:
    return sample.name


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with LocalPool(ScorerConfig(workers=1)) as pool:
        yield pool


@pytest.mark.parametrize("sample", [*TRAINER_SAMPLES, *SAMPLES], ids=name_of)
def test_a_right_program_passes_and_a_wrong_one_is_wrong(tmp_path: Path, pool: LocalPool, sample: Sample) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(sample.row).encode()))
    (problem,) = read_problems(path).problems
    programs = [sample.right, sample.wrong, *([problem.solution] if sample.solved else [])]
    found = list(pool.score((problem, program_of(problem, code)) for code in programs))
    assert [verdict.status for verdict in found] == ["passed", "wrong", "passed"][: len(programs)], found
    assert problem.prompt
    assert problem.id
    assert problem.tests.kind != "stdin" or "standard input" in problem.prompt


@pytest.mark.parametrize("sample", [*TRAINER_SAMPLES, *SAMPLES[:-1]], ids=name_of)
def test_parquet_says_the_same_as_json(tmp_path: Path, sample: Sample) -> None:
    pq.write_table(pa.Table.from_pylist([sample.row]), tmp_path / "train-00000-of-00001.parquet")
    (problem,) = read_problems(tmp_path / "train-00000-of-00001.parquet").problems
    assert problem == replace(problem_of(sample.row), source=problem.source)


@pytest.mark.parametrize("sample", TRAINER_SAMPLES, ids=name_of)
def test_a_row_is_read_as_its_own_format(sample: Sample) -> None:
    assert next(it.name for it in FORMATS if it.recognises(sample.row)) == sample.name.partition(":")[0]


@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
def test_columns_of_other_trainers_beside_its_own_change_nothing(sample: Sample) -> None:
    names = {"info", "answer", "dataset", "messages", "question_id", "source"} - sample.row.keys()
    more = {name: {} if name == "info" else "x" for name in names if "entry_point" in sample.row or name != "info"}
    if sample.name != "raypoly's own":
        assert problem_of(sample.row | more).tests == problem_of(sample.row).tests


def test_a_preparation_takes_every_format(tmp_path: Path) -> None:
    rows = [sample.row for sample in (*TRAINER_SAMPLES, *SAMPLES)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    loaded = load_sources({"all": SourceConfig(path=str(tmp_path / "rows.json"))})
    assert {decision.reason for decision in loaded.decisions} <= {"", "its row has no text to ask the policy with"}
    assert len(loaded.candidates) == len(rows)


@pytest.mark.parametrize(
    ("row", "reason"), [*TRAINER_REFUSED, *REFUSED], ids=lambda it: it if isinstance(it, str) else ""
)
def test_rows_that_no_verdict_would_be_right_for_are_set_aside_with_a_reason(
    tmp_path: Path, row: Row, reason: str
) -> None:
    good = SAMPLES[0].row
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps(good)}\n")
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "rows.parquet")
    file = read_problems(tmp_path)
    assert [problem.id for problem in file.problems] == [good["task_id"]]
    assert [it.line for it in file.rejected] == [1, 1]
    assert all(reason in it.reason for it in file.rejected)


def test_what_a_row_says_of_its_problem_is_kept() -> None:
    told = {sample.name: problem_of(sample.row).metadata for sample in SAMPLES}
    assert told["LeetCodeDataset v0.2"] == {"difficulty": "Easy"}
    assert told["LeetCodeDataset v0.3.1"] == {"difficulty": "Easy", "tags": "Array, Hash Table", "date": "2015-08-07"}
    assert told["LiveCodeBench stdin"] == {"difficulty": "easy", "title": "Sum", "date": "2025-02-23"}
    assert told["TACO"]["tags"] == "Mathematics, Greedy algorithms"
    assert told["TACO"]["date"] == "2021-07-05"
    assert told["CodeContests"] == {"difficulty": "800", "tags": "implementation, math"}
    assert told["CodeContests+"]["true_negative_rate"] == "0.95"
    assert told["open-r1/codeforces"] == {
        "difficulty": "1100",
        "title": "Sum",
        "tags": "math",
        "url": "https://codeforces.com/problemset/problem/852/Z",
        "date": "2017-09-04",
        "tests": "incomplete",
    }


def test_tests_that_codeforces_cut_off_are_left_out_and_the_statement_is_whole() -> None:
    (problem,) = [problem_of(sample.row) for sample in SAMPLES if sample.name == "open-r1/codeforces"]
    assert [case["input"] for case in json.loads(problem.tests.source)] == ["1 2\n", "4 5\r\n"]
    for part in ("Add the numbers", "One line of numbers.", "Their sum.", "Output:\n3", "1 + 2 = 3", "2 s", "256 MB"):
        assert part in problem.prompt


def shards(folder: Path) -> Path:
    """Two Parquet files of five problems in row groups of two, and one of JSON lines with a sixth."""
    folder.mkdir()
    rows = [CODE_CONTESTS | {"name": f"{number}_A. Sum"} for number in range(1, 7)]
    for number, part in enumerate((rows[:3], rows[3:5])):
        table = pa.Table.from_pylist(part)
        pq.write_table(table, folder / f"train-0000{number}-of-00002.parquet", row_group_size=2)
    (folder / "zlast.jsonl").write_text(json.dumps(rows[5]) + "\n")
    (folder / "README.md").write_text("no data")
    return folder


def test_folders_and_patterns_are_read_file_by_file(tmp_path: Path) -> None:
    folder = shards(tmp_path / "code_contests")
    assert [problem.id.partition("_")[0] for problem in ProblemStream(folder)] == list("123456")
    stream = ProblemStream(folder / "train-*.parquet")
    assert stream.rows() == 5
    assert [Path(problem.source).name[:11] for problem in stream] == ["train-00000"] * 3 + ["train-00001"] * 2
    with pytest.raises(UsageError, match="names no file"):
        ProblemStream(folder / "test-*.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="without a file"):
        ProblemStream(tmp_path / "empty")


def test_a_damaged_parquet_file_and_a_row_too_large_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.parquet"
    rows = [CODE_CONTESTS, CODE_CONTESTS | {"name": "2_A", "description": "x" * 5000}]
    pq.write_table(pa.Table.from_pylist(rows), path)
    monkeypatch.setattr("raypoly.data.formats.parquet_rows.LARGEST_ROW", 4000)
    monkeypatch.setattr("raypoly.data.formats.parquet_rows.SMALL_BYTES", 4000)
    file = read_problems(path)
    assert [problem.id for problem in file.problems] == [CODE_CONTESTS["name"]]
    assert [(it.line, it.reason.split()[:2]) for it in file.rejected] == [(2, ["more", "than"])]
    content = path.read_bytes()
    for damaged in (content[:-10], content[:20] + b"\xff" * 400 + content[420:]):
        path.write_bytes(damaged)
        with pytest.raises(UsageError, match="can't be read as Parquet"):
            read_problems(path)


def test_a_value_that_python_has_none_for_costs_its_own_row_alone(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    days = pa.array([0, 1 << 60, 0], pa.timestamp("us"))  # the second is of the year 38,505
    table = pa.Table.from_pylist([CODE_CONTESTS | {"name": f"{number}_A. Sum"} for number in (1, 2, 3)])
    pq.write_table(table.append_column("date", days), path)
    file = read_problems(path)
    assert [problem.id[0] for problem in file.problems] == ["1", "3"]
    assert [(it.line, it.reason.partition(":")[0]) for it in file.rejected] == [(2, "no values that Python has")]


def test_columns_that_nobody_reads_stay_on_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    huge = {"language": [3] * 10, "solution": ["x" * 1000] * 10}
    pq.write_table(pa.Table.from_pylist([CODE_CONTESTS | {"incorrect_solutions": huge}]), path)
    problem: Problem = read_problems(path).problems[0]
    assert problem == replace(problem_of(CODE_CONTESTS), source=str(path))
