"""The frozen values that pass from stage to stage.

    Problem --prompt--> Rollout xN --> Verdict xN --> Labels --> advantage xN

A `Group`, one problem with its N rollouts, is what stages work on and the journal stores. Unknown is never a number: a
verdict of `infra` has no reward, an unlabelled rollout no strategy id.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, Literal, Self, cast, get_args

import numpy as np
from numpy.typing import NDArray

from raypoly.core.config import ComparisonChoice, OutputComparison

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]

Status = Literal["passed", "wrong", "error", "timeout", "memory", "no_code", "infra"]
STATUSES: tuple[str, ...] = get_args(Status)
FinishReason = Literal["stop", "length", "turns", "tool_seconds", "unknown"]
"""The last three end a conversation: its most turns, its tools' seconds, an answer that can't be had."""
Split = Literal["train", "validation", "test"]
TestKind = Literal["calls", "check", "stdin", "operations", "answer", "none", "run"]
Comparison = Literal[OutputComparison, "json", "math"]
_UNSTATED = cast(Comparison, "")


@dataclass(frozen=True)
class TestSuite:
    """The executable tests of one problem, sent to each scorer once, by content hash. `source` by `kind`:

    `calls`: JSON, a list of `{"args": [...], "expected": ...}`, optionally with `kwargs` and a `budget` of `steps`,
    `elements` or `depth` (any subset), counted deterministically. Results are compared outside the candidate's process.
    `check`: Python that defines `check(candidate)`, as in LeetCodeDataset.
    `stdin`: JSON, a list of `{"input": text, "output": text}`, each a run of the whole program.
    `operations`: JSON, a list of `{"operations": ["LRUCache", "put", "get"], "args": [[2], [1, 1], [1]], "expected":
    [null, null, 1]}`: the first operation makes an object, the others are its methods.
    `answer`: the right value, a Python literal or a text. Nothing is run; literals are compared by value. With
    `comparison="math"` a mathematical one: `1{,}234`, `\\frac{1}{2}`, `[1,2)`.
    `none`: empty. Nothing is run and each verdict is `no_code`: the reward function alone values the response.
    `run`: the standard input of one run that nobody judges: a verdict's `failure.got` is what it printed.
    """

    __test__ = False  # not a pytest class

    kind: TestKind
    source: str
    comparison: Comparison = _UNSTATED
    """How outputs and values are compared with the expected ones: `raypoly.verifier.sandbox.comparisons`. `json` is for
    values, `math` for answers alone. Default: `exact` for values; for `stdin` `tolerance`, or `lines` where a checker
    has a tolerance."""
    checker: str = ""
    """For `stdin` with several right outputs: a Python program that prints 1 or 0 of an unexpected output, run as
    `checker.py input.txt correct_output.txt solution_output.txt`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "comparison", self.comparison or self.default_comparison)

    @property
    def default_comparison(self) -> Comparison:
        """That of a suite which states none."""
        if self.kind != "stdin":
            return "exact"
        return "lines" if self.checker else "tolerance"

    @property
    def runs(self) -> bool:
        """Whether responses have programs that are run."""
        return self.kind not in ("answer", "none")

    def compared_by(self, comparison: OutputComparison) -> TestSuite:
        """Unchanged if of another kind, such as a `check`, which compares by itself."""
        return replace(self, comparison=comparison) if self.kind in ("calls", "stdin", "operations") else self

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the content, hex."""
        kind = self.kind if self.comparison == self.default_comparison else f"{self.kind}, {self.comparison}"
        if self.checker:
            kind = f"{kind}, checker {hashlib.sha256(self.checker.encode()).hexdigest()}"
        return hashlib.sha256(f"{kind}\n{self.source}".encode()).hexdigest()


@dataclass(frozen=True)
class Problem:
    id: str
    prompt: str
    """Ready to be tokenized."""
    entry_point: str
    """The callable under test, `f` or `Solution().twoSum`; empty for `operations` and `stdin`."""
    tests: TestSuite
    """They decide the reward; the policy never reads them, nor a result of theirs."""
    prelude: str = ""
    """Python that runs before the candidate (imports, ListNode helpers)."""
    answer: Literal["completion", "fenced"] = "fenced"
    """`completion`: the program is `prefix + response`; `fenced`: `extract_code` finds it in the response."""
    prefix: str = ""
    """The source that a completion continues, or a body that is all of a fenced answer."""
    solution: str = ""
    """A program known to be right, or empty: calibrates time limits, and the policy never sees it."""
    reference_seconds: float | None = None
    """CPU seconds of the slowest test of `solution`; None if not measured."""
    source: str = ""
    """`puzzles`, or the path of a file."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    public_tests: TestSuite | None = None
    """Tests that the policy may see, with its program's results; `data.public_tests` takes them out of `tests`."""

    def compared_by(self, comparison: ComparisonChoice) -> Problem:
        """The problem with tests that compare in this way."""
        if comparison == "format":
            return self
        public = None if self.public_tests is None else self.public_tests.compared_by(comparison)
        return replace(self, tests=self.tests.compared_by(comparison), public_tests=public)


ASSISTANT = "assistant"
"""The role of the policy's own turns."""


@dataclass(frozen=True)
class Turn:
    """One turn of a conversation: the policy's, or the observation that answers it."""

    role: str
    """`assistant`, or an observation's: `user`, `tool`."""
    start: int
    """Offset in the rollout's tokens. It ends where the next one starts."""
    text: str
    """Without special tokens; an observation without its template."""
    finish_reason: str = "stop"
    """Of an observation `length` where it was cut."""
    seconds: float = 0.0
    """CPU seconds of the tools that made an observation; of a last turn, of those that looked at it."""


@dataclass(frozen=True)
class Rollout:
    """One sampled response, or a conversation: what the policy sampled and the observations between.

    `logprobs[t]` is the log-probability of `tokens[t]` under the sampling policy, after temperature.
    """

    prompt_tokens: Int32
    tokens: Int32
    """int32 [T], with the end-of-sequence token if one was sampled."""
    logprobs: Float32
    """float32 [T]; NaN at observations."""
    text: str
    """The response without special tokens; of a conversation the policy's last turn."""
    finish_reason: FinishReason
    seed: int
    weight_version: int
    """Of the weights that sampled it; with `newer_from`, of the first."""
    mask: Bool | None = None
    """bool [T]: the policy's own tokens; None: all are. Everything that counts or trains tokens means these."""
    turns: tuple[Turn, ...] = ()
    """Of a conversation, in order."""
    outcome: float | None = None
    """What its environment says it is worth, NaN for unknown; None where the verdict says."""
    newer_from: int | None = None
    """Where in `tokens` weights one update newer went on (`train.ahead_mode=in_flight`); None: nowhere."""

    @classmethod
    def of_text(cls, text: str, finish_reason: FinishReason = "stop", seed: int = 0, weight_version: int = 0) -> Self:
        """Without tokens: nobody sampled it here."""
        none, no_logprobs = np.zeros(0, np.int32), np.zeros(0, np.float32)
        return cls(none, none, no_logprobs, text, finish_reason, seed, weight_version)

    @property
    def length(self) -> int:
        """The policy's own tokens."""
        return len(self.tokens) if self.mask is None else int(np.count_nonzero(self.mask))

    def stale_tokens(self, version: int) -> int:
        """The policy's own tokens by weights before this version."""
        if self.weight_version >= version:
            return 0
        newer = self.weight_version + 1 >= version and self.newer_from is not None
        return int(np.count_nonzero(self.own(np.arange(len(self.tokens))) < self.newer_from)) if newer else self.length

    @property
    def own_turns(self) -> tuple[Turn, ...]:
        """The policy's, of a conversation."""
        return tuple(turn for turn in self.turns if turn.role == ASSISTANT)

    @property
    def given(self) -> bool:
        """Whether nobody sampled it."""
        return bool(len(self.logprobs)) and bool(np.isnan(self.logprobs).all())

    def own(self, values: NDArray[Any]) -> NDArray[Any]:
        """Of values [..., T] those at the policy's own tokens."""
        return values if self.mask is None else values[..., self.mask]


@dataclass(frozen=True)
class Evidence:
    """What a sandbox child found in a program, for judges and metrics, which parse and run none."""

    canonical: str
    """The source without comments, docstrings and dead code, local names and literals normalised."""
    constructs: tuple[str, ...]
    """Those that the result depends on, sorted: `for`, `while`, `recursion`, `map`, `reduce` ..."""
    growth: Mapping[str, float]
    """Runs of each construct on the largest test: `{"for": 40.0}`."""
    strategy: str
    """By running it: the construct that did the work as the input grew, `direct` if none did; where there are
    features, the approach of what remains. Empty if unknown."""
    features: tuple[str, ...] = ()
    """Of live code, sorted: `heap`, `two_pointers`, `memo`, `depth_2` ...; `placeholder` or `hard_coded` alone if the
    program is no attempt; empty if it can't be parsed."""

    @property
    def unknown(self) -> bool:
        """Whether its strategy could not be observed: it joins its group's largest."""
        return not self.constructs and not self.features


@dataclass(frozen=True)
class Failure:
    """The first test that a program failed, in texts of readable size."""

    test: int
    """From 1; 0 if the program could not be loaded."""
    input: str
    got: str
    """The result, or the error."""
    expected: str
    """Empty for a `check`, which states no expected value."""


@dataclass(frozen=True)
class Verdict:
    """The sandbox's result for one program. `infra` is the sandbox's own fault: retried, never trained on."""

    status: Status
    tests_passed: int
    tests_total: int
    cpu_seconds: float
    detail: str = ""
    """One line: the first failing test, the exception, or the exceeded budget."""
    evidence: Evidence | None = None
    """None if the program does not parse."""
    failure: Failure | None = None
    """None if the program passed, or no test was reached."""
    repeatable: bool = True
    """False for a timeout by the clock: a second run might give another verdict."""

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    @classmethod
    def of_outcome(cls, outcome: float, who: str = "the environment") -> Self:
        """What an environment or a reward function says, without any test; NaN is unknown."""
        if math.isnan(outcome):
            return cls("infra", 0, 0, 0.0, f"{who} can't say")
        return cls("passed" if outcome >= 1 else "wrong", 0, 0, 0.0, f"{who} says {outcome:g}")


WITHOUT_TESTS = Verdict("no_code", 0, 0, 0.0, "the problem has no tests to run")
"""Of responses to problems of kind `none`."""


@dataclass(frozen=True)
class Labels:
    """A judge's strategies of a group's N rollouts, comparable within the group only."""

    ids: Int32
    """int32 [N]: a strategy id >= 1; 0 if unknown or degenerate."""
    degenerate: Bool
    """bool [N]: no code, off-task, gibberish. Never a strategy."""
    judge: str
    """Name and version."""

    @property
    def strategies(self) -> tuple[int, ...]:
        """[N]: strategy ids, 0 for a program without one."""
        return tuple(np.where(self.degenerate, 0, self.ids).tolist())

    @property
    def known(self) -> bool:
        """Whether all but degenerate rollouts have a strategy id."""
        return bool(np.all((self.ids >= 1) | self.degenerate))


@dataclass(frozen=True)
class CrossLogprobs:
    """Log-probabilities of a group's N responses after each of its P distinct prompts."""

    own_prompt: Int32
    """int32 [N]: each rollout's prompt among the P, which are in order of first use."""
    logprobs: tuple[Float32, ...]
    """[N], each float32 [P, T]: by the learner, with the sampler's weights, after temperature."""


class UnknownPart(Enum):
    """The type of `UNKNOWN`, the finding of a stage that was answered and found nothing."""

    UNKNOWN = "unknown"


UNKNOWN = UnknownPart.UNKNOWN
"""Never a number: a group whose objective needs it has no gradient."""


@dataclass(frozen=True)
class Skipped:
    """The finding of a stage that can't work on this group: the update leaves it out."""

    reason: str


@dataclass(frozen=True)
class Draft:
    """A rollout that is no attempt: a plan, a sketch (`raypoly.rollouts.scaffolds`)."""

    rollout: Rollout
    role: str
    """What it is, in its scaffold's words: `plan`, `sketch` ..."""
    parent: int | None = None
    """The index of the draft that it was made from; None for none."""


ATTEMPT = "solve"
"""The role of attempts, which no draft has."""


@dataclass(frozen=True)
class Group:
    """One problem at a slot of a step: its N attempts, the D drafts before them, and the stages' findings so far."""

    step: int
    slot: int
    problem_id: str
    rollouts: tuple[Rollout, ...]
    findings: Mapping[str, Any] = field(default_factory=dict)
    """By stage: its finding, `UNKNOWN` or `Skipped`; no entry before it has run. A finding read back is a
    `pyarrow.RecordBatch` of N rows until its stage decodes it, except those with a property here."""
    drafts: tuple[Draft, ...] = ()
    """[D], as they were asked for."""
    draft_of: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))
    """int32 [N]: the draft that each attempt was made from; -1 for none."""

    def __post_init__(self) -> None:
        if not len(self.draft_of):
            object.__setattr__(self, "draft_of", np.full(len(self.rollouts), -1, np.int32))

    @property
    def size(self) -> int:
        """N."""
        return len(self.rollouts)

    @property
    def verdicts(self) -> tuple[Verdict, ...] | None:
        """[N], of stage `score`; None until it has run."""
        return self.findings.get("score")

    @property
    def labels(self) -> Labels | None:
        """Of stage `judge`; None until it has run, and if it does not or can't label the group."""
        return None if self.unjudged else self.findings.get("judge")

    @property
    def unjudged(self) -> bool:
        """Whether the judge answered but could not label the group."""
        return self.findings.get("judge") is UNKNOWN

    @property
    def cross_logprobs(self) -> CrossLogprobs | None:
        """Of stage `prompt_logprobs`; None until it has run, and if no objective needs it."""
        return self.findings.get("prompt_logprobs")

    def with_findings(self, **findings: Any) -> Group:
        """A copy with these set by stage; None removes one."""
        merged = {name: finding for name, finding in {**self.findings, **findings}.items() if finding is not None}
        return replace(self, findings=merged)

    def knows(self, stage: str) -> bool:
        """Whether the stage has run and its finding is known."""
        return self.findings.get(stage, UNKNOWN) is not UNKNOWN and not isinstance(self.findings[stage], Skipped)
