"""What remains of a program when all is left out that changes neither its answers nor how its work grows.

The oracle is the program itself: results and arguments afterwards on its tests, on inputs near to them and on larger
ones, before all trials and after. Sites are reduced one after another, the heaviest first: a coat that hides another
falls too. A run that fails decides nothing. Bounds are counted events, never the clock.
"""

from __future__ import annotations

import builtins
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, count
from sys import _getframe
from types import FunctionType
from typing import Any

from raypoly.strategies.traced_runs.mutated_inputs import Inputs
from raypoly.strategies.traced_runs.sites import switched
from raypoly.verifier.sandbox.child import candidate, object_values, plain_data

_BUILTINS, _seed = vars(builtins), random.seed
_getrecursionlimit, _setrecursionlimit = sys.getrecursionlimit, sys.setrecursionlimit
_MOST_WORK, _MOST_LARGE_WORK, _MOST_LARGEST_WORK = 3_000, 8_000, 20_000
"""Of one input, of a large one, and of the largest test."""
_MOST_WORK_A_TRIAL, _FEWEST_RUNS = 16_000, 8
_MOST_WORK_IN_ALL, _MOST_TRIALS = 600_000, 400
_LOAD_WORK = 50_000
_MOST_BITS, _MOST_BYTES = 1 << 14, 1 << 18  # of a number, and of a result
_RECORDED, _KEPT = 16, 16  # inputs on which blocks are counted, and values of a function that are kept
# a reduced run may take so much more: a sum in another order, a call more
_SLOWER, _SLACK = 1.15, 12
# a later way to reduce a site is better only by so much: of `list(zip(...))` and `zip(...)` neither is
_LESS = 0.8
# strategies and their constructs; where several did comparable work, the first is the one that drove the rest
FAMILIES = {
    "recursion": ("recursion",),
    "while": ("while",),
    "for": ("for",),
    "reduce": ("reduce",),
    "higher_order": ("map", "filter"),
    "comprehension": ("comprehension", "generator"),
}
_COMPARABLE, _FEEDER = 0.4, 8
_CYCLE = 16  # frames from a function's call to its next
_NOTHING_KNOWN: dict[str, Any] = {"choices": [], "known": False, "growth": {}, "strategy": ""}
_PLAIN = frozenset({int, bool, float, str, type(None)})
_SIZED = (list, str, tuple, dict, set, frozenset, bytes, range)
_QUICK = (dict, set, frozenset, range)


class _Enough(BaseException):
    """The program did more than it may."""


class _OutOfWork(Exception):
    """No trials are left."""


@dataclass
class _Run:
    outcome: bytes
    work: int


class Reduction:
    """One program with its inputs. All is compiled when it is made, and nothing afterwards."""

    def __init__(
        self,
        code: str,
        entry_point: str,
        namespace: dict[str, Any],
        inputs: Inputs,
        keywords: Sequence[str] = (),
        passed: bool = True,
        depth: int = 0,
        rounds: bool = True,
    ) -> None:
        """`namespace`: where the prelude has run. `inputs`: of `inputs_of`. `keywords`: names of the last
        arguments. `passed`: else statements stay, since what a bug makes useless is still its idea. `depth`: Python
        frames below a scored run's calls, so that as many are left; 0 leaves the limit of recursion as it is. `rounds`:
        `result` counts them. Raises `SyntaxError`.
        """
        self._entry_point, self._namespace, self._keywords = entry_point, namespace, keywords
        self._passed, self._counts_rounds = passed, rounds
        self._program = switched(code)
        self._depth, self._extra = depth, 0
        self._inputs, self._tests, self._largest, self._large = inputs
        self._own = dict(namespace)  # with the builtins that have our names, which a function takes when it is made
        self._module = FunctionType(self._program.code, self._own)
        self._state = [0] * len(self._program.sites)
        self._values: dict[int, list[Any]] = {}
        self._picked: dict[int, int] = {}
        self._first: dict[int, bool] = {}
        self._records = "blocks"  # or "rounds", or nothing
        self._counts = [count() for _ in range(self._program.ticks)]
        self._rounds: dict[str, count[int]] = {}
        self._rounds_of: dict[int, dict[str, int]] = {}
        """By input."""
        self._left: Any = iter(range(0))
        self._limit = self._spent = self._trials = 0
        self._ticks: list[Any] = [None] * self._program.ticks

    def result(self) -> dict[str, Any]:
        """`choices`: `[site, way, value]` each; `known`: whether the oracle holds, and trials sufficed; `growth` and
        `strategy`: see `work_by_construct`, of what remains, on its smallest and its largest test.
        """
        _BUILTINS.update(self._names())
        try:
            return self._reduced()
        finally:
            for name in self._names():
                _BUILTINS.pop(name, None)

    def _reduced(self) -> dict[str, Any]:
        first = self._all_runs()
        self._records = ""  # counts and values are those of the first inputs
        if first is None:
            return _NOTHING_KNOWN
        # of a wrong program that most tests end, the others show little
        if not self._passed and 2 * sum(run is not None for run in first[: self._tests]) < self._tests:
            return _NOTHING_KNOWN
        first = self._affordable(first)
        self._base, self._work, known = first, list(map(next, self._counts)), True
        try:
            for _ in range(2):
                if not self._pass():
                    break
        except _OutOfWork:
            known = False
        # once more as it is: one whose answers vary, or that counts its runs, has no oracle
        self._state[:], found = [0] * len(self._state), list(self._state)
        self._records = "rounds" if self._counts_rounds and not any(found) else ""
        last = self._all_runs(first)
        self._state[:] = found
        if last is None:
            return _NOTHING_KNOWN
        choices = [[number, way, self._stand_in(number)] for number, way in enumerate(self._state) if way]
        return {"choices": choices, "known": known, **self._work_by_construct(first)}

    def _work_by_construct(self, first: list[_Run | None]) -> dict[str, Any]:
        texts = [len(repr(plain_data.unpack(test))) for test in self._inputs[: self._tests]]
        sizes = {place: (texts[place], run.work) for place, run in enumerate(first[: self._tests]) if run is not None}
        base = [run if place in sizes else None for place, run in enumerate(self._base)]
        self._records = "rounds"
        if not self._counts_rounds or not sizes or not (self._rounds_of or self._all_runs(base)):
            return {"growth": {}, "strategy": ""}
        small, large = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
        less = self._rounds_of[small] if small != large else {}
        found = {name: count for name, count in self._rounds_of[large].items() if count > less.get(name, 1)}
        # one whose largest test is too large to observe is not known by smaller ones
        ended = all(place in sizes for place, size in enumerate(texts) if size == max(texts))
        return {"growth": {name: float(found[name]) for name in sorted(found)}, "strategy": strongest(found) * ended}

    def _affordable(self, runs: list[_Run | None]) -> list[_Run | None]:
        """Runs of large inputs and the cheapest others, None for the rest."""
        kept, left = set[int](), _MOST_WORK_A_TRIAL
        works = {place: run.work for place, run in enumerate(runs) if run is not None}
        for place in sorted(works, key=lambda place: (place not in self._large, works[place])):
            if left >= 0 or len(kept) < _FEWEST_RUNS:
                kept.add(place)
                left -= works[place]
        return [run if place in kept else None for place, run in enumerate(runs)]

    def _pass(self) -> bool:
        """One try of every site. Returns whether one was reduced."""
        sites, found = self._program.sites, False
        groups = [n for n, site in enumerate(sites) if site.kind == "calls" and n in self._values]
        for together in (self._untaken(), {number: 1 for number in groups if not self._state[number]}):
            found = bool(together and self._tried(together)) or found
        for number in self._order():
            if not self._state[number] and not self._within_reduced(number):
                found = self._tried(*({number: way} for way in self._ways(number))) or found
        return found

    def _ways(self, number: int) -> list[int]:
        site = self._program.sites[number]
        once = site.kind != "loop" or self._work[site.arms[0]] == self._work[site.arms[1]]
        ways = [way for way in range(1, site.ways + 1) if way != 2 or once]
        return [way for way in ways if not site.parts or not any(self._state[part] for part in site.parts[way - 1])]

    def _tried(self, *reductions: dict[int, int]) -> bool:
        """Reduce in the first way that changes nothing else, or one that leaves much less work."""
        before, best = list(self._state), None
        for reduction in reductions:
            self._state[:] = [reduction.get(number, way) for number, way in enumerate(before)]
            runs = self._runs_alike()
            if runs is None:
                continue
            work = sum(run.work for run in runs if run is not None)
            if best is None or work < _LESS * best[0]:
                best = work, list(self._state), runs
        self._state[:] = before
        if best is not None:
            _, self._state[:], self._base = best
        return best is not None

    def _untaken(self) -> dict[int, int]:
        found = {}
        for number, site in enumerate(self._program.sites):
            if site.kind == "branch" and not self._state[number] and self._work[site.block]:
                true, false = (self._work[arm] for arm in site.arms)
                if (not true or not false) and not site.both:
                    found[number] = 2 if not true else 1
        return found

    def _order(self) -> list[int]:
        sites = self._program.sites
        groups = [n for n, site in enumerate(sites) if site.kind == "calls" and n in self._values]
        rest = [n for n, site in enumerate(sites) if site.kind != "calls" and self._work[site.block]]
        if not self._passed:
            rest = [n for n in rest if sites[n].kind in ("value", "decorator") and not sites[n].counts]
        heavy = [n for n in rest if sites[n].kind != "value" or self._weight(n)]
        light = [n for n in rest if n not in heavy]
        return [
            *sorted(groups, key=self._weight, reverse=True),
            *sorted(heavy, key=self._weight, reverse=True),
            *sorted(light, key=lambda n: sites[n].common),
        ]

    def _weight(self, number: int) -> int:
        sites = self._program.sites
        parts = [number, *sites[number].calls]
        return sum(sum(self._work[sites[part].first : sites[part].last]) for part in parts)

    def _within_reduced(self, number: int) -> bool:
        """Whether it is in what does not run any more."""
        sites = self._program.sites
        return any(
            way and sites[other].kind != "branch" and number in sites[other].sites
            for other, way in enumerate(self._state)
        )

    def _runs_alike(self) -> list[_Run | None] | None:
        """All runs, if they are as before; None if one is not."""
        self._trials += 1
        if self._spent > _MOST_WORK_IN_ALL or self._trials > _MOST_TRIALS:
            raise _OutOfWork
        self._picked.clear()
        return self._all_runs(self._base)

    def _all_runs(self, base: list[_Run | None] | None = None) -> list[_Run | None] | None:
        """A run an input, None for a failure; None as soon as one is not as in `base`, or nothing runs."""
        self._own.clear()
        self._own.update(self._namespace)
        self._own.pop(candidate.class_of(self._entry_point), None)
        _seed(0)
        make = object_values.maker(self._own)
        self._begin(_LOAD_WORK)
        self._leave_depth(0)
        try:
            self._module()
            given = self._namespace.get(candidate.bare_name(self._entry_point))
            function = candidate.entry(self._own, self._entry_point, given)
        except BaseException:  # noqa: BLE001 - the program may raise anything
            return None
        self._leave_depth(1)
        runs: list[_Run | None] = []
        for place, data in enumerate(self._inputs):
            if self._records and place == (self._tests if self._records == "rounds" else _RECORDED):
                self._records = ""
                self._leave_depth(1)
            whole = None if base is None else base[place]
            if base is not None and whole is None:
                runs.append(None)
                continue
            most = _MOST_LARGE_WORK if place in self._large else _MOST_WORK
            most = _MOST_LARGEST_WORK if place == self._largest else most
            allowed = most if whole is None else int(whole.work * _SLOWER) + _SLACK
            args = plain_data.unpack(data, make)
            self._begin(allowed if whole is None or place in self._large else 2 * allowed)
            run = None
            try:
                by_place = len(args) - len(self._keywords)
                result = function(*args[:by_place], **dict(zip(self._keywords, args[by_place:], strict=True)))
                done = self._done()
                if done < self._limit:
                    run = _Run(_bytes_of((result, *args)), done)
            except BaseException:  # noqa: BLE001
                run = None
            self._spent += self._done()
            if self._records == "rounds":
                rounds = {name: next(number) for name, number in self._rounds.items()}
                self._rounds_of[place] = {name: number for name, number in rounds.items() if number}
            if whole is not None and (run is None or run.outcome != whole.outcome):
                return None
            runs.append(run)
        return runs if any(runs) else None

    def _leave_depth(self, below: int) -> None:
        # `below`: frames between a call and loading, in a scored run
        if self._depth:
            # a tick takes a call of C (which 3.12 and later don't count), or two to count recursion
            calls = 2 if self._records == "rounds" else sys.version_info < (3, 12)
            extra = frame_depth() - 1 - self._depth - below + calls
            _setrecursionlimit(_getrecursionlimit() + extra - self._extra)
            self._extra = extra

    def _begin(self, limit: int) -> None:
        # counted in C: most of the time would go into it
        self._limit, self._left = limit, iter(b"1" * limit)
        self._ticks[:] = [self._left.__next__] * len(self._ticks)
        if self._records == "blocks":
            self._ticks[:] = [zip(number, self._left, strict=False).__next__ for number in self._counts]
        elif self._records == "rounds":
            constructs = self._program.constructs
            self._rounds = {name: count() for name in {*constructs.values(), "recursion"} - {"function"}}
            for place, name in constructs.items():
                number = self._rounds.get(name)
                self._ticks[place] = zip(number, self._left, strict=False).__next__ if number else self._entered

    def _done(self) -> int:
        return int(self._limit - self._left.__length_hint__())

    def _stand_in(self, number: int) -> Any:
        values = self._values.get(number, [None])
        return values[0] if type(values[0]) in _PLAIN else None

    def _names(self) -> dict[str, Any]:
        return {
            "@s": self._state,
            "@t": self._ticks,
            "@z": self._sized,
            "@each": self._each,
            "@big": self._bounded,
            "@pow": self._power,
            "@shift": self._shifted,
            "@in": self._searched,
            "@got": self._got,
            "@pick": self._pick,
            "@once": self._once,
            "@same": lambda function: function,
        }

    def _entered(self) -> bool:
        frame = _getframe(1)
        code, back, left = frame.f_code, frame.f_back, _CYCLE
        while left and back is not None and back.f_code is not code:
            back, left = back.f_back, left - 1
        if left and back is not None:
            next(self._rounds["recursion"])
        return bool(next(self._left))

    def _each(self, number: int, items: Any) -> Any:
        try:
            items = iter(items)
        except TypeError:
            return items  # the construct says so in its own words
        return compress(items, iter(self._ticks[number], False))

    def _sized(self, value: Any) -> Any:
        if type(value) in _SIZED:
            self._charge(len(value))
        return value

    def _searched(self, value: Any) -> Any:
        self._charge(1 if type(value) in _QUICK or type(value) not in _SIZED else len(value))
        return value

    def _bounded(self, value: Any) -> Any:
        if type(value) is int:
            if value.bit_length() > _MOST_BITS:
                raise _Enough
            return value
        return self._sized(value)

    def _power(self, base: Any, exponent: Any) -> Any:
        if type(base) is int is type(exponent) and base.bit_length() * abs(exponent) > _MOST_BITS:
            raise _Enough
        return base**exponent

    def _shifted(self, value: Any, places: Any) -> Any:
        if type(value) is int is type(places) and value.bit_length() + places > _MOST_BITS:
            raise _Enough
        return value << places

    def _charge(self, work: int) -> None:
        done = self._done() + work
        self._left.__setstate__(min(self._limit, done))
        if done > self._limit:
            raise _Enough

    def _got(self, number: int, value: Any) -> Any:
        if self._records == "blocks":
            values = self._values.setdefault(number, [])
            if len(values) < _KEPT:
                values.append(value)
        return value

    def _once(self, number: int, begins: bool = False) -> bool:
        if begins:
            self._first[number] = self._state[number] == 2
            return False
        return self._first.pop(number, False)

    def _pick(self, number: int) -> Any:
        values = self._values.get(number)
        if not values:
            return None
        at = self._picked[number] = self._picked.get(number, 0) + 1
        if _bytes_of(tuple(values)) == _bytes_of((values[0],) * len(values)):
            return _other(values[0])
        return values[at % len(values)]


def strongest(rounds: Mapping[str, int]) -> str:
    """The family of constructs that did the work: the first that did about as much as any; `direct` where none did."""
    done = {family: sum(rounds.get(name, 0) for name in names) for family, names in FAMILIES.items()}
    if not any(done.values()):
        return "direct"
    # what feeds a `reduce`, as a filter, may have many more items
    if _FEEDER * done["reduce"] >= done["higher_order"]:
        done["higher_order"] = 0
    return next(family for family, count in done.items() if count >= _COMPARABLE * max(done.values()))


def frame_depth() -> int:
    """Python frames of this thread, its caller's included."""
    frame, depth = _getframe(1), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
    return depth


def _bytes_of(values: tuple[Any, ...]) -> bytes:
    # `marshal` has no limit: a list may hold itself many times over
    flat = all(
        type(value) in _PLAIN or (type(value) in (list, tuple) and _PLAIN.issuperset(map(type, value)))
        for value in values
    )
    return plain_data.pack(values) if flat else plain_data.encode(values, _MOST_BYTES)


def _other(value: Any) -> Any:
    """A value of its type that is not equal to it, where there is one."""
    kind = type(value)
    if kind is bool:
        return not value
    if kind in (int, float):
        return value + 1
    if kind is str:
        return value + "a"
    if kind in (list, tuple):
        return value[::-1] if value != value[::-1] else kind()
    return kind() if kind in (dict, set) else None
