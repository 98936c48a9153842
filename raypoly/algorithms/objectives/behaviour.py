"""A program's behaviour and text as plain values from its verdict, for objectives. Nothing is parsed or run here."""

from __future__ import annotations

import hashlib
import json

from raypoly.core.values import Verdict


def outcome_of(verdict: Verdict) -> str:
    """A text that is equal for two programs that no test told apart.

    All passing programs have one outcome. For others it is the status, the number of passed tests, and the first failed
    test with its answer or exception. It is comparable over steps. A timeout by the clock is only its status, since
    another run might end elsewhere.
    """
    if verdict.passed or not verdict.repeatable:
        return verdict.status
    failure = verdict.failure
    seen = [verdict.tests_passed, *((failure.test, failure.got) if failure else ())]
    return f"{verdict.status}-{hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]}"


def behaviour_of(verdict: Verdict) -> str | None:
    """`outcome_of` a program. None where there is none, and where its behaviour is not known: after a timeout by the
    clock, or a fault of the sandbox."""
    known = verdict.repeatable and verdict.status not in ("no_code", "infra")
    return outcome_of(verdict) if known else None


def statements_of(verdict: Verdict) -> frozenset[str]:
    """The lines of the canonical source, a statement each (a short block is on its head's line).

    Comments, literal style, dead code and own names do not count. Names are letters in order of appearance, so the
    same statement differs if more names come before it. Empty if the program does not parse.
    """
    if verdict.evidence is None:
        return frozenset()
    return frozenset(line.strip() for line in verdict.evidence.canonical.splitlines() if line.strip())
