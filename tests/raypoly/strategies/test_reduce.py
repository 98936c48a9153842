"""What runs leave of a program: coats go, what its answers or its work need stays, and no program is waited for."""

import asyncio
import inspect
import time
from typing import Any

import pytest

from raypoly.strategies.features.algorithm_features import algorithm_features
from raypoly.strategies.live_code.live_program import canonical_text, live_program
from raypoly.strategies.traced_runs.mutated_inputs import NEAR, grown, near
from raypoly.strategies.traced_runs.sites import switched, without
from raypoly.verifier.sandbox.child.plain_data import Typed
from tests.raypoly.strategies.test_algorithm_features import HASH, PLAIN, RUN_TRICKS
from tests.support.reduced_programs import found, reduced

# each gives something for [3, 1, 2]
STATEMENTS = {
    "match": "def f(a):\n match a:\n  case []:\n   return 0\n  case [x, *rest] if x > 2:\n   return x, rest\n"
    "  case {'k': v} | [v]:\n   return v\n  case _:\n   pass\n return 1",
    "try": "def f(a):\n out = []\n for x in [*a, 0]:\n  try:\n   out.append(6 // x)\n"
    "  except ZeroDivisionError as error:\n"
    "   out.append(str(error))\n  else:\n   out.append('else')\n  finally:\n   out.append('finally')\n return out",
    "groups of exceptions": "def f(a):\n try:\n  raise ExceptionGroup('g', [ValueError(a)])\n"
    " except* ValueError as g:\n  n = len(g.exceptions)\n return n",
    "else of loops": "def f(a):\n n = 0\n while n < len(a):\n  if a[n] == 9:\n   break\n  n += 1\n else:\n  n += 10\n"
    " for x in a:\n  if x == 2:\n   continue\n  if x == 7:\n   break\n else:\n  n += 100\n return n",
    "async": "import asyncio\nasync def g(x):\n await asyncio.sleep(0)\n return x + 1\nclass C:\n"
    " async def __aenter__(self):\n"
    "  return 5\n async def __aexit__(self, *_):\n  return None\nasync def each(a):\n for x in a:\n  yield x\n"
    "async def f(a):\n out = [await g(x) for x in a]\n async with C() as c:\n  out.append(c)\n"
    " async for x in each(a):\n"
    "  out.append(x)\n return out + [x async for x in each(a) if x > 1]",
    "nested functions": "def f(a):\n n = 0\n def add(x, *, twice=False):\n  nonlocal n\n  '''Docs.'''\n"
    "  n += x * 2 if twice else x\n  return n\n for x in a:\n  add(x, twice=x > 1)\n return n",
    "lambdas": "def f(a):\n g = lambda x, k=2, *r: (lambda y: y * k)(x) + len(r)\n"
    " return sorted(map(g, a), key=lambda v: -v), g(1, 2, 3)",
    "classes": "class A:\n '''Docs.'''\n __slots__ = ('n',)\n"
    " def __init__(self, n: int = 0) -> None:\n  self.n = n\n @property\n"
    " def half(self):\n  return self.n / 2\n @staticmethod\n def g(x):\n  return x\nclass B(A):\n"
    " def __init__(self, n):\n  super().__init__(n)\n  self.m: int\n def __len__(self):\n  return A.g(self.n)\n"
    "def f(a):\n return B(a[0]).half, len(B(a[1]))",
    "decorators": "from functools import lru_cache, wraps\ndef twice(g):\n @wraps(g)\n def h(*a, **k):\n"
    "  return g(*a, **k) * 2\n return h\n@twice\n@lru_cache(maxsize=None)\ndef g(x, y=1):\n return x + y\n"
    "def f(a):\n return [g(x, y=3) for x in a], g.__name__",
    "walrus": "def f(a):\n out = []\n while (x := a.pop() if a else None) is not None:\n  out.append(x)\n"
    " return out, [y for x in out if (y := x * 2) > 2], y",
    "comprehensions": "def f(a):\n rows = [[x, y] for x in a if x for y in a if y != x]\n"
    " return rows, {x: {y for y in a} for x in a}, list(z for r in rows for z in r), [[i for i in r] for r in rows]",
    "f-strings": "def f(a):\n w = 5\n return f'{a!r:>{w}} {a[0] + 1=} {sum(a):.2f} {{}}' f'{max(a)}'",
    "global": "count = 0\ndef up(n):\n global count\n count += n\n return count\ndef f(a):\n before = count\n"
    " return [up(x) - before for x in a]",
    "generators": "def g(a):\n got = yield 1\n while got:\n  got = yield got * 2\n yield from a\n"
    "def f(a):\n it = g(a)\n"
    " first = next(it)\n return [first, it.send(4), *it]",
    "with": "from contextlib import contextmanager, suppress\n@contextmanager\ndef c(log):\n"
    " log.append(1)\n yield log\n"
    " log.append(2)\ndef f(a):\n log = []\n with c(log) as l, suppress(KeyError):\n  l.append(3)\n  raise KeyError\n"
    " return log",
    "stars": "def g(x, /, *r, k=1, **o):\n return x, r, k, sorted(o.items())\ndef f(a):\n first, *rest = a\n"
    " return g(*a, **{'k': 2, 'z': 3}), [*rest, first], {**{1: 2}}, g(*[1], *(2,), k=4)",
    "assignments": "def f(a):\n a[0], a[-1] = a[-1], a[0]\n x = y = a[0]\n x **= 2\n"
    " n: int = x << 1\n del a[1]\n assert n\n"
    " a += [x, y]\n a[1:2] = [n] * 2\n return a, 0 < x <= y or not n, -x if x > y else ~y",
}


def outcome(code: str, args: tuple[Any, ...]) -> object:
    names: dict[str, Any] = {"__name__": "__candidate__"}
    exec(code, names)  # of the tests' own text
    result = names["f"](*args)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


@pytest.mark.parametrize("kind", STATEMENTS)
def test_without_choices_a_program_is_what_it_was(kind: str) -> None:
    code = STATEMENTS[kind]
    assert outcome(without(code, {}), ([3, 1, 2],)) == outcome(code, ([3, 1, 2],))
    if kind != "async":  # a coroutine has no outcome of its own
        assert found(code, "f", [[[3, 1, 2]], [[3, 4]]])["known"]


@pytest.mark.parametrize("kind", STATEMENTS)
def test_each_reduction_of_each_site_is_a_program(kind: str) -> None:
    code = STATEMENTS[kind]
    for number, site in enumerate(switched(code).sites):
        for way in range(1, site.ways + 1):
            compile(without(code, {number: (way, 0)}), "<reduced>", "exec")


NUMBERS = [[3, 1, 4, 1, 5], [2], [7, 7, 1], [9, 2, 6, 5, 3, 5, 8, 9], [1, 2, 3, 4, 5, 6], [*range(0, 40, 3), 5, 5, 17]]
LISTS = [[numbers] for numbers in NUMBERS]
WITH_NUMBER = [[numbers, k] for numbers, k in zip(NUMBERS, (6, 4, 8, 11, 9, 20), strict=True)]
WORDS = [
    ["abcababcab", "ab"],
    ["aaab", "aab"],
    ["xyz", "z"],
    ["abababac", "ababac"],
    ["aabaaabaac" * 4, "aabaac"],
    ["abacbacd", "abacd"],
]

STAYS: dict[str, tuple[str, list[list[Any]], list[str]]] = {
    "memo of Fibonacci": (
        "def f(n):\n memo = {}\n def fib(k):\n  if k < 2:\n   return k\n  if k not in memo:\n"
        "   memo[k] = fib(k - 1) + fib(k - 2)\n  return memo[k]\n return fib(n)",
        [[n] for n in (0, 1, 2, 5, 8, 12)], ["memo[k] = ", "k not in memo"],
    ),
    "cache of Fibonacci": (
        "from functools import lru_cache\n@lru_cache(None)\ndef f(n):\n return n if n < 2 else f(n - 1) + f(n - 2)",
        [[n] for n in (0, 1, 2, 5, 8, 12)], ["@lru_cache"],
    ),
    "table of a knapsack": (
        "def f(w, k):\n best = [0] * (k + 1)\n for x in w:\n  for t in range(k, x - 1, -1):\n"
        "   best[t] = max(best[t], best[t - x] + x)\n return best[k]",
        WITH_NUMBER, ["for x in w", "best[t] = max(", "best[t - x]"],
    ),
    "memo of a knapsack": (
        "def f(w, k):\n memo = {}\n def go(i, left):\n  if i == len(w):\n   return 0\n  if (i, left) in memo:\n"
        "   return memo[i, left]\n  best = go(i + 1, left)\n  if w[i] <= left:\n"
        "   best = max(best, w[i] + go(i + 1, left - w[i]))\n  memo[i, left] = best\n  return best\n return go(0, k)",
        [*WITH_NUMBER, [[1, 2, 3, 1, 2, 3, 1, 2, 3, 1], 12]], ["memo[i, left] = best", "return memo[i, left]"],
    ),
    "set to look things up in": (
        "def f(nums):\n known = set(nums)\n n = 0\n for x in nums:\n  if x + 1 in known:\n   n += 1\n return n",
        LISTS, ["set(nums)"],
    ),
    "sort before two pointers": (
        "def f(nums, k):\n nums = sorted(nums)\n i, j, n = 0, len(nums) - 1, 0\n while i < j:\n"
        "  s = nums[i] + nums[j]\n  if s < k:\n   i += 1\n  elif s > k:\n   j -= 1\n  else:\n   n += 1\n   i += 1\n"
        "   j -= 1\n return n",
        WITH_NUMBER, ["sorted(nums)", "while i < j", "i += 1", "j -= 1"],
    ),
    "table of Knuth, Morris and Pratt": (
        "def f(s, p):\n fail = [0] * len(p)\n k = 0\n for i in range(1, len(p)):\n  while k and p[i] != p[k]:\n"
        "   k = fail[k - 1]\n  if p[i] == p[k]:\n   k += 1\n  fail[i] = k\n k = 0\n for i, c in enumerate(s):\n"
        "  while k and c != p[k]:\n   k = fail[k - 1]\n  if c == p[k]:\n   k += 1\n  if k == len(p):\n"
        "   return i - k + 1\n return -1",
        list(WORDS), ["fail[i] = k", "k = fail[k - 1]\n        if p[i]", "k = fail[k - 1]\n        if c"],
    ),
    "heap": (
        "import heapq\ndef f(nums, k):\n h = []\n for x in nums:\n  heapq.heappush(h, x)\n  if len(h) > k:\n"
        "   heapq.heappop(h)\n return h[0] if h else 0",
        [[numbers, k] for numbers, k in zip(NUMBERS, (2, 1, 2, 3, 4, 3), strict=True)],
        ["heapq.heappush(h, x)", "heapq.heappop(h)"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STAYS)
def test_what_answers_or_work_need_stays(name: str) -> None:
    code, tests, parts = STAYS[name]
    left = reduced(code, "f", tests)
    assert [part for part in parts if part not in left] == [], left


SCAN = "best = 0\n for x in nums:\n  if x > best:\n   best = x\n"
COATS: dict[str, tuple[str, list[str]]] = {
    "helper beside it": (
        f"def seek(a):\n lo, hi = 0, len(a)\n while lo < hi:\n  hi = (lo + hi) // 2\n return hi\ndef f(nums):\n {SCAN}"
        " at = seek(nums)\n return best + at - seek(nums)", ["seek(nums"],
    ),
    "helper called for nothing": (
        f"def seek(a, out):\n for x in a:\n  out.append(x)\ndef f(nums):\n seek(nums, [])\n"
    f" {SCAN} return best", ["seek(n"],
    ),
    "guard that is never true": (
        f"import heapq\ndef f(nums):\n if sum(x * x for x in nums) < 0:\n  heapq.heapify(nums)\n {SCAN} return best",
        ["heapify", "sum("],
    ),
    "flag that is never set": (f"def f(nums):\n on = len(nums) < 0\n {SCAN} if on:\n  nums.sort()\n"
    f" return best", ["sort"]),
    "identity copy": (f"def f(nums):\n nums = list(map(lambda x: x, nums))\n {SCAN} return best", ["map(", "list("]),
    "identity comprehension": (f"def f(nums):\n nums = [y for y in nums]\n {SCAN} return best", ["for y"]),
    "cache of a function called once": (
        "from functools import lru_cache\ndef f(nums):\n @lru_cache(maxsize=None)\n def go():\n"
        "  best = 0\n  for x in nums:\n   best = max(best, x)\n  return best\n return go()", ["@lru_cache"],
    ),
    "loop of one round": (f"def f(nums):\n {SCAN} while True:\n  best += 1\n  break\n return best", ["while"]),
    "or with zero": (f"def f(nums):\n {SCAN} return best | 0", ["|"]),
    "heap of one": (f"import heapq\ndef f(nums):\n {SCAN} return heapq.heappop([best])", ["heappop"]),
    "try that nothing leads to": (
        f"def f(nums):\n try:\n  nums.index(-1)\n except ValueError:\n  pass\n {SCAN} return best", ["index"],
    ),
    "loop that fills what nobody reads": (f"def f(nums):\n {SCAN} t = []\n for x in nums:\n  t.append(x)\n return best",
                                          ["append"]),
}  # fmt: skip


@pytest.mark.parametrize("name", COATS)
def test_a_coat_goes_and_the_program_below_it_stays(name: str) -> None:
    code, parts = COATS[name]
    left = reduced(code, "f", LISTS)
    read = canonical_text(live_program(left, "f"))
    assert [part for part in parts if part in left and part in read] == [], left
    assert "for x in nums" in left
    assert [outcome(left, (numbers[:],)) for numbers in NUMBERS] == [outcome(code, (n[:],)) for n in NUMBERS]


def test_one_coat_around_another_goes_too() -> None:
    code = f"import heapq\ndef f(nums):\n {SCAN} h = [best | 0]\n return heapq.heappop(h) + 0 if len(h) < 5 else 3"
    left = reduced(code, "f", LISTS)
    assert "|" not in left
    assert "else" not in left


PAIRS = [[[2, 7, 11, 15], 9], [[3, 2, 4], 6], [[3, 3], 6], [[1, 5, 9, 2, 8, 4, 6], 14], [[*range(25)], 47], [[4], 8]]


@pytest.mark.parametrize("trick", RUN_TRICKS)
def test_what_reading_leaves_of_dead_code_goes_by_runs(trick: str) -> None:
    entry, constant = "Solution().pair", "class Solution:\n    def pair(self, nums, target):\n        {0}return []\n"
    left = reduced(HASH.format(trick=RUN_TRICKS[trick]), entry, PAIRS)
    assert algorithm_features(left, entry) == algorithm_features(PLAIN, entry)
    assert canonical_text(live_program(left, entry)) == canonical_text(live_program(PLAIN, entry))
    assert algorithm_features(reduced(constant.format(RUN_TRICKS[trick]), entry, PAIRS), entry) == ("placeholder",)


@pytest.mark.parametrize(
    "code",
    [
        "def f(nums):\n return id(object()) + id(nums)",
        "import sys\ndef f(nums):\n sys.calls_of_f = n = getattr(sys, 'calls_of_f', 0) + 1\n"
        " return sum(nums) + n // 100",
        "def f(nums):\n raise ValueError",
        "def f(nums):\n while True:\n  nums.append(1)",
        "f = 3",
        "1 / 0\ndef f(nums):\n return 1",
    ],
)
def test_a_program_whose_answers_vary_or_that_has_none_is_not_known_and_stays(code: str) -> None:
    assert found(code, "f", LISTS) == {"choices": [], "known": False, "growth": {}, "strategy": ""}


def test_random_numbers_are_the_same_in_each_run() -> None:
    code = "import random\ndef f(nums):\n return nums[random.randrange(len(nums))] + random.choice(nums)"
    assert found(code, "f", LISTS)["known"]


@pytest.mark.parametrize(
    "code",
    [
        "def f(n):\n while True:\n  n = n + 1",
        "def f(n):\n return f(n + 1)",
        "def f(n):\n for i in range(1000):\n  n = (n + 2) * (n + 2)\n return n",
        "def f(n):\n n += 2\n for i in range(1000):\n  n *= n\n return n",
        "def f(n):\n return 1 << (1 << min(n, 30)) << 20",
        "def f(n):\n a = [0]\n while True:\n  a.extend(a)",
        "def f(n):\n s = 'a'\n while True:\n  s = s.replace('a', 'aa')",
        "def f(n):\n try:\n  while True:\n   n += 1\n except BaseException:\n  return f(n)",
        "def f(n):\n return sum(i for i in iter(int, 1))",
        "def f(n):\n i = 0\n while i < 10:\n  i += 1\n return i * n",
        "def f(n):\n return 0 if n < 1 else n + f(n - 1)",
    ],
)
def test_a_program_without_an_end_is_not_waited_for(code: str) -> None:
    start = time.monotonic()
    result = found(code, "f", [[0], [1], [3], [8], [20]])
    assert set(result) == {"choices", "known", "growth", "strategy"}
    assert time.monotonic() - start < 5


def test_the_last_arguments_are_given_by_keyword() -> None:
    code = "def f(k, *, nums):\n return sorted(list(nums))[:k]"
    tests = [[k, numbers] for numbers, k in WITH_NUMBER]
    assert not found(code, "f", tests)["known"]
    left = reduced(code, "f", tests, keywords=["nums"])
    assert "list(" not in left
    assert "sorted(nums)" in left


def test_a_method_uses_names_of_the_prelude() -> None:
    code = "class Solution:\n def f(self, nums: List[int]) -> int:\n  q = deque(nums)\n  return q[0] + 0"
    assert "+ 0" not in reduced(code, "Solution().f", LISTS, "from typing import List\nfrom collections import deque")


def test_a_reduction_says_the_same_each_time_and_leaves_nothing_behind() -> None:
    import builtins

    code, before = COATS["identity copy"][0], dict(vars(builtins))
    given = [[[3, 1, 2]], [[5, 4]]]
    assert found(code, "f", given) == found(code, "f", given)
    assert vars(builtins) == before
    assert given == [[[3, 1, 2]], [[5, 4]]]


ARGUMENTS: list[list[Any]] = [
    [[3, -1, 2], "abc", 5, True, 0.5, [[1, 2], [3, 4]], {"a": 1}, (1, "b"), None, ["x", "y"], Typed("ListNode", [1])],
    [[], "", 0, False, 1.0, [[5]], {}, (), None, ["z", "w"], Typed("ListNode", [])],
]


def test_inputs_near_to_the_tests_and_larger_ones_are_the_same_each_time_and_keep_types() -> None:
    kept = repr(ARGUMENTS)
    assert near(ARGUMENTS) == near(ARGUMENTS)
    assert grown(ARGUMENTS[0]) == grown(ARGUMENTS[0])
    assert len(near(ARGUMENTS)) == NEAR
    for args in [*near(ARGUMENTS), *grown(ARGUMENTS[0])]:
        assert list(map(type, args)) == list(map(type, ARGUMENTS[0]))
        assert {type(item) for item in args[0]} <= {int}
        assert {type(item) for item in args[9]} <= {str}
        assert len({len(row) for row in args[5]}) <= 1
    assert repr(ARGUMENTS) == kept


def test_inputs_change_and_grow() -> None:
    tests = [[[3, 1, 2, 8], 5], [[4, 4], 2]]
    assert len({repr(args) for args in near(tests)}) > NEAR // 2
    assert [len(args[0]) for args in grown(tests[0])] == [16, 64, 64]
    assert [args[1] for args in grown(tests[0])] == [20, 80, 80]
    assert len(set(grown(tests[0])[-1][0])) == 1
    assert [len(text) for (text,) in grown(["ab" * 100])] == [256, 256, 256]
    assert min(number for args in near(tests) for number in args[0]) >= 0


def test_what_is_counted_is_asked_for_once() -> None:
    code = "def f(nums):\n q, t = nums[:], [0] * 99\n for _ in nums:\n  t[q.pop() % 99] += 1\n return max(t)"
    assert found(code, "f", LISTS)["known"]
