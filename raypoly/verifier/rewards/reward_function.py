"""Outcomes: the function that says how right a response is. `reward.name` names it.

    def reward(problem, rollout, verdict): ...                                        # raypoly's form
    def reward(problem, rollout, verdict, findings): ...                              # of the group's stages
    async def compute_score(data_source, solution_str, ground_truth, extra_info): ... # verl's
    def reward(prompts, completions, **columns): ...                                  # TRL's: a list for all

The form is read from the parameters; each may be async. A response's value is a finite number, None (unknown: the
response is left out) or a dict, whose `score` is the outcome and whose other numbers are logged parts. Never called for
a verdict of `infra`, nor with an unknown finding. Of a stage with a value for each rollout, `findings` has this
rollout's; of `judge` and `prompt_logprobs` it has the group's.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np

from raypoly.core.config import Config
from raypoly.core.errors import Away, RaypolyError, UsageError
from raypoly.core.plugins import load_plugin
from raypoly.core.token_arrays import TokenArrays
from raypoly.core.values import Float64, Problem, Rollout, Verdict
from raypoly.data.verl_rows import compute_score_args
from raypoly.verifier.rewards.answered_group import AnsweredGroup

Form = Literal["raypoly", "verl", "trl"]
Call = Callable[..., Awaitable[Any]]
"""Calls a function with arguments, sync or async, and returns what it gives."""

KNOWN = ("passed", "fraction", "threshold")
_AT_ONCE = 64  # open calls of an async function in one process
_NO_NAME = re.compile(r"[^a-z0-9_]+")
_UNKNOWN = float("nan")


def row_of(problem: Problem) -> Mapping[str, Any]:
    """The columns of the problem's row, as far as they are kept; of a row of verl's, its three."""
    own = {"data_source", "ground_truth", "extra_info"} <= problem.metadata.keys()
    return vars(compute_score_args(problem)) if own else problem.metadata


async def plain_call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    found = function(*args, **kwargs)
    return await found if inspect.isawaitable(found) else found


@dataclass(frozen=True)
class Valued:
    """Outcomes of some responses, and the other numbers that their function gave."""

    outcome: Float64
    """float64 [N]; NaN where it is unknown."""
    parts: Mapping[str, Float64]
    """float64 [N] by name; NaN where a response has none."""


@dataclass(frozen=True)
class RewardFunction:
    name: str
    """As in the config: `reward.name=my_rewards:reward`."""
    function: Callable[..., Any]
    form: Form = "raypoly"
    own: bool = True
    """Whether it is a user's, which runs beside the step and may give None."""

    @property
    def reads_findings(self) -> bool:
        return "findings" in inspect.signature(self.function).parameters

    @property
    def is_async(self) -> bool:
        function = self.function
        return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)

    def of_verdicts(self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]) -> Float64:
        """Outcomes of raypoly's own functions, float64 [N], which follow from the verdicts; NaN for `infra`."""
        pairs = zip(rollouts, verdicts, strict=True)
        found = [_UNKNOWN if v.status == "infra" else self.function(problem, r, v) for r, v in pairs]
        return _with_own(np.array(found, dtype=np.float64), rollouts)

    async def values(self, answered: AnsweredGroup, call: Call | None = None) -> Valued:
        """Outcomes of the group's responses. `call` makes each call of the function.

        An exception of the function is raised with a note that names function, problem and response; what is neither a
        finite number, nor None, nor a dict raises `RaypolyError`.
        """
        if not self.own:
            return Valued(self.of_verdicts(answered.problem, answered.rollouts, answered.verdicts), {})
        return self._gathered(answered, await self.results(answered, call or plain_call))

    async def results(self, answered: AnsweredGroup, call: Call = plain_call) -> Sequence[Any]:
        """What the function gives for each response, as it gives it."""
        if self.form == "trl":
            return await self._of_all(answered, call)
        if not self.is_async:
            return [await self._of_one(answered, index, call) for index in range(answered.size)]
        room = asyncio.Semaphore(_AT_ONCE)

        async def one(index: int) -> Any:
            async with room:
                return await self._of_one(answered, index, call)

        return await asyncio.gather(*map(one, range(answered.size)))

    async def _of_one(self, answered: AnsweredGroup, index: int, call: Call) -> Any:
        problem, rollout = answered.problem, answered.rollouts[index]
        place = answered.places[index]
        with self._noted(answered, f"response {place + 1} to problem {problem.id}"):
            if self.form == "verl":
                given_row = {"solution_str": rollout.text, **vars(compute_score_args(problem))}
                return await call(self.function, **self._taken(given_row))
            given = [problem, rollout, answered.verdicts[index]]
            if not self.reads_findings:
                return await call(self.function, *given)
            findings = {name: _own(finding, place) for name, finding in answered.findings.items()}
            return await call(self.function, *given, findings=findings)

    async def _of_all(self, answered: AnsweredGroup, call: Call) -> Sequence[Any]:
        """By TRL's form: one call for all responses, with the columns of the problem's row as lists."""
        problem, size = answered.problem, answered.size
        columns: dict[str, Any] = {
            **row_of(problem),
            "prompts": problem.prompt,
            "problem_id": problem.id,
            "solution": problem.solution,
        }
        given = {name: [value] * size for name, value in columns.items()}
        given["completions"] = [rollout.text for rollout in answered.rollouts]
        given["completion_ids"] = [rollout.tokens.tolist() for rollout in answered.rollouts]
        takes = inspect.signature(self.function).parameters
        if missing := sorted(n for n, p in takes.items() if n not in given and _is_required(p)):
            raise RaypolyError(
                f"{self.name} asks for {missing[0]}, which the row of problem {problem.id} does not have."
            )
        with self._noted(answered, f"the responses to problem {problem.id}"):
            found = await call(self.function, **self._taken(given))
        if not isinstance(found, Sequence | np.ndarray) or len(found) != size:
            many = f"{len(found)} values" if isinstance(found, Sequence | np.ndarray) else repr(found)
            raise RaypolyError(f"{self.name} gave {many} for {size} responses to problem {problem.id}.")
        return list(found)

    def _taken(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Those of the arguments that the function has."""
        takes = inspect.signature(self.function).parameters
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values()):
            return given
        return {name: value for name, value in given.items() if name in takes}

    def _gathered(self, answered: AnsweredGroup, results: Sequence[Any]) -> Valued:
        outcome = [outcome_of(result, self.name, answered.problem) for result in results]
        numbers = [_parts_of(result) for result in results]
        names = sorted({name for each in numbers for name in each})
        parts = {name: np.array([each.get(name, _UNKNOWN) for each in numbers]) for name in names}
        return Valued(_with_own(np.array(outcome, dtype=np.float64), answered.rollouts), parts)

    @contextmanager
    def _noted(self, answered: AnsweredGroup, what: str) -> Iterator[None]:
        """An exception of the function stops the run, with a note that names the response."""
        try:
            yield
        except Away:
            raise
        except Exception as error:
            error.add_note(f"raised by {self.name} on {what}, in step {answered.step}")
            raise


def _with_own(outcomes: Float64, rollouts: Sequence[Rollout]) -> Float64:
    """With what a rollout's environment says that it is worth, where it does."""
    said = [rollout.outcome for rollout in rollouts]
    found: Float64 = np.array(
        [one if own is None else own for one, own in zip(outcomes, said, strict=True)], np.float64
    )
    return found


def outcome_of(result: Any, name: str, problem: Problem) -> float:
    """The outcome in what a reward function gave for a response; NaN where it is unknown. Raises `RaypolyError`."""
    score = result.get("score", result) if isinstance(result, Mapping) else result
    if score is None:
        return _UNKNOWN
    if isinstance(score, Real | np.bool_) and math.isfinite(score):
        return float(score)
    raise RaypolyError(
        f"{name} gave {result!r} for a response to problem {problem.id}: it has to give a finite number, None where it "
        'can\'t say, or a dict whose "score" is one of these.'
    )


def reward_function(config: Config) -> RewardFunction:
    """`passed`, `fraction`, `threshold` or the user's own function, as `reward.name` says.

    Raises `UsageError` if a function can't be imported, is none, or has parameters of no known form.
    """
    name, least = config.reward.name, config.reward.threshold
    ours: Mapping[str, Callable[..., float]] = {
        "passed": passed,
        "fraction": fraction,
        "threshold": lambda *given: float(fraction(*given) >= least),
    }
    if name in ours:
        return RewardFunction(f"reward.name={name}", ours[name], own=False)
    function = load_plugin(name, dict.fromkeys(KNOWN, ""), "reward.name")
    return RewardFunction(f"reward.name={name}", function, form_of(function, f"reward.name={name}"))


def form_of(function: Any, name: str) -> Form:
    """Which parameters a function has. Raises `UsageError` if it is none, or they are of no known form."""
    if not callable(function) or isinstance(function, type):
        raise UsageError(f"{name} has to be a function.")
    signature = inspect.signature(function)
    if "completions" in signature.parameters:
        return "trl"
    if "solution_str" in signature.parameters:
        return "verl"
    try:
        signature.bind(*"prv", **({"findings": {}} if "findings" in signature.parameters else {}))
    except TypeError:
        raise UsageError(
            f"{name} takes ({', '.join(signature.parameters)}): a reward function takes (problem, rollout, verdict), "
            "or verl's (data_source, solution_str, ground_truth, extra_info), or TRL's (prompts, completions, ...)."
        ) from None
    return "raypoly"


def passed(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    """1 where every test passed, else 0."""
    return 1.0 if verdict.passed else 0.0


def fraction(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    """Share of tests passed; all are run (`scorer.all_tests`)."""
    return verdict.tests_passed / verdict.tests_total if verdict.tests_total else 0.0


def _parts_of(result: Any) -> dict[str, float]:
    """The numbers of a dict beside its score, by a name of lower-case letters, digits and _."""
    if not isinstance(result, Mapping):
        return {}
    found: dict[str, float] = {}
    for name, value in sorted((str(name), value) for name, value in result.items() if name != "score"):
        if isinstance(value, Real | np.bool_) and math.isfinite(value):
            known = f"part_{_NO_NAME.sub('_', name.lower())}"[:56]
            while known in found:  # two names that are one in lower case
                known += "_"
            found[known] = float(value)
    return found


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind not in (
        parameter.VAR_KEYWORD,
        parameter.VAR_POSITIONAL,
    )


def _own(finding: Any, place: int) -> Any:
    # one rollout's value of a finding that has one for each
    if isinstance(finding, Mapping):
        return {name: _own(column, place) for name, column in finding.items()}
    return finding[place] if isinstance(finding, tuple | list | np.ndarray | TokenArrays) else finding
