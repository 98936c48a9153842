"""`raypoly score --duplicates`: a table, an exclusion list that training reads, and clear refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raypoly.core.config import ProblemsConfig
from raypoly.data.jsonl import load_jsonl
from tests.support.program_files import ADD, Command

TEXT = "Given two whole numbers, return what comes out when the smaller is taken from the larger one {}."


def rows(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    return [ADD | {"id": name, "prompt": TEXT.format(more)} for name, more in pairs]


def duplicates(command: Command, problems: Path, *words: str | Path) -> str:
    """What is said, in one line."""
    ended = command("score", "--problems", problems, "--duplicates", *words)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.replace("\n", " ")


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    return written(
        tmp_path / "problems.jsonl", rows(("a-1", "three times"), ("b-1", "<b>three</b>  times"), ("c-1", ""))
    )


def written(path: Path, found: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in found))
    return path


def test_what_is_found_is_an_exclusion_list_for_training(command: Command, tmp_path: Path, problems: Path) -> None:
    out = tmp_path / "exclude.jsonl"
    said = duplicates(command, problems, "--out", out)
    assert "same statement" in said
    assert "1 of 3 problems of" in said
    (row,) = [json.loads(line) for line in out.read_text().splitlines()]
    assert row == {
        "problem_id": "a-1",
        "reason": "same statement",
        "same_as": "b-1",
        "source": str(problems),
        "similarity": 1.0,
    }
    config = ProblemsConfig(source="jsonl", path=str(problems), exclude=str(out), validation=0, test=0)
    assert {problem.id for problem in load_jsonl(config).splits["train"]} == {"b-1", "c-1"}


def test_an_evaluation_set_is_looked_for(command: Command, tmp_path: Path, problems: Path) -> None:
    evaluation = written(tmp_path / "evaluation.jsonl", rows(("z-1", ""), ("z-2", "backwards")))
    out = tmp_path / "exclude.jsonl"
    duplicates(command, problems, "--against", evaluation, "--out", out)
    assert [json.loads(line)["problem_id"] for line in out.read_text().splitlines()] == ["c-1"]
    other = written(
        tmp_path / "other.jsonl", [ADD | {"id": "z-3", "prompt": "Walk the dog and tell what it saw there."}]
    )
    assert "0 of 3 problems" in duplicates(command, problems, "--against", other)


def test_a_folder_of_files_is_compared_as_one_and_none_of_them_is_written(
    command: Command, tmp_path: Path, problems: Path
) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    written(folder / "part-0.jsonl", rows(("a-1", "three times")))
    last = written(folder / "part-1.jsonl", rows(("b-1", "<b>three</b>  times"), ("c-1", "")))
    assert "1 of 3 problems of" in duplicates(command, folder / "part-*.jsonl")
    refused = command("score", "--problems", folder, "--duplicates", "--out", last)
    assert refused.returncode == 2
    assert "is the file that is read" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--duplicates", "--validate"], "--duplicates runs nothing"),
        (["--duplicates", "scorer.workers=2"], "--duplicates runs nothing"),
        (["--against", "x.jsonl"], "--against goes with --duplicates"),
        (["--duplicates", "--against", "/nowhere.jsonl"], "/nowhere.jsonl can't be read"),
        (["--duplicates", "--out", "/nowhere/x.jsonl"], "can't be written"),
    ],
)
def test_what_can_not_be_done_is_one_sentence_and_exit_code_2(
    command: Command, problems: Path, arguments: list[str], said: str
) -> None:
    refused = command("score", "--problems", problems, *arguments)
    assert refused.returncode == 2
    assert said in refused.stderr
