"""Values that equal the expected one in plain Python pass, by what they hold; values that lie do not."""

from collections.abc import Iterator

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.values import Problem, TestSuite
from raypoly.verifier.sandbox import Sandbox
from tests.support.small_problems import calls, check

HONEST = {
    "a str enum": ("from enum import Enum\nclass E(str, Enum):\n A = 'a'\ndef f(n): return E.A", "a"),
    "a Fraction": ("from fractions import Fraction\ndef f(n): return [Fraction(4, 2), Fraction(1, 2)]", [2, 0.5]),
    "a Decimal": ("from decimal import Decimal\ndef f(n): return Decimal('0.5')", 0.5),
    "a list's subclass": ("class L(list): pass\ndef f(n): return L([1, L([2])])", [1, [2]]),
    "a dict's subclass": ("class D(dict): pass\ndef f(n): return D(a=1)", {"a": 1}),
    "a numpy bool": ("import numpy as np\ndef f(n): return [np.bool_(True), np.float64(0.5)]", [True, 0.5]),
    "a numpy array": ("import numpy as np\ndef f(n): return np.array([[1, 2], [3, 4]])", [[1, 2], [3, 4]]),
    "a class of an abstract base": ("from abc import ABC\nclass L(list, ABC): pass\ndef f(n): return L([1])", [1]),
}
LIES = {
    "an own __eq__": "class T(int):\n __eq__ = lambda s, o: True\n __hash__ = int.__hash__\ndef f(n): return T(4)",
    "an own __iter__": "class L(list):\n __iter__ = lambda s: iter([3])\ndef f(n): return L([4])[0]",
    "an own __index__": "class T(int):\n __index__ = __int__ = lambda s: 3\ndef f(n): return T(4)",
    "an own __float__": "class T(float):\n __float__ = lambda s: 3.0\ndef f(n): return T(4)",
    "an own class": "class T:\n __class__ = int\n __eq__ = lambda s, o: True\ndef f(n): return T()",
    "a class that answers for its class": (
        "class M(type):\n __eq__ = lambda s, o: True\n __hash__ = lambda s: hash(int)\n __name__ = 'int'\n"
        "class T(metaclass=M):\n real = 3\n __eq__ = lambda s, o: True\ndef f(n): return T()"
    ),
    "numpy's name": "class generic:\n item = lambda s: 3\ndef f(n):\n x = generic()\n return x",
    "an own item": "import numpy as np\nclass T(np.ndarray): tolist = int\ndef f(n): return np.zeros(1).view(T)",
    "a Fraction's own numerator": (
        "from fractions import Fraction\nclass F(Fraction):\n _numerator = property(lambda s: 3)\n"
        "def f(n):\n x = object.__new__(F)\n Fraction._numerator.__set__(x, 4)\n Fraction._denominator.__set__(x, 1)\n"
        " return x"
    ),
    "a UserList's own value": (
        "from collections import UserList\nclass U(UserList):\n __eq__ = lambda s, o: True\ndef f(n): return U([4])"
    ),
    "a class of a library's name": (
        "class T:\n __module__ = 'itertools'\n __eq__ = lambda s, o: True\n __iter__ = lambda s: iter([3])\n"
        "def f(n): return T()"
    ),
    "a Fraction's own value": (
        "from fractions import Fraction\nclass F(Fraction):\n __eq__ = lambda s, o: True\ndef f(n): return F(4)"
    ),
}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(ScorerConfig()) as sandbox:
        yield sandbox


@pytest.mark.parametrize(("code", "expected"), HONEST.values(), ids=HONEST.keys())
def test_a_value_that_equals_the_expected_one_passes(sandbox: Sandbox, code: str, expected: object) -> None:
    verdict = sandbox.score(calls(([1], expected)), code)
    assert verdict.passed, verdict


@pytest.mark.parametrize("code", LIES.values(), ids=LIES.keys())
def test_a_value_that_lies_is_compared_by_what_it_holds(sandbox: Sandbox, code: str) -> None:
    assert sandbox.score(calls(([1], 3)), code).status == "wrong"
    checked = check("def check(candidate):\n    x = candidate(1)\n    assert x == 3")
    assert sandbox.score(checked, code).status == "wrong"


def test_a_check_may_call_the_program_by_its_name(sandbox: Sandbox) -> None:
    problem = check("def check(candidate):\n    assert candidate([2, 1]) == f([1, 2])\n    assert f([3]) == [3]")
    assert sandbox.score(problem, "def f(xs):\n    return sorted(xs)").passed
    assert sandbox.score(problem, "def f(xs):\n    return xs").status == "wrong"


def test_an_event_loop_runs_without_sockets(sandbox: Sandbox) -> None:
    loop = "import asyncio\nasync def g(n):\n    await asyncio.sleep(0.01)\n    return n\n"
    assert sandbox.score(calls(([1], 1), ([2], 2)), loop + "def f(n):\n    return asyncio.run(g(n))").passed
    script = Problem("p", "", "", TestSuite("stdin", '[{"input": "", "output": "7"}]'))
    assert sandbox.score(script, loop + "print(asyncio.run(g(7)))").passed
    real = "import _socket\ndef f(n):\n    return bool(_socket.socketpair())"
    assert sandbox.score(calls(([1], True)), real).status == "error"


@pytest.mark.parametrize("end", ["sys.stdout.close()", "sys.stdout.flush(); os.close(1)"])
def test_a_script_may_close_its_output_at_its_end(sandbox: Sandbox, end: str) -> None:
    script = Problem("p", "", "", TestSuite("stdin", '[{"input": "", "output": "7"}]'))
    assert sandbox.score(script, f"import os, sys\nprint(7)\n{end}").passed


@pytest.mark.parametrize(
    "code",
    [
        "import fileinput\nprint(sum(map(int, fileinput.input())))",
        "import sys\nprint(int(input()), flush=True)\nsys.stdout = None",
        "import mmap\nprint(mmap.mmap(0, 0, access=mmap.ACCESS_READ).readline().decode())",
        "import io, os\nprint(io.BytesIO(os.read(0, os.fstat(0).st_size)).read().decode())",
        "import os\nout = os.fdopen(os.dup(1), 'w')\nout.write(input())\nout.close()",
    ],
)
def test_a_script_may_read_and_write_in_any_usual_way(sandbox: Sandbox, code: str) -> None:
    script = Problem("p", "", "", TestSuite("stdin", '[{"input": "7\\n", "output": "7"}]'))
    verdict = sandbox.score(script, code)
    assert verdict.passed, verdict


def test_a_program_may_hold_300_mib(sandbox: Sandbox) -> None:
    assert sandbox.score(calls(([1], 300 << 20)), "def f(n):\n    return len(bytearray(300 << 20))").passed


def test_threads_may_have_large_stacks(sandbox: Sandbox) -> None:
    code = (
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(2**27)\ndef deep(n):\n"
        "    return 0 if n == 0 else 1 + deep(n - 1)\ndef f(n):\n    found = []\n"
        "    thread = threading.Thread(target=lambda: found.append(deep(n)))\n    thread.start()\n    thread.join()\n"
        "    return found[0]"
    )
    verdict = sandbox.score(calls(*[([n], n) for n in range(20_000, 20_030)]), code)
    assert verdict.passed, verdict
