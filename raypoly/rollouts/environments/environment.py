"""The contract of an environment: what answers the policy's turns, until the conversation is done.

    class Hint(Environment):
        async def respond(self, problem, conversation, services):
            result = await services.run(conversation.text, stdin="3")
            return Done() if result.output == "9\\n" else Observation(f"It printed {result.output!r}.")

A conversation is one rollout. What the policy wrote is never tokenized again: an observation's tokens follow it, and
are read, not trained.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from pydantic import BaseModel, ConfigDict

from raypoly.core.values import ASSISTANT, Problem, Turn, Verdict


@dataclass(frozen=True)
class Observation:
    """What the policy reads next, as a text; longer ones than `environment.max_observation_tokens` are cut."""

    text: str
    role: Literal["user", "tool"] = "user"
    """Of the message, where there is a chat template that knows it."""


@dataclass(frozen=True)
class Done:
    """The end of a conversation."""

    outcome: float | None = None
    """What it is worth; NaN is unknown. None: what `reward.name` says of the last program's verdict."""


@dataclass(frozen=True)
class Conversation:
    """A rollout so far, whose last turn is the policy's."""

    turns: tuple[Turn, ...]
    turns_left: int
    """Of the policy; with 0 an observation ends the conversation unread."""
    tool_calls: tuple[tuple[Mapping[str, Any], ...], ...] = ()
    """Of each of the policy's turns, `{"name": ..., "arguments": {...}}`; empty unless the environment reads them, and
    where the tokenizer has no template of responses."""

    @property
    def text(self) -> str:
        """The last turn."""
        return self.turns[-1].text

    @property
    def own(self) -> tuple[Turn, ...]:
        """The policy's turns."""
        return tuple(turn for turn in self.turns if turn.role == ASSISTANT)


@dataclass(frozen=True)
class ToolResult:
    """What a program did that ran in the sandbox for a conversation."""

    status: Literal["ok", "error", "timeout", "memory"]
    output: str
    """What it printed; in the middle of a long one some is left out."""
    detail: str
    """Why it did not end well, in a line; empty if it did."""
    seconds: float
    """CPU seconds."""


class EnvironmentServices(Protocol):
    """What an environment has: the sandbox, and nothing else. Calls raise `Unknown` where the sandbox fails for good:
    then the rollout's outcome is unknown. Let that pass."""

    async def run(self, code: str, stdin: str = "") -> ToolResult:
        """Run a program by itself, after the problem's prelude."""
        ...

    async def test(self, text: str) -> Verdict | None:
        """The verdict of a turn's program on the problem's public tests; None if it has none."""
        ...


class EnvironmentConfig(BaseModel):
    """The base of an environment's parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Environment(ABC):
    """One way to answer turns. Subclasses write `respond`."""

    Config: ClassVar[type[EnvironmentConfig]] = EnvironmentConfig
    reads_tool_calls: ClassVar[bool] = False
    """Whether it wants `conversation.tool_calls`."""
    decides: ClassVar[bool] = False
    """Whether its `Done` has outcomes: then problems are measured without tests too."""

    def __init__(self, config: EnvironmentConfig) -> None:
        self.config = config

    @abstractmethod
    async def respond(
        self, problem: Problem, conversation: Conversation, services: EnvironmentServices
    ) -> Observation | Done:
        """The answer to the policy's last turn. Many are asked for at a time, in one event loop. Nothing but the
        arguments may decide, so that a killed run goes on the same. An exception ends the run, which can be resumed."""

    @property
    def shown_tests(self) -> int:
        """How many tests are set apart for showing, where a problem has no public tests."""
        return 0


class SingleTurn(Environment):
    """Every conversation has one turn."""

    async def respond(self, problem: Problem, conversation: Conversation, services: EnvironmentServices) -> Done:
        return Done()
