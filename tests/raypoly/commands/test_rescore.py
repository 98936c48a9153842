"""Scoring a run again finds what is not so any more, says what that does to its numbers, and changes nothing."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from raypoly.analysis.metrics.pass_at_k import JudgedGroup, ProblemOutcome, summarise
from raypoly.analysis.metrics.problem_counts import GroupOutcomes
from raypoly.analysis.run import Run
from raypoly.analysis.stored_groups import GroupThenAndNow, training_numbers
from raypoly.commands.judge_label import relabel
from raypoly.commands.score_run import rescore
from raypoly.core.errors import SandboxError, UsageError
from raypoly.core.values import Group, Labels, Verdict
from raypoly.data import build_problem_set
from raypoly.learner.update_stats import LossStats, UpdateStats
from raypoly.run.store.sealed_files import encode_table, seal
from tests.support.drafted_run import write_drafted_run
from tests.support.program_files import Command, read_rows
from tests.support.s3_server import s3_server
from tests.support.scored_run import (
    NAMES,
    PROGRAMS,
    SAMPLES,
    SCORER,
    as_judged,
    as_scored,
    digests,
    evaluation_payload,
    evaluation_table,
    rollout,
    row_of,
    verdicts,
    without_labels,
    write_problems,
    write_scored_run,
)
from workflows.step.seal_step import metrics_row
from workflows.step.stopwatch import Waterfall
from workflows.step.training_group import TrainingGroup


def read(path: Path) -> tuple[list[dict[str, Any]], dict[tuple[str, str], dict[str, Any]]]:
    """Groups, and numbers by what they are of and their name."""
    rows = read_rows(path)
    numbers = {(row["of"], row["number"]): row for row in rows if "number" in row}
    return [row for row in rows if "number" not in row], numbers


def write_beside(run: Run, payload: dict[str, Any], table: pa.Table | None = None, step: int = 2) -> None:
    """As `raypoly evaluate --run` does; by default of the problem `one`."""
    name = f"evaluations/test-step-{step:06d}-20261121T100000"
    run.store.commit(f"{name}.json", seal(payload | {"split": "test"}))
    samples = evaluation_table(["one"], slandered) if table is None else table
    run.store.commit(f"{name}.parquet", encode_table(samples, {}))


def slandered(problem: str, place: int, verdict: Verdict) -> Verdict:
    """The second program of every group is right, and was said to be wrong."""
    return replace(verdict, status="wrong", tests_passed=1) if place == 1 else verdict


def test_a_run_with_nothing_changed_shows_no_difference_and_stays_as_it_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = write_scored_run(tmp_path)
    before = digests(tmp_path / "run")
    rescore(run, str(tmp_path / "d.jsonl"), None, [], workers=1)
    assert digests(tmp_path / "run") == before
    groups, numbers = read(tmp_path / "d.jsonl")
    assert len(groups) == 2 * 2 + 2
    assert all(group["now"] == group["then"] for group in groups if group["of"].startswith("rollouts/step"))
    assert not any(group["changed"] for group in groups)
    assert numbers["step 0", "reward"] == {
        "number": "reward", "of": "step 0", "groups": 2, "reported": 0.5, "then": 0.5, "now": 0.5
    }  # fmt: skip
    moved = [key for key, row in numbers.items() if row["then"] not in (None, row["now"])]
    assert moved == []
    for number in ("pass@1", "pass@8", "strategies_correct"):
        row = numbers["validation after step 2", number]
        assert row["reported"] == row["then"] == row["now"]
    told = capfd.readouterr()
    assert "32 rollouts of 4 problems in 2 steps and 1 evaluation: none differs" in told.out
    assert "changed since" not in told.err


def test_a_stored_verdict_that_is_wrong_is_found_and_its_effect_is_what_a_hand_computes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rescore(write_scored_run(tmp_path, slandered), str(tmp_path / "d.jsonl"), None, [], workers=1)
    groups, numbers = read(tmp_path / "d.jsonl")
    changes = [(group["problem_id"], [c["rollout"] for c in group["changed"]]) for group in groups]
    assert len(changes) == 6
    assert all(places == [1] for _, places in changes)
    # training: 1 of 4 was right, 2 of 4 are; two draws of four miss the right ones by C(3,2)/C(4,2), C(2,2)/C(4,2)
    for of, count in (("step 0", 2), ("step 1", 2), ("training", 4)):
        found = {name: numbers[of, name] for name in ("reward", "pass@1", "pass@2", "pass@4", "strategies_correct")}
        assert {row["groups"] for row in found.values()} == {count}
        assert [(row["then"], row["now"]) for row in found.values()] == [
            (0.25, 0.5), (0.25, 0.5), (0.5, pytest.approx(5 / 6)), (1.0, 1.0), (1.0, 2.0)
        ]  # fmt: skip
    # evaluation: 4 of 8 were right, 5 of 8 are, by a loop and by halves either way
    measured = {name: numbers["validation after step 2", name] for name in ("pass@1", "pass@2", "strategies_correct")}
    assert [(row["reported"], row["then"], row["now"]) for row in measured.values()] == [
        (0.5, 0.5, 0.625),
        (pytest.approx(1 - 6 / 28), pytest.approx(1 - 6 / 28), pytest.approx(1 - 3 / 28)),
        (2.0, 2.0, 2.0),
    ]
    told = capfd.readouterr().out
    assert "6 differ" in told
    assert "2 wrong -> passed" in told


REWARD = """
calls, stop_at = 0, None
def reward(problem, rollout, verdict):
    global calls
    calls += 1
    if calls == stop_at:
        raise KeyboardInterrupt
    return float(verdict.passed)
"""


@pytest.mark.parametrize("grown", [False, True])
def test_what_an_interrupted_start_scored_is_not_scored_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, grown: bool
) -> None:
    """Ctrl-C comes with the last group of the second step, while its rewards are computed. Where the run has grown
    since, rows come by step: what lies after a new part is scored again, and none is there twice."""
    (tmp_path / "own_reward.py").write_text(REWARD)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_reward", raising=False)
    own = importlib.import_module("own_reward")
    run = write_scored_run(tmp_path, slandered, without_labels, None, "reward.name=own_reward:reward")
    out, whole = tmp_path / "d.jsonl", tmp_path / "whole.jsonl"
    own.calls, own.stop_at = 0, 3 * 4 + 1
    with pytest.raises(KeyboardInterrupt):
        rescore(run, str(out), None, [], workers=1)
    if grown:
        write_beside(Run(run), evaluation_payload(["one"], slandered) | {"step": 1}, step=1)
    own.calls = own.stop_at = 0
    capfd.readouterr()
    rescore(run, str(out), None, [], workers=1)
    assert f"{2 if grown else 3} groups are scored already" in capfd.readouterr().err
    assert own.calls == (8 if grown else 4)
    rescore(run, str(whole), None, [], workers=1)
    assert out.read_bytes() == whole.read_bytes()


def test_problems_that_have_changed_are_told_and_those_of_a_file_take_their_place(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = write_scored_run(tmp_path)
    write_problems(tmp_path / "problems.jsonl", [row_of(name, expected=7) for name in NAMES])
    rescore(run, str(tmp_path / "d.jsonl"), None, SCORER, workers=None)
    assert "The problem set has changed since the run began" in capfd.readouterr().err
    _, numbers = read(tmp_path / "d.jsonl")
    assert (numbers["training", "reward"]["then"], numbers["training", "reward"]["now"]) == (0.5, 0.0)
    mended = write_problems(tmp_path / "mended.jsonl", [row_of(name) for name in NAMES])
    rescore(run, None, mended, SCORER, workers=None)
    told = capfd.readouterr()
    assert "in place of those that the run's config names" in told.err
    assert "none differs" in told.out


def test_a_group_that_nobody_can_score_counts_on_neither_side(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One problem is gone; the tests of another can't be run any more, which the command ends with."""
    run = write_scored_run(tmp_path, slandered)
    gone, kept = (problem.id for problem in build_problem_set(Run(run).config.problems).splits["train"])
    unsound, other = sorted(set(NAMES) - {gone, kept})
    broken = row_of(unsound) | {"tests": {"kind": "check", "source": "def check(candidate):\n    assert (((\n"}}
    path = write_problems(tmp_path / "left.jsonl", [broken, row_of(kept), row_of(other)])
    with pytest.raises(SandboxError, match=rf"The tests of 1 problem \('{unsound}'\) can't be run any more"):
        rescore(run, str(tmp_path / "d.jsonl"), path, SCORER, workers=None)
    groups, numbers = read(tmp_path / "d.jsonl")
    reasons = {group["problem_id"]: group.get("reason", "") for group in groups}
    assert reasons[gone] == "its problem is not in the set any more"
    assert reasons[unsound].startswith("the tests can't be run: ")
    assert reasons[kept] == reasons[other] == ""
    assert {row["groups"] for (of, _), row in numbers.items() if of == "training"} == {2}
    assert (numbers["training", "reward"]["then"], numbers["training", "reward"]["now"]) == (0.25, 0.5)
    measured = numbers["validation after step 2", "pass@1"]
    assert (measured["groups"], measured["then"], measured["now"]) == (1, 0.5, 0.625)
    assert "16 unknown" in capfd.readouterr().out


def test_a_program_that_the_sandbox_failed_on_then_is_no_change(tmp_path: Path) -> None:
    def aside(problem: str, place: int, verdict: Verdict) -> Verdict:
        return Verdict("infra", 0, 0, 0.0, "the tests could not be run") if problem == "one" else verdict

    rescore(write_scored_run(tmp_path, aside), str(tmp_path / "d.jsonl"), None, [], workers=1)
    groups, numbers = read(tmp_path / "d.jsonl")
    assert not any(group["changed"] for group in groups)
    assert all(row["then"] in (None, row["now"]) for row in numbers.values())


def test_an_evaluation_counts_the_strategies_of_what_passed() -> None:
    """Five pass. One left no trace: it joins the largest strategy. The judge calls another one degenerate."""
    loop, built_in = (verdicts(SAMPLES)[place] for place in (0, 3))
    assert loop.evidence is not None
    untraced = replace(loop, evidence=replace(loop.evidence, strategy=""))
    found = (loop, untraced, *verdicts(SAMPLES)[2:])
    labels = Labels(np.array([1, 1, 2, 2, 0, 3, 3, 3], np.int32), np.arange(8) == 4, "judge")
    outcome = GroupOutcomes.of(found, None).outcome(labels.strategies)
    assert built_in.evidence is not None
    one, other = loop.evidence.strategy, built_in.evidence.strategy
    assert outcome == ProblemOutcome(8, (one, one, one, other, other), (JudgedGroup(8, (1, 1, 2, 2)),), (1, 1, 1, 2, 2))
    assert one != other


def reported_row(*groups: Group) -> dict[str, Any]:
    """The row of metrics of a step of these groups."""
    trained = [TrainingGroup(group, np.zeros(len(group.rollouts)), np.zeros(len(group.rollouts))) for group in groups]
    stats = UpdateStats(1, "digest", 0.0, 1.0, False, 1.0, 0, 0, LossStats(), 3e-4)
    return metrics_row(0, trained, stats, Waterfall({"total": 1.0}, {}, {}), [], 0.0, {})


def test_without_evidence_strategies_are_unknown_and_pass_at_k_is_not() -> None:
    known = verdicts(SAMPLES)
    without = tuple(replace(verdict, evidence=None) for verdict in known)
    group = Group(0, 0, "one", (rollout("", 0),) * 8, {"score": without})
    wrong = group.with_findings(score=tuple(verdict for verdict in known if not verdict.passed)[:1] * 8)
    unseen, seen, failed = (GroupOutcomes.of(found or (), None) for found in (group.verdicts, known, wrong.verdicts))
    summary = summarise([unseen.outcome(None), failed.outcome(None)])
    assert summary["strategies_correct"] is None
    assert summary["pass_at_k"] == summarise([seen.outcome(None), failed.outcome(None)])["pass_at_k"]
    assert reported_row(wrong)["strategies_correct"] == 0.0
    assert reported_row(wrong, group)["strategies_correct"] is None


def test_numbers_are_those_that_training_reports() -> None:
    """Its row is made of groups that are not stored yet."""
    for programs in (PROGRAMS, SAMPLES):
        found = verdicts(programs)
        group = Group(0, 0, "one", (rollout("", 0),) * len(found), {"score": found})
        held = GroupThenAndNow(GroupOutcomes.of(found, None), GroupOutcomes.of(found, None), None)
        told = {number.number: number.now for number in training_numbers("step 0", [held], {})}
        row = reported_row(group)
        assert told["strategies_correct"] == row["strategies_correct"]
        assert told["strategies_structural"] == row["strategies_structural"]


def test_a_run_in_remote_storage_is_scored_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYPOLY_CACHE", str(tmp_path / "cache"))
    with s3_server() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        uri = write_scored_run(tmp_path, slandered, without_labels, server.uri("runs/mine", region="us-east-1"))
        written = server.count("PUT")
        rescore(uri, str(tmp_path / "d.jsonl"), None, [], workers=1)
        assert server.count("PUT") == written
    assert read(tmp_path / "d.jsonl")[1]["training", "reward"]["now"] == 0.5


def test_bad_input_is_one_sentence_before_anything_is_run(tmp_path: Path) -> None:
    run = write_scored_run(tmp_path)
    with pytest.raises(UsageError, match="no key of the scorer"):
        rescore(run, None, None, ["train.steps=3"], workers=None)
    with pytest.raises(UsageError, match="is not a run folder"):
        rescore(str(tmp_path), None, None, [], workers=None)
    (tmp_path / "problems.jsonl").unlink()
    with pytest.raises(UsageError, match="or name a file of the run's problems by --problems"):
        rescore(run, None, None, [], workers=None)


def test_attempts_are_scored_again_and_groups_without_any_are_left_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rescore(write_drafted_run(tmp_path), str(tmp_path / "d.jsonl"), None, [], workers=1)
    rows = read_rows(tmp_path / "d.jsonl")
    groups = [row for row in rows if "number" not in row and row["of"].startswith("rollouts/step")]
    assert [(group["slot"], len(group["now"]["statuses"])) for group in groups] == [(0, 4), (1, 4), (0, 4)]
    assert not any(group["changed"] for group in groups)
    assert "28 rollouts of 4 problems in 2 steps and 1 evaluation: none differs" in capfd.readouterr().out


def test_attempts_are_labelled_again(tmp_path: Path) -> None:
    relabel(write_drafted_run(tmp_path, as_scored, as_judged), str(tmp_path / "l.jsonl"), None, [])
    assert [(row["step"], row["slot"], row["now"]) for row in read_rows(tmp_path / "l.jsonl")] == [
        (0, 0, [1, 2, 0, 1]), (0, 1, [1, 2, 0, 1]), (1, 0, [1, 2, 0, 1])
    ]  # fmt: skip


@pytest.mark.parametrize(("environment", "differing"), [("repair", 0), ("single_turn", 18)])
def test_a_test_that_the_environment_showed_decides_nothing(tmp_path: Path, environment: str, differing: int) -> None:
    """The first test of each problem is wrong today. `repair` showed it, so that the second one alone decides."""
    shown = ["environment.public_tests=1"] if environment == "repair" else []
    run = write_scored_run(tmp_path, as_scored, without_labels, None, f"environment.name={environment}", *shown)
    wrong = write_problems(tmp_path / "wrong.jsonl", [row_of(name, expected=7) for name in NAMES])
    rescore(run, str(tmp_path / "d.jsonl"), wrong, [], workers=1)
    assert sum(len(row.get("changed", ())) for row in read_rows(tmp_path / "d.jsonl")) == differing


def test_of_several_scaffolds_the_first_gives_the_numbers_and_blocks_give_those_of_their_blocks(tmp_path: Path) -> None:
    """Of eight samples the first five pass, so both blocks of four begin with one that passes."""
    run = Run(write_drafted_run(tmp_path))
    own, other = (evaluation_table(names, as_scored) for names in (NAMES[:2], NAMES[:2]))
    named = [each.append_column("scaffold", pa.array([name] * each.num_rows)) for each, name in
             ((own, "repair"), (other, "direct"))]  # fmt: skip
    measured = evaluation_payload(NAMES[:2], as_scored) | {"samples": 8, "set_aside": {}}
    several = {"scaffold": "repair", "block": 1, "shown_tests": 1, "scaffolds": [{"scaffold": "direct"}]}
    write_beside(run, measured | {"step": 2} | several, table=pa.concat_tables(named))
    ones = dict.fromkeys(("1", "2", "4", "8"), 1.0)
    blocks = {"scaffold": "tuple", "block": 4, "pass_at_k": ones}
    write_beside(run, measured | {"step": 1} | blocks, table=own, step=1)
    rescore(run.uri, str(tmp_path / "d.jsonl"), None, [], workers=1)
    _, numbers = read(tmp_path / "d.jsonl")
    found = numbers["test after step 2", "pass@1"]
    assert (found["groups"], found["reported"], found["then"], found["now"]) == (2, 0.625, 0.625, 0.625)
    for k in ones:
        found = numbers["test after step 1", f"pass@{k}"]
        assert (found["then"], found["now"]) == (pytest.approx(1.0), pytest.approx(1.0)), k


def test_the_command_ends_with_0_whether_verdicts_differ_or_not_and_with_2_for_a_mistake(
    command: Command, tmp_path: Path
) -> None:
    run = write_scored_run(tmp_path, slandered)
    told = command("score", "--run", run, "--out", "-", "--workers", "1", "scorer.memory_mib=200")
    assert told.returncode == 0
    assert all(json.loads(line) for line in told.stdout.splitlines())
    assert "6 differ" in told.stderr
    for words, said in (
        (("score",), "Give --problems"),
        (("score", "--run", run, "--programs", "c.jsonl"), "--run scores a run's own rollouts"),
        (("judge", "label"), "Give a file of groups, or --run"),
        (("judge", "label", "--run", run, "--show"), "--show goes with a file"),
    ):
        refused = command(*words)
        assert refused.returncode == 2
        assert said in refused.stderr
    labelled = command("judge", "label", "--run", run, "judge.votes=3")
    assert labelled.returncode == 0
    assert "4 have some now" in labelled.stdout
