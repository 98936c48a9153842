"""Workflows of one job that ask a shared judge: each keeps groups in flight, and lets them go in bursts.

    RAY_ADDRESS=... python -m benchmarks.judge_rates.load --workflows 4 --groups 32 --seconds 180 --config '{...}'

Every group is a new one, so nothing is found in the cache. Prints {"answers": ..., "failures": ...} as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import time
from collections.abc import Sequence

import numpy as np
import ray

from actors.judge import JudgeClient
from raypoly.core.config import JudgeConfig
from raypoly.core.values import Evidence, Problem, Rollout, TestSuite, Verdict

ACTOR_OPTIONS = {"num_cpus": 0.01}
_PROGRAMS = 8
_EMPTY = np.zeros(0, np.int32)


def group(name: str) -> tuple[Problem, list[Rollout], list[Verdict]]:
    """Eight programs of three strategies, none of them met before."""
    texts = [f"def f(n):\n    {name}_{i} = 'strategy_{1 + i % 3}'\n    return n\n" for i in range(_PROGRAMS)]
    rollouts = [Rollout(_EMPTY, _EMPTY, _EMPTY.astype(np.float32), text, "stop", 1, 0) for text in texts]
    verdicts = [Verdict("passed", 1, 1, 0.0, "", Evidence(text, (), {}, "")) for text in texts]
    return Problem(name, "Return n.", "f", TestSuite("calls", "[]")), rollouts, verdicts


class Workflow:
    """One run's worth of groups, until the time is over."""

    def __init__(self, name: str, config: JudgeConfig, groups: int, until: float) -> None:
        self._name, self._groups, self._until = name, groups, until
        self._judge = JudgeClient(config, ACTOR_OPTIONS)
        self._asked = 0
        self.answers, self.failures = 0, 0

    async def run(self) -> None:
        """A burst of new groups whenever half of those in flight are done."""
        await self._judge.start()
        flying: set[asyncio.Task[None]] = set()
        while time.monotonic() < self._until:
            if len(flying) <= self._groups // 2:
                flying |= {asyncio.create_task(self._ask()) for _ in range(self._groups - len(flying))}
            left = max(0.0, self._until - time.monotonic())
            _, flying = await asyncio.wait(flying, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        for task in flying:
            task.cancel()

    async def _ask(self) -> None:
        self._asked += 1
        labels = await self._judge.label(*group(f"{self._name}g{self._asked}"))
        expected = [1 + i % 3 for i in range(_PROGRAMS)]
        self.answers, self.failures = self.answers + 1, self.failures + (labels.ids.tolist() != expected)


async def load(name: str, workflows: int, groups: int, seconds: float, config: JudgeConfig) -> Sequence[Workflow]:
    """So many workflows with so many groups in flight each."""
    until = time.monotonic() + seconds
    all_of_them = [Workflow(f"{name}w{number}", config, groups, until) for number in range(workflows)]
    await asyncio.gather(*(workflow.run() for workflow in all_of_them))
    return all_of_them


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="j0")
    parser.add_argument("--workflows", type=int, default=1)
    parser.add_argument("--groups", type=int, default=32, help="in flight, of each workflow")
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--config", required=True, help="a JudgeConfig as JSON")
    options = parser.parse_args()
    config = JudgeConfig.model_validate_json(options.config)
    ray.init(namespace=f"rate-{options.name}-{os.getpid()}", logging_level=logging.ERROR, log_to_driver=False)
    done = asyncio.run(load(options.name, options.workflows, options.groups, options.seconds, config))
    answers, failures = (sum(getattr(each, name) for each in done) for name in ("answers", "failures"))
    print(json.dumps({"answers": answers, "failures": failures}), flush=True)


if __name__ == "__main__":
    main()
