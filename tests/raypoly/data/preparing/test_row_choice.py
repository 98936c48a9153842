"""`where` and `take` of a source: which rows are chosen, and what is said of the others."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from raypoly.core.errors import UsageError
from raypoly.data.preparing import load_sources
from raypoly.data.preparing.prepare_config import SourceConfig
from raypoly.data.preparing.row_conditions import RowConditions
from raypoly.data.preparing.sources import LoadedSources
from tests.support.hub_folders import hub_folder
from tests.support.preparation_rows import problem_row, write_rows


def chosen(folder: Path, **keys: Any) -> LoadedSources:
    return load_sources({"mine": SourceConfig(hub=str(folder), split="train", **keys)})


def names(loaded: LoadedSources) -> list[str]:
    return [it.id for it in loaded.candidates]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return hub_folder(tmp_path / "set")


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ("Easy", "easy", True),
        (["Easy", "Medium"], "Hard", False),
        (["Array", "Graph"], ["Graph", "Tree"], True),
        ({"has": "array"}, ["Array", "Tree"], True),
        ({"has": ["Array", "Graph"]}, ["Array", "Tree"], False),
        ({"after": date(2025, 2, 1)}, "2025-02-01T12:00:00", False),
        ({"after": "2025-02-01"}, datetime(2025, 2, 2), True),
        ({"after": "2025-02-01", "before": "2025-03-01"}, "2025-03-01", False),
        ({"before": "2025-03-01"}, "soon", False),
        ({"at_least": 1200, "at_most": 1800}, 1200, True),
        ({"at_most": 1800}, 1900.5, False),
        ({"at_least": 1200, "at_most": 1800}, "1500", True),
        ({"at_least": 1200}, "hard", False),
        ({"at_least": 1}, True, False),
        (3, 3.0, True),
        (True, True, True),
        (False, None, False),
    ],
)
def test_a_condition_holds_or_does_not(condition: Any, value: Any, holds: bool) -> None:
    assert (RowConditions.of({"field": condition}).match({"field": value}).unmet == "") is holds


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        (
            {"date": {"afer": "2025-02-01"}},
            r"where\.date has no condition 'afer'; there are has, after, before, at_least",
        ),
        ({"date": {"after": "soon"}}, r"where\.date\.after takes a day such as 2025-03-01, not soon"),
        ({"rating": {"at_least": "high"}}, r"where\.rating\.at_least takes a number, not high"),
        ({"difficulty": []}, r"where\.difficulty is empty"),
        ({"difficulty": {}}, r"where\.difficulty is empty"),
        ({"difficulty": None}, r"where\.difficulty is empty"),
        ({"difficulty": [["Easy"]]}, r"where\.difficulty takes a text, number, day, true or false, or a list of these"),
    ],
)
def test_a_condition_that_cant_be_meant_is_one_sentence(where: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        SourceConfig(path="rows.jsonl", where=where)


def test_rows_that_do_not_meet_where_are_left_out_with_a_reason_also_those_that_do_not_say(folder: Path) -> None:
    where = {"difficulty": ["Easy", "Medium"], "date": {"after": "2025-02-15"}, "tags": {"has": "Array"}}
    loaded = chosen(folder, where=where)
    assert names(loaded) == ["a4", "a7", "a10"]
    assert len(loaded.decisions) == 12
    assert not any(decision.reason for decision in loaded.decisions), "the rows themselves are usable"
    why = {choice.problem_id: choice.reason for choice in loaded.choices}
    assert why["a0"] == "its row says no difficulty, and where asks for it"
    assert why["a3"] == "its row says no tags, and where asks for it"
    assert why["a2"] == "its difficulty does not meet where: hard"
    assert why["a1"] == "its date does not meet where: 2025-02-01"
    assert len(why) + 3 == 12


def test_any_column_of_the_rows_may_be_asked_for(folder: Path, tmp_path: Path) -> None:
    assert names(chosen(folder, where={"rating": {"at_least": 2000}})) == ["a10", "a11"]
    assert names(chosen(folder, subset="columns", where={"rating": 1500})) == ["a5"]
    rows = [problem_row("a", extra_info={"dataset": "LeetCode"}), problem_row("b", 1, extra_info={"dataset": "TACO"})]
    source = SourceConfig(path=str(write_rows(tmp_path / "rows.jsonl", rows)), where={"extra_info.dataset": "taco"})
    assert names(load_sources({"mine": source})) == ["b"]


def test_a_column_counts_where_the_format_has_no_such_field(tmp_path: Path) -> None:
    rows = [problem_row(name, place, difficulty=place) for place, name in enumerate("abc")]
    source = SourceConfig(path=str(write_rows(tmp_path / "rows.jsonl", rows)), where={"difficulty": {"at_least": 1}})
    assert names(load_sources({"mine": source})) == ["b", "c"]


def test_a_field_that_no_row_has_is_named_with_those_that_there_are(folder: Path) -> None:
    with pytest.raises(
        UsageError, match=r"where of mine names the field 'dificulty'.*they have .*date, difficulty, "
    ) as it:
        chosen(folder, where={"dificulty": "Easy"})
    assert "\n" not in str(it.value)
    with pytest.raises(UsageError, match=r"No problem of mine meets its where; of a0, for one: its row says no diff"):
        chosen(folder, where={"difficulty": "Fiendish"})


def test_take_draws_by_the_seed_whatever_the_order_of_rows_and_adds_to_a_smaller_one(tmp_path: Path) -> None:
    rows = [problem_row(f"p{number}", number) for number in range(10)]
    paths = write_rows(tmp_path / "a.jsonl", rows), write_rows(tmp_path / "b.jsonl", rows[::-1])

    def drawn(path: Path, **keys: Any) -> set[str]:
        return set(names(load_sources({"mine": SourceConfig(path=str(path), **keys)})))

    four = drawn(paths[0], take=4)
    assert len(four) == 4
    assert four == drawn(paths[1], take=4) == drawn(paths[0], take=4, seed=0)
    assert four < drawn(paths[0], take=6)
    assert any(drawn(paths[0], take=4, seed=seed) != four for seed in (1, 2)), "it is not always the first ones"
    with pytest.raises(UsageError, match=r"take=11 of mine is more than its 10 problems: lower it"):
        drawn(paths[0], take=11)


def test_rows_of_several_files_are_numbered_throughout(folder: Path) -> None:
    loaded = chosen(folder)
    assert [it.facts.row for it in loaded.candidates] == list(range(1, 13))
    assert [path.name for path in loaded.files[0].paths] == ["train-0.jsonl", "train-1.jsonl"]
    before = loaded.files[0].sha256
    (folder / "lines" / "train-1.jsonl").write_text((folder / "lines" / "train-0.jsonl").read_text())
    assert chosen(folder).files[0].sha256 != before
