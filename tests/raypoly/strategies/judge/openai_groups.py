"""Groups and judges for the tests of the judge behind a socket."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from raypoly.core.config import JudgeConfig
from raypoly.core.errors import JudgeUnavailable
from raypoly.core.values import Evidence, Labels, Problem, Rollout, TestSuite, Verdict
from raypoly.strategies.judge.openai import OpenAIJudge
from tests.support.faulty_server import Server

Group = tuple[Problem, list[Rollout], list[Verdict]]
PROBLEM = Problem("sum-1", "Return the sum of the numbers below n.", "f", TestSuite("calls", "[]"))
EMPTY = np.zeros(0, np.int32)
PARSED = Evidence("", (), {}, "")


def program(strategy: int, name: str = "x") -> str:
    """A program that the server puts into cluster `strategy`; different names make different texts."""
    return f"def f(n):\n    {name} = 'strategy_{strategy}'\n    return n\n"


def rollout(code: str | None) -> Rollout:
    text = "I can't." if code is None else f"Here it is.\n```python\n{code}```\n"
    return Rollout(EMPTY, EMPTY, EMPTY.astype(np.float32), text, "stop", 1, 0)


def group(*programs: str | None) -> Group:
    """A group without canonical forms; None is a response without code."""
    verdicts = [
        Verdict("no_code", 0, 1, 0.0) if code is None else Verdict("passed", 1, 1, 0.0, evidence=PARSED)
        for code in programs
    ]
    return PROBLEM, [rollout(code) for code in programs], verdicts


TWO = group(program(1), program(2), program(1, "y"))
"""Three programs and two strategies: [1, 2, 1]."""


@contextmanager
def judge(server: Server | str, folder: Path, **options: Any) -> Iterator[OpenAIJudge]:
    """A judge of the server, with its cache in `folder` and short waits."""
    url = server if isinstance(server, str) else server.url
    settings = {"timeout": 5.0, "model": "marker", "cache_dir": str(folder), **options}
    made = OpenAIJudge(JudgeConfig(name="openai", base_url=url, **settings), backoff=0.01)
    try:
        yield made
    finally:
        made.close()


def patiently(asked: OpenAIJudge, each: Group) -> Labels:
    """As the workflow does: wait, probe, ask again."""
    while True:
        try:
            return asked.label(*each)
        except JudgeUnavailable:
            time.sleep(0.05)
            with suppress(JudgeUnavailable):
                asked.probe()


def ids(labels: Labels) -> list[int]:
    return [int(found) for found in labels.ids]


def same_partition(left: Sequence[int], right: Sequence[int]) -> bool:
    pairs = set(zip(left, right, strict=True))
    return len(pairs) == len(set(left)) == len(set(right))
