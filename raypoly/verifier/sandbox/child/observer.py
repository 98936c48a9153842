"""Run a program to see which of its constructs do the work, where it can't touch what is seen.

It is run under the names, descriptors and tests of a scored run, behind the guard that keeps a candidate's hands off
counters (`guard.py`). A program that the guard refuses is not observed. The message out, behind the nonce, is what
`Experiment` finds, or `("tamper", why)`.
"""

from __future__ import annotations

from typing import Any

from raypoly.strategies.traced_runs.meter import frame_depth
from raypoly.strategies.traced_runs.observe import Experiment, Question
from raypoly.verifier.sandbox.child import counted_code, frames, guard, plain_data


def serve(
    channel: int,
    namespace: dict[str, Any],
    nonce: bytes,
    code: str,
    prelude: str,
    entry_point: str,
    question: tuple[Any, ...],
) -> None:
    """`question`: arguments of each test, the smallest's place, the largest's, whether tests have budgets, and the
    places of the program's live constructs."""

    def report(*message: object) -> None:
        frames.send(channel, nonce + plain_data.encode(message))

    tests, small, large, budgeted, places = question
    compiled = compile(code, counted_code.FILE, "exec", dont_inherit=True)
    name = guard.check_program(compiled, code, lasting=budgeted)
    if name is not None:
        guard.tampered(report, f"the name {name} can't be used in an observed run")
    asked = Question(tuple(map(tuple, tests)), small, large, places)
    experiment = Experiment(code, prelude, entry_point, namespace, asked, depth=frame_depth())
    watched = counted_code.reaches_modules(compiled, namespace)
    changed = guard.close(report, observed=True, budgeted=budgeted, watched=watched)
    found = experiment.result()
    if (changed is not None and changed()) or experiment.lost:
        guard.tampered(report, "the program changed a module, or ended the count of its calls")
    report("run", found)
