"""Files of rows: whole or not there, and gone on with after a kill."""

from __future__ import annotations

import contextlib
import os
import re
import resource
from pathlib import Path

import pytest

from raypoly.commands.row_writer import RowWriter, open_rows
from raypoly.commands.score_files import score_identity
from raypoly.core.config import ScorerConfig
from raypoly.core.errors import StorageError, UsageError
from raypoly.verifier.score_programs import Survey
from tests.support.program_files import ADD, CHECKED, read_rows, write_rows

SAME = {"programs": "abc"}


class Killed(BaseException):
    """Ends a block as no handler of ours would."""


def fill(file: RowWriter, rows: int) -> None:
    for number in range(rows):
        file.write({"n": number})


def left_behind(out: Path, rows: int, torn: bytes = b"") -> None:
    """What an interrupted start leaves."""
    with contextlib.suppress(Killed), open_rows(str(out), SAME) as file:
        fill(file, rows)
        raise Killed
    if torn:
        with Path(f"{out}.part").open("ab") as part:
            part.write(torn)


def test_a_file_appears_under_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "V.jsonl"
    with open_rows(str(out), SAME) as file:
        file.write({"n": 0})
        assert not out.exists()
        file.finish()
    assert read_rows(out) == [{"n": 0}]
    assert [entry.name for entry in tmp_path.iterdir()] == ["V.jsonl"]


@pytest.mark.parametrize(
    ("identity", "unwanted", "rows"), [(SAME, 9, [0, 1, 2]), (SAME, 1, [0, 1]), ({"programs": "other"}, 9, [0])]
)
def test_the_same_start_goes_on_after_the_rows_that_are_whole_and_wanted_and_another_begins_anew(
    tmp_path: Path, identity: dict[str, str], unwanted: int, rows: list[int]
) -> None:
    out = tmp_path / "V.jsonl"
    left_behind(out, 2, torn=b'{"n": 2')
    with open_rows(str(out), identity) as file:
        made = list(file.resume(lambda kept: [{"n": kept}], keep=lambda row: row["n"] != unwanted))
        file.finish()
    assert made == read_rows(out) == [{"n": number} for number in rows]


def test_a_start_is_another_one_where_a_verdict_could_be(tmp_path: Path) -> None:
    problems, config, survey = write_rows(tmp_path / "P.jsonl", [ADD]), ScorerConfig(), Survey(1, "abc")
    first = score_identity(problems, survey, config, False)
    assert score_identity(problems, survey, config.model_copy(update={"workers": 9}), False) == first
    assert score_identity(problems, survey, config.model_copy(update={"memory_mib": 300}), False) != first
    assert score_identity(problems, survey, config, True) != first
    assert score_identity(problems, Survey(1, "abd"), config, False) != first
    write_rows(problems, [ADD, CHECKED])
    assert score_identity(problems, survey, config, False) != first


def test_a_start_that_wrote_nothing_leaves_nothing_and_the_old_file_alone(tmp_path: Path) -> None:
    out = tmp_path / "V.jsonl"
    out.write_text('{"n": 1}\n')
    left_behind(out, 0)
    assert [entry.name for entry in tmp_path.iterdir()] == ["V.jsonl"]
    assert read_rows(out) == [{"n": 1}]


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    out = str(tmp_path / "V.jsonl")
    with (
        open_rows(out, SAME),
        pytest.raises(UsageError, match="Another process writes"),
        open_rows(out, SAME),
    ):
        pass


def test_a_full_disk_is_one_sentence_and_the_rows_stay(tmp_path: Path) -> None:
    out = tmp_path / "V.jsonl"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with open_rows(str(out), SAME) as file, pytest.raises(StorageError) as caught:
            fill(file, 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert re.search(r"V\.jsonl\.part can't be written: .*; the rows so far are kept", str(caught.value))
    with open_rows(str(out), SAME) as file:
        kept = [row["n"] for row in file.resume(lambda kept: [])]
        assert kept == list(range(len(kept)))
        assert len(kept) > 50


def test_a_device_is_written_to_and_never_replaced() -> None:
    with open_rows("/dev/null", SAME) as file:
        file.write({"n": 0})
        file.finish()
    assert Path("/dev/null").is_char_device()
    assert not os.path.exists("/dev/null.part")


@pytest.mark.parametrize(("name", "said"), [("nowhere/V.jsonl", "No such file"), (".", "is a folder")])
def test_a_place_that_takes_no_file_is_the_users_mistake(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said), open_rows(str(tmp_path / name), SAME):
        pass
