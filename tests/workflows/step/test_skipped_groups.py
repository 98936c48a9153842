"""A problem whose tests can't be run is tried three times and set aside: never a reward, never a gradient."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from raypoly import Run
from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import BrokenTests, IsolationMissing, SandboxError, TooManySetAside
from raypoly.core.values import Group, Problem, Rollout, TestSuite, Verdict
from raypoly.data import build_problem_set
from raypoly.data.formats.raypoly_rows import row_of
from raypoly.data.jsonl import load_jsonl
from tests.support.local_driver import LocalDriver, wait_for
from tests.support.ray_machines import Machines
from workflows.step import training_group
from workflows.step.training_group import TRIES, SkippedGroups, skip_reason

PROBLEM = Problem("p-7", "# broken", "f", TestSuite("calls", "[]"))
ROLLOUT = Rollout(np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.float32), "", "stop", 1, 0)
SOUND = Verdict("wrong", 0, 1, 0.0, "")


CRASHING = "def check(candidate):\n    import os\n    os._exit(3)\n"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_group, "WAIT_SECONDS", 0.0)


class Failing:
    """Scoring that fails so often."""

    def __init__(self, times: int, error: Exception) -> None:
        self.left, self.error, self.asked = times, error, 0

    async def __call__(self) -> Sequence[Verdict]:
        self.asked += 1
        if self.left:
            self.left -= 1
            raise self.error
        return [SOUND, SOUND]


def group(verdicts: Sequence[Verdict]) -> Group:
    return Group(0, 0, PROBLEM.id, (ROLLOUT, ROLLOUT), {"score": tuple(verdicts)})


@pytest.mark.parametrize("error", [BrokenTests("its check raises KeyError"), SandboxError("the zygote is gone")])
async def test_three_failures_set_a_problem_aside_with_its_reason(error: Exception) -> None:
    notes: list[str] = []
    aside, scoring = SkippedGroups(0.02, notes.append), Failing(99, error)
    verdicts = await aside.verdicts(PROBLEM, 2, scoring)
    assert scoring.asked == TRIES
    assert skip_reason(group(verdicts)) == str(error)
    assert notes == [f"Problem p-7 is set aside after 3 tries: {error}"]
    await aside.verdicts(PROBLEM, 2, scoring)
    assert scoring.asked == TRIES, "what is set aside is not tried again by this start"


async def test_a_failure_that_passes_leaves_sound_verdicts() -> None:
    verdicts = await SkippedGroups(0.02, print).verdicts(PROBLEM, 2, Failing(TRIES - 1, SandboxError("once")))
    assert verdicts == (SOUND, SOUND)
    assert skip_reason(group(verdicts)) is None


def test_a_machine_without_isolation_is_no_problems_fault() -> None:
    with pytest.raises(IsolationMissing):
        asyncio.run(SkippedGroups(0.02, print).verdicts(PROBLEM, 2, Failing(1, IsolationMissing("no layer"))))


async def test_too_large_a_share_ends_the_run_with_the_reason_first() -> None:
    aside = SkippedGroups(0.02, lambda note: None)
    await aside.verdicts(PROBLEM, 2, Failing(99, BrokenTests("its check raises KeyError")))
    aside.count(997, 0)
    for _ in range(20):
        aside.count(1, 1)
    with pytest.raises(TooManySetAside, match=r"^its check raises KeyError \(problem p-7\)") as told:
        aside.count(1, 1)
    assert "(same rows, same ids), or raise run.max_set_aside, and give the same command again" in str(told.value)
    assert str(told.value).endswith("problems.exclude leaves such problems out of a new run."), "not of this one"
    with pytest.raises(TooManySetAside, match=r"^it can't be said \(stage mine, problem p-1\): 22 of"):
        aside.count(0, 1, "it can't be said (stage mine, problem p-1)")


def test_a_run_goes_past_a_problem_whose_tests_crash_the_checker_and_counts_it_once_though_killed_after_it(
    machines: Machines, small_run: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    sound = [row_of(problem) for problem in build_problem_set(ProblemsConfig()).splits["train"][:16]]
    config = ProblemsConfig(source="jsonl", path=str(file), validation=4, test=4)
    file.write_text("".join(f"{json.dumps(row)}\n" for row in sound))
    broken = load_jsonl(config).splits["train"][0].id
    rows = [row | {"tests": {"kind": "check", "source": CRASHING}} if row["id"] == broken else row for row in sound]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    epoch = ["train.steps=2", "problems.validation=4", "problems.test=4", "train.checkpoint_every=100"]
    overrides = [*small_run, *epoch, "problems.source=jsonl", f"problems.path={file}"]
    run = LocalDriver(tmp_path / "run", overrides, {"RAY_ADDRESS": machines.address})
    run.start()
    told = f"Problem {broken} is set aside after 3 tries: "
    wait_for(lambda: told in run.log() or not run.lives)
    run.kill()
    assert run.finish() == 0, run.log()
    assert f"The check of problem {broken} ended with exit code 3 before it answered." in run.log().partition(told)[2]
    assert [row["set_aside"] for row in run.rows()].count(1) == 1

    table = next(t for t in map(Run(run.folder).rollouts, range(2)) if broken in t.column("problem_id").to_pylist())
    of_it = [row for row in table.to_pylist() if row["problem_id"] == broken]
    assert {row["status"] for row in of_it} == {"infra"}
    assert all(row["reward"] is None or np.isnan(row["reward"]) for row in of_it), "unknown is never a number"
    assert {row["advantage"] for row in of_it} == {0.0}
