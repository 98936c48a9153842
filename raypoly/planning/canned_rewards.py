"""The reward of two canned responses, before a run starts: a right one and a wrong one, to the first problem.

try_rewards(config, problems)                                       # `UsageError` where one raises, or gives no reward
for line in describe_rewards(config, problems): print(line)         # what `--dry-run` shows
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from threading import Thread

import numpy as np

from raypoly.algorithms import objectives
from raypoly.core.config import Config
from raypoly.core.errors import Away, RaypolyError, UsageError
from raypoly.core.values import WITHOUT_TESTS, Evidence, Float64, Problem, Rollout, Verdict
from raypoly.verifier.rewards import AnsweredGroup, Rewards
from raypoly.verifier.rewards.reward_function import row_of
from raypoly.verifier.rewards.user_errors import away_reason, told

_WRONG = "I don't know."
_PARSED = Evidence("", (), {}, "")


def try_rewards(config: Config, problems: Sequence[Problem]) -> tuple[Mapping[str, Float64], str | None]:
    """float64 [2] by `outcome` and term, of a right and a wrong response; and why a server is away, which would be
    waited for. Nothing where no function or term is asked.

    Raises `UsageError` where a function or a term raises, or gives what is no reward.
    """
    rewards = Rewards.of_run(config)
    if not (rewards.in_stage and problems) or rewards.outcome.reads_findings:
        return {}, None
    if not objectives.of_run(config).reads_rewards:
        return {}, None
    answer: Future[Mapping[str, Float64]] = Future()
    asks = Thread(target=_ask, args=(rewards, _canned(problems[0], config), answer), daemon=True)
    asks.start()  # in a thread, as the run will: what works in the main thread alone is told now
    try:
        return answer.result(config.reward.timeout), None
    except TimeoutError:
        return {}, f"no answer within reward.timeout={config.reward.timeout:g} s"
    except Away as error:
        return {}, str(error)
    except RaypolyError as error:
        if (why := away_reason(error.__cause__ or error)) is not None:
            return {}, why
        said = str(error).rstrip(".")
        raise UsageError(f"{said}: it was asked of a canned response, and nothing has started.") from error


def _ask(rewards: Rewards, answered: AnsweredGroup, answer: Future[Mapping[str, Float64]]) -> None:
    try:
        with told():
            answer.set_result(asyncio.run(rewards.find(answered)))
    except RaypolyError as error:
        answer.set_exception(error)


def describe_rewards(config: Config, problems: Sequence[Problem]) -> Iterator[str]:
    """What is paid, and what the canned responses got."""
    rewards = Rewards.of_run(config)
    if not rewards.in_stage:
        return
    yield f"reward: {config.reward.name}"
    for name, term in rewards.terms.items():
        gate = "" if term.when == "always" else f" where it {term.when}"
        yield f"  {term.weight:+g} x {name}{gate}"
    found, away = try_rewards(config, problems)
    if away is not None:
        yield f"  not tried: {away}"
    for place, what in enumerate(("right", "wrong") if found else ()):
        values = ", ".join(f"{name} {_shown(values[place])}" for name, values in found.items())
        yield f"  a canned {what} response to {problems[0].id}: {values}"


def _shown(value: float) -> str:
    return "unknown" if np.isnan(value) else f"{value:g}"


def _canned(problem: Problem, config: Config) -> AnsweredGroup:
    truth = row_of(problem).get("ground_truth")
    # as answers of mathematics are commonly found
    program = problem.solution or ("" if truth is None else f"The answer is \\boxed{{{truth}}}.\n#### {truth}")
    right = f"```python\n{program}\n```" if problem.tests.runs and problem.answer == "fenced" else program
    verdicts = Verdict("passed", 1, 1, 0.01, evidence=_PARSED), Verdict("no_code", 0, 1, 0.0)
    if problem.tests.kind == "none":
        verdicts = WITHOUT_TESTS, WITHOUT_TESTS
    rollouts = tuple(map(_rollout, (right, _WRONG)))
    return AnsweredGroup(problem, rollouts, verdicts, max_tokens=config.generator.max_tokens)


def _rollout(text: str) -> Rollout:
    tokens = np.zeros(1 + len(text) // 4, np.int32)  # about so many
    return Rollout(np.zeros(1, np.int32), tokens, np.zeros(len(tokens), np.float32), text, "stop", 0, 0)
