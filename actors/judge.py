"""The judge actor: owns one judge. `JudgeClient` is the driver's side, which replaces an actor that was lost.

A judge behind a rate-limited server sets `shared = True`: then one detached actor, named by the judge's config and the
fingerprint of its keys and prompt, serves all jobs of a cluster, so that its limits are the cluster's; it ends itself
when nobody has asked it for a while. Any other judge has an actor for each run.

In an outage the judge raises `JudgeUnavailable`, and the caller decides how long to wait. Every answer, a failed one
too, brings its usage, so that each run knows its own share of a shared judge.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import ray

from actors.calls import LOST, CallContext, ReplacedActor
from actors.watched import Pulse, Watched, all_stacks, of_run
from raypoly.core.config import JudgeConfig
from raypoly.core.errors import RaypolyError
from raypoly.core.values import Labels, Problem, Rollout, TestSuite, Verdict
from raypoly.strategies.judge import Judge, build_judge, in_engine, is_shared
from raypoly.strategies.judge.fair_queue import FairThreads
from raypoly.strategies.judge.judge_keys import key_variable_names
from raypoly.strategies.judge.judge_usage import QuestionTerms, UsageCounts, asking_for, count_usage

T = TypeVar("T")

_GROUPS_AT_ONCE = 8
# The same of all jobs, or twice `judge.concurrency` where that is more: the judge itself limits its calls.
_SHARED_GROUPS_AT_ONCE = 128
_WAITING = 100_000
NAMESPACE = "raypoly-judges"
_IDLE_SECONDS = 900.0
_RETRY_SECONDS = 0.5
PROBE = "probe"
"""The stage of a call that asks whether the judge is back."""
_SIDE_THREADS = 8  # threads for other calls, so that a probe never waits behind the groups that wait for it
# Keys that the judge itself does not use.
_DRIVERS_OWN = {"when", "max_pause", "probe_seconds", "max_unjudged", "budget_usd", "canary_every", "canary_groups"}

JudgeAnswer = tuple[T | None, RaypolyError | None, UsageCounts]
"""(result, error, usage): one of the first two is None."""


class JudgeActor(Watched):
    """Labels groups, several at once. Its methods are coroutines, so that Ray hands over every call at once, and the
    threads go round the jobs."""

    def __init__(self, config: JudgeConfig, groups_at_once: int, idle_seconds: float | None = None) -> None:
        self._config, self._shared = config, idle_seconds is not None
        self._threads, self._side_threads = FairThreads(groups_at_once), FairThreads(_SIDE_THREADS)
        self._built: Judge | None = None
        self._building, self._lock = threading.Lock(), threading.Lock()
        self._calls, self._last = 0, time.monotonic()
        if idle_seconds is not None:
            threading.Thread(target=self._end_when_idle, args=(idle_seconds,), daemon=True).start()

    def __repr__(self) -> str:
        judge = f"Judge({self._config.name})"
        return judge if self._shared else of_run(judge)  # runs that ask the same judge share its actor

    @property
    def _judge(self) -> Judge:
        # built on first use, so that its errors are a call's and not the actor's death
        with self._building:
            if self._built is None:
                self._built = build_judge(self._config)
            return self._built

    async def setup(self, keys: Mapping[str, str], budget_usd: float | None) -> str:
        """Build the judge; returns how it calls itself. `keys`: environment variables, which come by a call, because an
        actor's runtime environment is shown in the dashboard. Raises `UsageError`."""
        os.environ.update(keys)

        def built() -> str:
            check: Callable[[float | None], None] | None = getattr(self._judge, "check_budget", None)
            if check is not None:
                check(budget_usd)
            return repr(self._judge)

        return await self._serving(self._side_threads, "", built)

    async def label(
        self,
        problem: Problem,
        rollouts: Sequence[Rollout],
        verdicts: Sequence[Verdict],
        asker: str,
        terms: QuestionTerms,
    ) -> JudgeAnswer[Labels]:
        """`asker`: the run that asks. Runs take turns, and each has a budget of its own."""
        work = _count_work(terms, lambda: self._judge.label(problem, rollouts, verdicts))
        return await self._serving(self._threads, asker, work)

    async def grade(
        self,
        problem: Problem,
        rollouts: Sequence[Rollout],
        verdicts: Sequence[Verdict],
        question: str,
        asker: str,
        terms: QuestionTerms,
    ) -> JudgeAnswer[list[float]]:
        judge: Any = self._judge
        work = _count_work(terms, lambda: judge.grade(problem, rollouts, verdicts, question))
        return await self._serving(self._threads, asker, work)

    async def probe(self, asker: str, terms: QuestionTerms) -> JudgeAnswer[None]:
        return await self._serving(self._side_threads, asker, _count_work(terms, lambda: self._judge.probe()))

    async def sleep(self) -> None:
        """Free the GPU until the next question, of a judge in an engine."""
        judge: Any = self._judge
        await self._serving(self._side_threads, "", judge.sleep)

    async def stats(self) -> dict[str, Any]:

        def counts() -> dict[str, Any]:
            count: Callable[[], Any] | None = getattr(self._judge, "stats", None)
            return {} if count is None else asdict(count())

        return await self._serving(self._side_threads, "", counts)

    async def _serving(self, threads: FairThreads, asker: str, work: Callable[[], T]) -> T:
        def work_for_asker() -> T:
            with asking_for(asker):
                return work()

        with self._lock:
            self._calls += 1
        try:
            found: T = await asyncio.wrap_future(threads.submit(asker, work_for_asker))
            return found
        finally:
            with self._lock:
                self._calls -= 1
                self._last = time.monotonic()
            self.beat()

    async def pulse(self) -> Pulse:
        pulse = self._pulse()
        # an engine that counts its steps shows progress within a long answer
        return replace(pulse, beats=pulse.beats + getattr(self._built, "decoded", 0))

    async def stacks(self) -> str:
        return all_stacks()

    def _end_when_idle(self, seconds: float) -> None:
        while True:
            time.sleep(seconds / 4)
            with self._lock:
                idle = not self._calls and time.monotonic() - self._last > seconds
            if idle:
                ray.kill(ray.get_runtime_context().current_actor)


class JudgeClient(ReplacedActor):
    """The client of one judge. Raises `JudgeUnavailable` and `JudgeRefused` as the judge does."""

    def __init__(
        self,
        config: JudgeConfig,
        options: dict[str, Any],
        idle_seconds: float = _IDLE_SECONDS,
        run: str | None = None,
        spent: Callable[[], float] = lambda: 0.0,
        on_use: Callable[[UsageCounts], None] = lambda usage: None,
        context: CallContext | None = None,
        sleeps: bool = False,
    ) -> None:
        """`run`: who asks, the same at each start of a run. `spent`: US dollars so far. `on_use` gets each question's
        usage. `sleeps`: its engine does, but in its turn."""
        super().__init__("judge", context)
        self._config, self._options, self._idle_seconds = config, options, idle_seconds
        self._spent, self._on_use = spent, on_use
        self._shared, self.in_engine, self.sleeps = is_shared(config), in_engine(config), sleeps
        # a shared one may end itself just when it is found, and its name outlives it
        self._retry_seconds = _RETRY_SECONDS if self._shared else 0.0
        self._name = run or uuid.uuid4().hex[:12]

    async def label(
        self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict], fresh: bool = False
    ) -> Labels:
        """Labels of N rollouts. `fresh`: without kept answers."""
        shown = _shown(problem, rollouts, verdicts)
        answer: JudgeAnswer[Labels] = await self._call(
            "judge", lambda actor: actor.label.remote(*shown, self._name, self._terms(fresh))
        )
        labels = self._unwrap(answer)
        assert labels is not None, "an answer without an error has labels"
        return labels

    async def grade(
        self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict], question: str
    ) -> list[float]:
        """Grades of N rollouts by a question, 0 to 1, of a judge that has a method `grade`."""
        shown = _shown(problem, rollouts, verdicts)
        answer: JudgeAnswer[list[float]] = await self._call(
            "grade", lambda actor: actor.grade.remote(*shown, question, self._name, self._terms(False))
        )
        grades = self._unwrap(answer)
        assert grades is not None, "an answer without an error has grades"
        return grades

    async def probe(self) -> None:
        """Return if the judge can be asked again. Raises `JudgeUnavailable`."""
        answer: JudgeAnswer[None] = await self._call(
            PROBE, lambda actor: actor.probe.remote(self._name, self._terms(False))
        )
        self._unwrap(answer)

    async def rest(self) -> None:
        """Let an engine that shares the policy's GPU sleep until the next question."""
        if self.sleeps and self._actor is not None:
            try:
                await self._once("judge", lambda actor: actor.sleep.remote())
            except LOST:
                self.stop()  # its memory is free; the next question finds it gone, and replaces it

    async def _made_ready(self) -> None:
        await self.rest()

    async def stats(self) -> dict[str, Any]:
        if self._actor is None:
            return {}
        stats: dict[str, Any] = await self._call("judge stats", lambda actor: actor.stats.remote())
        return stats

    def stop(self) -> None:
        if not self._shared:
            super().stop()

    def _terms(self, fresh: bool) -> QuestionTerms:
        return QuestionTerms(self._config.budget_usd, self._spent(), fresh)

    def _unwrap(self, answer: JudgeAnswer[T]) -> T | None:
        found, error, usage = answer
        if usage:
            self._on_use(usage)
        if error is not None:
            raise error
        return found

    @property
    def _keys(self) -> Mapping[str, str]:
        return {name: os.environ[name] for name in key_variable_names(self._config) if name in os.environ}

    def _set_up(self) -> Awaitable[Any]:
        answer: Awaitable[Any] = self._actor.setup.remote(self._keys, self._config.budget_usd)
        return answer

    def _launch(self) -> Any:
        if not self._shared:
            options = {"max_concurrency": _WAITING, **self._context.unfit.elsewhere(self._options)}
            groups = self._config.concurrency if self.in_engine else _GROUPS_AT_ONCE
            return ray.remote(JudgeActor).options(name=self._next_name, **options).remote(self._config, groups)
        config = self._config.model_copy(update={name: JudgeConfig.model_fields[name].default for name in _DRIVERS_OWN})
        files = [_content(path) for path in (config.api_key_file, config.prompt_file) if path is not None]
        secret = [*sorted(self._keys.items()), *files]  # an actor reads its files once, and they may have changed since
        identity = hashlib.sha256(f"{config.model_dump_json()} {secret}".encode()).hexdigest()[:20]
        options = {
            **self._context.unfit.elsewhere(self._options),
            "name": f"judge-{identity}",
            "namespace": NAMESPACE,
            "lifetime": "detached",
            "get_if_exists": True,
            "max_concurrency": _WAITING,
        }
        groups = max(_SHARED_GROUPS_AT_ONCE, 2 * config.concurrency)
        return ray.remote(JudgeActor).options(**options).remote(config, groups, self._idle_seconds)


def _shown(
    problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]
) -> tuple[Problem, list[Rollout], list[Verdict]]:
    """What a judge sees: no tokens and no tests travel."""
    bare = replace(problem, tests=TestSuite(problem.tests.kind, ""), public_tests=None, solution="")
    tokens, logprobs = np.zeros(0, np.int32), np.zeros(0, np.float32)
    texts = [replace(each, prompt_tokens=tokens, tokens=tokens, logprobs=logprobs) for each in rollouts]
    return bare, texts, list(verdicts)


def _content(path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError:
        return b""


def _count_work(terms: QuestionTerms, work: Callable[[], T]) -> Callable[[], JudgeAnswer[T]]:
    """`work` with its usage; raypoly's own errors are returned, not raised."""

    def counted() -> JudgeAnswer[T]:
        with count_usage(terms) as usage:
            try:
                return work(), None, dict(usage)
            except RaypolyError as error:
                return None, error, dict(usage)

    return counted
