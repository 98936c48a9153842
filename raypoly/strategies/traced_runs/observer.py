"""What a confined child does for a program's evidence: `read_source`, `observe`, `observe_scored` and `warm`.

    read_source("def f(n): return sum([i for i in range(n)])", "f")
    -> {"canonical": "def a(b): ...", "constructs": ["comprehension"], "strategy": "comprehension",
        "features": ["depth_1"]}

`observe` runs a program to see what its answers and its work need, where it can't touch what is seen: under the names,
descriptors and tests of a scored run, behind the guard that keeps a candidate's hands off counters (`guard.py`). A
program that the guard refuses is not observed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from raypoly.strategies.features.algorithm_features import DEGENERATE_KINDS, features_of
from raypoly.strategies.live_code.constructs import live_constructs
from raypoly.strategies.live_code.live_program import canonical_text, live_program, without_prose
from raypoly.strategies.traced_runs.mutated_inputs import Inputs, inputs_of
from raypoly.strategies.traced_runs.reduce import FAMILIES, Reduction, frame_depth
from raypoly.strategies.traced_runs.sites import FILE, without
from raypoly.verifier.sandbox.child import budget, frames, guard, plain_data

__all__ = ["observe", "read_source", "warm"]
_FAMILY = {construct: family for family, constructs in FAMILIES.items() for construct in constructs}
_NOTHING_SAID: dict[str, Any] = {"canonical": "", "constructs": [], "strategy": "", "features": []}
_WARM = "def f(a):\n t = 0\n for x in sorted(a):\n  if x in a[:2]: t += d(x) | 0\n return t\ndef d(x): return x"
_WARM_ROUNDS = 8  # the interpreter specialises code that ran this often


def read_source(
    code: str, entry_point: str, features: bool = True, choices: Sequence[tuple[int, int, Any]] = ()
) -> dict[str, Any]:
    """`canonical`, `constructs` and `features` (empty unless asked for): what the source says by itself.

    `strategy` is the family of the live constructs if they are all of one, `direct` if there are none, else empty.
    `choices`: what is left out (`Reduction.result`). Nothing of the program is run. Raises `SyntaxError` where the code
    does not parse.
    """
    try:
        remains = without(code, {number: (way, value) for number, way, value in choices}) if choices else code
        live = live_program(remains, entry_point)
        text = without_prose(canonical_text(live))
    except RecursionError:  # nested too deeply: judges see it as it was written
        return _NOTHING_SAID
    known = list(features_of(live)) if features else []
    constructs = list(live_constructs(live.tree))
    if choices and known[:1] and known[0] in DEGENERATE_KINDS:
        # a program whose answers need nothing of it says nothing, unless it says so itself
        whole = read_source(code, entry_point)
        said = not DEGENERATE_KINDS.isdisjoint(whole["features"])
        return whole if said else _NOTHING_SAID | {"canonical": text}
    families = {_FAMILY[name] for name in constructs if name in _FAMILY} or {"direct"}
    return {
        "canonical": text,
        "constructs": constructs,
        "strategy": families.pop() if len(families) == 1 else "",
        "features": known,
    }


def observe(
    channel: int,
    namespace: dict[str, Any],
    nonce: bytes,
    code: str,
    entry_point: str,
    budgeted: bool,
    inputs: Inputs,
    keywords: list[str],
    passed: bool,
    by_construct: bool,
) -> None:
    """Send `("reduced", Reduction.result())` or `("tamper", why)`, behind the nonce."""

    def report(*message: object) -> None:
        frames.send(channel, nonce + plain_data.encode(message))

    compiled = compile(code, FILE, "exec", dont_inherit=True)
    name = guard.check_program(compiled, code, lasting=budgeted)
    if name is not None:
        guard.tampered(report, f"the name {name} can't be used in an observed run")
    reduction = Reduction(code, entry_point, namespace, inputs, keywords, passed, frame_depth(), by_construct)
    # the walls within the process go up last: what is compiled and imported after them would be taken for tampering
    watched = budget.reaches_modules(compiled, namespace) and budget.sets_attributes(compiled)
    changed = guard.close(report, observed=True, budgeted=budgeted, watched=watched)
    found = reduction.result()
    if changed is not None and changed():
        guard.tampered(report, "the program changed a module")
    report("reduced", found)


def observe_scored(
    report: Callable[..., None], namespace: dict[str, Any], code: str, entry_point: str, budgeted: bool, *question: Any
) -> None:
    """The same in the process of a program's tests, where the walls are up. `namespace`: as the prelude left it."""
    with guard.observing():
        compiled = compile(code, FILE, "exec", dont_inherit=True)
        name = guard.check_program(compiled, code, lasting=budgeted)
        if name is not None:
            guard.tampered(report, f"the name {name} can't be used in an observed run")
        inputs, keywords, passed, by_construct = question
        depth = frame_depth() - 1
        reduction = Reduction(code, entry_point, namespace, inputs, keywords, passed, depth, by_construct)
    report("reduced", reduction.result())


def warm() -> None:
    """Do all of it with programs of our own, so that children find this code's caches filled."""
    inputs = inputs_of([[[3, 1, 2]], [[5, 5, 4, 1]], [[1]]])
    for _ in range(_WARM_ROUNDS):
        found = Reduction(_WARM, "f", {}, inputs).result()
        read_source(_WARM, "f", True, found["choices"])
