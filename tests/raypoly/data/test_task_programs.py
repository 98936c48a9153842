"""The tests of plain tasks: known programs pass them in the sandbox, wrong ones do not pass them."""

from __future__ import annotations

import ast
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import pytest

from raypoly.core.config import ProblemsConfig, ScorerConfig
from raypoly.core.errors import UsageError
from raypoly.core.values import Problem
from raypoly.data import build_problem_set
from raypoly.data.tasks import programs_of
from raypoly.data.tasks.task_kinds import Task, all_tasks, compile_program
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.strategies.judge.structural import structural_labels
from raypoly.verifier.sandbox import Sandbox

PLAIN = ("None", "0", "1", "-1", "True", "False", "''", "[]", "{}")
SURVIVORS = 0.025
"""Of changed programs the most that may pass: some changes change nothing."""


@cache
def problems() -> dict[str, Problem]:
    splits = build_problem_set(ProblemsConfig(source="tasks")).splits
    return {problem.entry_point: problem for split in splits.values() for problem in split}


@cache
def cases_of(name: str) -> list[tuple[str, str]]:
    """(Arguments, result) of each test, both as JSON."""
    rows = json.loads(problems()[name].tests.source)
    return [(json.dumps(row["args"]), json.dumps(row["expected"], sort_keys=True)) for row in rows]


def passes(name: str, program: Callable[..., Any]) -> bool:
    """Whether a program passes the tests of a task, here and now."""
    for args, expected in cases_of(name):
        try:
            result = json.dumps(program(*json.loads(args)), sort_keys=True)
        except Exception:  # noqa: BLE001 - a wrong program may raise anything
            return False
        if result != expected:
            return False
    return True


def test_every_known_program_of_every_task_passes() -> None:
    for task in all_tasks():
        for strategy, program in task.programs.items():
            assert passes(task.name, compile_program(program, task.name)), (task.name, strategy)


def test_the_sandbox_passes_the_known_programs_of_every_kind() -> None:
    """In the first task that has the kind."""
    first = {kind.name: task for task in reversed(all_tasks()) for kind in task.kinds}
    with Sandbox(ScorerConfig()) as sandbox:
        for name in sorted({task.name for task in first.values()}):
            for strategy, program in programs_of(problems()[name]).items():
                verdict = sandbox.score(problems()[name], program)
                assert verdict.passed, (name, strategy, verdict.detail)
                assert verdict.tests_total >= 18


@pytest.mark.parametrize(
    ("name", "judged", "traced"),
    [
        ("evens", [1, 2, 3], 3),
        ("ascending", [1, 2, 3, 3], 3),
        ("digital_root", [1, 2, 3], 3),
        ("distinct_characters", [1, 2, 3], 3),
    ],
)
def test_the_default_judge_labels_programs_by_their_constructs(name: str, judged: list[int], traced: int) -> None:
    with Sandbox(ScorerConfig(), StrategyEvidence()) as sandbox:
        verdicts = [sandbox.score(problems()[name], program) for program in programs_of(problems()[name]).values()]
    labels = structural_labels(verdicts)
    assert labels is not None
    assert labels.ids.tolist() == judged
    assert len({verdict.evidence.strategy for verdict in verdicts if verdict.evidence}) == traced


def test_constants_and_the_argument_itself_pass_no_tests() -> None:
    for task in all_tasks():
        tests = cases_of(task.name)
        times = Counter(result for _, result in tests)
        assert max(times.values()) < len(tests), task.name
        values = [*map(ast.literal_eval, PLAIN), *map(json.loads, times)]
        assert not any(passes(task.name, lambda *_, value=value: value) for value in values), task.name
        assert not passes(task.name, lambda *args: args[0]), task.name
        assert not passes(task.name, lambda *args: args[-1]), task.name


def test_no_answer_is_right_in_three_quarters_of_a_tasks_tests() -> None:
    for task in all_tasks():
        most = max(Counter(result for _, result in cases_of(task.name)).values())
        assert most <= 0.75 * len(cases_of(task.name)), task.name


def test_the_right_program_of_one_task_passes_no_other_task() -> None:
    """So "greater than", "at least" and "smaller than" are told apart, and a composition from its parts."""
    by_input: dict[str, list[Task]] = defaultdict(list)
    for task in all_tasks():
        by_input[task.kinds[-1].takes].append(task)
    wrong = [
        (other.name, task.name)
        for tasks in by_input.values()
        for task in tasks
        for other in tasks
        if other is not task and passes(task.name, other.function)
    ]
    assert wrong == []


def test_a_known_program_with_one_small_change_passes_nearly_never() -> None:
    made, survived = 0, []
    for task in (task for task in all_tasks() if len(task.kinds) == 1):
        reference = next(program for program in task.programs.values() if "while" not in program)  # may never end
        for changed in mutants(reference):
            made += 1
            if passes(task.name, compile_program(changed, task.name)):
                survived.append(changed)
    assert made > 300
    assert len(survived) <= SURVIVORS * made, "\n".join(survived)


SWAPS: dict[type[ast.AST], Any] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.And: ast.Or,
    ast.Or: ast.And, ast.Mod: ast.FloorDiv, ast.FloorDiv: ast.Mod, ast.USub: ast.UAdd,
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "sum": "len", "len": "sum", "abs": "int", "sorted": "list", "set": "list"}


def mutants(program: str) -> Iterator[str]:
    """The program with one operator, whole number or builtin replaced, one at a time."""
    for place in range(len(list(_changes(ast.parse(program))))):
        tree = ast.parse(program)
        list(_changes(tree))[place]()
        yield ast.unparse(tree)


def _changes(tree: ast.Module) -> Iterator[Callable[[], None]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int:
            yield partial(setattr, node, "value", node.value + 1)
        elif isinstance(node, ast.Name) and node.id in NAMES:
            yield partial(setattr, node, "id", NAMES[node.id])
        elif isinstance(node, ast.BinOp | ast.BoolOp | ast.UnaryOp) and type(node.op) in SWAPS:
            yield partial(setattr, node, "op", SWAPS[type(node.op)]())
        elif isinstance(node, ast.Compare):
            for i, operator in enumerate(node.ops):
                if type(operator) in SWAPS:
                    yield partial(node.ops.__setitem__, i, SWAPS[type(operator)]())


def test_a_problem_of_another_source_has_no_known_programs() -> None:
    puzzle = build_problem_set(ProblemsConfig()).splits["test"][0]
    with pytest.raises(UsageError, match=r"none of problems\.source=tasks"):
        programs_of(puzzle)
