"""What contest programs do to read, print, recurse and share work; and a bare function where a method is asked for."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.values import Problem, TestSuite
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.verifier.sandbox import Sandbox
from tests.support.small_problems import calls, check


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(ScorerConfig(), StrategyEvidence()) as sandbox:
        yield sandbox


def script(given: str, printed: str) -> Problem:
    return Problem("p", "", "", TestSuite("stdin", json.dumps([{"input": given, "output": printed}])))


SQUARE = script("12\n", "144\n")
FAST_IO = """
import os, sys
from io import BytesIO, IOBase
class FastIO(IOBase):
    newlines = 0
    def __init__(self, file):
        self._fd = file.fileno()
        self.buffer = BytesIO()
        self.writable = 'x' in file.mode or 'r' not in file.mode
        self.write = self.buffer.write if self.writable else None
    def readline(self):
        while self.newlines == 0:
            block = os.read(self._fd, max(os.fstat(self._fd).st_size, 8192))
            self.newlines = block.count(b'\\n') + (not block)
            at = self.buffer.tell()
            self.buffer.seek(0, 2), self.buffer.write(block), self.buffer.seek(at)
        self.newlines -= 1
        return self.buffer.readline()
    def flush(self):
        if self.writable:
            os.write(self._fd, self.buffer.getvalue())
            self.buffer.truncate(0), self.buffer.seek(0)
class IOWrapper(IOBase):
    def __init__(self, file):
        self.buffer = FastIO(file)
        self.flush, self.writable = self.buffer.flush, self.buffer.writable
        self.write = lambda text: self.buffer.write(text.encode('ascii'))
        self.readline = lambda: self.buffer.readline().decode('ascii')
sys.stdin, sys.stdout = IOWrapper(sys.stdin), IOWrapper(sys.stdout)
input = lambda: sys.stdin.readline().rstrip('\\r\\n')
print(int(input()) ** 2)
"""
DEEP = "import resource, sys, threading\nsys.setrecursionlimit(10**9)\n"
DOWN = "def down(n): return 0 if n == 0 else 1 + down(n - 1)\n"
IN_THREAD = (
    "def main(): print(int(input()) ** 2 + down(100_000) - 100_000)\n"
    "t = threading.Thread(target=main)\nt.start()\nt.join()"
)
IDIOMS = {
    "reads /dev/stdin": [
        "print(int(open('/dev/stdin').read()) ** 2)",
        "print(int(open('/dev/stdin', 'rb').readline()) ** 2)",
        "from pathlib import Path\nprint(int(Path('/dev/stdin').read_text()) ** 2)",
        "import os\nprint(int(os.read(os.open('/dev/stdin', os.O_RDONLY), 99)) ** 2)",
        "import numpy as np\nprint(int(np.loadtxt('/dev/stdin')) ** 2)",
        "import numpy as np\nprint(int(np.fromfile('/dev/stdin', sep=' ')[0]) ** 2)",
        "import sys\nsys.stdin = open('/dev/stdin')\nprint(int(input()) ** 2)",
        "import fileinput\nprint(int(next(fileinput.input('/dev/stdin'))) ** 2)",
    ],
    "writes to a device": [
        "out = open('/dev/stdout', 'w')\nout.write(str(int(input()) ** 2))\nout.close()",
        "import sys\nsys.stdout = open('/dev/stdout', 'w')\nprint(int(input()) ** 2)",
        "import sys\nsys.stderr = open('/dev/stderr', 'w')\nprint('x', file=sys.stderr)\nprint(int(input()) ** 2)",
        "import os, sys\nsys.stderr = open(os.devnull, 'w')\nprint('x' * 10**6, file=sys.stderr)\n"
        "print(open('/dev/null').read() + str(int(input()) ** 2))",
    ],
    "looks at its streams": [
        FAST_IO,
        "import sys\ni, o = sys.stdin, sys.stdout\nassert (i.mode, i.name, i.fileno()) == ('r', '<stdin>', 0)\n"
        "assert (o.mode, o.name, o.fileno()) == ('w', '<stdout>', 1)\nprint(int(i.buffer.read()) ** 2)",
        "import select, sys\nselect.select([sys.stdin], [], [], 0)\nfor line in sys.stdin: print(int(line) ** 2)",
        "import sys\nsys.stdin.reconfigure(encoding='utf-8')\nsys.stdout.reconfigure(line_buffering=True)\n"
        "print(int(next(iter(input, ''))) ** 2)",
        "import io, sys\nn = int(input())\nsys.stdout = text = io.StringIO()\nprint(n * n)\n"
        "sys.stdout = sys.__stdout__\nprint(text.getvalue(), end='')",
    ],
    "looks at its file and surroundings": [
        "import os, sys\nos.chdir(os.path.dirname(os.path.abspath(__file__)))\nassert len(sys.argv) == 1\n"
        "print(int(input()) ** 2)",
        "import tempfile\nwith tempfile.TemporaryDirectory() as d: open(d + '/x', 'w').write('1')\n"
        "print(int(input()) ** 2)",
        "import readline, signal\nsignal.signal(signal.SIGALRM, lambda *_: None)\nsignal.alarm(5)\n"
        "print(int(input()) ** 2)",
        "import sys\ndef main():\n print(int(input()) ** 2)\n return 0\nif __name__ == '__main__': sys.exit(main())",
    ],
    "asks for a larger stack": [
        DEEP + DOWN + "print(int(input()) ** 2 + down(100_000) - 100_000)",
        *(f"{DEEP}threading.stack_size({size})\nassert threading.stack_size() == {size}\n{DOWN}{IN_THREAD}"
          for size in (10**8, 2**29 - 4096, 512 * 1024 * 1024, 1 << 30)),
        # later ones bound the calls by way of C themselves
        *([f"{DEEP}threading.stack_size(512 << 20)\nfrom functools import cache\n@cache\n{DOWN}{IN_THREAD}",
           f"{DEEP}threading.stack_size(512 << 20)\ndef down(n): return n and 1 + max(map(down, [n - 1]))\n{IN_THREAD}"]
          if sys.version_info < (3, 12) else ()),
        *(f"{DEEP}stack = resource.RLIMIT_STACK\nsoft, hard = resource.getrlimit(stack)\n"
          f"resource.setrlimit(stack, {limits})\n{DOWN}print(int(input()) ** 2 + down(50_000) - 50_000)"
          for limits in ("(-1, -1)", "(hard, hard)", "(2**29, hard)", "[0x10000000, resource.RLIM_INFINITY]")),
    ],
    "shares work among threads": [
        "from concurrent.futures import ThreadPoolExecutor\nimport time\nn = int(input())\n"
        "with ThreadPoolExecutor(50) as p: print([*p.map(lambda x: time.sleep(.01) or x * x, [n] * 200)][-1])",
        "from multiprocessing.pool import ThreadPool\n"
        "with ThreadPool(4) as p: print(p.map(lambda x: x * x, [int(input())])[0])",
        "from multiprocessing.dummy import Pool\nprint(Pool(4).map(lambda x: x * x, [int(input())])[0])",
        "import asyncio\nasync def main():\n n = await asyncio.get_event_loop().run_in_executor(None, input)\n"
        " print(int(n) ** 2)\nasyncio.run(main())",
    ],
    "begins with a byte order mark": ["\ufeffprint(int(input()) ** 2)"],
}  # fmt: skip


@pytest.mark.parametrize("does", IDIOMS)
def test_a_contest_program_runs_that(sandbox: Sandbox, does: str) -> None:
    verdicts = {code: sandbox.score(SQUARE, code) for code in IDIOMS[does]}
    assert not {code: verdict for code, verdict in verdicts.items() if not verdict.passed}


@pytest.mark.parametrize(
    ("given", "printed", "code"),
    [
        ("\ufeff12\n", "144", "import sys\nsys.stdin.reconfigure(encoding='utf-8-sig')\nprint(int(input()) ** 2)"),
        ("\ufeff12\n", "3", "print(len(input()))"),
        ("60000\n", "6" * 60_000, "import sys\nsys.set_int_max_str_digits(0)\nprint(10**int(input()) // 3 * 2)"),
        ("50000\n", "9" * 50_000, "print(10**int(input()) - 1)"),
    ],
)
def test_inputs_arrive_as_they_are_and_long_numbers_are_printed(
    sandbox: Sandbox, given: str, printed: str, code: str
) -> None:
    verdict = sandbox.score(script(given, printed), code)
    assert verdict.passed, verdict


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("x = bytearray(700 << 20)", "memory"),
        ("threading.stack_size(512 << 20)\nx = bytearray(600 << 20)", "memory"),
        ("resource.setrlimit(resource.RLIMIT_AS, (-1, -1))\nx = bytearray(700 << 20)", "error"),
        ("import subprocess\nsubprocess.run(['true'])", "error"),
        ("from multiprocessing import Pool\nPool(4)", "error"),
    ],
)  # fmt: skip
def test_no_idiom_lifts_a_limit(sandbox: Sandbox, code: str, status: str) -> None:
    verdict = sandbox.score(SQUARE, DEEP + code + "\nprint(144)")
    assert verdict.status == status, verdict


CASE = "def check(candidate):\n    assert candidate(3) == 6"
METHOD = {
    "calls": calls(([3], 6), entry_point="Solution().f"),
    "within a budget": calls(([3], 6, {"steps": 99}), entry_point="Solution().f"),
    "cases of a check": check(CASE, entry_point="Solution().f"),
    "a check of its own": check(CASE.replace("3", "n").replace("6", "2 * n").replace("    ", "    for n in range(5): "),
                                entry_point="Solution().f"),
}  # fmt: skip
RIGHT = "def f(n): return 2 * n"
CLASS = "class Solution:\n def f(self, n): return "
ABSENT = "the program does not define Solution"


@pytest.mark.parametrize(
    ("prelude", "code", "status", "word"),
    [
        ("", RIGHT, "passed", ""),
        ("", "f = lambda n: 2 * n", "passed", ""),
        ("", f"class Twice:\n @staticmethod\n {RIGHT}\nf = Twice.f", "passed", ""),
        # it never wins over the class
        ("", f"{CLASS}2 * n\ndef f(n): return 0", "passed", ""),
        ("", f"{CLASS}0\n{RIGHT}", "wrong", "gave 0"),
        ("", f"class Solution: pass\n{RIGHT}", "error", "no attribute 'f'"),
        # neither is there
        ("", "def g(n): return 2 * n", "error", ABSENT),
        ("", "", "error", ABSENT),
        # what the prelude has is no answer
        (RIGHT, "x = 1", "error", ABSENT),
        (RIGHT, "f = f", "error", ABSENT),
        (f"{CLASS}2 * n", "x = 1", "error", ABSENT),
        (f"{CLASS}0\ndef f(n): return 0", RIGHT, "passed", ""),
    ],
)
def test_a_bare_function_stands_for_a_method_whose_class_is_not_there(
    sandbox: Sandbox, prelude: str, code: str, status: str, word: str
) -> None:
    for name, problem in METHOD.items():
        verdict = sandbox.score(replace(problem, prelude=prelude), code)
        assert (verdict.status, word in verdict.detail) == (status, True), (name, verdict)


def test_a_bare_functions_evidence_is_the_methods(sandbox: Sandbox) -> None:
    loop = "dead = sorted([n])\n {0}total = 0\n {0}for i in range(n): total += 2\n {0}return total"
    bare = sandbox.score(METHOD["calls"], "def decoy(n): return sorted([n])\ndef f(n):\n " + loop.format(""))
    method = sandbox.score(METHOD["calls"], CLASS.removesuffix(" return ") + "\n  " + loop.format(" "))
    assert bare.evidence is not None
    assert method.evidence is not None
    assert bare.evidence.strategy == method.evidence.strategy == "scan"
    assert "sort" not in bare.evidence.canonical
