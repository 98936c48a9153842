"""Execution evidence: right on clean programs, not fooled by code that does no work."""

import json
import random
import re

import pytest

from raypoly.core.config import ProblemsConfig
from raypoly.data.puzzles import load_puzzles, puzzle_of
from raypoly.data.puzzles.puzzle_solutions import STRATEGIES, render_solution
from raypoly.strategies.traced_runs.observer import warm
from tests.support.reduced_programs import found, observe

FOR = "def f(n):\n s = 0\n for x in range(1, n + 1):\n  if x % 2 == 0:\n   s += x * x\n return s"
WHILE = "def f(n):\n s = 0\n x = 1\n while x <= n:\n  if x % 2 == 0:\n   s += x * x\n  x += 1\n return s"
RECURSION = "def f(n):\n if n < 1:\n  return 0\n return (n * n if n % 2 == 0 else 0) + f(n - 1)"
COMPREHENSION = "def f(n):\n return sum([x * x for x in range(1, n + 1) if x % 2 == 0])"
MAP = "def f(n):\n return sum(map(lambda x: x * x, filter(lambda x: x % 2 == 0, range(1, n + 1))))"
EVEN = "filter(lambda x: x % 2 == 0, range(1, n + 1))"
REDUCE = f"from functools import reduce\ndef f(n):\n return reduce(lambda a, x: a + x * x, {EVEN}, 0)"
MUTUAL = "def a(n):\n return 0 if n < 1 else n + b(n - 1)\ndef b(n):\n return a(n - 1)\ndef f(n):\n return a(n)"

CLEAN = [
    (FOR, "for"),
    ("def f(n):\n r = []\n for x in range(1, n + 1):\n  r.append(x)\n return r", "for"),
    ("def f(n):\n c = 0\n for x in range(1, n + 1):\n  c += 1\n return c", "direct"),
    ("def f(n):\n m = 0\n for x in range(1, n + 1):\n  if x % 3 == 0:\n   m = max(m, x)\n return m", "for"),
    ("def f(n):\n for x in range(n, 0, -1):\n  if x % 2 == 0:\n   return x\n return 0", "direct"),
    ("def f(n):\n p = 1\n for x in range(1, n + 1):\n  p *= x\n return p", "for"),
    (WHILE, "while"),
    ("def f(n):\n s = 0\n while n > 0:\n  s += n\n  n -= 1\n return s", "while"),
    ("def f(n):\n s = 0\n x = 0\n while True:\n  x += 1\n  if x > n:\n   return s\n  s += x", "while"),
    (RECURSION, "recursion"),
    ("def f(n):\n def g(x):\n  if x > n:\n   return 0\n  return x + g(x + 1)\n return g(1)", "recursion"),
    ("def f(n):\n def g(x):\n  return [x] + g(x + 1) if x <= n else []\n return sum(g(1))", "recursion"),
    ("def f(n):\n g = lambda x: 1 if x > n else x * g(x + 1)\n return g(1)", "recursion"),
    (MUTUAL, "recursion"),
    ("def f(n, a=0):\n return a if n < 1 else f(n - 1, a + n)", "recursion"),
    (COMPREHENSION, "comprehension"),
    (COMPREHENSION.replace("[", "").replace("]", ""), "comprehension"),
    ("def f(n):\n return len([x for x in range(1, n + 1) if x % 2])", "comprehension"),
    ("def f(n):\n return sum([x for x in range(1, n + 1)])", "direct"),
    ("def f(n):\n return [x for x in range(1, n + 1)]", "comprehension"),
    ("def f(n):\n return max(x * (n - x) for x in range(n + 1))", "comprehension"),
    (MAP, "higher_order"),
    ("def f(n):\n return list(map(lambda x: x + 1, range(n)))", "higher_order"),
    ("def f(n):\n return len(list(filter(lambda x: x % 3 == 1, range(n))))", "higher_order"),
    (REDUCE, "reduce"),
    ("import functools\ndef f(n):\n return functools.reduce(lambda a, x: a * x, range(1, n + 1), 1)", "reduce"),
    ("def f(n):\n return n * (n + 1) // 2", "direct"),
    ("def f(n):\n return sum(range(n + 1))", "direct"),
]  # fmt: skip


def strategy(code: str) -> str:
    return str(observe(code, "", "f", [4], [40])["strategy"])


@pytest.mark.parametrize(("code", "expected"), CLEAN)
def test_the_strategy_of_a_clean_program_is_the_construct_that_does_the_work(code: str, expected: str) -> None:
    assert strategy(code) == expected


def test_every_solution_of_a_puzzle_is_seen_as_its_strategy() -> None:
    rng = random.Random(0)
    for problem in load_puzzles(ProblemsConfig()).splits["test"]:
        tests = [case["args"] for case in json.loads(problem.tests.source)]
        for wanted in STRATEGIES:
            code = problem.prefix + render_solution(puzzle_of(problem), wanted, rng)
            # one that hands its items on does nothing
            copies = re.search(r"\[(\w) for \1 in range\(\w+, \w+ \+ 1\)\]|map\(lambda (\w): \2,", code)
            assert found(code, "f", tests, problem.prelude)["strategy"] == ("direct" if copies else wanted), code


SUM = "return sum([x * x for x in range(1, n + 1) if x % 2 == 0])"
TRICKS = {
    "unused for loop": f"def f(n):\n for i in range(n):\n  pass\n {SUM}",
    "unused for loop that assigns": f"def f(n):\n for i in range(n):\n  t = i * i\n {SUM}",
    "unused accumulator": f"def f(n):\n t = 0\n for i in range(n):\n  t += i\n {SUM}",
    "unused list": f"def f(n):\n t = []\n for i in range(n):\n  t.append(i)\n {SUM}",
    "constant false if": f"def f(n):\n if 0:\n  for i in range(n):\n   n += i\n {SUM}",
    "constant false while": f"def f(n):\n while False:\n  n += 1\n {SUM}",
    "code after return": f"def f(n):\n {SUM}\n for i in range(n):\n  n += i\n return n",
    "self-feeding while": f"def f(n):\n i = 0\n while i < n:\n  i += 1\n {SUM}",
    "while that counts down to a zero that is added": f"def f(n):\n z = n\n while z > 0:\n  z -= 1\n {SUM} + z",
    "zero added by a loop": f"def f(n):\n z = 0\n for i in range(n):\n  z += i - i\n {SUM} + z",
    "loop that counts to n": f"def f(n):\n k = 0\n while k < n:\n  k += 1\n {SUM.replace('n + 1', 'k + 1')}",
    "loop's result taken away again": f"def f(n):\n t = 0\n for i in range(n):\n  t += i\n {SUM} + t - t",
    "overwritten result": f"def f(n):\n s = 0\n for x in range(1, n + 1):\n  s += x\n s = 1\n {SUM}",
    "unused recursion": f"def g(k):\n return 0 if k < 1 else g(k - 1)\ndef f(n):\n g(n)\n {SUM}",
    "zero added by recursion": f"def g(k):\n return 0 if k < 1 else g(k - 1)\ndef f(n):\n {SUM} + g(n)",
    "unused reduce": f"from functools import reduce\ndef f(n):\n t = reduce(lambda a, x: a + x, range(n), 0)\n {SUM}",
    "map that changes nothing": f"def f(n):\n {SUM.replace('range(1, n + 1)', 'map(lambda y: y, range(1, n + 1))')}",
    "loop around one round": f"def f(n):\n for _ in range(1):\n  {SUM}",
    "while around one round": f"def f(n):\n while True:\n  {SUM}",
    "zero times a map": f"def f(n):\n {SUM} + 0 * sum(map(abs, range(n)))",
    "loop in a function nobody calls": f"def g(n):\n for i in range(n):\n  n += i\n return n\ndef f(n):\n {SUM}",
    "condition that never holds": f"def f(n):\n if n < -5:\n  for i in range(n):\n   n += i\n {SUM}",
}


@pytest.mark.parametrize("trick", TRICKS)
def test_code_that_does_no_work_does_not_change_the_strategy(trick: str) -> None:
    evidence = observe(TRICKS[trick], "", "f", [4], [40])
    assert (evidence["strategy"], evidence["growth"]) == ("comprehension", {"comprehension": 40.0})


HIDDEN = {
    "another name": "def f(n):\n return n and n + g(n - 1)\ng = f",
    "globals": "def f(n):\n return n and n + globals()['f'](n - 1)",
    "an inner function": "def f(n):\n def g(k):\n  return k and k + g(k - 1)\n return g(n)",
    "a lambda handed to itself": "def f(n):\n return (lambda g: g(g, n))(lambda g, k: k and k + g(g, k - 1))",
    "a class": "class A:\n def f(self, n):\n  return n and n + self.f(n - 1)\ndef f(n):\n return A().f(n)",
    "a method by its name": (
        "class A:\n def g(self, n):\n  return n and n + getattr(self, 'g')(n - 1)\ndef f(n):\n return A().g(n)"
    ),
    "a list of functions": "def f(n):\n return n and n + [abs, f][1](n - 1)",
    "a wrapper": "def twice(g):\n return lambda n: g(n)\n@twice\ndef f(n):\n return n and n + f(n - 1)",
}


@pytest.mark.parametrize("way", HIDDEN)
def test_recursion_is_seen_however_it_is_called(way: str) -> None:
    assert strategy(HIDDEN[way]) == "recursion"


def test_a_loop_beside_a_formula_is_no_strategy() -> None:
    assert strategy("def f(n):\n for i in range(n):\n  pass\n return n * (n + 1) // 2") == "direct"


def test_a_program_that_raises_on_the_large_input_has_no_strategy() -> None:
    evidence = observe("def f(n):\n for x in range(n):\n  assert x < 20\n  n += x\n return n", "", "f", [4], [40])
    assert evidence["strategy"] == ""
    assert evidence["constructs"] == ["for"]


def test_an_attempt_that_forgets_to_return_keeps_its_construct() -> None:
    code = "def f(n):\n s = 0\n for x in range(n):\n  s += x"
    assert found(code, "f", [[4], [40]], passed=False)["strategy"] == "for"


def test_a_wrong_program_that_most_tests_end_is_not_known_by_the_others() -> None:
    code = "def f(n):\n return sum(map(lambda k: 1, filter(lambda k: x % 2 == 0, range(n))))"
    assert not found(code, "f", [[0], [4], [40]], passed=False)["known"]
    assert found(code.replace("x %", "n %"), "f", [[0], [4], [40]], passed=False)["strategy"] == "higher_order"


def test_recursion_that_never_ends_on_the_small_input_is_still_recursion() -> None:
    code = "def f(n):\n if n == 9:\n  return 1\n return f(n - 1) + n"
    assert strategy(code) == "recursion"


def test_without_arguments_only_syntax_is_told() -> None:
    evidence = observe(FOR, "", "f", None, None)
    assert (evidence["constructs"], evidence["growth"], evidence["strategy"]) == (["for"], {}, "")


@pytest.mark.parametrize(
    "code",
    [
        "def f(n):\n while True:\n  pass",
        "def f(n):\n return f(n)",
        "def f(n):\n raise SystemExit",
        "import nothing_of_that_name\ndef f(n):\n return n",
        "def g(n):\n return n",
        "f = 3",
        "",
    ],
)
def test_hopeless_programs_have_no_strategy(code: str) -> None:
    assert strategy(code) == ""


def test_methods_of_a_solution_class_and_a_prelude_work() -> None:
    code = "class Solution:\n    def total(self, xs: List[int]) -> int:\n        return sum(x * x for x in xs)"
    evidence = observe(code, "from typing import List", "Solution().total", [[1, 2]], [list(range(30))])
    assert (evidence["constructs"], evidence["strategy"]) == (["generator"], "comprehension")


def test_warming_up_changes_no_evidence() -> None:
    before = observe(MAP, "", "f", [4], [40])
    warm()
    assert observe(MAP, "", "f", [4], [40]) == before
