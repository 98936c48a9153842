"""The values that flow from stage to stage, each frozen.

    Problem --prompt--> Rollout xN --> Verdict xN --> Labels --> advantage xN

One `Group` is one problem with its N rollouts: the unit of flow and of the journal. Token arrays are NumPy
(int32 ids, float32 log-probabilities), never lists of Python ints. Unknown is never a number: a verdict of
`infra` has no reward, an unlabelled rollout has no strategy id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]

Status = Literal["passed", "wrong", "error", "timeout", "memory", "no_code", "infra"]
STATUSES: tuple[str, ...] = get_args(Status)
FinishReason = Literal["stop", "length"]
Split = Literal["train", "validation", "test"]
TestKind = Literal["calls", "check", "stdin", "operations", "none"]
Comparison = Literal["exact", "json"]


@dataclass(frozen=True)
class TestSuite:
    """The executable tests of one problem; it travels to each scorer once, by content hash.

    `kind="calls"`: `source` is JSON, a list of `{"args": [...], "expected": ...}`, each perhaps with `kwargs` and a
    `budget`; the candidate is called with the arguments, and what it returns is compared with `expected` outside the
    candidate's process. A budget bounds `steps`, `elements` or `depth` (any subset), counted deterministically beside
    the candidate.
    `kind="check"`: `source` is Python that defines `check(candidate)`, as in LeetCodeDataset.
    `kind="stdin"`: `source` is JSON, a list of `{"input": text, "output": text}`: each test runs the whole program
    with that standard input; what it prints is compared line by line, numbers by value, or a `checker` is asked.
    `kind="operations"`: `source` is JSON, a list of `{"operations": ["LRUCache", "put", "get"], "args": [[2], [1, 1],
    [1]], "expected": [null, null, 1]}`: the first operation makes an object, the others are its methods.
    `kind="none"`: there are no tests (`source` is empty). Nothing is run, each verdict is `no_code`, and what an answer
    is worth is for a reward function alone to say.
    """

    __test__ = False  # not a pytest class

    kind: TestKind
    source: str
    comparison: Comparison = "exact"
    """For `calls` and `operations`. `exact` is Python's `==`; `json` takes a tuple for the list of its items, as a
    suite whose expected values come from JSON has to."""
    checker: str = ""
    """For `stdin`, where several outputs are right: a Python program that is asked about an output other than the
    expected one. It is run as `checker.py input.txt correct_output.txt solution_output.txt`, and prints 1 or 0."""

    @cached_property
    def hash(self) -> str:
        """SHA-256 of what it says, hex."""
        kind = self.kind if self.comparison == "exact" else f"{self.kind}, {self.comparison}"
        if self.checker:
            kind = f"{kind}, checker {hashlib.sha256(self.checker.encode()).hexdigest()}"
        return hashlib.sha256(f"{kind}\n{self.source}".encode()).hexdigest()


@dataclass(frozen=True)
class Problem:
    """One task: what the policy sees, how its answer becomes a program, and how that program is tested."""

    id: str
    prompt: str
    """The text given to the policy, ready to be tokenized."""
    entry_point: str
    """What is called: `f`, or `Solution().twoSum`; empty where the tests name it (`operations`) or nothing is called
    (`stdin`)."""
    tests: TestSuite
    prelude: str = ""
    """Python that runs before the candidate (imports, ListNode helpers)."""
    answer: Literal["completion", "fenced"] = "fenced"
    """`completion`: the program is `prefix + response`; `fenced`: the last fenced block of the response."""
    prefix: str = ""
    """For `completion`: the source text that the response continues (the signature line)."""
    solution: str = ""
    """A program known to be right, where there is one: it calibrates time limits, and the policy never sees it."""
    reference_seconds: float | None = None
    """CPU seconds of the slowest test of a program known to be right; None where nobody measured."""
    source: str = ""
    """Where the problem comes from: `puzzles`, or the path of a file."""
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Rollout:
    """One sampled response.

    `logprobs[t]` is the log-probability of `tokens[t]` under the sampling policy, after temperature.
    """

    prompt_tokens: Int32
    tokens: Int32
    """int32 [T], the response, end-of-sequence token included where it was sampled."""
    logprobs: Float32
    """float32 [T]."""
    text: str
    """The response without special tokens."""
    finish_reason: FinishReason
    seed: int
    weight_version: int


@dataclass(frozen=True)
class Evidence:
    """What a sandbox child found in a program, for judges and metrics: they never parse or run one themselves."""

    canonical: str
    """Canonical source: comments, docstrings, local names, literal style and dead code taken away."""
    constructs: tuple[str, ...]
    """Live constructs by syntax (after slicing to what the result depends on), sorted: `for`, `while`, `recursion`,
    `comprehension`, `map`, `reduce` ..."""
    growth: Mapping[str, float]
    """How often each construct ran on the largest test, from execution: `{"for": 40.0}`."""
    strategy: str
    """The strategy by execution trace alone: the construct that did the work as the input grew; `direct` where none
    did, empty where unknown (the program never ran to an end)."""
    features: tuple[str, ...] = ()
    """What live code does with its data, sorted: `heap`, `two_pointers`, `memo`, `depth_2` ...; `placeholder` or
    `hard_coded` alone where the program is no attempt; empty where it could not be read."""


@dataclass(frozen=True)
class Failure:
    """The first test that a program failed, for a person: each text is cut to size."""

    test: int
    """Its place among the tests, from 1; 0 where the program could not be loaded."""
    input: str
    got: str
    """What came back, or what went wrong."""
    expected: str
    """Empty where only a `check` knows."""


@dataclass(frozen=True)
class Verdict:
    """What the sandbox says of one program. `infra` is the sandbox's own fault: retried, never trained on."""

    status: Status
    tests_passed: int
    tests_total: int
    cpu_seconds: float
    detail: str = ""
    """One line for a person: the first failing test, the exception, the budget that ran out; cut to size."""
    evidence: Evidence | None = None
    """None where the program did not parse."""
    failure: Failure | None = None
    """None where it passed, or never came to a test."""
    repeatable: bool = True
    """False where another moment might give another verdict: a timeout by the clock, not by a counted budget."""

    @property
    def passed(self) -> bool:
        return self.status == "passed"


@dataclass(frozen=True)
class Labels:
    """Strategies of a group's N rollouts as a judge sees them. Ids mean nothing across groups."""

    ids: Int32
    """int32 [N]: a strategy id >= 1, or 0 where unknown (and where degenerate)."""
    degenerate: Bool
    """bool [N]: no code, off-task, gibberish. Never a strategy."""
    judge: str
    """Who said so: the judge's name and version."""

    @property
    def strategies(self) -> tuple[int, ...]:
        """[N]: strategy ids, 0 where a program has none."""
        return tuple(np.where(self.degenerate, 0, self.ids).tolist())

    @property
    def known(self) -> bool:
        """Whether every rollout that is not degenerate has a strategy id."""
        return bool(np.all((self.ids >= 1) | self.degenerate))


@dataclass(frozen=True)
class CrossLogprobs:
    """How likely each of a group's N responses is behind each of the group's P distinct prompts."""

    own_prompt: Int32
    """int32 [N]: which of the P, in the order in which rollouts first have them, a rollout was sampled behind."""
    logprobs: tuple[Float32, ...]
    """[N], each float32 [P, T]: of its tokens, by the learner under the weights that sampled, after temperature."""


class UnknownPart(Enum):
    """The part of a stage that answered and does not know."""

    UNKNOWN = "unknown"


UNKNOWN = UnknownPart.UNKNOWN
"""Never a number: where the part is needed, the group has no gradient."""


@dataclass(frozen=True)
class Skipped:
    """The part of a stage that can't work on this group, through no fault of the policy: the group is left out."""

    reason: str


@dataclass(frozen=True)
class Group:
    """One problem with its N rollouts at one slot of one step, with what its stages have found out so far."""

    step: int
    slot: int
    problem_id: str
    rollouts: tuple[Rollout, ...]
    parts: Mapping[str, Any] = field(default_factory=dict)
    """By the name of a stage: its part, `UNKNOWN`, or `Skipped`; a stage that has not run has no entry. A part that was
    read back is a `pyarrow.RecordBatch` of N rows until its stage decodes it, but for those with a property here."""

    @property
    def size(self) -> int:
        """N."""
        return len(self.rollouts)

    @property
    def verdicts(self) -> tuple[Verdict, ...] | None:
        """[N], of the stage `score`; None until it has run."""
        return self.parts.get("score")

    @property
    def labels(self) -> Labels | None:
        """Of the stage `judge`; None until it has run, and for good where it did not or could not label the group."""
        return None if self.unjudged else self.parts.get("judge")

    @property
    def unjudged(self) -> bool:
        """Whether the judge answered and could not label the group."""
        return self.parts.get("judge") is UNKNOWN

    @property
    def cross_logprobs(self) -> CrossLogprobs | None:
        """Of the stage `prompt_logprobs`; None until it has run, and for good where no objective needs it."""
        return self.parts.get("prompt_logprobs")

    def with_parts(self, **parts: Any) -> Group:
        """The group with these parts in place of those of the same stages; None takes a part away."""
        merged = {name: part for name, part in {**self.parts, **parts}.items() if part is not None}
        return replace(self, parts=merged)

    def knows(self, stage: str) -> bool:
        """Whether the stage has run and found out what it was asked."""
        return self.parts.get(stage, UNKNOWN) is not UNKNOWN and not isinstance(self.parts[stage], Skipped)
