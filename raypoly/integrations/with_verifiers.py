"""verifiers 0.4, and prime-rl through it: a taskset of problems, and its reward for other tasksets.

    [orchestrator.train.source.env.taskset]             # or vf-eval raypoly-verifiers
    id = "raypoly-verifiers"
    problems = "problems.jsonl"

    [orchestrator.train.source.env.taskset.task.rewards]        # another's, whose data has `problem`
    passed = { fn = "raypoly.integrations.with_verifiers.passed" }

An unknown verdict raises: the trace has an error and no reward, and prime-rl trains without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from pydantic import JsonValue

from raypoly.data.formats import read_problems, row_of
from raypoly.integrations.one_response import known_rewards_async


class VerifiersConfig(vf.TasksetConfig):  # type: ignore[misc]
    problems: Path
    """A file, a folder or a pattern."""


class VerifiersData(vf.TaskData):  # type: ignore[misc]
    problem: str | dict[str, JsonValue]
    """A row or an id (`one_response.py`)."""


async def passed(task: Any, trace: Any) -> float:
    """1.0 or 0.0 of the last reply to `task.problem`. Raises `Unknown`."""
    return (await known_rewards_async([(task.problem, trace.last_reply)]))[0]


class VerifiersTask(vf.Task[VerifiersData]):  # type: ignore[misc]
    @vf.reward  # type: ignore[untyped-decorator]
    async def passed(self, trace: Any) -> float:
        return await passed(self.data, trace)


class VerifiersTaskset(vf.Taskset[VerifiersTask, VerifiersConfig]):  # type: ignore[misc]
    def load(self) -> Iterator[VerifiersTask]:
        for problem in read_problems(self.config.problems).problems:
            data = VerifiersData(id=problem.id, prompt=problem.prompt, problem=row_of(problem))
            yield VerifiersTask(data, self.config.task)
