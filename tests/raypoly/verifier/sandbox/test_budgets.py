import pytest

from raypoly.core.errors import UsageError
from raypoly.verifier.sandbox import DEFAULT_COUNTERS, Sandbox
from tests.support.small_problems import budgeted, calls

LOOP = "def f(n):\n s = 0\n for i in range(n):\n  s += i * i\n return s\n"
RECURSION = "def f(n):\n return 0 if n == 0 else (n - 1) ** 2 + f(n - 1)\n"
LAMBDA = "from functools import reduce\ndef f(n):\n return reduce(lambda s, i: s + i * i, range(n), 0)\n"
GENERATOR = "def f(n):\n return sum(i * i for i in range(n))\n"
COMPREHENSION = "def f(n):\n return sum([i * i for i in range(n)])\n"


@pytest.mark.parametrize(
    ("code", "counts"),
    [
        (LOOP, {"steps": 1 + 1 + 2 * 10 + 1 + 1, "elements": 0, "depth": 1}),
        (RECURSION, {"steps": 2 * 11, "elements": 0, "depth": 11}),
        (LAMBDA, {"steps": 2 + 10, "elements": 0, "depth": 2}),
        (GENERATOR, {"steps": 2 + 11, "elements": 0, "depth": 1}),
        (COMPREHENSION, {"steps": 2, "elements": 10, "depth": 1}),
        ("def f(n):\n x = list(range(n))\n return sum(v * v for v in x)", {"steps": 14, "elements": 10, "depth": 1}),
    ],
)
def test_steps_elements_and_depth_are_counted_exactly(sandbox: Sandbox, code: str, counts: dict[str, int]) -> None:
    assert sandbox.measure(calls(([10], 285)), code) == [counts]
    assert tuple(counts) == DEFAULT_COUNTERS


@pytest.mark.parametrize(
    ("code", "status", "detail"),
    [
        (LOOP, "timeout", "over the budget of steps at 101"),
        (COMPREHENSION, "memory", "over the budget of elements at 1000"),
        (RECURSION, "error", "over the budget of depth at 11"),
        (LAMBDA, "timeout", "over the budget of steps at 101"),
    ],
)
def test_each_budget_has_its_own_verdict(sandbox: Sandbox, code: str, status: str, detail: str) -> None:
    verdict = sandbox.score(budgeted(), code)
    assert (verdict.status, verdict.tests_passed) == (status, 1)
    assert detail in verdict.detail


def test_within_its_budgets_a_program_passes(sandbox: Sandbox) -> None:
    assert sandbox.score(budgeted(), "def f(n): return (n - 1) * n * (2 * n - 1) // 6").passed
    assert sandbox.score(budgeted(steps=3000), LOOP).passed


def test_a_program_that_fails_can_not_be_measured(sandbox: Sandbox) -> None:
    with pytest.raises(UsageError, match="ZeroDivisionError"):
        sandbox.measure(calls(([1], 1)), "def f(n): return n / 0")


SLOW = "\ndef g(n):\n s = 0\n for i in range(n):\n  s += i * i\n return s\n"
PRECOMPUTED = {
    "in a table made when loading": "T = [0]\nfor i in range(1000): T.append(T[-1] + i * i)\ndef f(n): return T[n]",
    "in a comprehension when loading": "T = [sum(j * j for j in range(i)) for i in range(99)]\ndef f(n): return T[n]",
    "in a class body": "def f(n):\n class A:\n  s = 0\n  for i in range(n): s += i * i\n return A.s",
    "in a caught recursion": SLOW + "def r():\n try: r()\n except RecursionError: pass\ndef f(n):\n r()\n return g(n)",
    "in a default argument": SLOW + "def f(n, t=[g(i) for i in range(50)]): return g(n)",
    "after catching everything": SLOW + "def f(n):\n while 1:\n  try: return g(n)\n  except BaseException: pass",
    "in finally": SLOW + "def f(n):\n try: return 1\n finally:\n  return g(n)",
    "in a sort key": "def f(n):\n s = [0]\n sorted(range(n), key=lambda i: s.append(i * i) or 0)\n return sum(s)",
    "in special methods": (
        "class I:\n def __init__(s, n): s.n, s.i = n, -1\n def __iter__(s): return s\n"
        " def __next__(s):\n  s.i += 1\n  if s.i >= s.n: raise StopIteration\n  return s.i ** 2\n"
        "def f(n): return sum(I(n))"
    ),
}


@pytest.mark.parametrize("code", PRECOMPUTED.values(), ids=PRECOMPUTED)
def test_work_is_counted_wherever_it_is_done(sandbox: Sandbox, code: str) -> None:
    verdict = sandbox.score(budgeted(), code)
    assert verdict.status in ("timeout", "memory", "error"), verdict
    assert "budget" in verdict.detail or "tampering" in verdict.detail


HOLDS_MUCH = {
    "in an attribute": (
        "class B: x = None\ndef f(n):\n b = B()\n b.x = []\n for i in range(n): b.x.append(i * i)\n return sum(b.x)"
    ),
    "in a class": "class B: x = []\ndef f(n):\n for i in range(n): B.x.append(i * i)\n return sum(B.x)",
    "in a class's attributes": (
        "class B: x = ()\ndef f(n):\n B.x = ()\n for i in range(n): B.x += (i * i,)\n return sum(B.x)"
    ),
    "in a function's attribute": "def f(n):\n f.x = []\n for i in range(n): f.x.append(i * i)\n return sum(f.x)",
    "in a default argument": "def f(n, x=[]):\n for i in range(n): x.append(i * i)\n return sum(x)",
    "in a nested list": "def f(n):\n d = [[]]\n for i in range(n): d[0].append(i * i)\n return sum(d[0])",
    "in a list of pairs": (
        "def f(n):\n d = None\n for i in range(n): d = (i * i, d)\n s = 0\n while d: s, d = s + d[0], d[1]\n return s"
    ),
    "in linked objects": (
        "class N:\n def __init__(s, v, n): s.v, s.n = v, n\n"
        "def f(n):\n d = None\n for i in range(n): d = N(i * i, d)\n s = 0\n while d: s, d = s + d.v, d.n\n return s"
    ),
    "in slots": (
        "class N:\n __slots__ = ('x',)\ndef f(n):\n d = N()\n d.x = []\n"
        " for i in range(n): d.x.append(i * i)\n return sum(d.x)"
    ),
    "in a deque": (
        "from collections import deque\ndef f(n):\n d = deque()\n for i in range(n): d.append(i * i)\n return sum(d)"
    ),
    "in a counter": (
        "from collections import Counter\ndef f(n):\n d = Counter()\n for i in range(n): d[i] = i * i\n"
        " return d.total()"
    ),
    "in a subclass": "class L(list): pass\ndef f(n):\n d = L()\n for i in range(n): d.append(i * i)\n return sum(d)",
    "in a lying subclass": (
        "class L(list):\n def __len__(s): return 0\ndef f(n):\n d = L()\n for i in range(n): d.append(i * i)\n"
        " return sum(d)"
    ),
    "in a global": "D = []\ndef f(n):\n for i in range(n): D.append(i * i)\n return sum(D)",
    "in a new global": "def f(n):\n global D\n D = []\n for i in range(n): D.append(i * i)\n return sum(D)",
    "in text": "def f(n):\n s = ''\n for i in range(n): s += f'{i * i},'\n return sum(map(int, s[:-1].split(',')))",
    "in characters": "def f(n):\n s = ''\n for i in range(n): s += chr(i * i)\n return sum(map(ord, s))",
    "in bytes": (
        "def f(n):\n s = bytearray()\n for i in range(n): s += (i * i).to_bytes(4, 'big')\n"
        " return sum(i * i for i in range(n))"
    ),
    "in a long number": (
        "def f(n):\n s = 0\n for i in range(n): s = s << 20 | i * i\n t = 0\n"
        " while s: t, s = t + (s & 1048575), s >> 20\n return t"
    ),
    "in a closure": (
        "def f(n):\n d = []\n def add(v): d.append(v)\n for i in range(n): add(i * i)\n"
        " def total(): return sum(d)\n return total()"
    ),
    "in a bound method": (
        "def f(n):\n a = [].append\n for i in range(n): a(i * i)\n return sum(i * i for i in range(n))"
    ),
    "in a suspended generator": (
        "def g(n):\n d = []\n while 1: d.append((yield sum(d)) or 0)\n"
        "def f(n):\n h = g(n)\n next(h)\n for i in range(n): s = h.send(i * i)\n return s"
    ),
    "in tee": (
        "from itertools import tee\ndef f(n):\n a, b = tee(map(lambda i: i * i, range(n)))\n"
        " for v in a: pass\n s = 0\n for v in b: s += v\n return s"
    ),
    "in a cache": (
        "from functools import cache\n@cache\ndef g(i): return i * i\ndef f(n):\n for i in range(n): g(i)\n"
        " return sum(map(g, range(n)))"
    ),
    "in an argument": "def g(d): return sum(d)\ndef f(n): return g([*map(lambda i: i * i, range(n))])",
}


@pytest.mark.parametrize("code", HOLDS_MUCH.values(), ids=HOLDS_MUCH)
def test_elements_are_counted_wherever_they_are_held(sandbox: Sandbox, code: str) -> None:
    tests = calls(([3], 5), ([120], 568820, {"elements": 20}))
    verdict = sandbox.score(tests, code)
    assert (verdict.status, verdict.tests_passed) == ("memory", 1), verdict
    assert "budget of elements" in verdict.detail


MANY_STEPS = {
    "statements on a line": (
        "def f(n):\n s = 0\n"
        " for i in range(0, n, 4): s += i * i; s += (i + 1) ** 2; s += (i + 2) ** 2; s += (i + 3) ** 2\n"
        " return s"
    ),
    "chopped comprehensions": (
        "def f(n):\n s = 0\n for k in range(0, n, 50): [s := s + i * i for i in range(k, k + 50)]\n return s"
    ),
    "chopped sums": (
        "def f(n):\n s = 0\n for k in range(0, n, 50): s += sum([i * i for i in range(k, k + 50)])\n return s"
    ),
    "a comprehension that keeps nothing": (
        "def f(n):\n s = 0\n [0 for i in range(n) if (s := s + i * i) < 0]\n return s"
    ),
}


@pytest.mark.parametrize("code", MANY_STEPS.values(), ids=MANY_STEPS)
def test_steps_are_counted_however_they_are_written(sandbox: Sandbox, code: str) -> None:
    tests = calls(([100], 328350), ([1000], 332833500, {"steps": 300}))
    verdict = sandbox.score(tests, code)
    assert (verdict.status, verdict.tests_passed) == ("timeout", 1), verdict


HOLDS_LITTLE = {
    "a function in a function": "def f(n):\n def g(i): return 0 if i == n else i * i + g(i + 1)\n return g(0)",
    "a class with methods": (
        "class S:\n '''Sums the squares below a number, one after the other.'''\n limit = 10 ** 6\n"
        " def add(s, n):\n  t = 0\n  for i in range(n): t += i * i\n  return t\n"
        "def f(n):\n '''The sum of squares.'''\n return S().add(n)"
    ),
    "imports and constants": (
        "import math, itertools\nfrom collections import deque\nfrom functools import reduce\n"
        "NOTE = 'a text of some length'\n"
        "def f(n: int) -> int: return reduce(lambda s, i: s + i * i, range(n), 0)"
    ),
    "a generator": "def g(n):\n for i in range(n):\n  yield i * i\ndef f(n): return sum(g(n))",
    "a formula": "def f(n): return (n - 1) * n * (2 * n - 1) // 6",
}


@pytest.mark.parametrize("code", HOLDS_LITTLE.values(), ids=HOLDS_LITTLE)
def test_what_a_program_is_made_of_counts_for_nothing(sandbox: Sandbox, code: str) -> None:
    verdict = sandbox.score(calls(([3], 5), ([120], 568820, {"elements": 4})), code)
    assert verdict.passed, verdict


TAMPER = {
    "settrace": "import sys\ndef f(n):\n sys.settrace(None)\n return g(n)",
    "settrace by another name": "import collections\ndef f(n):\n collections._sys.settrace(None)\n return g(n)",
    "setprofile": "from sys import setprofile\ndef f(n): return g(n)",
    "gettrace": "import typing\ndef f(n):\n typing.sys.gettrace()\n return g(n)",
    "_getframe": "import typing\ndef f(n):\n typing.sys._getframe(0).f_trace = None\n return g(n)",
    "a traceback's frame": (
        "def f(n):\n try: 1 / 0\n except Exception as e:\n  e.__traceback__.tb_frame.f_trace = None\n return g(n)"
    ),
    "a frame through with_traceback": (
        "import typing\ndef f(n):\n try: 1 / 0\n except ZeroDivisionError:\n"
        "  typing.sys.exc_info()[2].tb_frame.f_back.f_trace = None\n return g(n)"
    ),
    "a generator's frame": "def f(n):\n h = (i for i in [1])\n h.gi_frame.f_back\n return g(n)",
    "gc.get_objects": "import gc\ndef f(n):\n gc.get_objects()\n return g(n)",
    "gc.get_referrers": "import gc\ndef f(n):\n gc.get_referrers(f)\n return g(n)",
    "__code__": "def f(n):\n g.__code__ = f.__code__\n return g(n)",
    "__code__ by a computed name": "def f(n):\n getattr(g, '__co' + 'de__')\n return g(n)",
    "attrgetter": "import operator\ndef f(n):\n operator.attrgetter('_' '_code_' + '_')(g)\n return g(n)",
    "a thread": "import threading\ndef f(n):\n t = threading.Thread(target=g, args=(n,))\n t.start()\n return g(n)",
    "_thread": "import _thread\ndef f(n): return g(n)",
    "ctypes": "import ctypes\ndef f(n): return g(n)",
    "_ctypes from subclasses": "def f(n):\n object.__subclasses__()\n return g(n)",
    "BuiltinImporter": "def f(n):\n s = __loader__.load_module('sys')\n s.settrace(None)\n return g(n)",
    "importlib": "import importlib\ndef f(n):\n importlib.reload(importlib.import_module('sys'))\n return g(n)",
    "import in a string": "def f(n):\n __import__('s' + 'ys').settrace(None)\n return g(n)",
    "exec": "def f(n):\n exec('s = 0')\n return g(n)",
    "eval with a file of the library": "def f(n): return eval(compile('g(3)', 'functools.py', 'eval'), {'g': g})",
    "code objects by types": "import typing\ndef f(n): return typing.types.FunctionType(1, {})",
    "os._exit": "import contextlib\ndef f(n): contextlib.os._exit(0)",
    "os._exit without import": "import typing\ndef f(n): typing.contextlib.os._exit(0)",
    "a write to every descriptor": (
        "import typing\nW = typing.contextlib.os.write\ndef f(n):\n for d in range(3, 99):\n"
        "  try: W(d, b'\\0\\0\\0\\x0a' + b'x' * 10)\n  except OSError: pass\n return g(n)"
    ),
    "patched len": "import builtins\nbuiltins.len = lambda x: 0\ndef f(n): return g(n)",
    "globals": "def f(n):\n globals()\n return g(n)",
    "a finalizer": "def h(s): pass\nclass A: __del__ = h\ndef f(n):\n a = A()\n a = None\n return g(n)",
    "a finalizer by setattr": "class A: pass\ndef f(n):\n setattr(A, '__d' + 'el__', g)\n return g(n)",
    "a finalizer by type": "def f(n):\n type('A', (), {'__d' + 'el__': g})\n return g(n)",
    "a finalizer by type's type": "def f(n):\n type(int)('A', (), {'__d' + 'el__': g})\n return g(n)",
    "a finalizer by locals": "class A:\n locals()['_' * 2 + 'del' + '_' * 2] = lambda s: 0\ndef f(n): return g(n)",
    "a finalizer by wraps": "import functools\ndef f(n):\n functools.update_wrapper(g, f)\n return g(n)",
    "open": "def f(n):\n open('/tmp/x', 'w')\n return g(n)",
    "signal": "import signal\ndef f(n): return g(n)",
    "weakref": "import weakref\ndef f(n): return g(n)",
    "__builtins__": "def f(n):\n __builtins__['len'] = None\n return g(n)",
    "an audit hook": "import typing\ndef f(n):\n typing.sys.addaudithook(print)\n return g(n)",
    "recursion limit": "import typing\ntyping.sys.setrecursionlimit(12)\ndef f(n): return g(n)",
    "format": "def f(n): return '{0.__code__}'.format(g)",
}  # fmt: skip


SEEN = {"settrace", "_getframe", "__code__", "ctypes", "exec", "gc.get_objects", "a thread", "a traceback's frame",
        "a generator's frame", "a finalizer"}  # fmt: skip
"""Found out where the budget is broken, too."""


@pytest.mark.parametrize("name", TAMPER)
def test_tampering_never_passes_and_never_buys_a_step(sandbox: Sandbox, name: str) -> None:
    """With a budget that honest work keeps, and with one that it breaks: neither verdict is a pass by a trick."""
    code = SLOW + TAMPER[name]
    over = sandbox.score(budgeted(depth=50), code)
    assert not over.passed, over
    assert name not in SEEN or (over.status == "error" and "tampering" in over.detail), over
    ample = sandbox.score(budgeted(steps=100_000, elements=100_000, depth=500), code)
    assert ample.status == "error" or (ample.passed and over.status == "timeout"), ample


def test_honest_programs_are_not_taken_for_tampering(sandbox: Sandbox) -> None:
    code = '''
"""Sums of squares, by __magic__ words in a docstring."""
import math, functools
from itertools import accumulate
from collections import Counter, defaultdict, deque, namedtuple
from typing import List

class Sum:
    def __init__(self): self.total = 0
    def __call__(self, i): self.total += i * i

@functools.lru_cache(None)
def square(i: int) -> int: return i * i

def f(n: int) -> int:
    s = Sum()
    try:
        for i in deque(range(n)): s(i)
        {}["missing"]
    except KeyError:
        pass
    c = Counter({"a": n}); c.update("abc"); c.most_common(1)
    assert type(n) is int and isinstance(c, dict)
    print(max(map(square, range(2)), default=0), [*accumulate([1, 2])], math.gcd(4, 6), f"{n:5d}")
    return s.total

if __name__ == "__main__":
    f(1)
'''
    verdict = sandbox.score(budgeted(steps=50_000, elements=5000, depth=20), code)
    assert verdict.passed, verdict


def test_counts_do_not_depend_on_the_run(sandbox: Sandbox) -> None:
    problem = calls(([30], None))
    code = "def f(n):\n s = {str(i) for i in range(n)}\n t = 0\n for x in s:\n  t += hash(x) % 7\n return t"
    assert all(sandbox.measure(problem, code) == sandbox.measure(problem, code) for _ in range(3))
