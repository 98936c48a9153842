"""Problems in chunks through a real journal: whatever was found out is never found out again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from actors.calls import CallContext
from raypoly.core.errors import UsageError
from raypoly.core.values import Group, Rollout, Verdict
from raypoly.data.preparing.candidates import Candidate
from raypoly.data.preparing.problem_selection import ChunkOutcome
from raypoly.run.store import acquire_lease, open_store
from tests.support.preparation_rows import candidate
from workflows.durability.journal import Journal
from workflows.prepare.problem_chunks import Chunks

NAMES = [candidate(f"p{number}", f"Say what {number} is.") for number in range(7)]
BROKEN = "p5"


class Stopped(Exception):
    """Stands for the driver's death."""


class Counting:
    """Two samples of every problem, of which the second passes where its number is even; dies at a verdict."""

    def __init__(self, verdicts: int) -> None:
        self.judged: list[str] = []
        self._left = verdicts

    async def sample(self, chunk: Sequence[Candidate]) -> AsyncIterator[tuple[int, tuple[Rollout, ...]]]:
        tokens = np.arange(3, dtype=np.int32)
        for slot, it in enumerate(chunk):
            one = Rollout(tokens, tokens, np.zeros(3, np.float32), it.id, "stop", slot, 0)
            yield slot, (one, one)

    async def verdicts(self, group: Group, candidate: Candidate) -> tuple[Verdict, ...]:
        await asyncio.sleep(0)
        if not self._left:
            raise Stopped
        self._left -= 1
        self.judged.append(candidate.id)
        if candidate.id == BROKEN:
            return tuple(Verdict("infra", 0, 0, 0.0, "no such planet") for _ in group.rollouts)
        passes = int(candidate.id[1:]) % 2 == 0
        return Verdict("wrong", 0, 1, 0.1, "other"), Verdict("passed" if passes else "wrong", int(passes), 1, 0.1)


def start(folder: Path, names: Sequence[Candidate], work: Counting | None) -> list[ChunkOutcome]:
    """One driver's life."""

    async def life() -> list[ChunkOutcome]:
        store = open_store(folder)
        lease = acquire_lease(store)
        journal = Journal(store)
        try:
            return await Chunks(journal, CallContext()).outcomes(0, names, 3, work, lambda outcome: None)
        finally:
            await journal.close()
            lease.release()

    return asyncio.run(life())


def test_stopped_at_any_verdict_it_goes_on_and_judges_nothing_twice(tmp_path: Path) -> None:
    whole = Counting(100)
    expected = start(tmp_path / "whole", NAMES, whole)
    assert [outcome.passes for outcome in expected] == [1, 0, 1, 0, 1, None, 1]
    assert expected[5].detail == "no such planet"
    assert len(whole.judged) == len(NAMES)
    for verdicts in range(len(NAMES)):
        folder, first, second = tmp_path / str(verdicts), Counting(verdicts), Counting(100)
        with pytest.raises(BaseExceptionGroup):
            start(folder, NAMES, first)
        assert start(folder, NAMES, second) == expected
        assert sorted(first.judged + second.judged) == sorted(whole.judged)


def test_what_is_done_needs_nobody_to_do_it(tmp_path: Path) -> None:
    expected = start(tmp_path, NAMES, Counting(100))
    assert start(tmp_path, NAMES, None) == expected


def test_other_problems_than_the_journals_are_refused(tmp_path: Path) -> None:
    start(tmp_path, NAMES, Counting(100))
    other = [candidate("p0", "Say what else it is."), *NAMES[1:]]
    with pytest.raises(BaseExceptionGroup) as caught:
        start(tmp_path, other, None)
    assert caught.group_contains(UsageError, match="journal is of other problems")
