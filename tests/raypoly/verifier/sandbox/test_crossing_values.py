"""Values cross between program and check with what they are beyond equality: plain Python's claims about them hold."""

from __future__ import annotations

import contextlib
import itertools
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.values import Problem
from raypoly.verifier.sandbox import Sandbox
from raypoly.verifier.sandbox.child import plain_data
from tests.support.small_problems import calls, check

LIBRARY = """
import types
import numpy as np
from collections import *
from datetime import *
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from sortedcontainers import SortedList
from typing import NamedTuple
from zoneinfo import ZoneInfo
P = namedtuple("P", "x y")
class C(Enum):
    RED = 1
    BLUE = 2
"""
"""What problem and program share."""
OWN = """
class C(Enum):
    RED = 1
    BLUE = 2
class Code(IntEnum):
    A = 1
class Own(Enum):
    X = 5
class L(list): pass
class Point(NamedTuple):
    x: int
    y: int
def counting(n): yield from range(n)
def filled():
    found = defaultdict(list)
    found[1].append(2)
    return found
def moved():
    found = OrderedDict(a=1, b=2)
    found.move_to_end("a")
    return found
"""
"""What the program alone has; its `C` stands for the problem's."""
VALUES: dict[str, tuple[list[str], list[str]]] = {
    # what a check sees of it, and what it doesn't
    "deque([1, 2], 2)": (
        ["r == deque([1, 2])", "r.maxlen == 2", "r.append(3) or r == deque([2, 3])"],
        ["r == [1, 2]", "isinstance(r, list)"],
    ),
    "range(3)": (["r == range(3)", "r[1:] == range(1, 3)", "len(r) == 3"], ["r == [0, 1, 2]", "isinstance(r, list)"]),
    "range(10**12)": (["len(r) == 10**12", "r[-1] == 10**12 - 1", "7 in r"], ["r == range(10**12 - 1)"]),
    # what is read once is no list
    "counting(3)": (
        ["list(r) == [0, 1, 2]", "[next(r), next(r)] == [0, 1]", "isinstance(r, types.GeneratorType)"],
        ["isinstance(r, list)", "r + [] == [0, 1, 2]", "r[:] == [0, 1, 2]", "len(r) == 3",
         "list(r) == list(r)", "r == [0, 1, 2]"],
    ),
    "map(int, '012')": (["set(r) == {0, 1, 2}", "iter(r) is r"], ["list(r[:]) == [0, 1, 2]", "len(r) == 3"]),
    "zip('ab', [1, 2])": (["dict(r) == {'a': 1, 'b': 2}"], ["isinstance(r, list)", "r[0] == ('a', 1)"]),
    "{1: 2, 3: 2}.keys()": (["r == {1, 3}", "sorted(r) == [1, 3]"], ["isinstance(r, list)", "r == [1, 3]"]),
    "{1: 2, 3: 2}.values()": (["list(r) == [2, 2]", "len(r) == 2"], ["r == [2, 2]"]),
    "{1: 2, 3: 2}.items()": (["r == {(1, 2), (3, 2)}", "list(r) == [(1, 2), (3, 2)]"], ["r == [(1, 2), (3, 2)]"]),
    # numbers
    "Fraction(1, 4)": (
        ["r == Fraction(1, 4)", "r == 0.25", "(r.numerator, r.denominator) == (1, 4)", "r + 1 == Fraction(5, 4)"],
        ["r == Fraction(1, 3)", "isinstance(r, float)"],
    ),
    "Decimal('0.1') + Decimal('0.20')": (
        ["r == Decimal('0.3')", "str(r) == '0.30'"], ["r == 0.3", "str(r) == '0.3'"]
    ),
    "1 + 2j": (["r == 1 + 2j"], ["r == 1"]),
    # dates
    "date(2024, 1, 1)": (["r == date(2024, 1, 1)", "r.isoformat() == '2024-01-01'"], ["r == datetime(2024, 1, 1)"]),
    "datetime(2024, 1, 1, 6)": (["r == datetime(2024, 1, 1, 6)", "r.hour == 6"], ["r == date(2024, 1, 1)"]),
    "datetime(2024, 1, 1, 6, tzinfo=timezone(timedelta(hours=1)))": (
        ["r == datetime(2024, 1, 1, 5, tzinfo=timezone.utc)"], ["r == datetime(2024, 1, 1, 6)"]
    ),
    "datetime(2024, 7, 1, 6, tzinfo=ZoneInfo('Europe/Berlin'))": (
        ["r == datetime(2024, 7, 1, 4, tzinfo=timezone.utc)"], ["r == datetime(2024, 7, 1, 5, tzinfo=timezone.utc)"]
    ),
    "time(3)": (["r == time(3)", "r.hour == 3"], ["r == time(4)"]),
    "timedelta(days=3)": (["r == timedelta(days=3)", "r.total_seconds() == 3 * 86400"], ["r == 3"]),
    # dictionaries
    "Counter('aab')": (
        ["r == Counter('aab')", "r == {'a': 2, 'b': 1}", "r.most_common(1) == [('a', 2)]", "r['z'] == 0"],
        ["r == Counter('ab')"],
    ),
    "filled()": (["r == {1: [2]}", "r[7] == []"], ["r == {1: []}"]),
    "OrderedDict(b=2, a=1)": (["r == {'a': 1, 'b': 2}"], ["r == OrderedDict(a=1, b=2)"]),
    "dict(b=2, a=1)": (["r == OrderedDict(a=1, b=2)"], ["isinstance(r, OrderedDict)"]),
    "moved()": (["list(r) == ['b', 'a']", "r.popitem(last=False) == ('b', 2)"], ["list(r) == ['a', 'b']"]),
    # what has more than its base
    "P(1, 2)": (["r == (1, 2)", "r.x == 1 and r[1] == 2", "r._fields == ('x', 'y')"], ["type(r) is tuple"]),
    "Point(1, 2)": (["r == (1, 2)", "r.y == 2"], ["type(r) is tuple"]),
    "[P(1, 2)] * 1000": (["sum(p.x for p in r) == 1000"], ["r == [(1, 2)]"]),
    "Code.A": (["r == 1", "isinstance(r, int)"], ["type(r) is int"]),
    "L([1])": (["r == [1]", "isinstance(r, list)"], ["type(r) is list"]),
    "UserList([1, 2])": (["r == [1, 2]", "r.data == [1, 2]"], ["isinstance(r, list)"]),
    "UserDict(a=1)": (["r == {'a': 1}", "r['a'] == 1"], ["isinstance(r, dict)"]),
    "SortedList([2, 1])": (["r == [1, 2]", "r.bisect_left(2) == 1"], ["isinstance(r, list)"]),
    "C.RED": (["r == C.RED", "r is C.RED", "r.name == 'RED'"], ["r == C.BLUE", "r == 1"]),
    "Own.X": (["(r.name, r.value) == ('X', 5)"], ["r == 5"]),
    # numpy's
    "np.bool_(True)": (["r == True", "r"], ["r is True", "isinstance(r, bool)"]),
    "np.int64(1)": (["r == 1"], ["isinstance(r, int)"]),
    "np.float64(.5)": (["isinstance(r, float)", "r == .5"], ["type(r) is float"]),
    "np.eye(2)": (["r.shape == (2, 2)", "(r == [[1, 0], [0, 1]]).all()"], ["isinstance(r, list)"]),
    "np.zeros((0, 3))": (["r.shape == (0, 3)"], ["r.shape == (0,)"]),
    # within others
    "[deque([1]), {Fraction(1, 3): Decimal('0.1')}, (date(2020, 1, 1),), b'x']": (
        ["r == [deque([1]), {Fraction(1, 3): Decimal('0.1')}, (date(2020, 1, 1),), b'x']"],
        ["r == [deque([1]), {Fraction(1, 3): 0.1}, (date(2020, 1, 1),), b'x']"],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(ScorerConfig()) as sandbox:
        yield sandbox


HOLDS = """
def holds(claim):
    try: return bool(claim())
    except Exception: return False
"""


def checked(*lines: str) -> Problem:
    return check(f"{HOLDS}def check(candidate):\n" + "".join(f"    {line}\n" for line in lines), prelude=LIBRARY)


@pytest.mark.parametrize("returned", VALUES)
def test_a_check_sees_of_a_value_what_plain_python_shows(sandbox: Sandbox, returned: str) -> None:
    code, (true, untrue) = f"{OWN}\ndef f(): return {returned}", VALUES[returned]
    runs = [line for claim in true for line in ("r = candidate()", f"assert {claim}")]
    runs += [line for claim in untrue for line in ("r = candidate()", f"assert not holds(lambda: {claim})")]
    # a check of comparisons alone is read into cases; any other runs
    cases, others = (
        [claim.replace("r ==", "assert candidate() ==") for claim in some if claim.startswith("r ==")]
        for some in (true, untrue)
    )
    plain: dict[str, Any] = {}
    exec(LIBRARY + code + "\n" + checked(*runs, *cases).tests.source, plain)
    plain["check"](plain["f"])
    verdicts = [sandbox.score(checked(*lines), code) for lines in (runs, cases) if lines]
    assert all(verdict.passed for verdict in verdicts), verdicts
    for case in others:
        verdict = sandbox.score(checked(case), code)
        assert verdict.status == "wrong", (case, verdict)


@pytest.mark.parametrize(
    ("given", "returned", "claim", "holds"),
    [
        ("deque([1, 2])", "x.popleft()", "r == 1 and x == deque([2])", True),
        ("Counter('aab')", "x.most_common(1)", "r == [('a', 2)]", True),
        ("OrderedDict(a=1, b=2)", "x.popitem(last=False)", "r == ('a', 1) and x == {'b': 2}", True),
        ("defaultdict(list)", "x[3].append(1)", "r is None and x == {3: [1]}", True),
        ("date(2020, 1, 1)", "x.year", "r == 2020", True),
        ("P(1, 2)", "x.x + x.y", "r == 3", True),
        ("[Fraction(1, 2), Decimal(2)]", "x[0].denominator + int(x[1])", "r == 4", True),
        ("np.array([1, 2])", "x.sum()", "r == 3", True),
        ("np.array([2, 1])", "x.sort()", "list(x) == [1, 2]", True),
        ("iter([1, 2, 3])", "sum(x)", "r == 6", True),
        ("(n for n in [1, 2, 3])", "next(x)", "r == 1", True),
        # whether the result is the very argument
        ("[3, 1]", "x.sort() or x", "r is x and x == [1, 3]", True),
        ("[3, 1]", "x.sort() or x", "r is not x", False),
        ("[3, 1]", "sorted(x)", "r is not x and x == [3, 1] and r == [1, 3]", True),
        ("[3, 1]", "sorted(x)", "r is x", False),
        ("None", "x", "r is None", True),
    ],
)
def test_a_program_gets_what_the_check_gives_and_the_check_sees_what_became_of_it(
    sandbox: Sandbox, given: str, returned: str, claim: str, holds: bool
) -> None:
    code = f"{LIBRARY}def f(x): return {returned}"
    plain: dict[str, Any] = {}
    exec(f"{code}\nx = {given}\nr = f(x)", plain)
    assert bool(eval(claim, plain)) is holds
    for call in ("candidate(x)", "candidate(x=x)"):
        verdict = sandbox.score(checked(f"x = {given}", f"r = {call}", f"assert {claim}"), code)
        assert verdict.status == ("passed" if holds else "wrong"), (call, verdict)


NODE = "class ListNode:\n def __init__(s, v): s.val = v\n "


@pytest.mark.parametrize(
    ("body", "claim", "status"),
    [
        # nodes made when they are asked for: each is another, where the last one was
        (NODE + "next = property(lambda s: ListNode(s.val + 1) if s.val < 299 else None)\ndef f(): return ListNode(0)",
         "[*nodes(r)] == [*range(300)]", "passed"),
        (NODE + "next = property(lambda s: s)\ndef f(): return ListNode(1)", "r.val == 1", "wrong"),
        ("def f(): return str(2**20_000)", "len(r) == 6021", "passed"),
        ("def f(): return str(10**60_000)", "len(r) == 60_001", "error"),
        ("def f():\n d = []\n for _ in range(150): d = [d]\n return d", "str(r).count('[') == 151", "passed"),
        ("def f():\n while True: yield 1", "next(r) == 1", "passed"),
        ("def f():\n while True: yield 1", "sum(r) > 1", "wrong"),
        ("def f():\n a = 1\n while True:\n  yield a\n  a *= 3", "next(x for x in r if x > 9**99) == 3**199", "passed"),
        ("def f(): return f", "callable(r)", "passed"),
        ("from decimal import Decimal\ndef f(): return Decimal('sNaN')", "r is not None", "wrong"),
        ("def f(): return [*range(10**12)]", "len(r) == 10**12", "memory"),
    ],
)  # fmt: skip
def test_what_is_as_long_or_deep_as_it_may_be_crosses_and_what_has_no_end_does_not(
    sandbox: Sandbox, body: str, claim: str, status: str
) -> None:
    nodes = "def nodes(r):\n    while r:\n        yield r.val\n        r = r.next\n"
    verdict = sandbox.score(check(f"{nodes}def check(candidate):\n    r = candidate()\n    assert {claim}"), body)
    assert verdict.status == status, verdict


KINDS = (
    "deque range OrderedDict Counter defaultdict Fraction Decimal datetime date time timedelta dict_keys dict_values "
    "dict_items subclass namedtuple numpy UserList UserDict SortedList Enum iterator ListNode TreeNode builtin"
)


def test_content_that_has_no_end_is_not_unrolled_where_it_is_compared_or_passed_on() -> None:
    endless = plain_data.Typed("range", (0, 10**12, 1))
    contents: list[Any] = [endless, [endless], (endless, endless), ("a", endless), ("<f8", endless, [1])]
    for kind, content in itertools.product(KINDS.split(), contents):
        data = plain_data.encode(plain_data.Typed(kind, content))
        for make in (plain_data.comparable, plain_data.described):
            tracemalloc.start()
            with contextlib.suppress(plain_data.Malformed):
                plain_data.decode(data, make)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 1 << 20, (kind, content, make)


@pytest.mark.parametrize("content", ["3", "()", "('a', 'b')", "0.0", "[m.Typed('zzz', 1)]", "nest", "10**5000"])
def test_no_content_that_lies_breaks_its_problem(sandbox: Sandbox, content: str) -> None:
    code = (
        "import sys\ndef f(x):\n m = sys._getframe(1).f_globals['plain_data']\n nest = 1\n"
        " for _ in range(190): nest = m.Typed('zzz', nest)\n"
    )
    for kind in (*KINDS.split(), "argument", "zzz"):
        for problem in (checked("r = candidate(3)", "assert r == 1"), calls(([3], 1))):
            assert not sandbox.score(problem, f"{code} return m.Typed({kind!r}, {content})").passed
