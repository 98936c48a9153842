"""The kinds of task in `kinds.yaml`, and the tasks that they make: a kind alone, or one kind applied to another.

    task = all_tasks()[0]
    task.name, task.programs["loop"]        # "evens", "def evens(xs):\\n    result = [] ..."

`K` in a kind is one of its constants, and each constant makes a kind of its own with the same idea. A composition that
computes what another task computes already, or hardly anything, is no task.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from raypoly.core.seeds import derive

_STRICT = ConfigDict(extra="forbid", frozen=True)
_DRAWS = 60  # inputs that are drawn for a task's tests
_PROBES = 48  # drawn inputs on which two functions are compared
_FEWEST_RESULTS = 5  # A composition with fewer different results on the probes is left out
_CONSTANT = re.compile(r"(?<![a-zA-Z0-9])K(?![a-zA-Z0-9_])")


_LETTERS = "aaabcdeeefghiilmnnooprsstttuwy"


class DrawnInput(BaseModel):
    """What one argument is drawn from: exactly one of the generators, with bounds that are included."""

    model_config = _STRICT
    number: tuple[int, int] | None = None
    """The smallest and the largest number."""
    ints: tuple[int, int] | None = None
    """A list of such numbers."""
    rows: tuple[int, int] | None = None
    """A list of lists of equal lengths."""
    table: tuple[int, int] | None = None
    """A dictionary from words to such numbers."""
    text: str | None = None
    """A string of these characters."""
    words: tuple[int, int] | None = None
    """A list of words, whose lengths these are."""
    sentence: tuple[int, int] | None = None
    """Such words with one space between two of them."""
    size: tuple[int, int] = (1, 1)
    """The fewest and the most elements."""


def draw_value(drawn: DrawnInput, rng: random.Random) -> Any:
    """One argument, made of values that JSON has."""
    size = rng.randint(*drawn.size)
    if drawn.number is not None:
        return rng.randint(*drawn.number)
    if drawn.ints is not None:
        return [rng.randint(*drawn.ints) for _ in range(size)]
    if drawn.rows is not None:
        width = rng.randint(*drawn.size)
        return [[rng.randint(*drawn.rows) for _ in range(width)] for _ in range(size)]
    if drawn.table is not None:
        return {_word(rng, 1, 5): rng.randint(*drawn.table) for _ in range(size)}
    if drawn.text is not None:
        return "".join(rng.choice(drawn.text) for _ in range(size))
    if drawn.words is not None:
        return [_word(rng, *drawn.words) for _ in range(size)]
    if drawn.sentence is not None:
        return " ".join(_word(rng, *drawn.sentence) for _ in range(size))
    raise ValueError("a drawn input names no generator")


def _word(rng: random.Random, shortest: int, longest: int) -> str:
    return "".join(rng.choice(_LETTERS) for _ in range(rng.randint(shortest, longest)))


class TaskInput(BaseModel):
    model_config = _STRICT
    family: str
    parameters: list[list[str]]
    """Those of the programs, then others that a prompt may use."""
    says: list[str]
    noun: str = ""
    """What a kind is applied to, in words."""
    within: str = ""
    """The same behind "in" or "of"."""
    draws: list[DrawnInput]
    others: list[DrawnInput]
    edges: list[list[Any]]

    def draw(self, rng: random.Random, number: int) -> list[Any]:
        """The arguments of the drawn test `number`: even ones from `draws`, odd ones from `others`."""
        return [draw_value(drawn, rng) for drawn in (self.others if number % 2 else self.draws)]


class TaskKind(BaseModel):
    """kinds.yaml says what its fields mean."""

    model_config = _STRICT
    name: str
    takes: str
    gives: str
    family: str
    """That of what it takes."""
    idea: str
    """Kinds that share it are in one split."""
    wordings: list[str]
    short: list[str] = []
    always: str = ""
    result: str = ""
    alone: bool = True
    edges: list[list[Any]] = []
    programs: dict[str, str]


class _Composition(BaseModel):
    model_config = _STRICT
    outer: list[str]
    inner: list[str]


@dataclass(frozen=True)
class TaskFile:
    """What kinds.yaml holds."""

    frames: Sequence[str]
    endings: Mapping[str, str]
    inputs: Mapping[str, TaskInput]
    kinds: Mapping[str, Sequence[TaskKind]]
    """By their name in the file: one for each constant."""
    compositions: Sequence[tuple[str, str]]
    """The names of the outer and of the inner kind."""
    left_out: frozenset[str]
    """Names of compositions that are no task."""


@dataclass(frozen=True)
class Task:
    """A function to write: what the first kind makes of what the second one, if there is one, makes of the input."""

    kinds: tuple[TaskKind, ...]
    """The outer kind first."""
    takes: TaskInput

    @property
    def name(self) -> str:
        """The name of the function."""
        return "_of_".join(kind.name for kind in self.kinds)

    @property
    def ideas(self) -> frozenset[str]:
        return frozenset(kind.idea for kind in self.kinds)

    @cached_property
    def programs(self) -> Mapping[str, str]:
        """By strategy, the reference first; a composition's combine those of its kinds."""
        outer, inner = self.kinds[0], self.kinds[-1]
        if outer is inner:
            return {name: self._define(outer, body) for name, body in outer.programs.items()}
        made = {}
        for place in range(max(len(outer.programs), len(inner.programs))):
            (a, first), (b, then) = (list(k.programs.items())[place % len(k.programs)] for k in (outer, inner))
            given = ", ".join(self.takes.parameters[0])
            call = f"def {self.name}({given}):\n    return {outer.name}({inner.name}({given}))\n"
            made[f"{a} of {b}"] = f"{self._define(inner, then)}\n\n{self._define(outer, first)}\n\n{call}"
        return made

    def _define(self, kind: TaskKind, body: str) -> str:
        names = read_task_file().inputs[kind.takes].parameters[0]
        return f"def {kind.name}({', '.join(names)}):\n{textwrap.indent(body.rstrip(), '    ')}\n"

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The reference, run in this process: the file of kinds is raypoly's own."""
        return compile_program(self.programs[next(iter(self.programs))], self.name)

    def result(self, args: Sequence[Any]) -> Any:
        """What the reference returns; the arguments stay as they are."""
        return self.function(*json.loads(json.dumps(args)))

    def tests(self, fewest: int, drawn: int) -> list[tuple[list[Any], Any]]:
        """(Arguments, result), `fewest` or more: the edges, and at least `drawn` that are drawn.

        Of many draws those are taken whose results are the rarest so far, so that no single result passes most tests.
        """
        found = {json.dumps(args): json.dumps(self.result(args)) for args in self._edges()}
        rng, until = random.Random(derive("task tests", self.name)), max(fewest, len(found) + drawn)
        offered: dict[str, str] = {}
        for number in range(_DRAWS):
            args = self.takes.draw(rng, number)
            if (key := json.dumps(args)) not in found:
                offered[key] = json.dumps(self.result(args))
        times = Counter(found.values())
        while len(found) < until:
            key = min(offered, key=lambda it: times[offered[it]])
            times[offered[key]] += 1
            found[key] = offered.pop(key)
        return [(json.loads(args), json.loads(result)) for args, result in found.items()]

    def _edges(self) -> list[list[Any]]:
        own = [edge for kind in self.kinds if kind.takes == self.kinds[-1].takes for edge in kind.edges]
        return [*self.takes.edges, *own]


def compile_program(program: str, name: str) -> Callable[..., Any]:
    """The function `name` that a trusted program defines."""
    scope: dict[str, Any] = {}
    exec(compile(program, f"<{name}>", "exec"), scope)
    function: Callable[..., Any] = scope[name]
    return function


@cache
def read_task_file() -> TaskFile:
    """kinds.yaml, with each constant of a kind in place."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    data = yaml.load(Path(__file__).with_name("kinds.yaml").read_text(encoding="utf-8"), loader)
    inputs = {name: TaskInput.model_validate(row) for name, row in data["inputs"].items()}
    kinds = {row["name"]: list(_kinds_of(row, data["styles"], inputs)) for row in data["kinds"]}
    pairs = [_Composition.model_validate(row) for row in data["compositions"]]
    return TaskFile(
        frames=data["frames"],
        endings=data["endings"],
        inputs=inputs,
        kinds=kinds,
        compositions=[(a, b) for it in pairs for b in it.inner for a in it.outer],
        left_out=frozenset(data["left_out"]),
    )


def _kinds_of(
    row: dict[str, Any], styles: dict[str, dict[str, str]], inputs: Mapping[str, TaskInput]
) -> Iterator[TaskKind]:
    """One for each of the row's constants, or one."""
    row = {"idea": row["name"], "family": inputs[row["takes"]].family, **row}
    style, expression = row.pop("like", None), row.pop("expression", "")
    if style:
        (parameter,) = inputs[row["takes"]].parameters[0]
        row["programs"] = {
            name: re.sub(r"\bE\b", lambda _: expression, re.sub(r"\bARG\b", parameter, body))
            for name, body in styles[style].items()
        }
    constants = row.pop("constants", None)
    for constant in constants or [None]:
        yield TaskKind.model_validate(row if constant is None else _with_constant(row, str(constant)))


def _with_constant(value: Any, constant: str) -> Any:
    if isinstance(value, dict):
        return {key: it if key == "idea" else _with_constant(it, constant) for key, it in value.items()}
    if isinstance(value, list):
        return [_with_constant(it, constant) for it in value]
    return _CONSTANT.sub(constant, value) if isinstance(value, str) else value


@cache
def all_tasks() -> tuple[Task, ...]:
    """Every task, in a fixed order; no two compute the same function on the inputs that they are compared on."""
    file = read_task_file()
    single = [Task((kind,), file.inputs[kind.takes]) for kinds in file.kinds.values() for kind in kinds]
    seen = {_behaviour(task) for task in single}
    tasks = [task for task in single if task.kinds[0].alone]
    for outer, inner in file.compositions:
        for kinds in itertools.product(file.kinds[outer], file.kinds[inner]):
            task = Task(kinds, file.inputs[kinds[-1].takes])
            results = _behaviour(task)
            if results not in seen and task.name not in file.left_out and _says_something(task, results):
                seen.add(results)
                tasks.append(task)
    return tuple(tasks)


def _behaviour(task: Task) -> tuple[str, ...]:
    """The input's type, and the results on its probes."""
    takes = task.kinds[-1].takes
    return takes, *(json.dumps(task.result(json.loads(args)), sort_keys=True) for args in _probes(takes))


@cache
def _probes(takes: str) -> tuple[str, ...]:
    # Functions that take the same are compared on all edges, and on drawn arguments.
    file = read_task_file()
    rng = random.Random(derive("task probes", takes))
    edges = [edge for kinds in file.kinds.values() for kind in kinds if kind.takes == takes for edge in kind.edges]
    drawn = [file.inputs[takes].draw(rng, number) for number in range(_PROBES)]
    return tuple(dict.fromkeys(json.dumps(args) for args in [*file.inputs[takes].edges, *edges, *drawn]))


def _says_something(task: Task, results: Sequence[str]) -> bool:
    # Whether the results vary, and are not what was given; of True and False each has to be a tenth of them.
    found, given = results[1:], _probes(task.kinds[-1].takes)
    if task.kinds[0].gives == "bool":
        return min(found.count("true"), found.count("false")) >= len(found) / 10
    return len(set(found)) >= _FEWEST_RESULTS and any(
        f"[{result}]" != args for result, args in zip(found, given, strict=True)
    )
