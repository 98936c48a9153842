"""The scorer actor, with one sandbox. `ScorerPool` (`scorer_pool.py`) owns several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ray

from actors.watched import Watched
from raypoly.core.config import ScorerConfig
from raypoly.core.lru_cache import LRUCache
from raypoly.core.values import Problem, TestSuite, Verdict
from raypoly.verifier.sandbox import Sandbox

SUITES = 256
"""The most longer suites kept by hash, in the object store and in each actor."""
SUITE_CHARACTERS = 256 << 20
"""Of their sources in all, at most."""


class Scorer(Watched):
    """Runs chunks of programs of one problem in its sandbox."""

    def __init__(self, limits: ScorerConfig, index: int) -> None:
        self._limits, self._index = limits, index
        self._suites = LRUCache[str, TestSuite](SUITES, SUITE_CHARACTERS)

    def __repr__(self) -> str:
        return f"Scorer({self._index})"

    def setup(self) -> None:
        """Start the sandbox. Raises `IsolationMissing`: the call fails, the actor lives on."""
        self._sandbox = Sandbox(self._limits, self._limits.evidence)

    def score(self, problem: Problem, suite: tuple[str, Any], codes: Sequence[str | None]) -> list[Verdict]:
        """Verdicts in order. `problem` has no tests; `suite` is their hash, and the tests or a reference to them."""
        whole = replace(problem, tests=self._suite(*suite))
        verdicts = []
        for code in codes:
            verdicts.append(self._sandbox.score(whole, code))
            self.beat()
        return verdicts

    def reference_seconds(self, problem: Problem, suite: tuple[str, Any]) -> float | None:
        """CPU seconds of the slowest test of the problem's own solution. Raises `SandboxError`, `BrokenTests`."""
        return self._sandbox.reference_seconds(replace(problem, tests=self._suite(*suite)))

    def _suite(self, content: str, carried: Any) -> TestSuite:
        if isinstance(carried, TestSuite):
            return carried
        if content in self._suites:
            return self._suites[content]
        suite: TestSuite = ray.get(carried)
        return self._suites.put(content, suite, len(suite.source))
