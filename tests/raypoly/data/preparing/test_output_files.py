"""What a preparation ends in, and where it lives."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raypoly.analysis.reports.data_card_page import card_page, draw_card
from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import LeaseHeld, UsageError
from raypoly.core.values import Problem, TestSuite
from raypoly.data import build_problem_set
from raypoly.data.formats import read_problems
from raypoly.data.jsonl import load_jsonl
from raypoly.data.preparing import PrepareConfig, output_files
from raypoly.data.preparing.candidates import Candidate, ProblemBuffer, SourceFacts, content_hash
from raypoly.data.preparing.data_card import card_values, encode_card
from raypoly.data.preparing.decision_log import STAGES, Decision, DecisionLog, StageName, explain_problem
from raypoly.data.preparing.preparation_folder import PreparationFolder, keep_inputs
from raypoly.data.preparing.prepare_config import BandConfig, SourceConfig
from raypoly.data.preparing.sources import LoadedSources, SourceFile
from tests.support.preparation_rows import written_bytes

SUITES = (
    TestSuite("calls", '[{"args": [1], "expected": 2}]', "json"),
    TestSuite("check", "def check(candidate):\n    assert candidate(1) == 2\n"),
    TestSuite("stdin", '[{"input": "1\\n", "output": "2\\n"}]'),
)


def kept() -> list[Candidate]:
    return [
        replace(
            Candidate.of(
                Problem(
                    f"p{number}",
                    f"Wie viele Äpfel sind {number}?",
                    "" if suite.kind == "stdin" else "f",
                    suite,
                    prelude="import math\n",
                    solution="def f(x):\n    return x + 1\n",
                    metadata={"title": f"Äpfel {number}"},
                ),
                SourceFacts("mine", number + 1, "abc", "MIT", "2025-03-01", "easy", ("array", "math")),
                ProblemBuffer(),
            ),
            prompt_tokens=9,
            samples=16,
            passes=3,
        )
        for number, suite in enumerate(SUITES)
    ]


def prepared(folder: Path, split: str, problems: list[Candidate]) -> Path:
    """A finished preparation with this split."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    (folder / "card.json").write_text("{}")
    (folder / "data" / f"{split}.parquet").write_bytes(written_bytes(output_files.write_parquet, problems))
    return folder


def whole(problem: Problem) -> Problem:
    return replace(problem, source="", metadata={})


def test_parquet_and_json_lines_hold_the_same_problems(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.parquet").write_bytes(written_bytes(output_files.write_parquet, kept()))
    with pytest.raises(UsageError, match=r"holds no preparation that is done \(card\.json"):
        build_problem_set(ProblemsConfig(source="prepared", path=str(tmp_path)))
    (tmp_path / "card.json").write_text("{}")
    (tmp_path / "train.jsonl").write_bytes(written_bytes(output_files.write_jsonl, kept()))
    prepared = build_problem_set(ProblemsConfig(source="prepared", path=str(tmp_path)))
    lines = read_problems(tmp_path / "train.jsonl").problems
    assert [whole(it.problem) for it in kept()] == [whole(problem) for problem in lines]
    assert [whole(problem) for problem in prepared.splits["train"]] == [whole(problem) for problem in lines]
    assert prepared.splits["test"] == prepared.splits["validation"] == []
    assert prepared.splits["train"][0].metadata["title"] == "Äpfel 0"
    told = lines[0].metadata
    assert (told["source"], told["revision"], told["licence"], told["row"], told["passes"]) == (
        *("mine", "abc", "MIT", "1"),
        "3 of 16",
    )
    assert told["sha256"] == content_hash(kept()[0].problem)


def test_public_tests_are_a_column_where_there_are_any_and_else_the_file_is_as_it_was(tmp_path: Path) -> None:
    shown = TestSuite("calls", '[{"args": [0], "expected": 1}]', "json")
    plain, buffer = kept(), ProblemBuffer()
    some = [*plain[1:], Candidate.of(replace(plain[0].problem, public_tests=shown), plain[0].facts, buffer)]
    assert pq.read_schema(io.BytesIO(written_bytes(output_files.write_parquet, plain))).equals(output_files.SCHEMA)
    table = pq.read_table(io.BytesIO(written_bytes(output_files.write_parquet, some)))
    assert table["public_tests"].null_count == 2
    assert len(set(table["sha256"].to_pylist()) - {content_hash(it.problem) for it in plain}) == 1
    (tmp_path / "train.jsonl").write_bytes(written_bytes(output_files.write_jsonl, some))
    place = prepared(tmp_path / "done", "train", some)
    columns = build_problem_set(ProblemsConfig(source="prepared", path=str(place))).splits["train"]
    for problems in (columns, read_problems(tmp_path / "train.jsonl").problems):
        assert [problem.public_tests for problem in problems] == [None, None, shown]


def test_a_damaged_row_of_a_preparation_is_named(tmp_path: Path) -> None:
    table = pq.read_table(io.BytesIO(written_bytes(output_files.write_parquet, kept())))
    tests = table["tests"].to_pylist()
    damaged = pa.array([tests[0], "no JSON", tests[2]])
    (tmp_path / "data").mkdir()
    (tmp_path / "card.json").write_text("{}")
    place = table.column_names.index("tests")
    pq.write_table(table.set_column(place, "tests", damaged), tmp_path / "data" / "train.parquet")
    with pytest.raises(UsageError, match=r"train\.parquet row 2 is no row of raypoly prepare's"):
        build_problem_set(ProblemsConfig(source="prepared", path=str(tmp_path)))


def test_the_lines_train_as_any_other_file(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_bytes(written_bytes(output_files.write_jsonl, kept()))
    found = load_jsonl(ProblemsConfig(source="jsonl", path=str(tmp_path / "train.jsonl"), validation=1, test=0))
    assert len(found.splits["train"]) == 2


def test_another_preparation_gives_the_test_split(tmp_path: Path) -> None:
    mine, theirs = prepared(tmp_path / "mine", "train", kept()[:1]), prepared(tmp_path / "theirs", "test", kept()[1:])
    config = ProblemsConfig(source="prepared", path=str(mine), test_path=str(theirs))
    assert [problem.id for problem in build_problem_set(config).splits["test"]] == ["p1", "p2"]
    prepared(theirs, "validation", kept()[1:])
    other = config.model_copy(update={"test_path": None, "validation_path": str(theirs)})
    assert [problem.id for problem in build_problem_set(other).splits["validation"]] == ["p1", "p2"]
    prepared(theirs, "test", kept())
    with pytest.raises(UsageError, match=r"p0 is in train and in test"):
        build_problem_set(config)


def test_two_preparations_may_number_unlike_problems_alike(tmp_path: Path) -> None:
    numbered = [replace(candidate, id="4000", read=partial(_renamed, candidate, "4000")) for candidate in kept()]
    mine, theirs = prepared(tmp_path / "mine", "train", numbered[:1]), tmp_path / "theirs"
    config = ProblemsConfig(source="prepared", path=str(mine), test_path=str(prepared(theirs, "test", numbered[1:2])))
    splits = build_problem_set(config).splits
    assert {name: [problem.id for problem in problems] for name, problems in splits.items()} == {
        "train": ["4000"],
        "validation": [],
        "test": ["test/4000"],
    }
    assert build_problem_set(config.model_copy(update={"test_path": None})).splits["train"] == splits["train"]


def _renamed(candidate: Candidate, name: str) -> Problem:
    return replace(candidate.read(), id=name)


def test_what_is_no_preparation_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"problems\.path=.* holds no preparation that is done"):
        build_problem_set(ProblemsConfig(source="prepared", path=str(tmp_path)))
    (tmp_path / "train.parquet").write_text("no such thing")
    with pytest.raises(UsageError, match=r"train\.parquet can't be read as Parquet"):
        build_problem_set(ProblemsConfig(source="prepared", path=str(tmp_path)))


def decided() -> dict[StageName, list[Decision]]:
    """A preparation of four rows: three problems, one of them outside the band."""
    names = [it.id for it in kept()]
    found: dict[StageName, list[Decision]] = {
        "load": [Decision(name, "load", "", {"source": "mine", "row": i + 1}) for i, name in enumerate(names)],
        "choose": [],
        "solutions": [Decision(name, "solutions", "", {"solution": "passed"}) for name in names],
        "same": [],
        "prompts": [Decision(name, "prompts", "", {"tokens": 9}) for name in names],
        "sampling": [Decision(name, "sampling", "", {"samples": 16, "passes": 3}) for name in names[:2]],
        "split": [Decision(name, "split", "", {"split": "train"}) for name in names[:2]],
    }
    found["load"].append(Decision(None, "load", "not JSON: at column 1", {"source": "mine", "row": 4}))
    reason = "the base model solves it in 0 of 16 samples, and band.low is 1"
    found["sampling"].append(Decision("p2", "sampling", reason, {"samples": 16, "passes": 0}))
    return found


def values_of(decisions: dict[StageName, list[Decision]]) -> dict[str, Any]:
    config = PrepareConfig(sources={"mine": SourceConfig(path="rows.jsonl")}, band=BandConfig(low=1))
    file = SourceFile("mine", (Path("rows.jsonl"),), None, "0" * 64)
    loaded = LoadedSources(kept(), decided()["load"], [file], {"mine": 4})
    return card_values(config, loaded, None, decisions, {"train": kept()[:2]})


def test_the_card_counts_every_stage_and_what_is_unknown_stays_unknown() -> None:
    values = values_of(decided())
    assert [row["went_on"] for row in values["stages"]] == [3, 3, 3, 3, 3, 2, 2]
    assert values["passes"] == {"0": 1, "3": 2}
    assert values["splits"] == {"train": 2}
    assert values["tags"] == {"array": 2, "math": 2}
    assert values["reasons"][1]["reason"] == "the base model solves it in N of N samples, and band.low is N"
    text = card_page(values, "card.png")
    assert "| mine | 4 | 3 |" in text
    assert "| the base model solves it" not in text.split("## Why")[0]
    text = card_page(values_of({**decided(), "prompts": [Decision("p0", "prompts")]}), "card.png")
    assert "Tokens were not counted" in text
    assert "| with a prompt of an allowed length | 3 | not asked for | 3 |" in text


def test_card_and_figure_are_the_same_bytes_each_time() -> None:
    values = values_of(decided())
    assert encode_card(values) == encode_card(values_of(decided()))
    png = draw_card(values)
    assert png == draw_card(values_of(decided()))
    assert png.startswith(b"\x89PNG")


def test_what_was_left_out_is_an_exclusion_list_that_spares_a_usable_row(tmp_path: Path) -> None:
    again = Decision("p0", "load", "'p0' appears a second time; ids have to differ", {"source": "mine", "row": 5})
    stages = decided()
    stages["load"].append(again)
    (tmp_path / "excluded.jsonl").write_bytes(
        output_files.encode_exclusions(d for stage in STAGES for d in stages[stage])
    )
    (tmp_path / "rows.jsonl").write_bytes(written_bytes(output_files.write_jsonl, kept()))
    config = ProblemsConfig(source="jsonl", path=str(tmp_path / "rows.jsonl"), validation=0, test=0)
    found = load_jsonl(config.model_copy(update={"exclude": str(tmp_path / "excluded.jsonl")}))
    assert sorted(problem.id for problem in found.splits["train"]) == ["p0", "p1"]


def test_explain_tells_how_far_a_problem_has_come_and_why_it_was_left_out(tmp_path: Path) -> None:
    config = PrepareConfig.model_validate(
        {"sources": {"mine": {"path": "rows.jsonl"}}, "run": {"dir": str(tmp_path / "run")}}
    )
    folder = PreparationFolder.of(config)
    store, lease = folder.open()
    ledger = DecisionLog(store)
    with pytest.raises(UsageError, match="has read no problem yet"):
        explain_problem(folder.look(), "p2")
    for stage in STAGES[:5]:
        ledger.keep(stage, decided()[stage])
    assert (
        explain_problem(folder.look(), "p2").splitlines()[-1]
        == "Still in the running: sampling, split are not done yet."
    )
    for stage in STAGES[5:]:
        ledger.keep(stage, decided()[stage])
    lines = explain_problem(folder.look(), "p2").splitlines()
    assert lines[:2] == ["p2", "  load       mine, row 3"]
    assert lines[-1].startswith("Left out at sampling: the base model solves it in 0 of 16 samples")
    assert explain_problem(folder.look(), "p0").splitlines()[-1] == "Kept, in train."
    with pytest.raises(UsageError, match=r"no problem 'p2x'; did you mean p2"):
        explain_problem(folder.look(), "p2x")
    lease.release()


def test_the_folder_is_one_drivers_and_one_configs(tmp_path: Path) -> None:
    values = {"sources": {"mine": {"path": "rows.jsonl"}}, "run": {"dir": str(tmp_path / "run")}}
    folder = PreparationFolder.of(PrepareConfig.model_validate(values))
    store, lease = folder.open()
    keep_inputs(store, {"mine": "a" * 64, "schema": "c" * 64})
    with pytest.raises(LeaseHeld):
        folder.open()
    with pytest.raises(UsageError, match=r"The file of mine is not the one that .* was begun with"):
        keep_inputs(store, {"mine": "b" * 64})
    lease.release()
    PreparationFolder.of(PrepareConfig.model_validate({**values, "scorer": {"workers": 7}})).look()
    PreparationFolder.of(PrepareConfig.model_validate({**values, "band": {"high": 15}})).look()
    with pytest.raises(UsageError, match=r"sampling\.samples is 8 now and was 16"):
        PreparationFolder.of(PrepareConfig.model_validate({**values, "sampling": {"samples": 8}})).look()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    strange = {**values, "run": {"dir": str(tmp_path / "other")}}
    with pytest.raises(UsageError, match=r"holds notes\.txt and no preparation"):
        PreparationFolder.of(PrepareConfig.model_validate(strange)).look()
    assert json.loads((tmp_path / "run" / "preparation.json").read_text())["band"] == {"low": 1, "high": 12}
