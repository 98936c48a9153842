"""`train.ahead`: the next step is sampled while a step learns, and whatever is lost meanwhile changes no bit of it.

Tokens follow from a seed and the weights that sampled, and the learner's digest from every token: one group by other
weights is seen in all digests after it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray.exceptions import RayActorError

from actors.learner import LearnerActor
from raypoly.core.errors import JudgeUnavailable
from raypoly.core.seeds import derive
from raypoly.core.values import Int32, Rollout
from raypoly.data.problem_order import EpochOrder
from raypoly.learner.update_stats import UpdateStats
from raypoly.rollouts.engines import SampleRequest
from raypoly.run.store.step_records import CompletedStep, Record
from tests.support.timed_run import close_run, timed_problems
from tests.support.timed_services import TimedJudge
from tests.support.virtual_clock import run_virtual
from tests.workflows.step.virtual_run import ROLLOUTS, Recorded, Recorder, Sampler, facts, open_virtual, stop_after
from workflows.startup.open_run import OpenRun
from workflows.train import Training

STEPS = 3
AHEAD = ("train.ahead=1", "loss.importance_cap=2", "train.checkpoint_every=2")
COMMITS = STEPS * (4 + 4 + 1 + 1)
"""Of a run: each step's groups, their verdicts, the update, and the file of its rollouts."""


class ByWeights(Sampler):
    """Tokens are those of a seed and of the weights that it has."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.version, self.digest, self.longer = -1, "", 0.0

    async def update_weights(self, deliver: Any) -> None:
        await super().update_weights(deliver)
        self.version = self.learner.version
        self.digest = await self.learner.ask("update", LearnerActor.digest)

    async def sample(self, requests: Sequence[SampleRequest], feed: Any = None) -> AsyncIterator[Any]:
        await asyncio.sleep(self.longer)
        async for each in super().sample(requests, feed):
            yield each

    def _sampled(self, request: SampleRequest) -> tuple[Rollout, ...]:
        return tuple(
            replace(it, tokens=tokens_by(self.digest, it.seed), weight_version=self.version)
            for it in super()._sampled(request)
        )


def tokens_by(digest: str, seed: int) -> Int32:
    hashed = hashlib.sha256(f"{digest} {seed}".encode()).digest()
    return np.frombuffer(hashed[:8], np.uint32).astype(np.int32) % 99_991


def opening(
    folder: Path, *overrides: str, learning: type[Recorded] = Recorded, steps: int = STEPS
) -> Awaitable[OpenRun]:
    given = [*AHEAD, f"train.steps={steps}", *overrides]
    return open_virtual(folder, (), given, shared=False, learning=learning, sampling=ByWeights)


async def go_on(opened: Awaitable[OpenRun], commits: int | None = None) -> OpenRun:
    """Go on to the run's end, or until so many commits are made: then nothing more is."""
    run = await opened
    stop_after(run.durability.journal, commits, seals=True)
    try:
        run.restore()
        await Training(run).run()
    finally:
        await close_run(run)
    return run


def finished(opened: Awaitable[OpenRun]) -> OpenRun:
    return run_virtual(go_on(opened))


def steps_of(opened: OpenRun) -> list[CompletedStep]:
    journal = opened.durability.journal
    return [journal.load_step(step) for step in journal.completed_steps()]


def digests(opened: OpenRun) -> list[str]:
    return [step.applied.digest for step in steps_of(opened)]


def versions(opened: OpenRun) -> list[list[int]]:
    """Of the weights that sampled each step."""
    return [sorted({it.weight_version for group in step.groups for it in group.rollouts}) for step in steps_of(opened)]


def in_turn(steps: int, ahead: int) -> list[str]:
    """The digests of a plain loop that samples a step with the weights of `ahead` updates before, and then learns."""
    order, found = EpochOrder(timed_problems(32), 4, 0), [""]
    for step in range(steps):
        rows, sampler = hashlib.sha256(found[step].encode()), found[max(0, step - ahead)]
        for slot, problem in enumerate(order.batch(step)):
            for place in range(ROLLOUTS):
                seed = derive(0, "sample", step, slot, problem.id, 0, place)
                prompt = np.array([int(problem.id[1:])], np.int32)
                rows.update(prompt.tobytes() + tokens_by(sampler, seed).tobytes())
                rows.update(repr((-0.5 if place % 2 else 0.5, None)).encode())
        found.append(rows.hexdigest())
    return found[1:]


def check_like(got: OpenRun, want: OpenRun) -> None:
    """The same bits: each (problem, step) trained once, and nothing left in the journal."""
    assert digests(got) == digests(want)
    assert versions(got) == versions(want)
    for one, other in zip(steps_of(got), steps_of(want), strict=True):
        assert facts(one.groups) == facts(other.groups)
        assert [each.tolist() for each in one.advantages] == [each.tolist() for each in other.advantages]
    assert got.durability.store.list("journal/") == ()


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_run_gives_what_a_plain_loop_gives_that_does_one_thing_after_the_other(tmp_path: Path, ahead: int) -> None:
    opened = finished(opening(tmp_path, f"train.ahead={ahead}", steps=4))
    assert digests(opened) == in_turn(4, ahead)
    assert versions(opened) == [[max(0, step - ahead)] for step in range(4)]
    rows = [step.applied.metrics for step in steps_of(opened)]
    asked = [(row["staleness"], row["stale_tokens"]) for row in rows] if ahead else []
    assert asked == ([(0.0, 0.0), (1.0, 1.0), (1.0, 1.0), (1.0, 1.0)] if ahead else [])
    assert ahead or not {"staleness", "stale_tokens"} & rows[0].keys()
    assert len(opened.services.generator.submitted) == 4, "the last step has nothing to sample ahead"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("keys", "kills"),
    [
        ((), range(COMMITS)),
        (("problems.order=pass_rate",), range(2, COMMITS, 5)),
        (("objective.name=reinforce_plus_plus",), range(7, COMMITS, 9)),
        (("scaffold.name=tests.workflows.step.test_scaffold_rounds:TwoRounds",), range(3, COMMITS, 9)),
        (("environment.name=tests.workflows.step.test_conversations:Asking",), range(20, 120, 33)),
    ],
    ids=["plain", "by pass rate", "over the batch", "rounds", "turns"],
)
def test_a_run_that_is_killed_after_any_commit_ends_with_the_same_bits(
    tmp_path: Path, keys: tuple[str, ...], kills: range
) -> None:
    undisturbed = finished(opening(tmp_path / "undisturbed", *keys))
    assert versions(undisturbed) == [[0], [0], [1]]
    for commits in kills:
        folder = tmp_path / str(commits)
        with pytest.raises(BaseExceptionGroup):
            run_virtual(go_on(opening(folder, *keys), commits))
        check_like(finished(opening(folder, *keys)), undisturbed)


def test_a_run_that_is_killed_after_each_few_commits_again_ends_with_the_same_bits(tmp_path: Path) -> None:
    undisturbed = finished(opening(tmp_path / "undisturbed", steps=5))
    for _ in range(5 * 10 // 3):
        with pytest.raises(BaseExceptionGroup):
            run_virtual(go_on(opening(tmp_path / "hit", steps=5), 3))
    check_like(finished(opening(tmp_path / "hit", steps=5)), undisturbed)


def test_while_anything_is_sampled_the_learner_has_the_weights_that_sample(tmp_path: Path) -> None:
    """So a lost engine gets them again; the learner's gradients are there meanwhile."""
    seen: list[tuple[int, str, int]] = []

    async def work() -> None:
        opened = await opening(tmp_path)
        sampler: Any = opened.services.generator
        sampler.at_work = lambda: seen.append((sampler.version, sampler.digest, sampler.learner.version))
        learner, told, sampler.longer = sampler.learner, list[int](), 30.0
        run = asyncio.create_task(go_on(_opened(opened)))
        while not run.done():
            await asyncio.sleep(0.25)
            told.append(len(learner.recorder.told))
        run.result()
        assert {4, 4 + 5}.issubset(told), "a step's groups were all taken, and its update waited"

    run_virtual(work())
    assert [(sampled, learner) for sampled, _, learner in seen] == [(0, 0), (0, 0), (1, 1)]
    assert seen[2][1] == in_turn(1, 1)[0]


class InFlight(ByWeights):
    """Its second token is by the weights that it has when it is done."""

    async def sample(self, requests: Sequence[SampleRequest], feed: Any = None) -> AsyncIterator[Any]:
        version, digest = self.version, self.digest
        await asyncio.sleep(self.longer)
        async for slot, rollouts in super(ByWeights, self).sample(requests, feed):
            yield slot, tuple(self._switched(it, version, digest) for it in rollouts)

    def _switched(self, rollout: Rollout, version: int, digest: str) -> Rollout:
        first, newer = tokens_by(digest, rollout.seed)[:1], rollout.tokens[1:]
        at = 1 if self.version > version else None
        return replace(rollout, tokens=np.concatenate([first, newer]), weight_version=version, newer_from=at)


IN_FLIGHT = "train.ahead_mode=in_flight"


async def sampled_for_long(folder: Path, commits: int | None = None) -> OpenRun:
    opened = await open_virtual(folder, (), [*AHEAD, IN_FLIGHT, "train.steps=4"], shared=False, sampling=InFlight)
    opened.services.generator.longer = 30.0  # type: ignore[attr-defined]
    return await go_on(_opened(opened), commits)


def test_in_flight_weights_change_in_the_middle_and_rows_say_where(tmp_path: Path) -> None:
    done = run_virtual(sampled_for_long(tmp_path))
    switched = [{it.newer_from for group in step.groups for it in group.rollouts} for step in steps_of(done)]
    assert versions(done) == [[0], [0], [1], [2]]
    assert switched == [{None}, {1}, {1}, {1}]
    rows = [step.applied.metrics for step in steps_of(done)]
    assert [(row["staleness"], row["stale_tokens"]) for row in rows] == [(0.0, 0.0), (1.0, 0.5), (1.0, 0.5), (1.0, 0.5)]
    for row in rows:
        assert sum(row["exposed"].values()) == pytest.approx(row["seconds"]["total"], abs=1e-3)


def test_in_flight_each_step_is_trained_once_wherever_a_run_is_killed(tmp_path: Path) -> None:
    order = EpochOrder(timed_problems(32), 4, 0)
    for commits in range(0, 4 * 10, 3):
        folder = tmp_path / str(commits)
        with pytest.raises(BaseExceptionGroup):
            run_virtual(sampled_for_long(folder, commits))
        done = run_virtual(sampled_for_long(folder))  # replays what was trained, to the same digests
        for number, step in enumerate(steps_of(done)):
            assert [group.problem_id for group in step.groups] == [problem.id for problem in order.batch(number)]
            assert {it.weight_version for group in step.groups for it in group.rollouts} <= {number - 1, number}
        assert done.durability.journal.completed_steps() == (0, 1, 2, 3)
        assert done.durability.store.list("journal/") == ()


async def _opened(opened: OpenRun) -> OpenRun:
    return opened


class Dying(Recorder):
    """Lost at its second update."""

    async def apply(self) -> UpdateStats:
        if self.told.count("apply") == 1:
            raise RayActorError
        return await super().apply()


class Losing(Recorded):
    lost = 0

    def made(self) -> Recorder:
        self.lost += 1
        return Dying() if self.lost == 1 else Recorder()

    def stop(self) -> None:
        """Its actor is in this process."""


def test_a_learner_that_is_lost_while_the_next_step_is_sampled_comes_back_to_the_same_weights(tmp_path: Path) -> None:
    hit = finished(opening(tmp_path / "hit", learning=Losing))
    assert hit.services.learner.lost == 2  # type: ignore[attr-defined]
    assert digests(hit) == in_turn(STEPS, 1)


class Kinds(list[str]):
    """What was committed, in order: `0 score` of step 0, ..."""

    def of(self, opened: OpenRun) -> OpenRun:
        journal = opened.durability.journal
        commit = journal.commit

        async def noted(record: Record) -> None:
            await commit(record)
            self.append(f"{record.step} {record.kind}")

        journal.commit = noted  # type: ignore[method-assign]
        return opened


class Slow(Recorder):
    """Learns for as long as a step is sampled, scored and judged."""

    async def apply(self) -> UpdateStats:
        await asyncio.sleep(10.0)
        return await super().apply()


class Slowly(Recorded):
    def made(self) -> Recorder:
        return Slow()


class Away(TimedJudge):
    """Answers from the 8th second on."""

    async def label(self, *asked: Any) -> Any:
        await self.probe()
        return await super().label(*asked)

    async def probe(self) -> None:
        if asyncio.get_running_loop().time() < 8.0:
            raise JudgeUnavailable("away")


POLY = ("objective.name=poly_epo", "objective.set_size=2", "judge.probe_seconds=1")


def test_scoring_and_judging_go_on_ahead_and_a_pause_of_the_judge_changes_nothing(tmp_path: Path) -> None:
    kinds = Kinds()

    async def work(folder: Path, judge: Any) -> OpenRun:
        opened = kinds.of(await opening(folder, *POLY, learning=Slowly))
        opened.services.judge = judge
        return await go_on(_opened(opened))

    undisturbed = run_virtual(work(tmp_path / "undisturbed", TimedJudge()))
    assert kinds.count("1 judge") == kinds.count("1 score") == 4
    assert kinds.index("1 judge") < kinds.index("0 applied"), "what the next step's groups need is found meanwhile"
    kinds.clear()
    hit = run_virtual(work(tmp_path / "hit", Away()))
    check_like(hit, undisturbed)
    assert kinds.index("1 generated") < kinds.index("0 judge"), "sampling goes on in the pause"


def test_what_asks_the_learner_waits_for_its_own_step(tmp_path: Path) -> None:
    keys = ("objective.name=upskill", "objective.skills=2")
    opened = finished(opening(tmp_path, *keys, learning=Slowly))
    recorder = opened.services.learner.recorder  # type: ignore[attr-defined]
    parts = "".join("x" if each == "cross" else "|" if each == "apply" else "" for each in recorder.told)
    assert parts == "xxxx|" * STEPS


def test_what_was_sampled_ahead_of_a_plateau_is_dropped_and_told(tmp_path: Path) -> None:
    stop = ("train.stop.measure=reward", "train.stop.window=1")
    opened = finished(opening(tmp_path / "run", *stop, steps=50))
    assert opened.durability.journal.completed_steps() == (0, 1)
    said = (tmp_path / "run" / "progress.txt").read_text()
    assert "at a plateau (train.stop). Groups that were sampled ahead and are not trained on: 4." in said
    again = finished(opening(tmp_path / "run", *stop, steps=50))
    assert again.services.generator.submitted == []  # type: ignore[attr-defined]
    more = finished(opening(tmp_path / "run", steps=4))
    assert digests(more) == in_turn(4, 1), "a run that goes on takes them"


def test_a_step_s_row_has_the_seconds_of_its_turn(tmp_path: Path) -> None:
    """Sampling takes 1 s, the learner 10 s: no second of a turn is counted twice, and none is left out."""
    rows = [step.applied.metrics for step in steps_of(finished(opening(tmp_path, learning=Slowly)))]
    for row in rows:
        assert sum(row["exposed"].values()) == pytest.approx(row["seconds"]["total"], abs=1e-3)
        assert row["seconds"]["generate"] == pytest.approx(1.0), "its own, of the turn before too"
    assert [row["seconds"]["total"] for row in rows[1:]] == pytest.approx([12.0, 11.0], abs=0.1)
    assert [row["exposed"]["generate"] for row in rows] == pytest.approx([2.0, 1.0, 0.0]), "the next step's, too"
    assert [row["exposed"]["score"] for row in rows[1:]] == [0.0, 0.0], "it hid behind the learner, a step ahead"
