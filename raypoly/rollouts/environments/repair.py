"""repair: a program that fails a public test is answered by its first failure, until one passes them.

A program that passes its public tests, or for which there are none, ends the conversation. Hidden tests decide the
reward and are never shown.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from raypoly.core.values import Problem, Verdict
from raypoly.rollouts.environments.environment import (
    Conversation,
    Done,
    Environment,
    EnvironmentConfig,
    EnvironmentServices,
    Observation,
)

_LONGEST = 400  # characters of an input or a result that are shown


class RepairConfig(EnvironmentConfig):
    show: Literal["failure", "status"] = Field(
        "failure", description="Show the first public test that failed (`failure`), or only how the program ended."
    )
    public_tests: int = Field(
        2, ge=1, description="Tests that are set apart for showing, where a problem has no public tests of its own."
    )


class Repair(Environment):
    Config = RepairConfig
    config: RepairConfig

    async def respond(
        self, problem: Problem, conversation: Conversation, services: EnvironmentServices
    ) -> Observation | Done:
        verdict = await services.test(conversation.text)
        if verdict is None or verdict.passed:
            return Done()
        failure = self._failure(verdict)
        if problem.answer == "completion":
            return Observation("".join(f"# {line}\n" for line in ("Wrong.", *failure.splitlines())).rstrip())
        return Observation(f"This program is wrong.\n{failure}\n\nWrite a right one.")

    @property
    def shown_tests(self) -> int:
        return self.config.public_tests

    def _failure(self, verdict: Verdict) -> str:
        found = verdict.failure if self.config.show == "failure" else None
        if found is None or found.test == 0:
            why = f" {_cut(found.got)}" if found is not None and found.got else ""
            return f"It ended with: {verdict.status}.{why}"
        expected = f"\nExpected: {_cut(found.expected)}" if found.expected else ""
        return f"Input: {_cut(found.input)}{expected}\nGot: {_cut(found.got)}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
