"""Ask a judge about many groups, several at a time, and keep their order.

    for seen, answer in ask_all(build(config), observed):
        answer.labels                # None where the judge refused, and `answer.reason` says why
        answer.strategies[1]         # "hash table", where the judge has a name for it

Threads are daemons: an interrupted command ends at once, however long a server takes to answer.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from raypoly.commands.offline.command_output import NOTES
from raypoly.commands.offline.command_progress import track
from raypoly.commands.offline.judge.program_groups import ObservedGroup
from raypoly.core.errors import JudgeRefused, JudgeUnavailable
from raypoly.core.values import Labels
from raypoly.strategies.judge import Judge
from raypoly.strategies.judge.structural import StructuralJudge, approach_of, signature

T = TypeVar("T")
R = TypeVar("R")

_AT_ONCE = 16
"""Groups a judge is asked about at the same time; the judge itself limits the calls to its server."""
TROUBLE = "the sandbox could not run its programs: "
"""Start of the reason if the sandbox failed and the judge was not asked."""


@dataclass(frozen=True)
class Answer:
    """A judge's answer about one group."""

    labels: Labels | None
    reason: str = ""
    """Why there are no labels."""
    strategies: Mapping[int, str] = field(default_factory=dict)
    """The strategies' names by id, if the judge gives names."""

    @property
    def ids(self) -> list[int] | None:
        """A strategy id of each program, 0 where degenerate."""
        return None if self.labels is None else list(self.labels.strategies)


def ask_all(judge: Judge, groups: Iterable[ObservedGroup]) -> Iterator[tuple[ObservedGroup, Answer]]:
    """Each group with its answer, in order. Raises `JudgeUnavailable` when the first group without one is due."""
    return map_in_order(lambda seen: ask_judge(judge, seen), groups, _AT_ONCE)


def ask_with_progress(
    judge: Judge, groups: Iterable[ObservedGroup], total: int, resumes: bool, quiet: bool = False
) -> Iterator[tuple[ObservedGroup, Answer]]:
    """As `ask_all`, with progress unless `quiet`. In an outage the error says how to go on (`resumes`: rows stay)."""
    answers = ask_all(judge, groups)
    try:
        yield from answers if quiet else track(answers, total, "groups", NOTES)
    except JudgeUnavailable as error:
        kept = "the rows so far are kept, and the same command goes on" if resumes else "give it again"
        raise JudgeUnavailable(f"The judge is away: {str(error).rstrip('.')}; {kept}.") from error


def ask_judge(judge: Judge, seen: ObservedGroup) -> Answer:
    """A judge's answer about one group, with its names for strategies. Raises `JudgeUnavailable`."""
    if seen.trouble:
        return Answer(None, TROUBLE + seen.trouble)
    ask_clusters: Callable[..., Any] | None = getattr(judge, "clusters", None)
    try:
        if ask_clusters is None:
            labels = judge.label(seen.group.problem, seen.rollouts, seen.verdicts)
            strategies = _structural_names(seen, labels) if isinstance(judge, StructuralJudge) else {}
        else:
            clusters = ask_clusters(seen.group.problem, seen.rollouts, seen.verdicts)
            labels, strategies = clusters.labels, clusters.strategies
    except JudgeRefused as error:
        return Answer(None, str(error))
    if not labels.known:
        return Answer(None, f"{labels.judge} left a program without a strategy.")
    return Answer(labels, strategies=dict(strategies))


def describe_spending(judge: Judge) -> str:
    """Calls, tokens and money of a judge, in one line; empty if it counts none."""
    count: Callable[[], Any] | None = getattr(judge, "stats", None)
    if count is None:
        return ""
    stats = count()
    tokens = f"{stats.prompt_tokens + stats.completion_tokens:,} tokens"
    money = "cost unknown" if stats.cost_usd is None else f"{stats.cost_usd:.4f} US dollars"
    return f"{stats.calls:,} calls, {stats.cache_hits:,} answers from the cache, {tokens}, {money}"


def map_in_order(work: Callable[[T], R], items: Iterable[T], at_once: int) -> Iterator[tuple[T, R]]:
    """Each item with `work` of it, in order; up to `at_once` at a time, each in a thread. Raises what `work` raises."""
    tasks: queue.SimpleQueue[tuple[Future[R], T] | None] = queue.SimpleQueue()

    def serve() -> None:
        while (task := tasks.get()) is not None:
            future, item = task
            try:
                future.set_result(work(item))
            except BaseException as error:  # noqa: BLE001 - whoever waits for the future gets it
                future.set_exception(error)

    for _ in range(at_once):
        threading.Thread(target=serve, name="judging", daemon=True).start()
    under_way: deque[tuple[T, Future[R]]] = deque()
    try:
        for item in items:
            future: Future[R] = Future()
            under_way.append((item, future))
            tasks.put((future, item))
            while under_way and (len(under_way) >= at_once or under_way[0][1].done()):
                first, done = under_way.popleft()
                yield first, done.result()
        for first, done in under_way:
            yield first, done.result()
    finally:
        for _ in range(at_once):
            tasks.put(None)


def _structural_names(seen: ObservedGroup, labels: Labels) -> dict[int, str]:
    """The structural judge's own words, by the first program of each strategy."""
    names: dict[int, str] = {}
    for strategy, verdict in zip(labels.ids, seen.verdicts, strict=True):
        if strategy and verdict.evidence is not None:
            features = frozenset(verdict.evidence.features)
            name = approach_of(features) if features else ", ".join(sorted(signature(verdict.evidence)))
            names.setdefault(int(strategy), name)
    return names
