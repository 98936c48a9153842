"""A run's stored programs, run again: each group with its facts of today, as rows.

A row has all that the run's numbers and a diff by problem follow from, so that an interrupted command needs no more
than the rows that it wrote.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from raypoly.metrics.group_outcomes import GroupOutcomes
from raypoly.offline.rescore.stored_groups import StoredGroup
from raypoly.problems.formats import program_of
from raypoly.rewards import Reward
from raypoly.scoring.code_extraction import extract_code
from raypoly.scoring.local_pool import LocalPool
from raypoly.scoring.program_queue import BROKEN
from raypoly.values import Problem, Verdict

GONE = "its problem is not in the set any more"

Row = dict[str, Any]


def scored_again(
    pool: LocalPool, problems: Mapping[str, Problem], groups: Iterable[StoredGroup]
) -> Iterator[tuple[StoredGroup, tuple[Verdict, ...] | None]]:
    """Each group with its N verdicts of today, in order; None where its problem is gone. `problems` by id."""
    waiting: deque[StoredGroup] = deque()

    def programs() -> Iterator[tuple[Problem, str | None]]:
        for group in groups:
            waiting.append(group)
            problem = problems.get(group.problem_id)
            if problem is not None:
                for rollout in group.rollouts:
                    code = extract_code(problem, rollout.text)
                    yield problem, None if code is None else program_of(problem, code)

    verdicts: list[Verdict] = []
    for verdict in pool.score(programs()):
        while waiting[0].problem_id not in problems:
            yield waiting.popleft(), None
        verdicts.append(verdict)
        if len(verdicts) == len(waiting[0].rollouts):
            yield waiting.popleft(), tuple(verdicts)
            verdicts = []
    for group in waiting:
        yield group, None


def row_of(group: StoredGroup, verdicts: tuple[Verdict, ...] | None, problem: Problem | None, reward: Reward) -> Row:
    """`{of, slot, problem_id, then, now, labels, changed}`; `now` is null, with a reason, where nobody knows."""
    now = None if verdicts is None or problem is None else _facts(group, verdicts, problem, reward)
    row: Row = {
        "of": group.part.key,
        "slot": group.slot,
        "problem_id": group.problem_id,
        "then": group.then.row,
        "now": None if now is None else now.row,
        "labels": group.labels,
        "changed": [],
    }
    if now is None or verdicts is None:
        return row | {"reason": GONE}
    trouble = next((verdict.detail for verdict in verdicts if verdict.status == "infra"), None)
    if trouble is not None:
        row["reason"] = trouble
    row["changed"] = [
        {
            "rollout": place,
            "then": group.then.statuses[place],
            "now": now.statuses[place],
            "detail": verdicts[place].detail,
            "repeatable": verdicts[place].repeatable,
        }
        for place in group.then.differs(now)
    ]
    return row


def is_trouble(row: Mapping[str, Any]) -> bool:
    """Whether the sandbox failed at a group that it could score once, or the tests can't be run any more."""
    return row.get("reason", GONE) != GONE and "infra" not in row["then"]["statuses"]


def is_broken(row: Mapping[str, Any]) -> bool:
    return bool(row["reason"].startswith(BROKEN))


def _facts(group: StoredGroup, verdicts: tuple[Verdict, ...], problem: Problem, reward: Reward) -> GroupOutcomes:
    rewards = None
    if group.part.training and all(verdict.status != "infra" for verdict in verdicts):
        rewards = [reward(problem, *pair) for pair in zip(group.rollouts, verdicts, strict=True)]
    return GroupOutcomes.of(verdicts, rewards)
