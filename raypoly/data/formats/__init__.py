"""Every public format of problems of code and mathematics, read into `Problem`; docs/problem-formats.md shows them.

    problem = problem_of(json.loads(line))              # one row, recognised by its columns
    for problem in ProblemStream(Path("train-*.parquet")): ...      # one by one, none is held
    problems = read_problems(Path("rows.jsonl.gz")).problems        # all at once, where they fit
    program = program_of(problem, extract_code(problem, response))

A format is two functions in a module here, and one line in `FORMATS`:

    recognises(row) -> bool         whether the columns are this format's
    to_problem(row) -> Problem      the row as a problem; raises `ValueError` for a row that can't be used
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from raypoly.core.config import ComparisonChoice
from raypoly.core.errors import UsageError
from raypoly.core.values import Problem
from raypoly.data.formats import (
    apps,
    code_contests,
    evalplus,
    humaneval,
    kodcode,
    leetcode,
    livecodebench,
    mathematics,
    mbpp,
    output_prediction,
    raypoly_rows,
    test_lists,
)
from raypoly.data.formats.program_text import program_of
from raypoly.data.formats.raypoly_rows import row_of
from raypoly.data.formats.row_fields import error_reason, is_utf8, one_line, row_id
from raypoly.data.formats.row_files import count_rows, files_of, rows_of

__all__ = [
    "FORMATS",
    "ProblemFile",
    "ProblemStream",
    "Rejected",
    "files_of",
    "problem_of",
    "program_of",
    "read_problems",
    "row_of",
]

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Format:
    name: str
    recognises: Callable[[Row], bool]
    to_problem: Callable[[Row], Problem]


def _refuse_bigcodebench(row: Row) -> NoReturn:
    raise ValueError(
        "test: BigCodeBench's unittest classes need some 140 libraries, files and ports that the sandbox does not"
        " have; run its own harness"
    )


def _has(*columns: str) -> Callable[[Row], bool]:
    return lambda row: all(name in row for name in columns)


def _asks(*columns: str) -> Callable[[Row], bool]:
    # names that any row may have beside its own: one with an entry point is a benchmark's
    return lambda row: all(name in row for name in columns) and "entry_point" not in row


FORMATS = (
    Format("raypoly", raypoly_rows.recognises, raypoly_rows.to_problem),
    Format("LiveCodeBench", livecodebench.recognises, livecodebench.to_problem),
    Format("code execution", output_prediction.recognises, output_prediction.to_problem),
    Format("test output prediction", output_prediction.recognises_test, output_prediction.to_problem_test),
    Format("CodeContests", code_contests.recognises, code_contests.to_problem),
    Format("CodeContests+", code_contests.recognises_plus, code_contests.to_problem_plus),
    Format("Codeforces", code_contests.recognises_codeforces, code_contests.to_problem_codeforces),
    Format("MBPP", mbpp.recognises, mbpp.to_problem),
    Format("AReaL", _has("query_id", "input_output"), apps.to_problem),
    Format("APPS and TACO", apps.recognises, apps.to_problem),
    Format("DAPO-Math", mathematics.recognises_dapo, mathematics.to_problem_dapo),
    Format("MATH and AIME", mathematics.recognises_boxed, mathematics.to_problem_boxed),
    Format("GSM8K", mathematics.recognises_gsm8k, mathematics.to_problem_gsm8k),
    Format("verifiable problems", test_lists.recognises, test_lists.to_problem),
    Format("SkyRL", _has("reward_spec"), test_lists.to_problem),
    Format("NeMo Gym", _has("verifier_metadata"), test_lists.to_problem),
    Format("open-instruct", _asks("ground_truth"), test_lists.to_problem),
    Format("KodCode", kodcode.recognises, kodcode.to_problem),
    Format("rStar-Coder", _asks("question", "inputs", "outputs"), test_lists.to_problem),
    Format("AceCode", _asks("question", "test_cases"), test_lists.to_problem),
    Format("verifiers", _asks("info"), test_lists.to_problem),
    Format("TRL", _asks("prompt", "test_cases"), test_lists.to_problem),
    Format("prompt and answer", _asks("prompt", "answer"), test_lists.to_problem),
    Format("question and answer", _asks("question", "answer"), test_lists.to_problem),
    Format("BigCodeBench", lambda row: "complete_prompt" in row or "instruct_prompt" in row, _refuse_bigcodebench),
    Format("evalplus", evalplus.recognises, evalplus.to_problem),
    Format("HumanEval-X", _has("task_id", "declaration"), humaneval.to_problem_x),
    Format("MultiPL-E", _has("language", "prompt", "tests"), humaneval.to_problem_multipl_e),
    Format("DeepSeek's contests", _has("task_id", "prompt_sft", "test"), leetcode.to_problem_contest),
    Format("HumanEval", humaneval.recognises, humaneval.to_problem),
    Format("LeetCodeDataset", leetcode.recognises, leetcode.to_problem),
)
"""In the order in which they are asked: the first that recognises a row reads it."""


def problem_of(row: Row, source: str = "") -> Problem:
    """The problem of one row. Raises `ValueError`, one sentence: which column, and what is wrong with it."""
    if not isinstance(row, Mapping):
        raise ValueError("not a JSON object")
    try:
        for format_ in FORMATS:
            if format_.recognises(row):
                return _check_texts(replace(format_.to_problem(row), source=source))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(error_reason(error)) from None
    columns = one_line(", ".join(map(str, row)), 120) or "none"
    raise ValueError(f"no known format has these columns: {columns} (docs/problem-formats.md lists the formats)")


def _check_texts(problem: Problem) -> Problem:
    """Raises `ValueError` where one of its texts can't be written as UTF-8."""
    names = ("id", "prompt", "prelude", "prefix", "solution")
    texts = {name: getattr(problem, name) for name in names}
    for name, suite in {"tests": problem.tests, "public_tests": problem.public_tests}.items():
        texts |= {} if suite is None else {name: suite.source, f"{name}.checker": suite.checker}
    texts |= {f"metadata.{name}": text for name, text in problem.metadata.items()}
    for name, text in texts.items():
        if not is_utf8(text):
            raise ValueError(f"{name}: holds half of a surrogate pair, which is no text")
    return problem


MOST_REJECTED = 1_000_000
"""Each takes some 200 bytes of memory."""


@dataclass(frozen=True, slots=True)
class Rejected:
    line: int
    """Its line, or its place in a Parquet file, from 1."""
    id: str | None
    """None where the row did not come so far."""
    reason: str
    source: str


@dataclass(frozen=True)
class ProblemFile:
    problems: list[Problem]
    """In the file's order, each id once."""
    rejected: list[Rejected]

    def compared_by(self, comparison: ComparisonChoice) -> ProblemFile:
        return replace(self, problems=[problem.compared_by(comparison) for problem in self.problems])


class ProblemStream:
    """The problems of a file, a folder or a pattern, in any mixture of formats, one by one, each id once.

    To be iterated over once. Raises `UsageError` where there is no file; while it is iterated, where one can't be read;
    and at the end, where no row was usable.
    """

    def __init__(self, path: Path, files: Sequence[Path] | None = None) -> None:
        """`files`: those that `path` stands for, where it names none itself."""
        self._path = path
        self.files = files_of(path) if files is None else list(files)
        self.rejected: list[Rejected] = []
        """At most `MOST_REJECTED`."""
        self.ids: set[str] = set()

    def rows(self) -> int | None:
        """Rows, good or bad; None where a file, such as a pipe, can be read once only."""
        return sum(map(count_rows, self.files)) if all(file.is_file() for file in self.files) else None

    def __iter__(self) -> Iterator[Problem]:
        for file in self.files:
            for number, row in rows_of(file):
                problem = self._problem(file, number, row)
                if problem is not None:
                    yield problem
        if not self.ids:
            first = self.rejected[0] if self.rejected else None
            why = f"line {first.line}: {first.reason}" if first else "it is empty"
            raise UsageError(f"{self._path} has no usable row: {why}")

    def _problem(self, file: Path, number: int, row: Any) -> Problem | None:
        try:
            if isinstance(row, ValueError):
                raise row
            problem = problem_of(row, str(file))
            if problem.id in self.ids:
                raise ValueError(f"{problem.id!r} appears a second time; ids have to differ")
        except ValueError as error:
            self.rejected.append(Rejected(number, row_id(row), sys.intern(str(error)), sys.intern(str(file))))
            if len(self.rejected) > MOST_REJECTED:
                first = self.rejected[0]
                many = f"more than {MOST_REJECTED:,} rows that can't be used, the first in line {first.line}"
                raise UsageError(f"{file} has {many}: {first.reason}.") from None
            return None
        self.ids.add(problem.id)
        return problem


def read_problems(path: Path, files: Sequence[Path] | None = None) -> ProblemFile:
    """All problems that a path names. Raises `UsageError` as `ProblemStream` does."""
    stream = ProblemStream(path, files)
    return ProblemFile(list(stream), stream.rejected)
