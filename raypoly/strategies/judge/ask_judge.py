"""Ask a judge about many groups, several at a time, and keep their order.

for seen, answer in ask_all(build_judge(config), observed):
    answer.labels                # None where the judge refused, and `answer.reason` says why
    answer.strategies[1]         # "hash table", where the judge has a name for it
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from raypoly.core.errors import JudgeRefused
from raypoly.core.values import Labels
from raypoly.strategies.judge import Judge
from raypoly.strategies.judge.program_groups import ObservedGroup
from raypoly.strategies.judge.silence import in_thread
from raypoly.strategies.judge.structural import StructuralJudge, approach_of, signature

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE = 16
"""Groups under way at a time; the judge itself limits the calls to its server."""
TROUBLE = "the sandbox could not run its programs: "
"""Start of the reason if the sandbox failed and the judge was not asked."""


@dataclass(frozen=True)
class Answer:
    labels: Labels | None
    reason: str = ""
    strategies: Mapping[int, str] = field(default_factory=dict)
    """Their names by id, if the judge gives any."""

    @property
    def ids(self) -> list[int] | None:
        """A strategy id of each program, 0 where degenerate."""
        return None if self.labels is None else list(self.labels.strategies)


def ask_all(judge: Judge, groups: Iterable[ObservedGroup]) -> Iterator[tuple[ObservedGroup, Answer]]:
    """Each group with its answer, in order. Raises `JudgeUnavailable` when the first group without one is due."""
    return map_in_order(lambda seen: ask_judge(judge, seen), groups, AT_ONCE)


def ask_judge(judge: Judge, seen: ObservedGroup) -> Answer:
    """The judge's answer, with its names for strategies. Raises `JudgeUnavailable`."""
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

    under_way: deque[tuple[T, Future[R]]] = deque()
    for item in items:
        under_way.append((item, in_thread(partial(work, item))))
        while under_way and (len(under_way) >= at_once or under_way[0][1].done()):
            first, done = under_way.popleft()
            yield first, done.result()
    for first, done in under_way:
        yield first, done.result()


def _structural_names(seen: ObservedGroup, labels: Labels) -> dict[int, str]:
    # The structural judge's words, by the first program of each strategy.
    names: dict[int, str] = {}
    for strategy, verdict in zip(labels.ids, seen.verdicts, strict=True):
        if strategy and verdict.evidence is not None:
            features = frozenset(verdict.evidence.features)
            name = approach_of(features) if features else ", ".join(sorted(signature(verdict.evidence)))
            names.setdefault(int(strategy), name)
    return names
