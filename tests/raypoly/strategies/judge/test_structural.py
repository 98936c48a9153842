"""The structural judge: evidence in, labels out."""

import json
from collections.abc import Sequence

import numpy as np
import pytest

from raypoly.core.config import JudgeConfig
from raypoly.core.values import Evidence, Labels, Problem, Rollout, TestSuite, Verdict
from raypoly.strategies.judge import build_judge
from raypoly.strategies.judge.gold import read_gold_groups
from raypoly.strategies.judge.label_agreement import adjusted_rand
from raypoly.strategies.judge.structural import label_evidence, signature, structural_labels
from tests.support.reduced_programs import observe
from tests.support.small_problems import SHARED

PROBLEM = Problem("p", "# sum", "f", TestSuite("calls", "[]"), answer="completion", prefix="def f(n):\n")
EMPTY = np.zeros(0, np.int32)


def evidence(code: str) -> Evidence:
    found = observe(code, "from functools import reduce", "f", [3], [40])
    return Evidence(found["canonical"], tuple(found["constructs"]), found["growth"], found["strategy"])


def verdict(status: str, found: Evidence | None) -> Verdict:
    return Verdict(status, 0, 1, 0.0, "", found)  # type: ignore[arg-type]


def label(verdicts: list[Verdict]) -> Labels:
    rollout = Rollout(EMPTY, EMPTY, EMPTY.astype(np.float32), " return 0", "stop", 1, 0)
    return build_judge(JudgeConfig()).label(PROBLEM, [rollout] * len(verdicts), verdicts)


LOOP = evidence("def f(n):\n s = 0\n for x in range(n):\n  s += x\n return s")
OTHER_LOOP = evidence("def f(n):\n t = 5\n for i in range(1, n):\n  if i % 2:\n   t = max(t, i)\n return t")
COMPREHENSION = evidence("def f(n):\n return sum([2 * x for x in range(n)])")
GENERATOR = evidence("def f(n):\n return sum(x * x for x in range(n))")


def test_ids_count_from_one_in_order_of_first_occurrence() -> None:
    labels = label_evidence([COMPREHENSION, LOOP, GENERATOR, OTHER_LOOP])
    assert labels.ids.tolist() == [1, 2, 1, 2]
    assert labels.known


def test_wrong_programs_are_judged_and_only_what_does_not_parse_is_degenerate() -> None:
    labels = label([verdict("wrong", LOOP), verdict("error", None), verdict("no_code", None), verdict("passed", LOOP)])
    assert labels.ids.tolist() == [1, 0, 0, 1]
    assert labels.degenerate.tolist() == [False, True, True, False]
    assert labels.known
    assert labels.judge == "structural-2"


def test_a_count_by_verdicts_is_the_judges_own_and_unknown_where_no_program_left_evidence() -> None:
    verdicts = [verdict("passed", LOOP), verdict("wrong", COMPREHENSION), verdict("no_code", None)]
    found = structural_labels(verdicts)
    assert found is not None
    assert found.ids.tolist() == label(verdicts).ids.tolist() == [1, 2, 0]
    assert structural_labels([verdict("error", None), verdict("no_code", None)]) is None


def test_dead_code_adds_no_strategy() -> None:
    dead = "def f(n):\n z = n\n while z > 0:\n  z -= 1\n return sum([x * x for x in range(n)]) + z"
    unused = "def f(n):\n i = 0\n for k in range(n):\n  i += k\n return sum([x * x for x in range(n)])"
    assert label_evidence([COMPREHENSION, evidence(dead), evidence(unused)]).ids.tolist() == [1, 1, 1]


def test_a_program_that_ended_before_a_loop_ran_is_judged_by_syntax() -> None:
    crashed = evidence("def f(n):\n s = 1 // 0\n for x in range(n):\n  s += x\n return s")
    assert crashed.growth == {}
    assert signature(crashed) == signature(LOOP)


def test_programs_whose_evidence_is_unknown_join_the_largest_strategy() -> None:
    lost = Evidence("", (), {}, "")
    assert label_evidence([LOOP, lost, lost]).ids.tolist() == [1, 1, 1]


def test_a_loop_over_a_comprehension_is_the_one_that_drove_the_other() -> None:
    both = evidence("def f(n):\n s = 0\n for x in [y * y for y in range(n)]:\n  s += x\n return s")
    assert label_evidence([LOOP, COMPREHENSION, both]).ids.tolist() == [1, 2, 1]


def test_a_filter_before_a_reduce_is_still_a_reduce() -> None:
    plain = evidence("def f(n):\n return reduce(lambda a, x: a + x, range(n), 0)")
    fed = evidence("def f(n):\n return reduce(lambda a, x: a + x, filter(lambda x: x % 2, range(n)), 0)")
    assert label_evidence([plain, fed]).ids.tolist() == [1, 1]


HASH = "def f(a, t):\n m = {}\n for i, x in enumerate(a):\n  if t - x in m:\n   return m[t - x], i\n  m[x] = i"
PAIRS = "def f(a, t):\n for i in range(len(a)):\n  for j in range(i):\n   if a[i] + a[j] == t:\n    return j, i"
WHILE = (
    "def f(a, t):\n i = 0\n while i < len(a):\n  j = 0\n  while j < i:\n   if a[i] + a[j] == t:\n    return j, i\n"
    "   j += 1\n  i += 1"
)
POINTERS = (
    "def f(a, t):\n a.sort()\n i, j = 0, len(a) - 1\n while i < j:\n  if a[i] + a[j] == t:\n   return i, j\n"
    "  if a[i] + a[j] < t:\n   i += 1\n  else:\n   j -= 1"
)


def seen(code: str, entry_point: str = "f") -> Evidence | None:
    """What the sandbox's child tells of a program that is not run."""
    try:
        found = observe(code, "", entry_point, None, None)
    except SyntaxError:
        return None
    return Evidence(found["canonical"], tuple(found["constructs"]), {}, "", tuple(found["features"]))


def ids(*programs: str) -> list[int]:
    return [int(i) for i in label_evidence([seen(program) for program in programs]).ids]


def test_programs_are_clustered_by_approach_where_they_come_with_features() -> None:
    labels = label_evidence([seen(HASH), seen(PAIRS), seen(WHILE), seen(POINTERS)])
    assert labels.ids.tolist() == [1, 2, 2, 3]
    assert labels.judge == "structural-approach-4"


def test_memo_and_table_are_one_strategy_and_plain_recursion_another() -> None:
    plain = "def f(n):\n return n if n < 2 else f(n - 1) + f(n - 2)"
    memo = f"@cache\n{plain}"
    table = "def f(n):\n t = [0, 1]\n for i in range(2, n + 1):\n  t.append(t[i - 1] + t[i - 2])\n return t[n]"
    rolling = "def f(n):\n a, b = 0, 1\n for _ in range(n):\n  a, b = b, a + b\n return a"
    assert ids(memo, table, rolling, plain) == [1, 1, 1, 2]


def test_placeholders_hard_coded_samples_and_what_does_not_parse_are_degenerate() -> None:
    programs = [HASH, "def f(a, t):\n pass", "def f(a, t):\n if a == [1]:\n  return 0\n return 1", "I would sort."]
    labels = label_evidence([seen(program) for program in programs])
    assert labels.degenerate.tolist() == [False, True, True, True]
    assert labels.ids.tolist() == [1, 0, 0, 0]


def agreement(rows: Sequence[tuple[str, Sequence[str], Sequence[int]]]) -> float:
    """Mean adjusted Rand index over (entry point, programs, labels)."""
    found = []
    for entry_point, programs, labels in rows:
        said = label_evidence([seen(program, entry_point) for program in programs]).ids.tolist()
        found.append(adjusted_rand(said, list(labels)))
    return float(np.mean(found))


EXAMPLES = SHARED / "judge" / "gold-examples.jsonl"


@pytest.mark.skipif(not EXAMPLES.exists(), reason=f"{EXAMPLES} is not here")
def test_it_agrees_with_the_examples_that_people_labelled() -> None:
    rows = [json.loads(line) for line in EXAMPLES.read_text().splitlines()]
    assert agreement([(row["entry_point"], row["programs"], row["labels"]) for row in rows]) >= 0.9


def test_it_agrees_with_the_projects_gold_groups() -> None:
    assert agreement([(g.entry_point, g.programs, g.labels) for g in read_gold_groups()]) >= 0.80
