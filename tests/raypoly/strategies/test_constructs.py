"""Live constructs, by syntax alone."""

import ast

import pytest

from raypoly.strategies.live_code.constructs import live_constructs
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
    "two variables that feed each other": "a = b = 0\n while a < n:\n  a, b = b + 1, a",
    "endless loop left by break": "i = 0\n while True:\n  i += 1\n  if i > n:\n   break",
    "comprehension as a statement": "[i for i in range(n)]",
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


def test_a_loop_that_only_uses_up_a_parameter_is_dead() -> None:
    assert constructs("def f(n):\n t = 1\n while n:\n  n = n // 2\n return t", "f") == ("closed_form",)
    assert constructs("def f(n):\n while n:\n  n.pop()\n return 1", "f") == ("while",)
