"""Standard input and output, operations on objects, JSON comparison, tests behind the first that failed."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import pytest

from raypoly.core.config import OutputComparison, ScorerConfig
from raypoly.core.errors import BrokenTests
from raypoly.core.values import Comparison, Problem, TestKind, TestSuite
from raypoly.verifier.sandbox import Sandbox
from raypoly.verifier.sandbox.child import checker
from tests.support.small_problems import calls, check


def suite(kind: TestKind, cases: list[dict[str, Any]], comparison: Comparison | None = None, **more: Any) -> Problem:
    stated = {} if comparison is None else {"comparison": comparison}
    return Problem("p", "", more.pop("entry_point", ""), TestSuite(kind, json.dumps(cases), **stated), **more)


def script(*pairs: tuple[str, str]) -> Problem:
    return suite("stdin", [{"input": given, "output": printed} for given, printed in pairs])


ECHO = script(("3\n1 2 3\n", "6\n"), ("2\n5 5\n", "10"))


@pytest.mark.parametrize(
    ("code", "status", "word"),
    [
        ("n = int(input())\nprint(sum(map(int, input().split())))", "passed", ""),
        ("import sys\nd = sys.stdin.read().split()\nsys.stdout.write(str(sum(map(int, d[1:]))))", "passed", ""),
        ("import sys\nnext(sys.stdin)\nprint(sum(map(int, sys.stdin.readline().split())))", "passed", ""),
        ("d = open(0).read().split()\nprint(sum(map(int, d[1:])), flush=True)\nexit()", "passed", ""),
        ("import os\nd = os.read(0, 99).split()\nos.write(1, b'%d' % sum(map(int, d[1:])))\nos._exit(0)", "passed", ""),
        ("import sys\nb = sys.stdin.buffer\nb.readline()\nprint(sum(map(int, b.readline().split())))", "passed", ""),
        ("if __name__ == '__main__':\n input()\n print(sum(map(int, input().split())))", "passed", ""),
        ("import atexit\natexit.register(lambda: print(t))\ninput()\nt = sum(map(int, input().split()))", "passed", ""),
        ("import threading\ninput()\nf = lambda: print(sum(map(int, input().split())))\n"
         "threading.Thread(target=f).start()", "passed", ""),
        ("from __future__ import annotations\ninput()\nprint(sum(map(int, input().split())))", "passed", ""),
        ("import sys\nprint('noise', file=sys.stderr)\ninput()\nprint(sum(map(int, input().split())))", "passed", ""),
        ("print(6)", "wrong", "test 2: '2\\n5 5\\n' gave '6\\n', expected '10'"),
        ("print(6)\nprint()\nprint(7)", "wrong", "test 1"),
        ("", "wrong", "gave ''"),
        ("print(6)\nimport sys\nsys.exit(3)", "error", "exit code 3"),
        ("print(6)\nraise ValueError('no')", "error", "ValueError: no"),
        ("input()\ninput()\ninput()", "error", "EOFError"),
        ("print(6", "error", "SyntaxError: '(' was never closed (line 1)"),
        ("while True: pass", "timeout", "CPU"),
        ("import time\ntime.sleep(99)", "timeout", "CPU"),
        ("x = [0] * 10 ** 9", "memory", "MemoryError"),
        ("while True: print('x' * 10 ** 6)", "error", "it printed more than"),
        ("import os\nos.write(1, b'\\xff')", "wrong", "UTF-8"),
        ("import ctypes\nctypes.string_at(0)", "error", ""),
        ("print(6)\nimport os, time\nos.close(1)\ntime.sleep(60)", "error", "went on"),
    ],
)  # fmt: skip
def test_a_script_is_run_as_a_judge_runs_it(sandbox: Sandbox, code: str, status: str, word: str) -> None:
    verdict = sandbox.score(ECHO, code)
    assert (verdict.status, word in verdict.detail) == (status, True), verdict


def test_a_script_finds_nothing_of_the_run_before(sandbox: Sandbox) -> None:
    code = "import os\nprint(len(os.listdir('.')))\nopen('x', 'w')"
    assert sandbox.score(script(("", "0"), ("", "0")), code).passed


def test_a_large_input_arrives_whole_and_a_larger_one_is_the_problems_fault(sandbox: Sandbox) -> None:
    text = "7 " * (1 << 20)
    assert sandbox.score(script((text, str(len(text)))), "print(len(input()))").passed
    with pytest.raises(BrokenTests, match="16 MiB"):
        sandbox.score(script(("7" * (17 << 20), "")), "print()")


QUEUE = suite(
    "operations",
    [
        {"operations": ["Queue", "push", "push", "all", "pop", "all"], "args": [[2], [1], [2], [], [], []],
         "expected": [None, None, None, [1, 2], 1, [2]]},
        {"operations": ["Queue", "all"], "args": [[0], []], "expected": [None, []]},
    ],
    "json",
)  # fmt: skip
RIGHT = """
class Queue:
    def __init__(self, size): self.items = []
    def push(self, x): self.items.append(x)
    def pop(self): return self.items.pop(0)
    def all(self): return self.items
"""


def test_operations_are_played_on_one_object_and_results_are_kept_as_they_were(sandbox: Sandbox) -> None:
    assert sandbox.score(QUEUE, RIGHT).passed
    assert sandbox.score(QUEUE, RIGHT.replace("return self.items\n", "return tuple(self.items)\n")).passed
    wrong = sandbox.score(QUEUE, RIGHT.replace("pop(0)", "pop()"))
    assert (wrong.status, wrong.tests_passed) == ("wrong", 0)
    assert "[None, None, None, [1, 2], 2, [1]]" in wrong.detail
    assert sandbox.score(QUEUE, RIGHT.replace("def pop", "def take")).detail.endswith("no attribute 'pop'")
    assert sandbox.score(QUEUE, "class Stack: pass").status == "error"
    shared = RIGHT.replace("self.items = []", "pass").replace("size):", "size, items=[]): self.items = items;")
    assert sandbox.score(QUEUE, shared).tests_passed == 1


@pytest.mark.parametrize(
    ("returned", "passes"), [("(1, (2, 3.0001))", True), ("(1, (2, 3.1))", False), ("map(int, '12')", False)]
)
def test_values_are_compared_by_what_the_suite_states(sandbox: Sandbox, returned: str, passes: bool) -> None:
    problem = suite("calls", [{"args": [], "expected": [1, [2, 3.00011]]}], "json", entry_point="Solution().f")
    assert sandbox.score(problem, f"class Solution:\n def f(self): return {returned}").passed is passes
    assert not sandbox.score(problem.compared_by("lines"), f"class Solution:\n def f(self): return {returned}").passed


def test_outputs_are_compared_by_what_the_suite_states(sandbox: Sandbox) -> None:
    problem = script(("", "YES 0.5\n"))
    modes: tuple[OutputComparison, ...] = get_args(OutputComparison)
    found = [mode for mode in modes if sandbox.score(problem.compared_by(mode), "print('Yes', 0.500001)").passed]
    assert found == ["tokens"]
    assert sandbox.score(problem, "print('YES', 0.500001)").passed


def test_keyword_arguments_and_nan_and_signed_zero(sandbox: Sandbox) -> None:
    problem = suite("calls", [{"args": [], "kwargs": {"n": 2}, "expected": 4}], entry_point="f")
    assert sandbox.score(problem, "def f(n): return n * 2").passed
    assert sandbox.score(calls(([], 0.0)), "def f(): return -0.0").passed
    assert not sandbox.score(calls(([], float("nan"))), "def f(): return float('nan')").passed


@pytest.mark.parametrize("source", ["{}", "[]", "[1]", '[{"args": []}]', "x", '[{"input": 1, "output": ""}]'])
@pytest.mark.parametrize("kind", ["calls", "stdin", "operations"])
def test_tests_in_no_known_form_are_the_problems_fault(sandbox: Sandbox, kind: TestKind, source: str) -> None:
    with pytest.raises(BrokenTests, match=f"problem p are not a JSON list of tests of kind {kind}"):
        sandbox.score(Problem("p", "", "f", TestSuite(kind, source)), "def f(): pass")


@pytest.fixture(scope="module")
def graded() -> Iterator[Sandbox]:
    with Sandbox(ScorerConfig(cpu_seconds_per_test=0.5, all_tests=True)) as sandbox:
        yield sandbox


FIVE = calls(*(([n], n) for n in range(5)))


@pytest.mark.parametrize(
    ("code", "passed", "status", "failed"),
    [
        ("def f(n): return n", 5, "passed", None),
        ("def f(n): return n if n % 2 else -1", 2, "wrong", 1),
        ("def f(n): return n if n != 2 else 1 / 0", 4, "error", 3),
        ("def f(n):\n while n == 1: pass\n return n", 4, "timeout", 2),
        ("import os\ndef f(n): return n if n not in (0, 3) else os._exit(1)", 3, "error", 1),
        ("def f(n): return n if n != 4 else [0] * 10 ** 9", 4, "memory", 5),
        ("def f(n) return n", 0, "error", 0),
        ("1 / 0", 0, "error", 0),
    ],
)
def test_with_all_tests_those_behind_a_failure_count_too(
    graded: Sandbox, code: str, passed: int, status: str, failed: int | None
) -> None:
    verdict = graded.score(FIVE, code)
    assert (verdict.tests_passed, verdict.tests_total, verdict.status) == (passed, 5, status), verdict
    assert (None if verdict.failure is None else verdict.failure.test) == failed


def test_with_all_tests_a_check_and_a_script_go_on_too(graded: Sandbox) -> None:
    lines = "".join(f" assert abs(candidate({n}) - {n}) < 1e-6\n" for n in range(4))
    problem = check(f"def check(candidate):\n{lines}")
    for code, passed in (("n", 4), ("n if n != 1 else 9", 3), ("n if n != 1 else 1 / 0", 3),
                         ("n if n != 1 else __import__('os')._exit(0)", 3), ("n if n < 2 else None", 2)):  # fmt: skip
        verdict = graded.score(problem, f"def f(n): return {code}")
        assert (verdict.tests_passed, verdict.tests_total, verdict.passed) == (passed, 4, passed == 4), verdict
    verdict = graded.score(script(("1", "1"), ("2", "2"), ("3", "3")), "n = input()\nprint(n if n != '2' else 9)")
    assert (verdict.tests_passed, verdict.tests_total) == (2, 3)


def test_a_check_counts_the_assertions_that_held(sandbox: Sandbox) -> None:
    source = "def check(candidate):\n for n in range(4):\n  assert abs(candidate(n) - n) < 1\n assert candidate(9) != 9"
    verdict = sandbox.score(check(source), "def f(n): return n")
    assert (verdict.status, verdict.tests_passed, verdict.tests_total) == ("wrong", 4, 5)
    assert verdict.failure is not None
    assert (verdict.failure.test, verdict.failure.input, verdict.failure.got) == (5, "f(9)", "9")


HUMANEVAL = """

METADATA = {'author': 'x', 'dataset': 'test'}


def check(candidate):
    assert candidate([1.0, 2.0], 0.5) == False
    assert candidate(numbers=[1.0, 1.2], threshold=0.3) == True, "close"
    assert True, "prints if this fails"
"""


@pytest.mark.parametrize(
    "call", ["*[1, 2]", "1, *(2,)", "1, b=2", "1, **{'b': 2}", "**{'a': 1, 'b': 2}", "*range(1, 3)"]
)
def test_plain_calls_of_any_form_are_cases(call: str) -> None:
    """So that programs are observed on them, and need no process of the check's."""
    cases = checker.read_cases({}, f"def check(candidate):\n assert candidate({call}) == 3\n", "f")
    assert cases is not None
    ((args, kwargs, expected),) = cases
    assert ((*args, *kwargs.values()), expected) == ((1, 2), 3)


@pytest.mark.parametrize("call", ["1, b=2, **{'b': 2}", "**{1: 2}"])
def test_a_call_that_fails_by_itself_is_no_case(call: str) -> None:
    assert checker.read_cases({}, f"def check(candidate):\n assert candidate({call}) == 3\n", "f") is None


def test_a_humaneval_check_is_read(sandbox: Sandbox) -> None:
    right = "def f(numbers, threshold): return abs(numbers[0] - numbers[1]) < threshold"
    problem = check(HUMANEVAL)
    assert sandbox.score(problem, right).tests_total == 2
    assert sandbox.score(problem, right).passed
    assert sandbox.score(problem, right.replace("<", ">")).status == "wrong"


BUSY = "import time\ndef f(n):\n end = time.process_time() + n / 10\n while time.process_time() < end: pass\n return n"


def test_the_reference_time_is_that_of_the_slowest_test_of_the_solution(sandbox: Sandbox) -> None:
    problem = calls(([1], 1), ([3], 3), ([0], 0))
    seconds = sandbox.reference_seconds(replace(problem, solution=BUSY))
    assert seconds is not None
    assert 0.28 < seconds < 0.9
    assert sandbox.reference_seconds(problem) is None
    assert sandbox.reference_seconds(replace(problem, solution="def f(n): return 7")) is None
    checked = check("def check(candidate):\n assert abs(candidate(2) - 2) < 1\n", entry_point="f")
    measured = sandbox.reference_seconds(replace(checked, solution=BUSY))
    assert measured is not None
    assert 0.18 < measured < 0.9
    printed = replace(script(("", "")), solution="import time\nwhile time.process_time() < 0.2: pass")
    assert (sandbox.reference_seconds(printed) or 0) > 0.18


def test_a_limit_is_ten_times_the_reference_between_a_second_and_the_cap() -> None:
    problem = calls(([16], 16))
    for cap, reference, status in ((3.0, 0.001, "timeout"), (3.0, 0.19, "passed"), (1.2, 5.0, "timeout")):
        with Sandbox(ScorerConfig(cpu_seconds_per_test=cap)) as sandbox:
            verdict = sandbox.score(replace(problem, reference_seconds=reference), BUSY)
        assert verdict.status == status, (cap, reference, verdict)
        assert verdict.repeatable == (status == "passed")


HALF = "def f(n):\n if n % 2: raise ValueError('odd')\n return n // 2"
RAISES = """
def check(candidate):
    assert candidate(4) == 2
    try:
        candidate(3)
    except ValueError as error:
        assert str(error) == "odd"
    else:
        assert False, "no ValueError"
    assert candidate(6) == 3
"""


@pytest.mark.parametrize(
    ("code", "status", "word"),
    [
        (HALF, "passed", ""),
        ("class Odd(ValueError): pass\n" + HALF.replace("raise ValueError", "raise Odd"), "passed", ""),
        (HALF.replace("// 2", "// 2 + (n > 4)"), "wrong", "test 3: f(6) gave 4"),
        (HALF.replace("ValueError", "KeyError"), "error", "test 2: f(3): KeyError: odd"),
        (HALF.replace("ValueError('odd')", "SystemExit"), "error", "SystemExit"),
        (HALF.replace("raise ValueError('odd')", "return 1"), "wrong", "no ValueError"),
        (HALF.replace("raise ValueError('odd')", "__import__('os')._exit(0)"), "error", "exit code"),
        (HALF.replace("raise ValueError('odd')", "[0] * 10 ** 9"), "memory", "MemoryError"),
        (HALF.replace("return n // 2", "raise ValueError"), "error", "test 1: f(4): ValueError"),
    ],
)
@pytest.mark.parametrize("all_tests", [False, True])
def test_a_check_may_expect_an_exception(
    sandbox: Sandbox, graded: Sandbox, code: str, status: str, word: str, all_tests: bool
) -> None:
    verdict = (graded if all_tests else sandbox).score(check(RAISES), code)
    assert (verdict.status, word in verdict.detail) == (status, True), verdict


def test_every_exception_crosses_with_its_text_and_a_strange_one_as_its_base(sandbox: Sandbox) -> None:
    kinds = ("ValueError", "KeyError", "SyntaxError", "StopIteration", "OSError", "RecursionError")
    for made in [f"{kind}('x')" for kind in kinds] + ["UnicodeDecodeError('utf-8', b'', 0, 1, 'x')"]:
        kind = made.partition("(")[0]
        source = f"def check(candidate):\n try:\n  candidate()\n except {kind} as error: assert type(error) is {kind}\n"
        verdict = sandbox.score(check(source + " else: assert False\n"), f"def f(): raise {made}")
        assert verdict.passed, (kind, verdict)
    strange = "class E(BaseException): pass\ndef f(): raise E('x')"
    source = "def check(candidate):\n try: candidate()\n except BaseException: pass\n"
    assert sandbox.score(check(source), strange).status == "error"


COUNTER = "s = [a]\n def add(b): s.append(b)\n return add, lambda: sum(s)"
SAME = "return f if a is None else a is f"
PICK = "def f(kind, values): return [kind(value) for value in values]"


@pytest.mark.parametrize(
    "way", [" assert candidate({}, ['1']) == {}\n", " for _ in 'x': assert candidate({}, ['1']) == {}\n"]
)
@pytest.mark.parametrize(
    ("given", "expected", "broken"),
    [
        ("int", "[1]", ""),
        ("len", "[1]", ""),
        ("lambda x: x", "['1']", "<function>"),
        ("str.upper", "['1']", "<method_descriptor>"),
        ("math.sqrt", "[1]", "<builtin_function_or_method>"),
        ("(lambda: 0).__code__", "[1]", "<code>"),
    ],
)
def test_builtins_are_handed_over_by_name_and_what_can_not_be_is_the_problems_fault(
    sandbox: Sandbox, way: str, given: str, expected: str, broken: str
) -> None:
    problem = check("import math\ndef check(candidate):\n" + way.format(given, expected))
    if not broken:
        assert sandbox.score(problem, PICK).passed
        assert sandbox.score(problem, PICK.replace("kind(value)", "7")).status == "wrong"
        return
    with pytest.raises(BrokenTests, match=f"call it with {broken}"):
        sandbox.score(problem, PICK)


@pytest.mark.parametrize("returned", ["len", "eval", "int", "lambda: 0", "print", "type('T', (), {})", "[].append"])
def test_no_program_hands_a_check_what_runs_there_nor_breaks_it_by_what_it_returns(
    sandbox: Sandbox, returned: str
) -> None:
    source = (
        "def check(candidate):\n got = candidate([0])\n"
        " assert not callable(got) or got() == 0\n assert candidate([got]) != 1\n"
    )
    verdict = sandbox.score(check(source), f"def f(x):\n x[:] = [{returned}]\n return {returned}")
    assert verdict.passed, verdict
    made = "from pathlib import Path\ndef check(candidate):\n a = Path(str(candidate([0])))\n candidate([a])\n"
    assert sandbox.score(check(made), f"def f(x): return {returned}").status != "infra"
    simple = check("def check(candidate):\n assert candidate(0) == 1\n")
    assert sandbox.score(simple, f"def f(x): return {returned}").status == "wrong"


@pytest.mark.parametrize(
    ("body", "right", "wrong"),
    [
        (
            "assert candidate(1)(2)(3) == 6",
            "return lambda b: lambda c: a + b + c",
            "return lambda b: lambda c: a - b",
        ),
        ("add, total = candidate(1); add(4); assert total() == 5", COUNTER, COUNTER.replace("s.append(b)", "pass")),
        ("g = candidate(None); assert candidate(g)", SAME, SAME.replace("a is f", "a is not f")),
        ("assert sorted([3, 1, 2], key=candidate(0)) == [3, 2, 1]", "return lambda v: -v", "return lambda v: v"),
        ("p = P(3); candidate(p); assert p.x == 4", "a.x += 1", "a.x -= 1"),
        ("p, q = P(3), P(4); assert candidate([p, q]) is q", "return max(a, key=lambda p: p.x)", "return a[0]"),
        ("p = P(3); p.x = [p]; assert candidate(p)", "return a.x[0] is a", "return a.x[0] is not a"),
    ],
)
def test_functions_of_a_program_can_be_called_and_objects_of_a_check_are_themselves_again(
    sandbox: Sandbox, body: str, right: str, wrong: str
) -> None:
    problem = check(f"class P:\n def __init__(self, x): self.x = x\ndef check(candidate):\n {body}\n")
    assert sandbox.score(problem, f"def f(a):\n {right}").passed
    assert sandbox.score(problem, f"def f(a):\n {wrong}").status == "wrong"


def test_functions_write_out_numbers_of_fifty_thousand_digits(sandbox: Sandbox) -> None:
    assert sandbox.score(calls(([20_000], 6021)), "def f(n): return len(str(2 ** n))").passed
