"""What a program is, by syntax and by running it: the evidence that travels with its verdict.

    observe("def f(n): return sum([i for i in range(n)])", "", "f", [3], [50])
    -> {"canonical": "def a(b): ...", "constructs": ["comprehension"], "growth": {"comprehension": 50.0},
        "strategy": "comprehension", "features": ["depth_1"]}

Counting says how much each construct worked and whether that grew with the input. Taking a construct away says whether
its work mattered: a loop that can be left out, or that leaves nothing but constants and copies of the input, did none.
Bounds are counted events and never the clock. Run it only where programs are confined.
"""

from __future__ import annotations

import ast
from typing import Any

from raypoly.strategies.features.algorithm_features import algorithm_features
from raypoly.strategies.live_code.bindings import nodes
from raypoly.strategies.live_code.canonical import canonical
from raypoly.strategies.live_code.constructs import live_constructs
from raypoly.strategies.live_code.folding import fold
from raypoly.strategies.live_code.slicing import slice_to
from raypoly.strategies.traced_runs.instrument import Instrumented, Place, instrument, place_of
from raypoly.strategies.traced_runs.meter import RECURSION, MeteredRun, execute

_FAMILIES = {
    "recursion": ("recursion",),
    "while": ("while",),
    "for": ("for",),
    "reduce": ("reduce",),
    "higher_order": ("map", "filter"),
    "comprehension": ("comprehension", "generator"),
}
"""Strategies and their constructs. Where several did comparable work, the first is the one that drove the rest."""
_FAMILY = {construct: family for family, constructs in _FAMILIES.items() for construct in constructs}
_RECURSION_PLACE: Place = ("recursion", 0, 0)
_COMPARABLE = 0.25
_WARM_ROUNDS = 8  # the interpreter specialises code that ran this often
_MAX_EVENTS = 50_000
_MAX_ABLATED_EVENTS = 10_000
_BASES: tuple[ast.expr, ...] = (ast.Constant(0), ast.Constant(1), ast.Constant(None), ast.List([], ast.Load()))
"""What a recursive call may give when recursion is taken away."""


def observe(
    code: str,
    prelude: str,
    entry_point: str,
    small_args: list[Any] | None,
    large_args: list[Any] | None,
    features: bool = True,
) -> dict[str, Any]:
    """Evidence as plain data: `canonical`, `constructs`, `growth`, `strategy`, `features` (empty unless asked for).

    Without arguments it is told by syntax only.
    `growth` counts live constructs on the large input, where they grew and mattered. `strategy` is one of the
    families, `direct` where none did the work, empty where the program did not run to an end on the large input.
    Raises `SyntaxError` where the code does not parse.
    """
    live = slice_to(fold(ast.parse(code)), entry_point)
    constructs = list(live_constructs(live))
    parts = (node for node in nodes(live) if isinstance(node, (ast.expr, ast.stmt)))
    places = {place for part in parts if (place := place_of(part)) is not None}
    if "recursion" in constructs:
        places.add(_RECURSION_PLACE)
    try:
        text = canonical(code, entry_point).text
    except RecursionError:
        text = ""  # nested too deeply for that: judges see it as it was written
    evidence: dict[str, Any] = {"canonical": text, "constructs": constructs, "growth": {}, "strategy": ""}
    evidence["features"] = list(algorithm_features(code, entry_point)) if features else []
    if small_args is None or large_args is None:
        return evidence
    experiment = _Experiment(code, prelude, entry_point, small_args, large_args)
    counts = experiment.growth(None)
    alive = experiment.growth(places)
    if experiment.large.ended:
        working = experiment.working(counts)
        evidence["strategy"] = _strongest(working or _by_family(alive))
        alive = {name: count for name, count in alive.items() if not working or _FAMILY[name] in working}
    evidence["growth"] = {name: float(alive[name]) for name in sorted(alive)}
    return evidence


def warm() -> None:
    """Observe a few programs of our own, so that children forked afterwards find this code's caches filled."""
    for body in ("sum([i * i for i in range(n)])", "sum(map(abs, range(n)))", "n and f(n - 1)"):
        code = f"def f(n):\n s = 0\n for x in range(n):\n  if x % 2:\n   s += x\n return s + ({body})"
        for _ in range(_WARM_ROUNDS):
            observe(code, "", "f", [2], [20])


def _by_family(counts: dict[str, int]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for construct, count in counts.items():
        totals[_FAMILY[construct]] = totals.get(_FAMILY[construct], 0) + count
    return totals


def _strongest(counts: dict[str, int]) -> str:
    if not counts:
        return "direct"
    enough = max(counts.values()) * _COMPARABLE
    return next(family for family in _FAMILIES if counts.get(family, 0) >= enough)


class _Experiment:
    """One program on a small and a large input, as it is and with constructs taken away."""

    def __init__(self, code: str, prelude: str, entry_point: str, small: list[Any], large: list[Any]) -> None:
        self.code, self.prelude, self.entry_point = code, prelude, entry_point
        self.inputs = (small, large)
        self.program = instrument(code)
        self.small, self.large = (self._run(self.program, args, recursion=True) for args in self.inputs)
        self.idle = {number for number in self.program.loops if self._leaves_nothing(number)}

    def _run(self, program: Instrumented, args: list[Any], **options: Any) -> MeteredRun:
        options.setdefault("limit", _MAX_EVENTS)
        return execute(program, self.prelude, self.entry_point, args, **options)

    def growth(self, places: set[Place] | None) -> dict[str, int]:
        """Counts on the large input of constructs that worked more there than on the small; `places`: at these only."""
        large = self._sum(self.large, places)
        # without a smaller run to compare with, working more than once counts as growth
        alone = self.inputs[0] == self.inputs[1] or not self.small.ended
        small = dict.fromkeys(large, 1) if alone else self._sum(self.small, places)
        return {name: count for name, count in large.items() if count > small.get(name, 0)}

    def _sum(self, run: MeteredRun, places: set[Place] | None) -> dict[str, int]:
        totals: dict[str, int] = {}
        for number, count in run.counts.items():
            place = _RECURSION_PLACE if number == RECURSION else self.program.places[number]
            if places is None or place in places:
                totals[place[0]] = totals.get(place[0], 0) + count
        return totals

    def _leaves_nothing(self, number: int) -> bool:
        """Whether all names that the loop sets end as constants or as copies of the input, on both inputs."""
        ends = (self.small.left.get(number, []), self.large.left.get(number, []))
        if any(len(end) != 1 for end in ends) or not self.small.ended or self.inputs[0] == self.inputs[1]:
            return False
        for name in self.program.loops[number]:
            small, large = (end[0].get(name) for end in ends)
            copied = any(a == small and b == large for a, b in zip(*self.inputs, strict=False))
            near = any(
                type(a) is type(b) is type(small) is type(large) is int
                and a - small == b - large
                and abs(a - small) <= 1
                for a, b in zip(*self.inputs, strict=False)
            )
            if not (small == large or copied or near):
                return False
        return True

    def working(self, counts: dict[str, int]) -> dict[str, int]:
        """Families whose work grew and mattered, with their counts; empty where none stands out."""
        busy = dict(counts)
        for number in self.idle:
            name = self.program.places[number][0]
            busy[name] = busy.get(name, 0) - self.large.counts[number]
        grown = {family: count for family, count in _by_family(busy).items() if count > 0}
        needed = {family: count for family, count in grown.items() if self._matters(family)}
        if len(needed) < 2:
            return needed
        return {family: count for family, count in needed.items() if not self._passes_through(family)} or needed

    def _matters(self, family: str) -> bool:
        if family == "recursion":
            programs = [instrument(self.code, recursion_gives=base) for base in _BASES]
            return all(self._differs(program, frozenset()) for program in programs)
        busy = (i for i, place in enumerate(self.program.places) if _FAMILY[place[0]] == family and i not in self.idle)
        return self._differs(self.program, frozenset(busy))

    def _passes_through(self, family: str) -> bool:
        """Whether a map, filter or comprehension hands on what it gets, so that leaving it out changes nothing."""
        if family not in ("higher_order", "comprehension"):
            return False
        return not self._differs(instrument(self.code, bypass=frozenset(_FAMILIES[family])), frozenset())

    def _differs(self, program: Instrumented, skip: frozenset[int]) -> bool:
        for args, whole in zip(self.inputs, (self.small, self.large), strict=True):
            if whole.events > _MAX_ABLATED_EVENTS:
                continue
            run = self._run(program, args, limit=2 * whole.events + 1000, skip=skip)
            if whole.ended and not _same(run.outcome, whole.outcome):
                return True
        return False


def _same(left: object, right: object) -> bool:
    try:
        return bool(left == right) and repr(left) == repr(right)
    except Exception:  # noqa: BLE001  comparing a program's own objects runs its code
        return False
