"""The verifier as an object: verdicts, rewards and strategies of responses, by sandboxes of this process.

    with Verifier("problems.jsonl", workers=2) as verifier:
        verifier.rewards(["```python\\ndef f(n): return 2 * n\\n```", "I don't know"], "double")    ->  [1.0, 0.0]
        verifier.strategies("double", ["def f(n): return 2 * n", "def f(n): return n + n"]).ids     ->  [1, 1]

What is unknown is None and never 0: a sandbox that failed, or a problem whose tests can't be run.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from raypoly.algorithms.objectives import Batch, Objective
from raypoly.core import settings
from raypoly.core.config import ScorerConfig
from raypoly.core.errors import IsolationMissing, SandboxError, UsageError
from raypoly.core.values import Float64, Labels, Problem, Rollout, Verdict
from raypoly.data.formats import ProblemFile, problem_of, program_of, read_problems
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.strategies.judge.structural import structural_labels
from raypoly.verifier.code_extraction import program_in
from raypoly.verifier.local_pool import LocalPool, VerdictPool, unknown_verdict
from raypoly.verifier.rewards import fraction, passed
from raypoly.verifier.rewards.reward_function import outcome_of
from raypoly.verifier.score_programs import by_id

Reward = Callable[[Problem, Rollout, Verdict], float | None]
"""As `reward.name` takes it, not async: a rollout has its `text`, and "stop" as its `finish_reason`."""
_NAMED: Mapping[str, Reward] = {"passed": passed, "fraction": fraction}


class Verifier:
    """Owns `workers` sandboxes until `close`; methods may be called from several threads at once."""

    def __init__(
        self,
        problems: str | Path | Iterable[Problem | Mapping[str, Any]],
        workers: int = 2,
        evidence: bool = True,
        config: ScorerConfig | None = None,
        pool: VerdictPool | None = None,
        **limits: Any,
    ) -> None:
        """`problems`: a file, a folder or a pattern, or rows of any format of docs/problem-formats.md.

        `evidence`: look for strategies too, which triples a short program's cost. `limits`: keys of `scorer`, such as
        `cpu_seconds_per_test=2`; `config` stands for `workers` and all of them. `pool`: other scorers than this
        process's own, closed with it. Raises `UsageError` for a problem or a
        limit that can't be used, `IsolationMissing` where programs can't be confined.
        """
        if isinstance(problems, str | Path):
            file = read_problems(Path(problems))
        else:
            file = ProblemFile(problems_of(problems), [])
        self.problems: Mapping[str, Problem] = by_id(file.problems)
        """By id."""
        self.unusable = {row.id: f"{row.source} line {row.line}: {row.reason}" for row in file.rejected}
        """By id: why a file's row is no problem."""
        if config is None:
            config = settings.load(None, [f"scorer.{key}={value}" for key, value in limits.items()]).scorer
            config = config.model_copy(update={"workers": workers})
        self.config = config
        self._pool = pool or LocalPool(self.config, StrategyEvidence() if evidence else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def verdicts(
        self, responses: Iterable[str | None], problem: str | Sequence[str] | None = None, extract: bool = True
    ) -> list[Verdict]:
        """A verdict for each response, in order; `infra` where none is known.

        `problem`: the id of the problem that all are for, or one for each; none where there is one problem alone.
        `extract`: the program is looked for in a response, as in training; else the response is the program.
        """
        given = list(responses)
        return self._verdicts(self._problems_of(problem, len(given)), given, extract)

    def score(self, programs: Iterable[tuple[Problem, str | None]]) -> list[Verdict]:
        """A verdict for each program, in order. `None`: a response without one.

        Where the sandboxes failed for good, or are closed, all are `infra`: no trainer should stop, or learn, for that.
        """
        given = list(programs)
        try:
            return list(self._pool.score(given))
        except IsolationMissing:
            raise
        except SandboxError as error:
            return [unknown_verdict(error)] * len(given)

    def rewards(
        self,
        responses: Iterable[str | None],
        problem: str | Sequence[str] | None = None,
        reward: Literal["passed", "fraction"] | Reward = "passed",
        extract: bool = True,
    ) -> list[float | None]:
        """A reward for each response, in order; None where the verdict is unknown.

        Raises `UsageError` where `reward` gives no finite number.
        """
        if reward == "fraction" and not self.config.all_tests:
            raise UsageError("The reward fraction needs all tests: make the verifier with all_tests=True.")
        given = list(responses)
        problems = self._problems_of(problem, len(given))
        verdicts = self._verdicts(problems, given, extract)
        return [_reward(reward, *each) for each in zip(problems, given, verdicts, strict=True)]

    def strategies(self, problem: str, programs: Sequence[str | None]) -> Labels:
        """The strategies of programs of one problem, from their runs: `ids` and `degenerate` as objectives take them.

        A program whose strategy is unknown joins the largest. Each one's approach in words is its verdict's
        `evidence.strategy`. Raises `UsageError` without evidence, and where a sandbox failed on a program.
        """
        verdicts = self.verdicts(programs, problem, extract=False)
        failed = next((verdict for verdict in verdicts if verdict.status == "infra"), None)
        if failed is not None:
            raise UsageError(f"The strategies are unknown: a program could not be run ({failed.detail}).")
        labels = structural_labels(verdicts)
        if labels is None:
            raise UsageError("No program left evidence of a strategy: none parses, or the verifier has evidence=False.")
        return labels

    async def verdicts_async(self, *args: Any, **kwargs: Any) -> list[Verdict]:
        """`verdicts`, while other tasks go on."""
        return await asyncio.to_thread(self.verdicts, *args, **kwargs)

    async def rewards_async(self, *args: Any, **kwargs: Any) -> list[float | None]:
        """`rewards`, while other tasks go on."""
        return await asyncio.to_thread(self.rewards, *args, **kwargs)

    def close(self) -> None:
        """End all programs and sandboxes."""
        self._pool.close()

    def _verdicts(self, problems: Sequence[Problem], responses: Sequence[str | None], extract: bool) -> list[Verdict]:
        made = program_in if extract else program_of
        pairs = zip(problems, responses, strict=True)
        return self.score([(each, None if text is None else made(each, text)) for each, text in pairs])

    def _problems_of(self, problem: str | Sequence[str] | None, count: int) -> list[Problem]:
        if problem is None and len(self.problems) != 1:
            raise UsageError(f"Say which of the {len(self.problems):,} problems the responses are for, by their ids.")
        names = [problem or next(iter(self.problems))] * count if isinstance(problem, str | None) else list(problem)
        if len(names) != count:
            raise UsageError(f"{count} responses need {count} problem ids, or one for all; got {len(names)}.")
        if unknown := [name for name in names if name not in self.problems]:
            why = self.unusable.get(unknown[0])
            found = f"There is no problem {unknown[0]!r} among the {len(self.problems):,} given."
            raise UsageError(found if why is None else f"The problem {unknown[0]!r} can't be used: {why}.")
        return [self.problems[name] for name in names]


def group_advantages(
    objective: Objective,
    rewards: Float64,
    groups: Iterable[Sequence[int]],
    labels: Sequence[int] | None = None,
    lengths: Sequence[int] | None = None,
) -> Float64:
    """Advantages, float64 [B], of a batch whose `groups` are the places of each prompt's responses.

    An unknown reward (NaN) has 0, and its group goes without it; a group that is too small then has none. `labels`
    and `lengths` (response tokens): [B], for objectives that need them.
    """
    places, found, sizes = list[list[int]](), list[Float64](), list[Any]()
    for group in groups:
        known = [place for place in group if not np.isnan(rewards[place])]
        try:
            objective.check(len(known))
        except UsageError:
            continue
        if known:
            own = None if labels is None else [labels[place] for place in known]
            sizes.append(np.ones(len(known), np.int32) if lengths is None else [lengths[place] for place in known])
            credit = objective.credit(rewards[known], own, lengths=sizes[-1])
            if credit.tokens:
                raise UsageError(
                    f"{type(objective).__name__} gives each token an advantage of its own, and this trainer takes one "
                    "a response: train with raypoly, or choose another objective."
                )
            found.append(credit.numbers)
            places.append(known)
    advantages = np.zeros(len(rewards))
    for known, values in zip(places, objective.finish(Batch.of(found, sizes)), strict=True):
        advantages[known] = values
    return advantages


def problems_of(rows: Iterable[Problem | Mapping[str, Any]]) -> list[Problem]:
    """Problems of rows in any format. Raises `UsageError` with the number of one that can't be used, from 1."""
    found = []
    for number, given in enumerate(rows, 1):
        try:
            found.append(given if isinstance(given, Problem) else problem_of(given))
        except ValueError as error:
            raise UsageError(f"Problem {number} can't be used: {error}.") from error
    return found


def _reward(reward: str | Reward, problem: Problem, response: str | None, verdict: Verdict) -> float | None:
    if verdict.status == "infra":
        return None
    if isinstance(reward, str):
        if reward not in _NAMED:
            raise UsageError(f"There is no reward {reward!r}: use {' or '.join(_NAMED)}, or a function.")
        reward = _NAMED[reward]
    value = reward(problem, Rollout.of_text(response or ""), verdict)
    outcome = outcome_of(value, "The reward", problem)
    return None if math.isnan(outcome) else outcome
