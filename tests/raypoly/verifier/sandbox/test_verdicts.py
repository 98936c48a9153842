import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.errors import BrokenTests
from raypoly.verifier.sandbox import Sandbox
from raypoly.verifier.sandbox.outcome import TestsOutcome, TestStopped
from tests.support.small_problems import calls, check

ADD = calls(([1, 2], 3), ([5, 5], 10))
NODES = """
class ListNode:
    def __init__(self, val=0, next=None):
        self.val = val
        self.next = next
def list_node(values):
    head = None
    for value in reversed(values):
        head = ListNode(value, head)
    return head
def is_same_list(p, q):
    while p and q:
        if p.val != q.val:
            return False
        p, q = p.next, q.next
    return p is None and q is None
"""


@pytest.mark.parametrize(
    ("code", "status", "word"),
    [
        ("def f(a, b): return a + b", "passed", ""),
        ("def f(a, b): return a - b", "wrong", "test 1: f(1, 2) gave -1, expected 3"),
        ("def f(a, b): return 3", "wrong", "test 2: f(5, 5) gave 3, expected 10"),
        ("def f(a, b): return a / 0", "error", "ZeroDivisionError: division by zero"),
        ("def f(a, b) return", "error", "SyntaxError"),
        ("def g(a, b): return a + b", "error", "NameError: the program does not define f"),
        ("def f(a, b): raise SystemExit(0)", "error", "SystemExit"),
        ("def f(a, b):\n while True: pass", "timeout", "CPU"),
        ("import time\ntime.sleep(50)", "timeout", "CPU"),
        ("def f(a, b): return len([0] * 10**9)", "memory", "MemoryError"),
        ("import os\nos._exit(0)", "error", "exit code 0"),
        ("import os\nos.closerange(3, 99)\nimport time\ntime.sleep(60)", "error", "closed the channel"),
        ("def f(a, b): return f(a, b)", "error", "RecursionError"),
        ("def f(a, b): return 1 << 10**5", "wrong", "thousands of digits"),
        ("def f(a, b): return 1 << 10**7", "wrong", "an answer of 1250020 bytes"),
        ("class T: pass\ndef f(a, b): return T()", "wrong", "<T>"),
        ("class E:\n  def __eq__(s, o): return True\ndef f(a, b): return E()", "wrong", "<E>"),
        ("def f(a, b): return ((),) * 10**9", "memory", ""),
        ("\0", "error", "null bytes"),
        ("x = '\ud800'\ndef f(a, b): return a + b", "error", ""),
    ],
)
def test_each_fate_has_its_status_and_one_line_that_says_why(
    sandbox: Sandbox, code: str, status: str, word: str
) -> None:
    verdict = sandbox.score(ADD, code)
    assert (verdict.status, word in verdict.detail) == (status, True), verdict
    assert len(verdict.detail) <= 300
    assert "\n" not in verdict.detail


def test_the_first_failing_test_ends_the_program(sandbox: Sandbox) -> None:
    verdict = sandbox.score(ADD, "def f(a, b):\n if a == 1: return 3\n return 0")
    assert (verdict.tests_passed, verdict.tests_total) == (1, 2)


def test_only_programs_that_parse_have_evidence_and_only_where_somebody_reads_it(sandbox: Sandbox) -> None:
    assert sandbox.score(ADD, "def f(a, b) return").evidence is None
    assert sandbox.score(ADD, "def f(a, b): return 0").evidence is not None
    with Sandbox(ScorerConfig()) as without_reader:
        assert without_reader.score(ADD, "def f(a, b): return 0").evidence is None


@pytest.mark.parametrize(
    ("returned", "expected", "status"),
    [("(1, 2)", [1, 2], "wrong"), ("True", 1, "passed"), ("1.0", 1, "passed"), ("'1'", 1, "wrong"),
     ("float('nan')", 1, "wrong"), ("{1: [2]}.get(1)", [2], "passed"), ("range(2)", [0, 1], "wrong")],
)  # fmt: skip
def test_results_are_compared_as_python_compares_them(
    sandbox: Sandbox, returned: str, expected: object, status: str
) -> None:
    assert sandbox.score(calls(([], expected)), f"def f(): return {returned}").status == status


def test_future_imports_work_behind_any_prelude(sandbox: Sandbox) -> None:
    problem = calls(([2], 2), prelude="import math\nx = 1")
    assert sandbox.score(problem, "from __future__ import annotations\ndef f(n: Nonsense): return n").passed


def test_a_broken_prelude_is_never_the_candidates_fault(sandbox: Sandbox) -> None:
    with pytest.raises(BrokenTests, match=r"prelude of problem p can't be run: .* 'nowhere'"):
        sandbox.score(calls(([2], 2), prelude="import nowhere"), "def f(n): return n")
    with pytest.raises(BrokenTests, match="did not run to its end"):
        sandbox.score(calls(([2], 2), prelude="import os; os._exit(0)"), "def f(n): return n")
    assert sandbox.score(calls(([2], 2)), "def f(n): return n").passed


def test_linked_lists_go_in_and_come_back_by_value(sandbox: Sandbox) -> None:
    source = "def check(candidate):\n assert is_same_list(candidate(head = list_node([1,2,3])), list_node([3,2,1]))"
    problem = check(source, "Solution().reverse", NODES)
    right = """class Solution:
    def reverse(self, head):
        previous = None
        while head:
            head.next, previous, head = previous, head, head.next
        return previous"""
    assert sandbox.score(problem, right).passed
    assert sandbox.score(problem, "is_same_list = lambda p, q: True\n" + right.replace("previous\n", "None\n")).passed
    assert sandbox.score(problem, right.replace("return previous", "return None")).status == "wrong"
    endless = right.replace("return previous", "previous.next = previous\n        return previous")
    assert sandbox.score(problem, endless).status == "wrong"


def test_arguments_changed_in_place_are_seen_by_the_check(sandbox: Sandbox) -> None:
    source = "def check(candidate):\n x = [3, 1, 2]\n assert candidate(x) is None\n assert x == [1, 2, 3]"
    assert sandbox.score(check(source), "def f(x): x.sort()").passed
    verdict = sandbox.score(check(source), "def f(x): pass")
    assert verdict.status == "wrong"


def test_a_check_that_normalises_runs_beside_the_candidate(sandbox: Sandbox) -> None:
    source = "def check(candidate):\n for n in (3, 4):\n  assert sorted(candidate(n)) == list(range(n))"
    assert sandbox.score(check(source), "def f(n): return (i for i in reversed(range(n)))").passed
    assert sandbox.score(check(source), "def f(n): return [n]").status == "wrong"
    assert sandbox.score(check(source), "def f(n): raise AssertionError").status == "error"


def test_a_check_never_meets_the_candidates_objects(sandbox: Sandbox) -> None:
    hostile = "class L(list):\n def __eq__(s, o): return True\n def __iter__(s): return iter([0, 1, 2])\n"
    source = "def check(candidate):\n assert sorted(candidate(3)) == [0, 1, 2]"
    assert sandbox.score(check(source), hostile + "def f(n): return L()").status == "wrong"


def test_time_is_what_a_test_uses_not_what_it_waits() -> None:
    code = "def f(n):\n for i in range(10**5): pass\n return n"
    with Sandbox(ScorerConfig(cpu_seconds_per_test=0.5, cpu_seconds_per_program=1.0)) as sandbox:
        assert sandbox.score(calls(*(([n], n) for n in range(20))), code).passed
        slow = code.replace("10**5", "9 * 10**6")
        assert sandbox.score(calls(*(([n], n) for n in range(40))), slow).status == "timeout"


def test_what_the_prelude_happens_to_define_is_no_answer(sandbox: Sandbox) -> None:
    problem = calls(([1, 2], 3), entry_point="add", prelude="from operator import *")
    assert sandbox.score(problem, "x = 1").status == "error"
    assert sandbox.score(problem, "def add(a, b): return sub(a, -b)").passed


def test_where_an_object_lies_is_no_part_of_a_verdict() -> None:
    """A program that gives an object's name gives another address each time, and did the same."""
    places = ("0x7f137ae6af50", "0x7f52676d8fd0")
    one, two = TestsOutcome(), TestsOutcome()
    for outcome, place in zip((one, two), places, strict=True):
        outcome.wrong(1, "f()", f"'<map object at {place}>'", "'x'")
    assert one.detail == "test 1: f() gave '<map object at 0x...>', expected 'x'"
    assert (one.detail, one.failure) == (two.detail, two.failure)
    stopped = [TestsOutcome() for _ in places]
    for outcome, place in zip(stopped, places, strict=True):
        outcome.stop(TestStopped("error", f"ValueError: <A object at {place}>"), 1, "f()")
    assert stopped[0].failure == stopped[1].failure
