"""What a confined child does for a program's evidence: `read_source`, `observe` and `warm`.

`observe` runs a program to see which of its constructs do the work, where it can't touch what is seen: under the names,
descriptors and tests of a scored run, behind the guard that keeps a candidate's hands off counters (`guard.py`). A
program that the guard refuses is not observed.
"""

from __future__ import annotations

from typing import Any

from raypoly.strategies.traced_runs import observe as trace
from raypoly.strategies.traced_runs.meter import frame_depth
from raypoly.strategies.traced_runs.observe import Experiment, Question, read_source
from raypoly.strategies.traced_runs.reduce import Reduction
from raypoly.verifier.sandbox.child import budget, frames, guard, plain_data

__all__ = ["observe", "read_source", "warm"]
_WARM = "def f(a):\n t = 0\n for x in sorted(a):\n  if x in a[:2]: t += d(x) | 0\n return t\ndef d(x): return x"


def observe(
    channel: int,
    namespace: dict[str, Any],
    nonce: bytes,
    code: str,
    prelude: str,
    entry_point: str,
    budgeted: bool,
    how: str,
    asked: tuple[Any, ...],
) -> None:
    """Send `("run", Experiment.result())`, `("reduced", Reduction.result())` or `("tamper", why)`, behind the nonce.

    `how`: `run` or `reduced`. `asked`: a `Question`'s fields; or the last arguments of `Reduction`.
    """

    def report(*message: object) -> None:
        frames.send(channel, nonce + plain_data.encode(message))

    compiled = compile(code, budget.FILE, "exec", dont_inherit=True)
    name = guard.check_program(compiled, code, lasting=budgeted)
    if name is not None:
        guard.tampered(report, f"the name {name} can't be used in an observed run")
    experiment: Experiment | Reduction
    if how == "reduced":
        experiment = Reduction(code, entry_point, namespace, *asked)
    else:
        tests, *others = asked
        question = Question(tuple(map(tuple, tests)), *others)
        experiment = Experiment(code, prelude, entry_point, namespace, question, depth=frame_depth())
    # the walls within the process go up last: what is compiled and imported after them would be taken for tampering
    watched = budget.reaches_modules(compiled, namespace) and (how == "run" or budget.sets_attributes(compiled))
    changed = guard.close(report, observed=True, budgeted=budgeted, watched=watched)
    found = experiment.result()
    if (changed is not None and changed()) or (isinstance(experiment, Experiment) and experiment.lost):
        guard.tampered(report, "the program changed a module, or ended the count of its calls")
    report(how, found)


def warm() -> None:
    """Do all of it with programs of our own, so that children find this code's caches filled."""
    trace.warm()
    for _ in range(trace.WARM_ROUNDS):
        found = Reduction(_WARM, "f", {}, [[[3, 1, 2]], [[5, 5, 4, 1]], [[1]]]).result()
        read_source(_WARM, "f", True, found["choices"])
