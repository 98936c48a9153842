"""Live constructs, by syntax alone."""

import ast

import pytest

from raypoly.strategies.live_code.constructs import live_constructs, may_call, may_recur
from raypoly.strategies.live_code.live_program import live_program

PLAIN = "def f(n):\n s = 0\n for x in range(n):\n  s += x\n return s"
LIVE = [
    (PLAIN, ("for",)),
    ("def f(n):\n while n > 9:\n  n -= 7\n return n", ("while",)),
    ("def f(n):\n return 1 if n < 2 else n * f(n - 1)", ("recursion",)),
    ("def f(n):\n return a(n)\ndef a(n):\n return n and b(n - 1)\ndef b(n):\n return a(n)", ("recursion",)),
    ("def f(n):\n return sum(x for x in range(n))", ("generator",)),
    ("def f(n):\n return {x: 1 for x in range(n)}", ("comprehension",)),
    ("def f(n):\n return list(map(str, filter(None, range(n))))", ("filter", "map")),
    ("import functools\ndef f(n):\n return functools.reduce(max, range(n), 0)", ("reduce",)),
    ("def f(n):\n r = []\n for x in range(n):\n  r.append(x)\n return r", ("for",)),
    ("def f(n):\n r = []\n q = r\n for x in range(n):\n  q.append(x)\n return r", ("for",)),
    ("def f(xs):\n for i in range(len(xs)):\n  xs[i] = 0", ("for",)),
    ("def f(n):\n for x in range(n):\n  if x * x >= n:\n   break\n return x", ("for",)),
    ("def f(n):\n for x in range(n):\n  if x * x >= n:\n   return x\n return 0", ("for",)),
    ("def f(n):\n try:\n  for x in range(n):\n   n += x\n except ValueError:\n  pass\n return n", ("for",)),
    ("def f(n):\n t = 0\n def g(k):\n  nonlocal t\n  t += k\n  k and g(k - 1)\n g(n)\n return t", ("recursion",)),
    ("def f(n):\n s = 0\n for x in range(n):\n  s += x", ("for",)),
    ("def f(n):\n return n * (n + 1) // 2", ("closed_form",)),
]  # fmt: skip


def constructs(code: str, entry: str) -> tuple[str, ...]:
    return live_constructs(live_program(code, entry).tree)


@pytest.mark.parametrize(("code", "expected"), LIVE)
def test_constructs_that_the_result_depends_on_are_found(code: str, expected: tuple[str, ...]) -> None:
    assert constructs(code, "f") == expected


DEAD = {
    "unused loop": "for i in range(n):\n  pass",
    "loop whose effect is unused": "t = 0\n for i in range(n):\n  t += i",
    "two variables that feed each other": "a = b = 0\n while a < n:\n  a, b = b + 1, a",
    "self-feeding while": "i = 0\n while i < n:\n  i += 1",
    "endless loop left by break": "i = 0\n while True:\n  i += 1\n  if i > n:\n   break",
    "list that nobody reads": "t = []\n for i in range(n):\n  t.append(i)",
    "comprehension never read": "t = [i for i in range(n)]",
    "comprehension as a statement": "[i for i in range(n)]",
    "constant false if": "if 0:\n  for i in range(n):\n   n += i",
    "constant comparison": "if 1 > 2 and n:\n  for i in range(n):\n   n += i",
    "constant false while": "while False:\n  n += 1",
    "empty loop": "for i in ():\n  n += i",
    "loop over range(0)": "for i in range(0):\n  n += i",
    "unused function": "def g(k):\n  return k and g(k - 1)",
    "unused call of a pure function": "g = lambda k: k and g(k - 1)\n g(n)",
    "unused map": "t = list(map(str, range(n)))",
    "same loop variable as a live loop": "for x in range(n):\n  pass\n for x in [n]:\n  n = x",
}


@pytest.mark.parametrize("trick", DEAD)
def test_dead_code_adds_no_construct(trick: str) -> None:
    found = constructs(f"def f(n):\n {DEAD[trick]}\n return n * 2", "f")
    assert found == (("for",) if "live loop" in trick else ("closed_form",))


def test_methods_are_reached_through_the_class() -> None:
    code = "class Solution:\n def go(self, n):\n  return self.up(n)\n def up(self, n):\n  return n and self.up(n - 1)"
    assert constructs(code, "Solution().go") == ("recursion",)


def test_a_deletion_is_an_effect() -> None:
    code = "def f(n):\n c = {}\n for x in n:\n  c[x] = 1\n for x in c.copy():\n  del c[x]\n return c"
    assert ast.unparse(live_program(code, "f").tree).count("for") == 2


HIDDEN = {
    "by name": "def f(n):\n return n and f(n - 1)",
    "another name": "def f(n):\n return n and g(n - 1)\ng = f",
    "globals": "def f(n):\n return n and globals()['f'](n - 1)",
    "eval": "def f(n):\n return n and eval('f(n - 1)')",
    "an inner function": "def f(n):\n def g(k):\n  return k and g(k - 1)\n return g(n)",
    "a lambda handed to itself": "def f(n):\n return (lambda g: g(g, n))(lambda g, k: k and g(g, k - 1))",
    "a class": "class A:\n def f(self, n):\n  return n and self.f(n - 1)\ndef f(n):\n return A().f(n)",
    "a decorator": "def f(n):\n return n\n@f\ndef f(n):\n return n",
    "an unknown function": "def f(n):\n return n and helper(n - 1)",
    "a frame": "def f(n):\n g = (x for x in [1])\n return g.gi_frame",
    "a frame by a pattern": "def f(n):\n match (x for x in [1]):\n  case object(gi_frame=g):\n   return g",
    "a module": "import sys\ndef f(n):\n return n and sys.modules",
    "a module's function": "from inspect import currentframe\ndef f(n):\n return currentframe()",
    "a global": "def f(n):\n global g\n g = n\n return g",
}


@pytest.mark.parametrize("way", HIDDEN)
def test_where_a_function_might_be_called_while_it_runs_it_is_watched(way: str) -> None:
    assert may_recur(ast.parse(HIDDEN[way]))


@pytest.mark.parametrize(
    "code",
    [
        PLAIN,
        "def f(s):\n r = []\n for c in s.lower().split():\n  r.append(int(c))\n return sorted(r)[0]",
        "def f(n):\n return sum([x * x for x in range(n) if x % 2])",
        "from math import isqrt\ndef f(n, base=2):\n while (n := isqrt(n)) > base:\n  pass\n return n",
    ],
)
def test_a_single_function_that_nothing_leads_to_is_not_watched(code: str) -> None:
    assert not may_recur(ast.parse(code))


@pytest.mark.parametrize(
    ("prelude", "found"),
    [
        ("", False),
        ("from functools import reduce\n", False),
        ("import sys", True),
        ("from functools import wraps", True),
        ("from builtins import eval as sum", True),
        ("def helper(n):\n return f(n)", True),
    ],
)
def test_a_prelude_of_known_imports_calls_nobody(prelude: str, found: bool) -> None:
    assert may_call(prelude) is found
