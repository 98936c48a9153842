"""Labelling a file: clusters for a person, rows for a program, nothing lost in an outage. Labelling a run again finds
the partitions that differ, and changes nothing."""

from pathlib import Path

import pytest

from raypoly.analysis.run import Run
from raypoly.commands.judge_label import LabelDiff, label_file, relabel
from raypoly.commands.section_config import JudgeChoice, choose_run_judge
from raypoly.core.config import JudgeConfig, ScorerConfig
from raypoly.core.errors import JudgeUnavailable, SandboxError, UsageError
from tests.support.faulty_server import Server, running
from tests.support.gold_rows import HASH, ROW, write_rows
from tests.support.program_files import read_rows
from tests.support.scored_run import (
    NAMES,
    as_judged,
    as_scored,
    digests,
    row_of,
    write_problems,
    write_scored_run,
)

STRUCTURAL = JudgeChoice(JudgeConfig(), ScorerConfig(workers=1))


def asking(server: Server, folder: Path, prompt: str = "Group them.") -> JudgeChoice:
    """A judge behind a socket that takes the marker in a program for its strategy."""
    (folder / "prompt.txt").write_text(prompt)
    own = {"base_url": server.url, "model": "marker", "prompt_file": str(folder / "prompt.txt")}
    judge = JudgeConfig(name="openai", cache_dir=str(folder), cache_mib=0, timeout=5.0, **own)
    return JudgeChoice(judge, ScorerConfig(workers=1))


def marked(name: str) -> dict[str, object]:
    programs = [f"def f(n):\n    return n, 'strategy_{i}'\n" for i in (2, 1, 0)]
    return {"id": name, "problem": f"The problem {name}.", "entry_point": "f", "programs": programs}


def test_clusters_are_printed_and_rows_are_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.jsonl"
    label_file(write_rows(tmp_path / "g.jsonl", ROW, ROW | {"id": "again"}), str(out), STRUCTURAL)
    first, second = read_rows(out)
    assert first["labels"] == [1, 2, 1, 0]
    assert set(first) == {"id", "labels", "judge", "strategies"}
    assert second["id"] == "again"
    printed = capfd.readouterr().out
    assert "twice: 2 strategies of 4 programs\n  1  programs 0 2  hash table\n" in printed
    assert "-  programs 3  degenerate" in printed


def test_show_prints_canonical_forms_or_the_messages_that_would_be_sent(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write_rows(tmp_path / "g.jsonl", ROW)
    label_file(path, None, STRUCTURAL, show=True)
    canonical = capfd.readouterr().out
    assert "--- program 0, canonical; " in canonical
    assert "seen" not in canonical
    with running(Server()) as server:
        label_file(path, None, asking(server, tmp_path), show=True)
    sent = capfd.readouterr().out
    assert "--- system\nGroup them." in sent
    assert "<<<program 2 key" in sent


def test_rows_on_standard_output_stand_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    label_file(write_rows(tmp_path / "g.jsonl", ROW), "-", STRUCTURAL)
    captured = capfd.readouterr()
    assert captured.out.count("\n") == 1
    assert captured.out.startswith('{"id": "twice", "labels": [1, 2, 1, 0]')
    assert "2 strategies" in captured.err


def test_a_refused_group_is_a_row_without_labels_and_the_rest_is_labelled(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with running(Server(faults=["refusal"] * 5)) as server:
        choice = asking(server, tmp_path)
        label_file(write_rows(tmp_path / "one.jsonl", marked("a")), str(out), choice)
        (refused,) = read_rows(out)
        label_file(write_rows(tmp_path / "two.jsonl", marked("b")), str(out), choice)
    assert refused["labels"] is None
    assert "refused to answer" in refused["reason"]
    (labelled,) = read_rows(out)
    assert labelled["labels"] == [1, 2, 0]
    assert labelled["strategies"]["1"]


@pytest.mark.parametrize(("prompt", "kept"), [("Group them.", True), ("Edited under its name.", False)])
def test_an_outage_keeps_the_rows_so_far_and_the_same_command_goes_on(tmp_path: Path, prompt: str, kept: bool) -> None:
    out = tmp_path / "out.jsonl"
    # equal programs need no call: their row is there before the server is found to be away
    free = {"id": "free", "problem": "p", "programs": [HASH, HASH]}
    path = write_rows(tmp_path / "g.jsonl", free, marked("a"), marked("b"))
    with running(Server(faults=["quota"], forever=True)) as server:
        with pytest.raises(JudgeUnavailable, match=r"quota.*the same command goes on"):
            label_file(path, str(out), asking(server, tmp_path))
        assert not out.exists()
        (row,) = read_rows(tmp_path / "out.jsonl.part")
        server.forever = False
        label_file(path, str(out), asking(server, tmp_path, prompt))
    first, *others = read_rows(out)
    assert [each["labels"] for each in (first, *others)] == [[1, 1], [1, 2, 0], [1, 2, 0]]
    assert (first == row) == kept
    assert {each["judge"] for each in others} == {first["judge"]}, "no two prompts in one file"


def test_a_group_whose_programs_could_not_be_run_is_never_labelled(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    path = write_rows(tmp_path / "g.jsonl", ROW | {"tests": "def check(candidate:\n"}, ROW | {"id": "sound"})
    with pytest.raises(SandboxError, match="1 of 2 groups have no labels"):
        label_file(path, str(out), STRUCTURAL)
    assert [row["labels"] for row in read_rows(out)] == [None, [1, 2, 1, 0]]


def once_joined(step: int, slot: int) -> tuple[int, ...] | None:
    """The same, but that the two sums of one group are one, and another group was never asked about."""
    if step == 0:
        return as_judged(step, slot)
    return (1, 1, 0, 1) if slot == 0 else None


def by_length(server: Server, folder: Path) -> list[str]:
    """A judge behind a socket, in whose eyes programs are alike that are as long as one another."""
    return [
        f"judge.base_url={server.url}",
        "judge.model=marker",
        f"judge.cache_dir={folder / 'cache'}",
        "judge.timeout=5",
    ]


def test_labels_that_are_what_they_were_show_no_difference(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = write_scored_run(tmp_path, as_scored, as_judged)
    before = digests(tmp_path / "run")
    relabel(run, str(tmp_path / "l.jsonl"), None, [])
    assert digests(tmp_path / "run") == before
    assert [row["now"] for row in read_rows(tmp_path / "l.jsonl")] == [[1, 2, 0, 1]] * 4
    told = capfd.readouterr().out
    assert "4 groups: 4 had labels, 4 have some now" in told
    assert "no partition differs; adjusted Rand index 1.000" in told


def test_a_partition_that_differs_is_found_and_its_effect_is_what_a_hand_computes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = write_scored_run(tmp_path, as_scored, once_joined)
    relabel(run, str(tmp_path / "l.jsonl"), None, [])
    rows = read_rows(tmp_path / "l.jsonl")
    assert [(row["step"], row["slot"]) for row in rows] == [(0, 0), (0, 1), (1, 0)]
    told = capfd.readouterr().out
    # two of six pairs are apart in one and together in the other: (1 + 1 + 1/3) / 3
    assert "1 of 3 partitions differ; adjusted Rand index 0.778" in told
    # strategies of groups: (2, 2), (2, 2), (1, 2); of their correct programs too
    cells = [
        [cell.strip() for cell in line.strip("│ ").split("│")] for line in told.splitlines() if "strategies" in line
    ]
    assert cells == [
        ["training", "strategies", "3", "-", "1.6667", "2.0000", "+0.3333"],
        ["training", "correct strategies", "3", "-", "1.6667", "2.0000", "+0.3333"],
        ["step 1", "strategies", "1", "3.0000", "1.0000", "2.0000", "+1.0000"],
        ["step 1", "correct strategies", "1", "-", "1.0000", "2.0000", "+1.0000"],
    ]


def test_a_run_whose_judge_was_never_asked_is_labelled_whole(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    relabel(write_scored_run(tmp_path), str(tmp_path / "l.jsonl"), None, [])
    told = capfd.readouterr()
    assert "the run's judge was never asked: all 4 groups are labelled" in told.err
    assert "4 groups: 0 had labels, 4 have some now" in told.out


def test_an_outage_of_a_run_again_loses_no_row_and_nothing_is_paid_twice(tmp_path: Path) -> None:
    run, out = write_scored_run(tmp_path, as_scored, as_judged), tmp_path / "l.jsonl"
    away = pytest.raises(JudgeUnavailable, match="the rows so far are kept, and the same command goes on")
    with running(Server(faults=["ok", "quota"], forever=True)) as server, away:
        relabel(run, str(out), "openai", by_length(server, tmp_path))
    assert not out.exists()
    with running(Server()) as server:
        relabel(run, str(out), "openai", by_length(server, tmp_path))
        assert [row["now"] is not None for row in read_rows(out)] == [True] * 4
        paid = len(server.served)
        again = tmp_path / "again.jsonl"
        relabel(run, str(again), "openai", by_length(server, tmp_path))
        assert len(server.served) == paid
    assert [row["now"] for row in read_rows(again)] == [row["now"] for row in read_rows(out)]


def test_a_group_that_the_judge_refuses_now_has_no_labels_and_counts_on_neither_side(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = write_scored_run(tmp_path, as_scored, as_judged)
    with running(Server(faults=["refusal"], forever=True)) as server:
        relabel(run, str(tmp_path / "l.jsonl"), "openai", by_length(server, tmp_path))
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
