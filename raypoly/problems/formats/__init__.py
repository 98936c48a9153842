"""Every public format of code problems, read into `Problem`; docs/problem-formats.md shows them.

    problem = problem_of(json.loads(line))              # one row, recognised by its columns
    for problem in ProblemStream(Path("train-*.parquet")): ...      # one by one
    problems = read_problems(Path("rows.jsonl.gz")).problems
    program = program_of(problem, extract_code(problem, response))

A format is one module here and one line in `registry.FORMATS`.
"""

from __future__ import annotations

from raypoly.problems.formats.humaneval import program_of
from raypoly.problems.formats.problem_files import ProblemFile, ProblemStream, Rejected, read_problems
from raypoly.problems.formats.raypoly_rows import row_of
from raypoly.problems.formats.registry import FORMATS, Format, problem_of
from raypoly.problems.formats.row_files import files_of, read_lines

__all__ = [
    "FORMATS",
    "Format",
    "ProblemFile",
    "ProblemStream",
    "Rejected",
    "files_of",
    "problem_of",
    "program_of",
    "read_lines",
    "read_problems",
    "row_of",
]
