"""What an objective may know of a program's behaviour and text, as plain values from its verdict.

Nothing is parsed or run here: both come from what the sandbox has written down.
"""

from __future__ import annotations

import hashlib
import json

from raypoly.values import Verdict


def outcome_of(verdict: Verdict) -> str:
    """What a program did: the same text for two programs that no test told apart.

    All that pass have one outcome, as all right answers of a mathematics problem have. Of the others it is how the
    program ended, how many tests it passed, and which test it failed first with what answer or exception. Means the
    same at every step. Of what the clock ended only the kind is kept, since another moment might end it elsewhere.
    """
    if verdict.passed or not verdict.repeatable:
        return verdict.status
    failure = verdict.failure
    seen = [verdict.tests_passed, *((failure.test, failure.got) if failure else ())]
    return f"{verdict.status}-{hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]}"


def statements_of(verdict: Verdict) -> frozenset[str]:
    """The lines of the canonical source, a statement each (a short block stands on its head's line).

    Comments, literal style, dead code and own names play no part; names are letters in order of appearance, so the
    same statement reads otherwise where more names come before it. Empty where the program did not parse.
    """
    if verdict.evidence is None:
        return frozenset()
    return frozenset(line.strip() for line in verdict.evidence.canonical.splitlines() if line.strip())
