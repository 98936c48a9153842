"""Code that changes nothing moves no approach of what runs leave: each decoy in each program and method."""

import heapq
import textwrap
from bisect import bisect_left
from collections import deque
from functools import cache
from random import Random
from typing import Any

import pytest

from raypoly.strategies.features.algorithm_features import algorithm_features
from raypoly.strategies.judge.structural import approach_of
from tests.support.reduced_programs import reduced

BASES = {
    "brute force": """
def f(nums, k):
    {start}
    best = 0
    for i in range(len(nums)):
        for j in range(i + 1, len(nums)):
            if nums[i] + nums[j] == k:
                best += 1
    {end}
    return {answer}
""",
    "hash table": """
def f(nums, k):
    {start}
    seen = {{}}
    best = 0
    for x in nums:
        best += seen.get(k - x, 0)
        seen[x] = seen.get(x, 0) + 1
    {end}
    return {answer}
""",
    "two pointers": """
def f(nums, k):
    {start}
    i, j, best = 0, len(nums) - 1, 0
    while i < j:
        best = max(best, (j - i) * min(nums[i], nums[j]))
        if nums[i] < nums[j]:
            i += 1
        else:
            j -= 1
    {end}
    return {answer}
""",
    "dynamic programming": """
def f(nums, k):
    {start}
    ways = [1] + [0] * k
    for x in nums:
        for t in range(x, k + 1):
            ways[t] += ways[t - x]
    best = ways[k]
    {end}
    return {answer}
""",
    "recursion": """
def f(nums, k):
    {start}
    def go(i, left):
        if i == len(nums):
            return 1 if left == 0 else 0
        return go(i + 1, left) + go(i + 1, left - nums[i])
    best = go(0, k)
    {end}
    return {answer}
""",
    "sorting": """
def f(nums, k):
    {start}
    ordered = sorted(nums)
    best = ordered[-1] - ordered[0]
    for a, b in zip(ordered, ordered[1:]):
        best = min(best, b - a)
    {end}
    return {answer}
""",
    "breadth-first search": """
def f(nums, k):
    {start}
    queue = deque([0])
    steps = {{0: 0}}
    while queue:
        now = queue.popleft()
        for to in (now + 1, now + nums[now]):
            if to < len(nums) and to not in steps:
                steps[to] = steps[now] + 1
                queue.append(to)
    best = steps.get(k, 0)
    {end}
    return {answer}
""",
    "scan": """
def f(nums, k):
    {start}
    best = run = 0
    for x in nums:
        run = run + 1 if x == k else 0
        if run > best:
            best = run
    {end}
    return {answer}
""",
}  # fmt: skip

DP = """table = [0] * (len(nums) + 1)
for p in range(1, len(nums) + 1):
    table[p] = max(table[p - 1], table[p])
"""
SEARCH = """lo, hi = 0, len(nums) - 1
while lo <= hi:
    mid = (lo + hi) // 2
    if nums[mid] < k:
        lo = mid + 1
    else:
        hi = mid - 1
"""
POINTERS = """u, v = 0, len(nums) - 1
    while u < v:
        if nums[u] + nums[v] == k:
            return v - u
        if nums[u] + nums[v] < k:
            u += 1
        else:
            v -= 1
    return 0
"""
HEAP = """heap = list(nums)
    heapq.heapify(heap)
    total = 0
    while heap:
        total += heapq.heappop(heap) * len(heap)
    return total
"""
GRID = """grid = [[0] * 3 for _ in range(len(nums) + 1)]
for p in range(1, len(nums) + 1):
    for q in range(1, 3):
        grid[p][q] = grid[p - 1][q] + grid[p][q - 1]
"""

DECOYS: dict[str, tuple[str, str, str]] = {
    # what is known to have worked
    "a square below zero": (f"if k * k < 0:\n    nums = sorted(nums)\n    {POINTERS}", "", "best"),
    "a length below zero": (f"if len(nums) < 0:\n    {HEAP}", "", "best"),
    "the first of a sorted list above its last": ("s = sorted(nums)\nif s[0] > s[-1]:\n    return 0", "", "best"),
    "heapify before sorted": ("h = nums[:]\nheapq.heapify(h)\nh = sorted(h)", "", "best"),
    "an except that nothing leads to": (f"try:\n    n = len(nums)\nexcept ValueError:\n    {HEAP}", "", "best"),
    "a table that changes nothing": (DP, "", "best + table[-1]"),
    "a binary search for nothing": (SEARCH, "", "best"),
    # the project's own
    "parity": ("", f"if (best * best + best) % 2 == 1:\n    {HEAP}", "best"),
    "a counter below zero": (f"c = 0\nfor y in nums:\n    c += 1\nif c < 0:\n    {POINTERS}", "", "best"),
    "the least above the greatest": (f"if min(nums) > max(nums):\n    {HEAP}", "", "best"),
    "a search cancelled": (SEARCH, "", "best + lo - lo"),
    "a search times zero": ("at = bisect_left(sorted(nums), k)", "", "best + at * 0"),
    "a search that is never below zero": (SEARCH, f"if lo < 0:\n    {HEAP}", "best"),
    "a table of zeros": (GRID, "", "best + grid[-1][-1]"),
    "a table that decides nothing": (DP, f"if table[len(nums)] < 0:\n    nums = sorted(nums)\n    {POINTERS}", "best"),
    "more kinds than items": (f"kinds = set(nums)\nif len(kinds) > len(nums):\n    {HEAP}", "", "best"),
    "a sort that keeps the length": (f"line = sorted(nums)\nif len(line) != len(nums):\n    {HEAP}", "", "best"),
    "two tests that exclude each other": ("", f"if best > 5 and best < 3:\n    {HEAP}", "best"),
    "a bit that is neither": ("", f"if best & 1 not in (0, 1):\n    {POINTERS}", "best"),
    "a helper that gives zero": (
        "def walk(d):\n    return 0 if d < 1 else walk(d - 1)", "", "best + walk(3)",
    ),
    "a loop of no rounds": ("", f"for _ in range(len(nums) - len(nums)):\n    {HEAP}", "best"),
    "out of memory": ("", f"try:\n    best = best + 1 - 1\nexcept MemoryError:\n    {HEAP}", "best"),
    "any exception of a sum": (f"try:\n    n = k + k\nexcept Exception:\n    {HEAP}", "", "best"),
    "xor with itself": ("rank = [0] * len(nums)\nfor p in range(len(nums)):\n    rank[p] ^= p\n", "",
                        "best + (rank[0] ^ rank[0])"),
    "one more than itself": ("", f"if best + 1 <= best:\n    {POINTERS}", "best"),
    "a shuffled copy before a sum": ("pile = list(nums)\nheapq.heapify(pile)\nall_of = sum(pile)", "",
                                     "best + all_of - all_of"),
    "even and odd": ("", f"if 2 * k == 2 * best + 1:\n    {HEAP}", "best"),
    "a sorted list's end less itself": ("s = sorted(nums)\ng = s[-1] - s[-1]", "", "best + g"),
    "a copy sorted in place": ("s = list(nums)\ns.sort()\nif s[0] > s[-1]:\n    return 0", "", "best"),
    "ends by their names": ("s = sorted(nums)\nfirst, last = s[0], s[-1]\nif first > last:\n    return 0", "", "best"),
    "a mode that is another": (f"mode = 'fast'\nif mode == 'slow':\n    {HEAP}", "", "best"),
    "a square's remainder": ("", f"if best * best % 4 == 2:\n    {HEAP}", "best"),
    "three in a row": ("", f"if best * (best + 1) * (best + 2) % 6:\n    {HEAP}", "best"),
    "none differs from itself": ("", f"if any(y != y for y in nums):\n    {HEAP}", "best"),
    "any exception of a first item": ("", f"try:\n    q = nums[0]\nexcept Exception:\n    {HEAP}", "best"),
    "a length less a length": ("s = list(nums)\ns.sort()\nn = len(s)", "", "best + n - len(nums)"),
    "union-find for nothing": (
        "par = list(range(len(nums)))\ndef find(x):\n    while par[x] != x:\n        x = par[x]\n    return x\n"
        "for p in range(1, len(nums)):\n    par[find(p)] = find(p - 1)", "", "best",
    ),
    "a search cut off": (
        "at = bisect_left(sorted(nums), k)", f"if at > len(nums) or at < 0:\n    {POINTERS}", "best",
    ),
}  # fmt: skip


def program(base: str, decoy: str = "", method: bool = False) -> str:
    start, end, answer = DECOYS.get(decoy, ("", "", "best"))
    indented = [textwrap.indent(part, "    ").strip() or "pass" for part in (start, end)]
    text = BASES[base].format(start=indented[0], end=indented[1], answer=answer)
    if not method:
        return text
    lines = text.replace("def f(", "def f(self, ")
    return "class Solution:\n" + textwrap.indent(lines, "    ")


SMALL = [([3, 1, 4, 1, 2], 5), ([2, 5], 5), ([1, 1, 1, 2, 3, 4, 5], 5)]
_rng = Random(0)
GIVEN = [*SMALL, *(([_rng.randrange(9) for _ in range(n)], _rng.randrange(12)) for n in (1, 2, 3, 4, 6, 8, 10, 16, 30))]
PRELUDE = "import heapq\nfrom bisect import bisect_left\nfrom collections import deque"


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("decoy", DECOYS)
def test_a_decoy_changes_no_answer_and_no_approach(base: str, decoy: str) -> None:
    names: dict[str, Any] = {"heapq": heapq, "deque": deque, "bisect_left": bisect_left}
    answers = []
    for text in (program(base), program(base, decoy)):
        exec(text, names)  # of the tests' own text
        answers.append([names["f"](given[:], k) for given, k in SMALL])
    assert answers[0] == answers[1]
    for method in (False, True):
        entry = "Solution().f" if method else "f"
        left = reduced(program(base, decoy, method), entry, GIVEN, PRELUDE)
        assert approach(left, entry) == approach(program(base, "", method), entry), left


@pytest.mark.parametrize("base", BASES)
def test_a_program_without_a_decoy_keeps_its_approach(base: str) -> None:
    assert approach(reduced(program(base), "f", GIVEN, PRELUDE), "f") == approach(program(base), "f")


@cache
def approach(text: str, entry: str) -> object:
    return approach_of(frozenset(algorithm_features(text, entry)))
