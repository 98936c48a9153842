"""Programs that try to hold, to do or to know more than a budget allows without being counted."""

from dataclasses import replace

import pytest

from raypoly.core.values import Problem
from raypoly.verifier.sandbox import Sandbox
from tests.support.small_problems import calls

BIG = sum(i * i for i in range(120))
SMALL = [([n], sum(i * i for i in range(n)), {"steps": 10_000}) for n in (0, 1, 2, 7, 13)]
MEMORY = calls(*SMALL, ([120], BIG, {"steps": 10_000, "elements": 20}))
TIME = calls(*SMALL, ([120], BIG, {"steps": 200}))
FLAT = calls(*SMALL, ([120], BIG, {"steps": 10_000, "depth": 1}))
LOOP = " s = 0\n for i in range(n): s += i * i\n return s"
UNDER = "u = chr(95) * 2\n"
"""Two underscores that no name in the program has."""

SENT = "def f(n):\n try: h(n).send(None)\n except StopIteration as e: return e.value"
HOLDS = {
    "a chain of slices": (
        "def f(n):\n d = None\n for i in range(n): d = slice(i * i, d)\n s = 0\n"
        " while d: s, d = s + d.start, d.stop\n return s"
    ),
    "a chain of generators": (
        "def g(v, d):\n yield v\n yield d\ndef f(n):\n d = None\n for i in range(n): d = g(i * i, d)\n s = 0\n"
        " while d:\n  s += next(d)\n  d = next(d)\n return s"
    ),
    "a chain of coroutines": (
        "async def c(v, d): return v, d\ndef f(n):\n d = None\n for i in range(n): d = c(i * i, d)\n s = 0\n"
        " while d:\n  try: d.send(None)\n  except StopIteration as e: v, d = e.value; s += v\n return s"
    ),
    "the lengths of iterators": (
        "from itertools import repeat\nfrom operator import length_hint\ndef f(n):\n d = None\n"
        " for i in range(n): d = repeat(d, i * i)\n s = 0\n"
        " while d is not None:\n  s += length_hint(d)\n  d = next(d, None)\n return s"
    ),
    "the starts of iterators": "def f(n):\n d = iter(())\n for i in range(n): d = enumerate(d, i * i)\n" + LOOP,
    "a range's end": "def f(n):\n r = range(0)\n for i in range(n): r = range(r.stop << 20 | i * i)\n" + LOOP,
    "an iterator's end": (
        "def f(n):\n r = iter(range(1 << 2400))\n x = 1\n for i in range(n):\n"
        "  x = next(r) << 20 | i * i; r = iter(range(x, x + 2)); x = 0\n" + LOOP
    ),
    "statements after each other on a line": (
        "def f(n): d = [*map(lambda i: i * i, range(n))]; s = sum(d); d = 0; return s"
    ),
    "annotations": (
        "def f(n):\n def h(): 0\n for i in range(n): h.__annotations__[i] = i * i\n"
        " return sum(h.__annotations__.values())"
    ),
    "a function's name": "def f(n):\n def h(): 0\n for i in range(n): h.__name__ += chr(i * i)\n" + LOOP,
    "closures": "def mk(v, d): return lambda: (v, d)\ndef f(n):\n d = None\n for i in range(n): d = mk(i * i, d)\n"
    + LOOP,
    "an exception's arguments": (
        "def f(n):\n e = ValueError()\n for i in range(n): e.args = (*e.args, i * i)\n return sum(e.args)"
    ),
    "a cycle": (
        "from itertools import cycle\ndef f(n):\n c = cycle(map(lambda i: i * i, range(n)))\n s = 0\n"
        " for i in range(n): next(c)\n for i in range(n): s += next(c)\n return s"
    ),
    "a list while no word can be said": (
        "def r(k):\n try: r(k + 1)\n except RecursionError: 0\n try:\n  d = list(range(1000))\n  d = 0\n"
        " except RecursionError: 0\ndef f(n):\n if n > 99: r(0)\n d = []\n for i in range(n): d.append(i * i)\n"
        " return sum(d)"
    ),
    "a class's own namespace": (
        UNDER + "class D(dict): values = tuple\nclass X:\n def __call__(s, name, bases, ns): return ns['s']\n"
        "M = type('M', (X,), {u + 'prepare' + u: lambda *a, **k: D(n=N[0])})()\nN = [0]\ndef f(n):\n N[0] = n\n"
        " class A(metaclass=M):\n  d = []\n  for i in range(n): d.append(i * i)\n  s = sum(d)\n  d = 0\n return A"
    ),
    "a list of an asynchronous comprehension": (
        "async def g(): yield 1\nasync def h(n): return sum([i * i async for _ in g() for i in range(n)])\n" + SENT
    ),
}
STEPS = {
    "a loop on one line": "def f(n):\n" + LOOP,
    "a loop whose body is its condition": (
        "def f(n):\n s = i = 0\n while i < n and [s := s + i * i, i := i + 1]: 0\n return s"
    ),
    "an assertion": "def f(n):\n s = 0\n for i in range(n): assert (s := s + i * i) >= 0\n return s",
    "a loop with one target": "def f(n):\n s = [0]\n for i in range(n): s[0] += i * i\n return s[0]",
    "a comprehension that calls a setter": (
        "def f(n):\n s = [0]\n [0 for i in range(2 * n) if s.__setitem__(0, s[0] + i * i * (i < n))]\n return s[0]"
    ),
    "a setter by another name": (
        "def f(n):\n s = [0]\n p = s.__setitem__\n"
        " [0 for i in range(2 * n) if p(0, s[0] + i * i * (i < n))]\n return s[0]"
    ),
    "a setter of the library's": (
        "from operator import setitem as p\ndef f(n):\n s = [0]\n"
        " {0 for i in range(2 * n) if p(s, 0, s[0] + i * i * (i < n))}\n return s[0]"
    ),
    "a comprehension whose target is an item": (
        "def f(n):\n s = [0]\n [0 for i in range(2 * n) for s[0] in [s[0] + i * i * (i < n)] if 0]\n return s[0]"
    ),
    "a comprehension whose target is an attribute": (
        "class B: x = 0\ndef f(n):\n B.x = 0\n"
        " [0 for i in range(2 * n) for B.x in (B.x + i * i * (i < n),) if 0]\n return B.x"
    ),
    "a class whose namespace has the hooks": (
        UNDER + "def f(n):\n own = {'@line': int, '@enter': bool, '@leave': int, 'n': n}\n"
        " class A(metaclass=type('M', (type,), {u + 'prepare' + u: lambda *a, **k: own})):\n"
        "  s = 0\n  for i in range(n): s += i * i\n return A.s"
    ),
    "an asynchronous comprehension": (
        "async def g(): yield 1\nasync def h(n):\n s = 0\n"
        " [s := s + i * i * (i < n) async for _ in g() for i in range(2 * n)]\n return s\n" + SENT
    ),
    "an asynchronous filter": (
        "async def g(): yield 1\nasync def h(n):\n s = 0\n"
        " async for _ in (0 async for _ in g() for i in range(2 * n) if (s := s + i * i * (i < n)) < 0): 0\n"
        " return s\n" + SENT
    ),
    "a filter that assigns": (
        "def f(n):\n s = 0\n any(0 for i in range(2 * n) if (s := s + i * i * (i < n)) < 0)\n return s"
    ),
    "a filter that calls a setter": (
        "def f(n):\n s = [0]\n any(0 for i in range(2 * n) if s.__setitem__(0, s[0] + i * i * (i < n)))\n return s[0]"
    ),
    "a filter of targets": (
        "def f(n):\n s = [0]\n any(0 for _ in '1' for i in range(2 * n) for s[0] in (s[0] + i * i * (i < n),) if 0)\n"
        " return s[0]"
    ),
    "a setter of the library's, by an operator": (
        "from operator import ior\ndef f(n):\n s = {0: 0}\n"
        " [0 for i in range(2 * n) if ior(s, {0: s[0] + i * i * (i < n)}) is None]\n return s[0]"
    ),
}
FILL = "  a = 0\n  for i in range(150):\n   {}\n   a += i * i\n"
LEFT = {
    "a global": "T = {}\ndef f(n):\n if not T:\n" + FILL.format("T[i] = a") + " return T[n]",
    "a list's items": "T = [0] * 150\ndef f(n):\n if n == 0:\n" + FILL.format("T[i] = a") + " return T[n]",
    "a default argument": "def f(n, t={}):\n if not t:\n" + FILL.format("t[i] = a") + " return t[n]",
    "a class": "class A: t = []\ndef f(n):\n if n == 0:\n" + FILL.format("A.t.append(a)") + " return A.t[n]",
    "a long number": (
        "T = 0\ndef f(n):\n global T\n if n == 0:\n" + FILL.format("T |= a << i * 20") + " return T >> n * 20 & 1048575"
    ),
    "a buffer": (
        "T = memoryview(bytearray(800)).cast('I')\ndef f(n):\n if n == 0:\n" + FILL.format("T[i] = a") + " return T[n]"
    ),
    "a generator": (
        "def gen():\n n, t, a = (yield), [], 0\n for i in range(150):\n  t.append(a)\n  a += i * i\n"
        " while 1: n = yield t[n]\nG = gen()\nnext(G)\ndef f(n): return G.send(n)"
    ),
    "counters": (
        "from itertools import count\nT = [0] * 150\ndef f(n):\n if n == 0:\n"
        + FILL.format("T[i] = count(a)")
        + " return next(T[n])"
    ),
    "a cache": (
        "from functools import cache\n@cache\ndef g(n): return n and (n - 1) ** 2 + g(n - 1)\n"
        "def f(n):\n if n == 0: g(130)\n return g(n)"
    ),
}
HIDDEN = {
    "in a module": "import heapq\ndef f(n):\n heapq.t = n\n" + LOOP,
    "in a class of the library": "from collections import Counter\ndef f(n):\n Counter.t = n\n" + LOOP,
    "in a list of the library": "import typing\ndef f(n):\n typing._cleanups.append(n)\n" + LOOP,
    "by a computed format": UNDER + "def f(n):\n ('{0.' + u + 'closure' + u + '}').format(f)\n" + LOOP,
    "by a format of fields": "def f(n):\n '{0.x}'.format(f)\n" + LOOP,
    "by a pattern": (
        UNDER + "A = type('A', (), {u + 'match_args' + u: (u + 'globals' + u,)})\n"
        "def f(n):\n match f:\n  case A(x): pass\n" + LOOP
    ),
    "by a module of a module": "from typing import sys as x\ndef f(n):\n x.setrecursionlimit(27)\n" + LOOP,
    "by a setter of the library": (
        "import functools, math\nc = functools._convert\nc[max(c)] += [('@line', lambda *a: True)]\n"
        "functools.total_ordering(math)\nfrom math import *\ndef f(n):\n" + LOOP
    ),
    "by a computed question": UNDER + "def f(n):\n hasattr(f, u + 'code' + u)\n" + LOOP,
}


@pytest.mark.parametrize("code", HOLDS.values(), ids=HOLDS)
def test_nothing_is_held_without_counting(sandbox: Sandbox, code: str) -> None:
    verdict = sandbox.score(MEMORY, code)
    assert (verdict.status, verdict.tests_passed) == ("memory", 5), verdict


@pytest.mark.parametrize("code", STEPS.values(), ids=STEPS)
def test_no_way_to_write_a_loop_is_cheap(sandbox: Sandbox, code: str) -> None:
    verdict = sandbox.score(TIME, code)
    assert (verdict.status, verdict.tests_passed) == ("timeout", 5), verdict


@pytest.mark.parametrize("code", LEFT.values(), ids=LEFT)
def test_work_done_in_one_test_is_charged_to_the_next(sandbox: Sandbox, code: str) -> None:
    verdict = sandbox.score(TIME, code)
    assert verdict.status == "timeout", verdict
    assert verdict.tests_passed < 6


DEEP = {
    "generators": "def g(n): yield n and (n - 1) ** 2 + next(g(n - 1))\ndef f(n): return next(g(n))",
    "generators that delegate": (
        "def g(n):\n x = yield from h(n)\ndef h(n): yield n and (n - 1) ** 2 + next(g(n - 1))\n"
        "def f(n): return next(g(n))"
    ),
    "lambdas that raise": (
        "def f(n):\n g = lambda k: k and (k - 1) ** 2 + g(k - 1)\n"
        " try: (lambda: 1 / 0)()\n except ZeroDivisionError: return g(n)"
    ),
    "coroutines that go on": (
        UNDER
        + "W = type('W', (), {u + 'await' + u: lambda s: iter((s.v,)), u + 'init' + u: lambda s, v: set_v(s, v)})\n"
        "def set_v(s, v): s.v = v\n"
        "async def c(prev, i): return (await W(0), await W(i * i + (prev.send(None) if prev else 0)))\n"
        "def f(n):\n d = None\n for i in range(n):\n  d = c(d, i); d.send(None)\n return d.send(None) if d else 0"
    ),
}


@pytest.mark.parametrize("code", DEEP.values(), ids=DEEP)
def test_nothing_is_nested_without_counting(sandbox: Sandbox, code: str) -> None:
    deep = calls(*SMALL[:2], ([120], BIG, {"steps": 100_000, "depth": 8}))
    verdict = sandbox.score(deep, code)
    assert (verdict.status, verdict.tests_passed) == ("error", 2), verdict
    assert "budget of depth" in verdict.detail


def test_a_generator_that_was_left_by_an_exception_does_not_delegate_any_more(sandbox: Sandbox) -> None:
    caught = (
        "def one():\n yield 1\n yield 2\ndef bad():\n raise ValueError\n yield\ndef g(k):\n"
        " try: yield from bad()\n except ValueError: 0\n o = one()\n"
        " yield (next(o), (0 if k == 0 else next(g(k - 1)) + k * k))[1]\ndef f(n): return next(g(n - 1)) if n else 0"
    )
    few, many = (sandbox.measure(calls(([n], sum(i * i for i in range(n)))), caught)[0]["steps"] for n in (10, 100))
    assert many < 12 * few


def test_as_many_blocks_may_be_nested_as_where_nothing_is_counted(sandbox: Sandbox) -> None:
    blocks = "".join(f"{' ' * depth}for x{depth} in (n,):\n" for depth in range(1, 21))
    code = f"def f(n):\n{blocks}{' ' * 21}return sum(i * i for i in range(n))"
    assert sandbox.score(TIME, code).passed
    recursion = "def f(n): return n and (n - 1) ** 2 + f(n - 1)"
    deep = calls(([970], sum(i * i for i in range(970)), {"steps": 100_000}))
    assert sandbox.score(deep, recursion).passed


def test_depth_reached_in_one_test_is_charged_to_the_next(sandbox: Sandbox) -> None:
    assert "budget of depth" in sandbox.score(FLAT, LEFT["a cache"]).detail


@pytest.mark.parametrize("code", HIDDEN.values(), ids=HIDDEN)
def test_what_can_not_be_counted_is_tampering(sandbox: Sandbox, code: str) -> None:
    verdict = sandbox.score(calls(*SMALL), code)
    assert verdict.status == "error", verdict
    assert "tampering" in verdict.detail


def test_the_nonce_is_out_of_reach(sandbox: Sandbox) -> None:
    """It was to be had through the functions that the guard puts in place of builtins."""
    path = "'{0.' + u + 'closure' + u + '[0].cell_contents}'"
    for held in ("print", "locals", "len"):
        verdict = sandbox.score(calls(*SMALL), UNDER + f"def f(n): raise ValueError(({path}).format({held}))")
        assert "tampering: the name format" in verdict.detail


HONEST = {
    "annotations": (
        "from typing import Dict, List, Optional\n"
        "def f(n: int, memo: Optional[Dict[int, int]] = None, parts: Optional[List[int]] = None) -> int:\n" + LOOP
    ),
    "a base class": (
        "class A:\n def __init__(s): s.t = 0\nclass B(A):\n def __init__(s): super().__init__()\n"
        "def f(n):\n b = B()\n for i in range(n): b.t += i * i\n return b.t"
    ),
    "formats and questions": (
        "def f(n):\n s = 0 if hasattr(f, 'start') else int('{:d}'.format(0))\n for i in range(n): s += i * i\n return s"
    ),
    "types": "def f(n):\n s = 0\n for i in range(n): s += i * i if type(i) is int else 0\n return s",
    "a generator that catches": (
        "def g(n):\n for i in range(n):\n  try: yield i * i\n  except ValueError: print(i)\n"
        "def f(n):\n s = 0\n for v in g(n): s += v\n return s"
    ),
    "a memo": "M = {}\ndef f(n):\n if n not in M: M[n] = n and (n - 1) ** 2 + f(n - 1)\n return M[n]",
    "lines in brackets": "def f(\n n,\n):\n return sum(\n  i * i\n  for i in range(\n   n\n  )\n )\n",
}


@pytest.mark.parametrize("code", HONEST.values(), ids=HONEST)
def test_honest_programs_are_none_of_this(sandbox: Sandbox, code: str) -> None:
    problem: Problem = replace(calls(*SMALL, ([120], BIG, {"steps": 10_000})), answer="completion")
    verdict = sandbox.score(problem, code)
    assert verdict.passed, verdict
    assert verdict.evidence is not None
    assert not verdict.evidence.unknown
