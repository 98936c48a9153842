"""Problems in the journal, a chunk in each step, so that expensive results are durable at once.

    outcomes = await Chunks(journal, context).outcomes(first_step, candidates, 64, work, notify)

A group is one problem with its samples, or with its own solution in their place. A completed step's row has the outcome
of each group, so a resumed start reads no rollouts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from actors.calls import CallContext
from actors.generator import Generator
from actors.scorer_pool import ScorerPool
from raypoly.core.errors import UsageError
from raypoly.core.values import Group, Problem, Rollout, Verdict
from raypoly.data.preparing.candidates import Candidate, contents_hash
from raypoly.data.preparing.problem_selection import ChunkOutcome
from raypoly.rollouts.engines import SampleRequest
from raypoly.run.store.rollout_files import BLOCK
from raypoly.run.store.step_records import Applied, Generated, Record, StageFinding
from workflows.durability.journal import Journal
from workflows.liveness.watchdog import STORAGE
from workflows.step.conversations import Conversations, Opening
from workflows.step.stages.built_in import score_group
from workflows.step.training_group import SkippedGroups, skip_reason

_OPEN = 2  # chunks at once: programs of one run while responses of the next are sampled


SeedsOf = Callable[[str], tuple[int, ...]]
"""Of a problem's responses, by its id."""


class Work(Protocol):
    def sample(self, chunk: Sequence[Candidate]) -> AsyncIterator[tuple[int, tuple[Rollout, ...]]]:
        """(slot, rollouts) of every slot, in any order."""
        ...

    async def verdicts(self, group: Group, candidate: Candidate) -> tuple[Verdict, ...]:
        """One a rollout; all `infra` if the tests can't be run."""
        ...


class Solutions:
    """Own solutions in place of samples; their programs are run unchanged."""

    def __init__(self, scorers: ScorerPool, skipped: SkippedGroups) -> None:
        self._scorers, self._skipped = scorers, skipped

    async def sample(self, chunk: Sequence[Candidate]) -> AsyncIterator[tuple[int, tuple[Rollout, ...]]]:
        for slot in range(len(chunk)):
            yield slot, (Rollout.of_text(""),)

    async def verdicts(self, group: Group, candidate: Candidate) -> tuple[Verdict, ...]:
        problem = candidate.problem
        # without its solution it is not calibrated: the limits are those of the config
        alone: Problem = replace(problem, solution="")
        return await self._skipped.verdicts(
            problem, 1, lambda: self._scorers.score(alone, [problem.solution], order=group.step)
        )


class Samples:
    def __init__(
        self,
        generator: Generator,
        scorers: ScorerPool,
        skipped: SkippedGroups,
        seeds: SeedsOf,
        greedy: bool = False,
        conversations: Conversations | None = None,
    ) -> None:
        self._generator, self._scorers, self._skipped, self._seeds = generator, scorers, skipped, seeds
        self._greedy, self._conversations = greedy, conversations
        self._one = asyncio.Lock()  # one submission at a time, whole and in order, so that batches repeat

    async def sample(self, chunk: Sequence[Candidate]) -> AsyncIterator[tuple[int, tuple[Rollout, ...]]]:
        async with self._one:
            tokens = await self._generator.encode([it.problem.prompt for it in chunk])
            requests = [
                SampleRequest(slot, prompt_tokens, self._seeds(it.id), greedy=self._greedy)
                for slot, (it, prompt_tokens) in enumerate(zip(chunk, tokens, strict=True))
            ]
            if self._conversations is None:
                async for group in self._generator.sample(requests):
                    yield group
                return
            pairs = zip(requests, chunk, strict=True)
            openings = [Opening(each, it.problem, each.slot, tuple(range(len(each.seeds)))) for each, it in pairs]
            async for group in self._conversations.sample(openings, {}):
                yield group

    async def verdicts(self, group: Group, candidate: Candidate) -> tuple[Verdict, ...]:
        return await score_group(group, candidate.problem, self._scorers, self._skipped, group.step)


def solution_reason(passes: int | None, detail: str) -> str:
    """Why the problem is left out; empty if its solution passed."""
    if passes is None:
        return f"its tests can't be run: {detail}"
    return "" if passes else f"its own solution does not pass ({detail})"


class OutcomeCount:
    """Programs of finished groups, for progress."""

    def __init__(self) -> None:
        self._done = self._passed = 0

    def __call__(self, outcome: ChunkOutcome) -> None:
        self._done, self._passed = self._done + outcome.size, self._passed + (outcome.passes or 0)

    def so_far(self) -> tuple[int, int]:
        """(done, passed)."""
        return self._done, self._passed


OnOutcome = Callable[[ChunkOutcome], None]
"""Called for each finished group, also of earlier starts."""


class Chunks:
    def __init__(self, journal: Journal, context: CallContext, step_done: Callable[[], None] = lambda: None) -> None:
        self._journal, self._context, self._step_done = journal, context, step_done
        self._indexed_before = 0

    def left(self, first: int, candidates: Sequence[Candidate], size: int) -> int:
        """Problems in unfinished chunks."""
        done = set(self._journal.completed_steps())
        return sum(len(part) for step, part in _parts(first, candidates, size) if step not in done)

    async def outcomes(
        self, first: int, candidates: Sequence[Candidate], size: int, work: Work | None, notify: OnOutcome
    ) -> list[ChunkOutcome]:
        """In order. Chunks have `size` problems, their steps count from `first`. `work`: None if nothing is `left`."""
        at_once = asyncio.Semaphore(_OPEN)
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._chunk(step, part, work, notify, at_once))
                for step, part in _parts(first, candidates, size)
            ]
        return [outcome for task in running for outcome in task.result()]

    async def _chunk(
        self, step: int, chunk: Sequence[Candidate], work: Work | None, notify: OnOutcome, at_once: asyncio.Semaphore
    ) -> list[ChunkOutcome]:
        digest = contents_hash(chunk)
        done = self._journal.applied(step) if step in self._journal.completed_steps() else None
        if done is None:
            assert work is not None
            async with at_once:
                done = await self._run(step, chunk, digest, work, notify)
        else:
            for row in done.metrics["outcomes"]:
                notify(ChunkOutcome(**row))
        if done.digest != digest:
            raise _other_problems(step)
        return [ChunkOutcome(**row) for row in done.metrics["outcomes"]]

    async def _run(self, step: int, chunk: Sequence[Candidate], digest: str, work: Work, notify: OnOutcome) -> Applied:
        known = self._journal.step(step)
        if any(slot >= len(chunk) or group.problem_id != chunk[slot].id for slot, group in known.groups.items()):
            raise _other_problems(step)
        groups: dict[int, asyncio.Task[Group]] = {}
        async with asyncio.TaskGroup() as tasks:
            for slot, group in known.groups.items():
                groups[slot] = tasks.create_task(self._scored(group, chunk[slot], work, notify))
            if len(groups) < len(chunk):
                async for slot, rollouts in work.sample(chunk):
                    if slot not in groups:
                        group = Group(step, slot, chunk[slot].id, rollouts)
                        groups[slot] = tasks.create_task(self._generated(group, chunk[slot], work, notify))
        whole = [groups[slot].result() for slot in sorted(groups)]
        applied = known.applied
        if applied is None:
            applied = Applied(step, digest, {"step": step, "outcomes": [vars(outcome_of(group)) for group in whole]})
            await self._commit(applied)
        with self._context.in_flight.waiting("commit", STORAGE):
            await self._journal.seal_step(step, whole, [_rewards(g) for g in whole], [np.zeros(g.size) for g in whole])
            await self._index_completed()
        self._step_done()
        return applied

    async def _generated(self, group: Group, candidate: Candidate, work: Work, notify: OnOutcome) -> Group:
        await self._commit(Generated(group))
        return await self._scored(group, candidate, work, notify)

    async def _scored(self, group: Group, candidate: Candidate, work: Work, notify: OnOutcome) -> Group:
        if group.verdicts is None:
            verdicts = await work.verdicts(group, candidate)
            group = group.with_findings(score=verdicts)
            await self._commit(StageFinding(group.step, group.slot, "score", verdicts))
        notify(outcome_of(group))
        return group

    async def _commit(self, record: Record) -> None:
        with self._context.in_flight.waiting("commit", STORAGE):
            await self._journal.commit(record)
        self._context.retries.progress()

    async def _index_completed(self) -> None:
        # completed steps without gaps, a block at a time
        done = set(self._journal.completed_steps())
        before = next(step for step in range(len(done) + 1) if step not in done) // BLOCK * BLOCK
        if before > self._indexed_before:
            self._indexed_before = before
            await self._journal.index_before(before)


def outcome_of(group: Group) -> ChunkOutcome:
    verdicts = group.verdicts or ()
    reason = skip_reason(group)
    if reason is not None:
        return ChunkOutcome(group.problem_id, group.size, None, reason)
    failed = next((verdict for verdict in verdicts if not verdict.passed), None)
    detail = f"{failed.status}: {failed.detail}".rstrip(": ") if failed is not None and group.size == 1 else ""
    return ChunkOutcome(group.problem_id, group.size, sum(verdict.passed for verdict in verdicts), detail)


def _other_problems(step: int) -> UsageError:
    return UsageError(
        f"Step {step} of this folder's journal is of other problems: raypoly reads the files otherwise than when it "
        "was begun. Add run.fresh=true for a new folder."
    )


def _rewards(group: Group) -> Any:
    """float64 [N], NaN where it is unknown."""
    verdicts = group.verdicts or ()
    return np.array([np.nan if v.status == "infra" else float(v.passed) for v in verdicts], np.float64)


def _parts(first: int, candidates: Sequence[Candidate], size: int) -> list[tuple[int, Sequence[Candidate]]]:
    """(step, its problems)."""
    places = range(0, len(candidates), size)
    return [(first + number, candidates[place : place + size]) for number, place in enumerate(places)]
