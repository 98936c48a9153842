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
import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from raypoly.strategies.features.algorithm_features import DEGENERATE_KINDS, features_of
from raypoly.strategies.live_code.bindings import nodes
from raypoly.strategies.live_code.constructs import live_constructs, may_call
from raypoly.strategies.live_code.live_program import canonical_text, live_program
from raypoly.strategies.traced_runs.instrument import Instrumented, Place, instrument, place_of
from raypoly.strategies.traced_runs.meter import RECURSION, Meter, MeteredRun
from raypoly.strategies.traced_runs.sites import without
from raypoly.verifier.sandbox.child import candidate, plain_data
from raypoly.verifier.sandbox.child import object_values as object_values

# strategies and their constructs. Where several did comparable work, the first is the one that drove the rest.
_FAMILIES = {
    "recursion": ("recursion",),
    "while": ("while",),
    "for": ("for",),
    "reduce": ("reduce",),
    "higher_order": ("map", "filter"),
    "comprehension": ("comprehension", "generator"),
}
_FAMILY = {construct: family for family, constructs in _FAMILIES.items() for construct in constructs}
_BYPASSED = frozenset({"higher_order", "comprehension"})
_RECURSION_PLACE: Place = ("recursion", 0, 0)
_COMPARABLE = 0.25
WARM_ROUNDS = 8  # the interpreter specialises code that ran this often
_MAX_EVENTS = 50_000
_MAX_ABLATED_EVENTS = 10_000
# what a recursive call may give when recursion is taken away
_BASES: tuple[ast.expr, ...] = (ast.Constant(0), ast.Constant(1), ast.Constant(None), ast.List([], ast.Load()))


_NOTHING_SAID: dict[str, Any] = {"canonical": "", "constructs": [], "strategy": "", "features": [], "places": []}


@dataclass(frozen=True)
class Question:
    """What is asked about a program whose tests are plain calls."""

    tests: tuple[tuple[Any, ...], ...]
    """Arguments, in the order in which a scored run takes them."""
    small: int
    """The place of the smallest test."""
    large: int
    places: Sequence[Place]
    """Where the program's live constructs stand, by `read_source`."""


def read_source(
    code: str, entry_point: str, features: bool = True, choices: Sequence[tuple[int, int, Any]] = ()
) -> dict[str, Any]:
    """`canonical`, `constructs` and `features` (empty unless asked for): what the source says by itself.

    `strategy` is the family of the live constructs if they are all of one, `direct` if there are none, else empty.
    `places`: where the live constructs stand. `choices`: what is left out (`Reduction.result`). Nothing of the program
    is run. Raises `SyntaxError` where the code does not parse.
    """
    try:
        if choices:
            code = without(code, {number: (way, value) for number, way, value in choices})
        live = live_program(code, entry_point)
        text = canonical_text(live)
    except RecursionError:  # nested too deeply: judges see it as it was written
        return _NOTHING_SAID
    known = list(features_of(live)) if features else []
    constructs = list(live_constructs(live.tree))
    if choices and known[:1] and known[0] in DEGENERATE_KINDS:  # its answers need nothing of it: that says nothing
        return _NOTHING_SAID | {"canonical": text}
    families = {_FAMILY[name] for name in constructs if name in _FAMILY} or {"direct"}
    return {
        "canonical": text,
        "constructs": constructs,
        "strategy": families.pop() if len(families) == 1 else "",
        "features": known,
        "places": list(_live_places(live.tree)),
    }


def _live_places(tree: ast.Module) -> set[Place]:
    # where constructs stand in a live part; recursion, if there is any, at a place of its own
    parts = (node for node in nodes(tree) if isinstance(node, (ast.expr, ast.stmt)))
    found = {place for part in parts if (place := place_of(part)) is not None}
    return found | ({_RECURSION_PLACE} if "recursion" in live_constructs(tree) else set())


def observe(
    code: str, prelude: str, entry_point: str, small_args: list[Any] | None, large_args: list[Any] | None
) -> dict[str, Any]:
    """Evidence as plain data, for programs that are trusted: tests and `warm` call it.

    Without arguments it is told by syntax only. `growth` counts live constructs on the large input, where they grew and
    mattered. `strategy` is one of the families, `direct` where none did the work, empty where the program did not run
    to an end on the large input. Raises `SyntaxError` where the code does not parse.
    """
    evidence = read_source(code, entry_point, features=True)
    if small_args is None or large_args is None:
        return evidence | {"growth": {}, "strategy": ""}
    namespace: dict[str, Any] = {"__name__": "__candidate__", "__builtins__": builtins}
    exec(compile(prelude, "<prelude>", "exec"), namespace)
    question = Question((tuple(small_args), tuple(large_args)), 0, 1, evidence["places"])
    experiment = Experiment(code, prelude, entry_point, namespace, question)
    return evidence | experiment.result()


def warm() -> None:
    """Observe a few programs of our own."""
    for body in ("sum([i * i for i in range(n)])", "sum(map(abs, range(n)))", "n and f(n - 1)"):
        code = f"def f(n):\n s = 0\n for x in range(n):\n  if x % 2:\n   s += x\n return s + ({body})"
        for _ in range(WARM_ROUNDS):
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


class Experiment:
    """One program on its tests, as it is and with constructs taken away.

    Everything is compiled when it is made, and nothing afterwards: between the two a child can close itself
    (`guard.py`). Each run has a namespace of its own, and all of them live on, so that no finalizer runs in between.
    """

    def __init__(
        self, code: str, prelude: str, entry_point: str, namespace: dict[str, Any], question: Question, depth: int = 0
    ) -> None:
        """`namespace`: where the prelude has run. `depth`: see `Meter`. Raises `SyntaxError`."""
        self._question, self._entry_point, self._namespace = question, entry_point, namespace
        self._inputs = [plain_data.encode(args) for args in question.tests]
        self._program = instrument(code)
        self._meter = Meter(depth)
        self._meter.recursion = self._program.may_recur or may_call(prelude)
        families = {_FAMILY[place[0]] for place in self._program.places}
        self._whole = self._prepared(self._program)
        self._skipping = {family: self._prepared(self._program) for family in families}
        self._without_recursion = [
            self._prepared(instrument(code, recursion_gives=base)) for base in _BASES if self._meter.recursion
        ]
        self._bypassing = {
            family: self._prepared(instrument(code, bypass=frozenset(_FAMILIES[family])))
            for family in families & _BYPASSED
        }
        self._live = set(question.places)

    def _prepared(self, program: Instrumented) -> tuple[FunctionType, dict[str, Any]]:
        namespace = dict(self._namespace)
        namespace.pop(candidate.class_of(self._entry_point), None)
        return FunctionType(program.code, namespace), namespace

    @property
    def lost(self) -> bool:
        """Whether the program has switched a count off, so that `result` says nothing."""
        return self._meter.lost

    def result(self) -> dict[str, Any]:
        """`growth` and `strategy`. Runs the program."""
        with self._meter:
            self._small, self._large = self._run(self._whole, (_MAX_EVENTS, _MAX_EVENTS))
            self._idle = {number for number in self._program.loops if self._leaves_nothing(number)}
            alive = self._growth(self._live)
            strategy = ""
            if self._large.ended:
                working = self._working(self._growth(None))
                strategy = _strongest(working or _by_family(alive))
                alive = {name: count for name, count in alive.items() if not working or _FAMILY[name] in working}
        return {"growth": {name: float(alive[name]) for name in sorted(alive)}, "strategy": strategy}

    def _run(
        self, prepared: tuple[FunctionType, dict[str, Any]], limits: tuple[int, int], skip: frozenset[int] = frozenset()
    ) -> tuple[MeteredRun, MeteredRun]:
        # the runs of the small and the large test, after those before them, in one process as when scored
        module, namespace = prepared
        meter, question = self._meter, self._question
        meter.limit, meter.skip = max(limits), skip
        loading = meter.call(module, (), MeteredRun())
        if loading.ended:
            given = self._namespace.get(candidate.bare_name(self._entry_point))
            loading = meter.call(candidate.entry, (namespace, self._entry_point, given), loading)
        function = meter.returned
        if not loading.ended:
            return loading, loading
        runs: dict[int, MeteredRun] = {}
        for place in range(max(question.small, question.large) + 1):
            meter.limit = (
                limits[0] if place == question.small else limits[1] if place == question.large else max(limits)
            )
            args = plain_data.decode(self._inputs[place], object_values.maker(namespace))
            runs[place] = meter.call(function, args, loading, below=1)
        return runs[question.small], runs[question.large]

    def _growth(self, places: set[Place] | None) -> dict[str, int]:
        # counts on the large input of constructs that worked more there than on the small; `places`: at these only
        large = self._sum(self._large, places)
        # without a smaller run to compare with, working more than once counts as growth
        small = dict.fromkeys(large, 1) if self._alone or not self._small.ended else self._sum(self._small, places)
        return {name: count for name, count in large.items() if count > small.get(name, 0)}

    @property
    def _alone(self) -> bool:
        # whether there is no second input
        return self._inputs[self._question.small] == self._inputs[self._question.large]

    def _sum(self, run: MeteredRun, places: set[Place] | None) -> dict[str, int]:
        totals: dict[str, int] = {}
        for number, count in run.counts.items():
            place = _RECURSION_PLACE if number == RECURSION else self._program.places[number]
            if places is None or place in places:
                totals[place[0]] = totals.get(place[0], 0) + count
        return totals

    def _leaves_nothing(self, number: int) -> bool:
        # whether all names that the loop sets end as constants or as copies of the input, on both inputs
        ends = (self._small.left.get(number, []), self._large.left.get(number, []))
        if any(len(end) != 1 for end in ends) or not self._small.ended or self._alone:
            return False
        question = self._question
        inputs = list(zip(question.tests[question.small], question.tests[question.large], strict=False))
        for name in self._program.loops[number]:
            small, large = (end[0].get(name) for end in ends)
            copied = any(a == small and b == large for a, b in inputs)
            near = any(
                type(a) is type(b) is type(small) is type(large) is int
                and a - small == b - large
                and abs(a - small) <= 1
                for a, b in inputs
            )
            if not (small == large or copied or near):
                return False
        return True

    def _working(self, counts: dict[str, int]) -> dict[str, int]:
        # families whose work grew and mattered, with their counts; empty where none stands out
        busy = dict(counts)
        for number in self._idle:
            name = self._program.places[number][0]
            busy[name] = busy.get(name, 0) - self._large.counts[number]
        grown = {family: count for family, count in _by_family(busy).items() if count > 0}
        needed = {family: count for family, count in grown.items() if self._matters(family)}
        if len(needed) < 2:
            return needed
        return {family: count for family, count in needed.items() if not self._passes_through(family)} or needed

    def _matters(self, family: str) -> bool:
        if family == "recursion":
            return all(self._differs(prepared) for prepared in self._without_recursion)
        places = enumerate(self._program.places)
        busy = (number for number, place in places if _FAMILY[place[0]] == family and number not in self._idle)
        return self._differs(self._skipping[family], frozenset(busy))

    def _passes_through(self, family: str) -> bool:
        # whether a map, filter or comprehension hands on what it gets, so that leaving it out changes nothing
        return family in self._bypassing and not self._differs(self._bypassing[family])

    def _differs(self, prepared: tuple[FunctionType, dict[str, Any]], skip: frozenset[int] = frozenset()) -> bool:
        wholes = (self._small, self._large)
        runs = self._run(prepared, (2 * self._small.events + 1000, 2 * self._large.events + 1000), skip)
        compared = [
            (run, whole) for run, whole in zip(runs, wholes, strict=True) if whole.events <= _MAX_ABLATED_EVENTS
        ]
        return any(whole.ended and run.outcome != whole.outcome for run, whole in compared)
