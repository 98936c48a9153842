"""A problem whose tests can't be run is tried three times and set aside: never a reward, never a gradient."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from raypoly.errors import BrokenTests, IsolationMissing, SandboxError, TooManySetAside
from raypoly.values import Group, Problem, Rollout, TestSuite, Verdict
from workflows import failures
from workflows.failures import TRIES, SetAside, set_aside

PROBLEM = Problem("p-7", "# broken", "f", TestSuite("calls", "[]"))
ROLLOUT = Rollout(np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.float32), "", "stop", 1, 0)
SOUND = Verdict("wrong", 0, 1, 0.0, "")


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "WAIT_SECONDS", 0.0)


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
    return Group(0, 0, PROBLEM.id, (ROLLOUT, ROLLOUT), tuple(verdicts))


@pytest.mark.parametrize("error", [BrokenTests("its check raises KeyError"), SandboxError("the zygote is gone")])
def test_three_failures_set_a_problem_aside_with_its_reason(error: Exception) -> None:
    async def main() -> None:
        notes: list[str] = []
        aside, scoring = SetAside(0.02, notes.append), Failing(99, error)
        verdicts = await aside.verdicts(PROBLEM, 2, scoring)
        assert scoring.asked == TRIES
        assert set_aside(group(verdicts)) == str(error)
        assert notes == [f"Problem p-7 is set aside after 3 tries: {error}"]
        await aside.verdicts(PROBLEM, 2, scoring)
        assert scoring.asked == TRIES, "what is set aside is not tried again by this start"

    asyncio.run(main())


def test_a_failure_that_passes_leaves_sound_verdicts() -> None:
    async def main() -> None:
        verdicts = await SetAside(0.02, print).verdicts(PROBLEM, 2, Failing(TRIES - 1, SandboxError("once")))
        assert verdicts == (SOUND, SOUND)
        assert set_aside(group(verdicts)) is None

    asyncio.run(main())


def test_a_machine_without_isolation_is_no_problems_fault() -> None:
    with pytest.raises(IsolationMissing):
        asyncio.run(SetAside(0.02, print).verdicts(PROBLEM, 2, Failing(1, IsolationMissing("no layer"))))


def test_too_large_a_share_ends_the_run_with_the_reason_first() -> None:
    async def main() -> None:
        aside = SetAside(0.02, lambda note: None)
        await aside.verdicts(PROBLEM, 2, Failing(99, BrokenTests("its check raises KeyError")))
        aside.count(997, 0)
        for _ in range(20):
            aside.count(1, 1)
        with pytest.raises(TooManySetAside, match=r"^its check raises KeyError \(problem p-7\).*run.max_set_aside"):
            aside.count(1, 1)

    asyncio.run(main())
