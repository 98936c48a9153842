"""Programs that try to write, empty or bend their own evidence: the strategy stays that of the work that is scored."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.values import Evidence, Problem, Verdict
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.strategies.judge.structural import structural_labels
from raypoly.verifier.sandbox import Sandbox
from tests.support.small_problems import calls

CASES = [([n], sum(i * i for i in range(n))) for n in (3, 5, 120)]
OPEN = replace(calls(*CASES), answer="completion")
BUDGETED = replace(calls(*((args, expected, {"steps": 10_000}) for args, expected in CASES)), answer="completion")
LOOP = " s = 0\n for i in range(n):\n  s += i * i\n return s"
OTHER = "return n and (n - 1) ** 2 + f(n - 1)"
"""The same by recursion."""

BUDGETED_ATTACKS = {
    "another name of the module": f"def f(n):\n if __name__ == 'candidate': {OTHER}\n{LOOP}",
    "the second call differs": f"seen = []\ndef f(n):\n seen.append(n)\n if len(seen) == 2: {OTHER}\n{LOOP}",
    "a test is left out": f"seen = []\ndef f(n):\n seen.append(n)\n if n == 120 and 5 not in seen: {OTHER}\n{LOOP}",
    "a counter of calls": f"k = 0\ndef f(n):\n global k\n k += 1\n if k != 3 and n > 9: {OTHER}\n{LOOP}",
}
OPEN_ATTACKS = {
    "names of the meter": f"def f(n):\n if '@each' in globals(): {OTHER}\n{LOOP}",
    "names of the meter, by sys": f"import sys\ndef f(n):\n if any('@' in k for k in globals()): {OTHER}\n{LOOP}",
    "local names": f"def f(n):\n if any('@' in k for k in locals()): {OTHER}\n{LOOP}",
    "how often a loop asks": (
        "class B:\n def __init__(s): s.asked = 0\n"
        " def __bool__(s):\n  s.asked += 1\n  return s.asked == 1\n"
        f"def f(n):\n b = B()\n k = 0\n while b: k += 1\n if (b.asked, k) != (2, 1): {OTHER}\n{LOOP}"
    ),
    "when an iterator is asked for": (
        f"def f(n):\n try: (x for x in 5)\n except TypeError: pass\n else: {OTHER}\n"
        f" try: map(abs, 3)\n except TypeError: pass\n else: {OTHER}\n{LOOP}"
    ),
    "the words of reduce": (
        "from functools import reduce\ndef f(n):\n try: reduce(max, 5)\n except TypeError as e:\n"
        f"  if str(e) != 'reduce() arg 2 must support iteration': {OTHER}\n{LOOP}"
    ),
}
UNKNOWN_OR_FOR = {
    "a question about the meter's names": (
        f"import typing\ndef f(n):\n if hasattr(typing.functools.namedtuple, '@each'): {OTHER}\n{LOOP}"
    ),
    "a look at all builtins": (
        f"u = chr(95) * 2\ndef f(n):\n if '@each' in ('{{0.' + u + 'builtins' + u + '}}').format(f): {OTHER}\n{LOOP}"
    ),
    "the builtins among the globals": (
        "b = globals()[chr(95) * 2 + 'builtins' + chr(95) * 2]\n"
        f"def f(n):\n if hasattr(b, '@' + 'each'): {OTHER}\n{LOOP}"
    ),
    "a pattern that reads any attribute": (
        "u = chr(95) * 2\nA = type('A', (), {u + 'match_args' + u: (u + 'builtins' + u,)})\n"
        f"def f(n):\n match f:\n  case A(x): {OTHER}\n{LOOP}"
    ),
    "what is replaced": f"def f(n):\n if 'built' not in repr(getattr): {OTHER}\n{LOOP}",
    "a decorator of the library's": (
        f"import functools\ndef f(n):\n if 'functools' not in repr(functools.wraps): {OTHER}\n{LOOP}"
    ),
    "a copied name": (
        "import functools\ndef q(): pass\n@functools.wraps(q)\ndef w(): pass\n"
        f"def f(n):\n if w.__name__ != 'q': {OTHER}\n{LOOP}"
    ),
    "the place of an error": (
        "class C:\n def __enter__(s): pass\n def __exit__(s, kind, error, place):\n"
        "  s.at = place.tb_lasti, place.tb_lineno\n  return True\n"
        f"def f(n):\n c = C()\n with c:\n  for i in range(1): 1 / 0\n if c.at != (38, 9): {OTHER}\n{LOOP}"
    ),
    "the modules at hand": f"import sys\ndef f(n):\n if not hasattr(sys, 'modules'): {OTHER}\n{LOOP}",
    "the ways to import": f"import sys\ndef f(n):\n if not sys.meta_path: {OTHER}\n{LOOP}",
    "the depth that is left": f"import sys\ndef f(n):\n if sys.getrecursionlimit() != 1000: {OTHER}\n{LOOP}",
    "not the module's name": f"def f(n):\n if __name__ != '__candidate__': {OTHER}\n{LOOP}",
    "the limit of recursion": (
        "def deep(n):\n try:\n  return deep(n + 1)\n except RecursionError:\n  return n\n"
        f"def f(n):\n if deep(0) < 960: {OTHER}\n{LOOP}"
    ),
    "what a run leaves in a module": (
        f"import math\ndef f(n):\n if n == 120 and 'seen' in math.__dict__: {OTHER}\n math.seen = 1\n{LOOP}"
    ),
    "another profiler": f"import sys\nsys.setprofile(None)\ndef f(n):\n if n < 0: {OTHER}\n{LOOP}",
    "a look at the frames": f"import sys\ndef f(n):\n if sys._getframe(1).f_code.co_name == 'call': {OTHER}\n{LOOP}",
    "a switched-off profiler": f"import sys\ndef f(n):\n if sys.getprofile(): {OTHER}\n{LOOP}",
    "an exit": f"import os\nif __name__ == 'candidate': os._exit(0)\ndef f(n):\n{LOOP}",
    "every descriptor": (
        "import os\nfor fd in range(3, 64):\n try: os.write(fd, b'')\n except OSError: pass\n" + f"def f(n):\n{LOOP}"
    ),
    "the observer's objects": (
        "import gc\nmeters = [o for o in gc.get_objects() if type(o).__name__ == 'Meter']\n"
        f"def f(n):\n if meters: {OTHER}\n{LOOP}"
    ),
}

DROPPED = {
    "a generator": (
        "def g(D):\n try: yield\n finally: D.append(1)\ndef f(n):\n D = []\n x = g(D)\n next(x)\n x = None\n"
    ),
    "a generator that catches": (
        "def g(D):\n try: yield\n except BaseException: D.append(1)\n"
        "def f(n):\n D = []\n x = g(D)\n next(x)\n x = None\n"
    ),
    "an object": (
        "u = chr(95) * 2\nD = []\nA = type('A', (), {u + 'del' + u: lambda s: D.append(1)})\n"
        "def f(n):\n D.clear()\n x = A()\n x = None\n"
    ),
}
"""A counted program's objects go later than an observed one's, which it could see by what they do then."""

REMEMBERED = {
    "an attribute": "before = hasattr(exit, 'seen')\nexit.seen = 1\n",
    "an attribute that is gone": "before = not hasattr(exit, 'eof')\nif not before: del exit.eof\n",
    "a registered class": ("from collections.abc import Sized\nbefore = isinstance(3, Sized)\nSized.register(int)\n"),
    "an attribute of the prelude's": "before = hasattr(helper, 'seen')\nhelper.seen = 1\n",
    "memory": (
        "def full():\n try: bytes(300 << 20)\n except MemoryError: return True\n"
        "before = full()\nif not before:\n a = [bytes(250 << 20)]\n a.append(a)\n"
    ),
}
"""What a run leaves in its process, by which the next could tell that it is not the first."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(ScorerConfig(), StrategyEvidence()) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def honest(sandbox: Sandbox) -> list[Verdict]:
    """A loop, a recursion, and a comprehension."""
    programs = (f"def f(n):\n{LOOP}", f"def f(n):\n {OTHER}", "def f(n): return sum([i * i for i in range(n)])")
    return [sandbox.score(OPEN, program) for program in programs]


def evidence(sandbox: Sandbox, problem: Problem, code: str) -> Evidence:
    verdict = sandbox.score(problem, code)
    assert verdict.passed, verdict
    assert verdict.evidence is not None
    return verdict.evidence


@pytest.mark.parametrize("code", BUDGETED_ATTACKS.values(), ids=BUDGETED_ATTACKS.keys())
@pytest.mark.parametrize("problem", [OPEN, BUDGETED], ids=["open", "budgeted"])
def test_the_strategy_is_that_of_the_scored_work(sandbox: Sandbox, problem: Problem, code: str) -> None:
    assert evidence(sandbox, problem, code).strategy == "for"


@pytest.mark.parametrize("code", OPEN_ATTACKS.values(), ids=OPEN_ATTACKS.keys())
def test_an_observed_run_shows_no_sign_of_it(sandbox: Sandbox, code: str) -> None:
    assert evidence(sandbox, OPEN, code).strategy == "for"


@pytest.mark.parametrize("code", UNKNOWN_OR_FOR.values(), ids=UNKNOWN_OR_FOR.keys())
def test_a_program_that_could_reach_the_observer_is_not_believed_and_changes_no_neighbours_group(
    sandbox: Sandbox, honest: list[Verdict], code: str
) -> None:
    verdict = sandbox.score(OPEN, code)
    assert verdict.passed, verdict
    assert verdict.evidence is not None
    assert verdict.evidence.strategy in ("for", "")
    assert verdict.evidence.strategy == "for" or verdict.evidence.unknown
    labels = structural_labels([*honest, verdict])
    assert labels is not None
    assert labels.ids.tolist() == [1, 2, 3, 1]
    assert not labels.degenerate.any()


@pytest.mark.parametrize("code", DROPPED.values(), ids=DROPPED.keys())
def test_a_program_that_could_see_when_objects_go_is_not_believed(sandbox: Sandbox, code: str) -> None:
    for condition in ("D", "not D"):
        attack = f"{code} if {condition}: {OTHER}\n{LOOP}"
        assert evidence(sandbox, BUDGETED, attack).unknown


@pytest.mark.parametrize("code", REMEMBERED.values(), ids=REMEMBERED.keys())
def test_a_program_that_could_tell_that_it_ran_before_is_not_observed_where_it_ran(sandbox: Sandbox, code: str) -> None:
    problem = replace(BUDGETED, prelude="def helper(): pass" if "helper" in code else "")
    assert evidence(sandbox, problem, f"{code}def f(n):\n if before: {OTHER}\n{LOOP}").strategy in ("for", "")


def test_what_a_module_computes_when_it_loads_can_be_observed(sandbox: Sandbox) -> None:
    code = "LIMIT = 10 ** 9 + len(sorted([7])) + sum([1])\ndef f(n):\n"
    assert evidence(sandbox, OPEN, f"{code} if n > LIMIT: {OTHER}\n{LOOP}").strategy == "for"


def test_a_program_over_its_budget_has_the_evidence_of_one_within(sandbox: Sandbox) -> None:
    def found(code: str, steps: int) -> tuple[str, Evidence | None]:
        problem = replace(calls(*((args, right, {"steps": steps}) for args, right in CASES)), answer="completion")
        verdict = sandbox.score(problem, code)
        return verdict.status, verdict.evidence

    for code in (f"def f(n):\n{LOOP}", f"def f(n):\n {OTHER}", "def f(n): return sum(map(lambda i: i * i, range(n)))"):
        within, over = found(code, 10_000), found(code, 100)
        assert (within[0], over[0]) == ("passed", "timeout")
        assert over[1] == within[1]


def test_a_run_that_does_too_much_does_not_end_by_catching_what_ends_it(sandbox: Sandbox) -> None:
    code = "def f(n):\n try:\n  for i in range(60_000 if n > 99 else 1): pass\n"
    code += f" except BaseException: return (n - 1) * n * (2 * n - 1) // 6\n{LOOP}"
    assert evidence(sandbox, OPEN, code).growth == {"for": 5.0}  # of the largest test that could be observed


def test_both_runs_leave_a_program_the_same_depth(sandbox: Sandbox) -> None:
    deep = "def deep(k):\n try: return deep(k + 1)\n except RecursionError: return k\n"
    scored = sandbox.score(OPEN, deep + "def f(n): return deep(0)").failure
    seen = sandbox.score(OPEN, deep + "def f(n):\n s = n\n for i in range(deep(0) if n > 99 else 1): s += i\n return s")
    assert scored is not None
    assert seen.evidence is not None
    assert seen.evidence.growth["for"] == float(scored.got)


def test_a_program_of_which_nothing_would_remain_is_unknown_and_no_strategy(sandbox: Sandbox) -> None:
    always = calls(*(([numbers], True) for numbers in ([1, 2, 3], [4], [5, 5])))
    found = evidence(sandbox, always, "def f(a):\n for x in a:\n  if x != x: return False\n return True")
    assert found.unknown
    assert found.strategy == ""


def test_the_source_is_read_before_the_program_runs(sandbox: Sandbox) -> None:
    code = f"import os\ndef f(n):\n{LOOP}\nif __name__ == '__candidate__' and not os.getenv('HOME'): pass"
    assert "for" in evidence(sandbox, OPEN, code).canonical


def test_what_is_no_attempt_is_so_whether_or_not_it_can_be_observed(sandbox: Sandbox) -> None:
    for way in ("import datetime\n return str(datetime.date.today())", "import os\n return os.getpid()"):
        found = sandbox.score(calls(([1], 1), ([2], 2)), f"def f(n):\n {way}").evidence
        assert found is not None
        assert found.features == ("placeholder",)
