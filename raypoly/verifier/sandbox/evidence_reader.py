"""Interface of what reads a scored program's evidence. A sandbox works without; no wall depends on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from raypoly.core.values import Evidence, Problem
from raypoly.verifier.sandbox.prepared_suite import Case


class EvidenceReader(Protocol):
    """Asks two confined children about a program that parses. The first reads source, the second runs the program.

    `raypoly.strategies.evidence.StrategyEvidence` is the one of a run.
    """

    @property
    def packages(self) -> Sequence[str]:
        """Packages of raypoly that the children's module may import from: standard library alone."""
        ...

    @property
    def child_module(self) -> str:
        """Module that answers in a child.

        It has `read_source(*question)`, `observe(channel, namespace, nonce, *question)`, which works behind `guard.py`,
        and `warm()`, called once before children are forked.
        """
        ...

    @property
    def seconds(self) -> float:
        """CPU seconds for the child that runs the program."""
        ...

    def source_question(self, problem: Problem, code: str) -> tuple[Any, ...]:
        """Arguments of `read_source`."""
        ...

    def run_question(self, problem: Problem, code: str, cases: Sequence[Case], source: Any) -> tuple[Any, ...] | None:
        """Arguments of `observe`; None if the program is not to be run. `source`: the first child's answer."""
        ...

    def read(self, source: Any, run: Any, ran: bool) -> Evidence:
        """The children's answers, which may be anything, as `Evidence`. `ran`: the program was to be run."""
        ...
