"""LeetCodeDataset's own solutions pass, and of their mutants the sandbox says what plain execution of the check says.

    RAYPOLY_MUTANTS=1000 python -m pytest tests/raypoly/verifier/sandbox/test_mutants.py

`RAYPOLY_MUTANTS` is the number of mutants, 30 where it is not set. Plain execution is a `python` of its own for each,
outside the sandbox, that runs prelude, program, test and `check(entry_point)` under limits of CPU time and memory only.
"""

import ast
import gzip
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.values import Problem, TestSuite
from raypoly.verifier.sandbox import Sandbox
from tests.support.small_problems import SHARED

FOLDER = SHARED / "data" / "leetcode"
NEEDS = "sortedcontainers"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason=f"{FOLDER} is not here")
MUTANTS = int(os.environ.get("RAYPOLY_MUTANTS", "30"))
CPU_SECONDS = 5
"""Of a whole program, both ways: far above what a solution takes, so that only endless mutants come near."""
MEMORY_MIB = 1024
LIMITS = ScorerConfig(cpu_seconds_per_test=CPU_SECONDS, cpu_seconds_per_program=CPU_SECONDS, memory_mib=MEMORY_MIB)
BOOT = """
import random, resource, sys
for kind, size in zip((resource.RLIMIT_CPU, resource.RLIMIT_AS), map(int, sys.argv[1:])):
    resource.setrlimit(kind, (size, size))
random.seed(0)
exec(compile(sys.stdin.read(), "<whole>", "exec"), {"__name__": "__main__"})
"""
WORKERS = 2

COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)


def rows() -> list[dict[str, Any]]:
    files = sorted(FOLDER.glob("*.jsonl.gz"))
    return [json.loads(line) for file in files for line in gzip.open(file, "rt")]


def problem_of(row: dict[str, Any]) -> Problem:
    return Problem(row["task_id"], "", row["entry_point"], TestSuite("check", row["test"]), prelude=row["prompt"])


def test_reference_solutions_pass() -> None:
    with Sandbox(ScorerConfig()) as sandbox:
        verdicts = {row["task_id"]: sandbox.score(problem_of(row), row["completion"]) for row in rows()[::20]}
    failed = {name: verdict for name, verdict in verdicts.items() if not verdict.passed}
    assert not {name: verdict for name, verdict in failed.items() if NEEDS not in verdict.detail}


@dataclass(frozen=True)
class Mutant:
    """A solution with one thing changed."""

    row: dict[str, Any]
    code: str
    change: str


def changes(tree: ast.Module) -> list[tuple[ast.AST, str, Callable[[random.Random], None]]]:
    """What can be changed: (where, what, how)."""

    def comparison(node: ast.Compare) -> Callable[[random.Random], None]:
        return lambda rng: node.ops.__setitem__(0, rng.choice([o for o in COMPARISONS if o is not type(node.ops[0])])())

    def arithmetic(node: ast.BinOp | ast.AugAssign) -> Callable[[random.Random], None]:
        return lambda rng: setattr(node, "op", rng.choice([o for o in ARITHMETIC if o is not type(node.op)])())

    def boolean(node: ast.BoolOp) -> Callable[[random.Random], None]:
        return lambda rng: setattr(node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())

    def constant(node: ast.Constant) -> Callable[[random.Random], None]:
        if isinstance(node.value, bool):
            return lambda rng: setattr(node, "value", not node.value)
        if isinstance(node.value, str):
            return lambda rng: setattr(node, "value", rng.choice((node.value + "x", node.value[:-1], "")))
        return lambda rng: setattr(node, "value", node.value + rng.choice((-1, 1)))  # type: ignore[operator]

    found: list[tuple[ast.AST, str, Callable[[random.Random], None]]] = []
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr | ast.Expr)]
    inert = {id(part) for text in texts for part in (text, getattr(text, "value", text), *getattr(text, "values", ()))}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], COMPARISONS):
            found.append((node, "comparison", comparison(node)))
        elif isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ARITHMETIC):
            found.append((node, "arithmetic", arithmetic(node)))
        elif isinstance(node, ast.BoolOp):
            found.append((node, "boolean", boolean(node)))
        elif isinstance(node, ast.Constant) and type(node.value) in (int, bool, str) and id(node) not in inert:
            found.append((node, "constant", constant(node)))
    return found


def mutant(rows: list[dict[str, Any]], rng: random.Random) -> Mutant:
    """One operator or constant of one row's solution changed: a kind of change first, so that none is rare."""
    row = rng.choice(rows)
    tree = ast.parse(row["completion"])
    found = changes(tree)
    if not found:
        return mutant(rows, rng)
    kind = rng.choice(sorted({what for _, what, _ in found}))
    node, what, apply = rng.choice([change for change in found if change[1] == kind])
    before = ast.unparse(node)
    apply(rng)
    return Mutant(
        row, ast.unparse(tree), f"{what} in line {getattr(node, 'lineno', 0)}: {before} -> {ast.unparse(node)}"
    )


def candidates() -> list[dict[str, Any]]:
    """The rows whose solutions plain execution can run."""
    return [row for row in rows() if NEEDS not in row["completion"]]


def plainly(mutant: Mutant) -> tuple[bool, str]:
    """Whether plain execution passes, and its last words."""
    row = mutant.row
    whole = "\n\n".join((row["prompt"], mutant.code, row["test"], f"check({row['entry_point']})"))
    ended = subprocess.run(
        [sys.executable, "-P", "-c", BOOT, str(CPU_SECONDS), str(MEMORY_MIB << 20)],
        input=whole.encode(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={"PYTHONHASHSEED": "0"},
    )
    words = ended.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return ended.returncode == 0, f"exit code {ended.returncode}: {words[:200]}"


def in_sandbox(sandbox: Sandbox, mutant: Mutant) -> tuple[bool, str]:
    verdict = sandbox.score(problem_of(mutant.row), mutant.code)
    return verdict.passed, f"{verdict.status}: {verdict.detail}"


def test_mutants_get_the_verdict_of_plain_execution() -> None:
    rng = random.Random(0)
    solved = candidates()
    mutants = iter([mutant(solved, rng) for _ in range(MUTANTS)])
    lock = threading.Lock()

    def work() -> tuple[int, int, list[str]]:
        done, passed, differ = 0, 0, []
        with Sandbox(LIMITS) as sandbox:
            while True:
                with lock:
                    chosen = next(mutants, None)
                if chosen is None:
                    return done, passed, differ
                plain, found = plainly(chosen), in_sandbox(sandbox, chosen)
                done, passed = done + 1, passed + plain[0]
                if plain[0] != found[0]:
                    differ.append(
                        f"{chosen.row['task_id']}, {chosen.change}\n  plain: {plain[1]}\n  sandbox: {found[1]}"
                    )

    with ThreadPoolExecutor(WORKERS) as pool:
        found = [future.result() for future in [pool.submit(work) for _ in range(WORKERS)]]
    differ = [text for _, _, texts in found for text in texts]
    done, passed = sum(part[0] for part in found), sum(part[1] for part in found)
    print(f"{done} mutants, {passed} pass plain execution, {len(differ)} verdicts differ")
    assert not differ, "\n".join(differ)
    assert done == MUTANTS
    assert 0 < passed < done
