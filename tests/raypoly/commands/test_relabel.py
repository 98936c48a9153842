"""Labelling a run again finds the partitions that differ, pays once, survives an outage, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from raypoly.analysis.run import Run
from raypoly.commands.judge_label import LabelDiff, relabel
from raypoly.commands.section_config import choose_run_judge
from raypoly.core.errors import JudgeUnavailable, UsageError
from tests.support.faulty_server import Server, running
from tests.support.gold_rows import read_rows
from tests.support.scored_run import NAMES, as_judged, as_scored, row_of, write_problems, write_scored_run


def once_split(step: int, slot: int) -> tuple[int, ...] | None:
    """The same, but that the two sums of one group are told apart, and another group was never asked about."""
    if step == 0:
        return as_judged(step, slot)
    return (1, 2, 0, 3) if slot == 0 else None


def asking(server: Server, folder: Path) -> list[str]:
    """A judge behind a socket, in whose eyes programs are alike that are as long as one another."""
    return [
        f"judge.base_url={server.url}",
        "judge.model=marker",
        f"judge.cache_dir={folder / 'cache'}",
        "judge.timeout=5",
    ]


def test_labels_that_are_what_they_were_show_no_difference(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = write_scored_run(tmp_path, as_scored, as_judged)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    relabel(run, str(tmp_path / "l.jsonl"), None, [])
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    assert [row["now"] for row in read_rows(tmp_path / "l.jsonl")] == [[1, 1, 0, 2]] * 4
    told = capfd.readouterr().out
    assert "4 groups: 4 had labels, 4 have some now" in told
    assert "no partition differs; adjusted Rand index 1.000" in told


def test_a_partition_that_differs_is_found_and_its_effect_is_what_a_hand_computes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = write_scored_run(tmp_path, as_scored, once_split)
    relabel(run, str(tmp_path / "l.jsonl"), None, [])
    rows = read_rows(tmp_path / "l.jsonl")
    assert [(row["step"], row["slot"]) for row in rows] == [(0, 0), (0, 1), (1, 0)]
    told = capfd.readouterr().out
    # all alone against one pair: the index of a partition into singletons with any other is 0, of the others 1
    assert "1 of 3 partitions differ; adjusted Rand index 0.667" in told
    # strategies of groups: (2, 2), (2, 2), (3, 2); of their correct programs: (1, 1), (1, 1), (2, 1)
    cells = [
        [cell.strip() for cell in line.strip("│ ").split("│")] for line in told.splitlines() if "strategies" in line
    ]
    assert cells == [
        ["training", "strategies", "3", "-", "2.3333", "2.0000", "-0.3333"],
        ["training", "correct strategies", "3", "-", "1.3333", "1.0000", "-0.3333"],
        ["step 1", "strategies", "1", "3.0000", "3.0000", "2.0000", "-1.0000"],
        ["step 1", "correct strategies", "1", "-", "2.0000", "1.0000", "-1.0000"],
    ]


def test_a_run_whose_judge_was_never_asked_is_labelled_whole(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    relabel(write_scored_run(tmp_path), str(tmp_path / "l.jsonl"), None, [])
    told = capfd.readouterr()
    assert "the run's judge was never asked: all 4 groups are labelled" in told.err
    assert "4 groups: 0 had labels, 4 have some now" in told.out


def test_an_outage_keeps_the_rows_so_far_and_the_same_command_goes_on_without_paying_twice(tmp_path: Path) -> None:
    run, out = write_scored_run(tmp_path, as_scored, as_judged), tmp_path / "l.jsonl"
    away = pytest.raises(JudgeUnavailable, match="the rows so far are kept, and the same command goes on")
    with running(Server(faults=["ok", "quota"], forever=True)) as server, away:
        relabel(run, str(out), "openai", asking(server, tmp_path))
    assert not out.exists()
    with running(Server()) as server:
        relabel(run, str(out), "openai", asking(server, tmp_path))
        assert [row["now"] is not None for row in read_rows(out)] == [True] * 4
        paid = len(server.served)
        again = tmp_path / "again.jsonl"
        relabel(run, str(again), "openai", asking(server, tmp_path))
        assert len(server.served) == paid
    assert [row["now"] for row in read_rows(again)] == [row["now"] for row in read_rows(out)]


def test_a_group_that_the_judge_refuses_now_has_no_labels_and_counts_on_neither_side(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = write_scored_run(tmp_path, as_scored, as_judged)
    with running(Server(faults=["refusal"], forever=True)) as server:
        relabel(run, str(tmp_path / "l.jsonl"), "openai", asking(server, tmp_path))
    assert all(row["now"] is None and "refused" in row["reason"] for row in read_rows(tmp_path / "l.jsonl"))
    assert "4 had labels, 0 have some now" in capfd.readouterr().out


def test_the_judge_is_the_run_s_own_with_what_is_said_laid_over_it(tmp_path: Path) -> None:
    own = Run(
        write_scored_run(tmp_path, as_scored, as_judged, None, "judge.name=openai", "judge.view=raw", "judge.votes=3")
    )
    assert choose_run_judge(own.config, None, []) == own.config.judge
    changed = choose_run_judge(own.config, None, ["judge.votes=5"])
    assert (changed.name, changed.view, changed.votes) == ("openai", "raw", 5)
    assert choose_run_judge(own.config, "openai", []) == own.config.judge
    other = choose_run_judge(own.config, "structural", [])
    assert (other.name, other.view) == ("structural", "canonical")
    with pytest.raises(UsageError, match="no key of the judge"):
        choose_run_judge(own.config, None, ["train.steps=3"])


def test_a_problem_that_is_gone_can_not_be_shown_to_a_judge(tmp_path: Path) -> None:
    run = write_scored_run(tmp_path, as_scored, as_judged)
    write_problems(tmp_path / "problems.jsonl", [row_of(f"other {name}") for name in NAMES])
    with pytest.raises(UsageError, match="is not in the run's problem set any more"):
        relabel(run, None, None, [])


def test_degenerate_in_one_alone_is_a_difference_though_the_index_is_one() -> None:
    found = LabelDiff()
    found.add({"step": 0, "problem_id": "p", "then": [1, 1, 0], "now": [1, 1, 2], "passed": [True, True, False]})
    assert found.changed == {"p": [(1.0, 1)]}
