"""The contract of a scaffold: how a problem's N attempts are asked for.

    class Hinted(Scaffold):
        def ask(self, problem, drafts, attempts):
            return [Ask(f"# Use a loop.\\n{problem.prompt}", count=attempts)]

A scaffold asks in rounds. In each it sees the problem and the drafts so far, and asks for more drafts or, at last, for
the attempts. Nothing else may decide, so that a killed run asks the same again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from raypoly.core.errors import UsageError
from raypoly.core.values import ATTEMPT, Draft, Problem
from raypoly.data.templates import PLAIN, ChatTemplate, Render


@dataclass(frozen=True)
class Ask:
    """What one or more rollouts of a round are sampled after."""

    prompt: str
    """The whole, with its chat template."""
    role: str = ATTEMPT
    """`solve` for attempts; anything else is a draft."""
    count: int = 1
    """Rollouts."""
    parent: int | None = None
    """Index of the draft that they are made from."""
    max_tokens: int | None = None
    """A limit below `generator.max_tokens`."""
    text: str | None = None
    """The response, given and not sampled; its tokens end with that of the end of a sequence, and its log-probabilities
    are NaN. Empty: an attempt without tokens, which fails."""


class ScaffoldConfig(BaseModel):
    """The base of a scaffold's parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Scaffold(ABC):
    """One way to ask for rollouts. Subclasses write `ask`."""

    Config: ClassVar[type[ScaffoldConfig]] = ScaffoldConfig
    samples: ClassVar[bool] = True
    """False: every ask has a text, nothing is run, and no engine starts to train."""

    def __init__(self, config: ScaffoldConfig) -> None:
        self.config = config
        self.chat: ChatTemplate | None = None
        """Of the run."""

    @abstractmethod
    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> Sequence[Ask]:
        """What to sample next: drafts of any role but `solve`, or, as the last round, attempts alone, whose counts add
        up to `attempts` (N); none for a scaffold that solves nothing. Pure: the same problem and drafts give the same
        asks."""

    def too_long(self, problem: Problem, ask: Ask) -> Ask:
        """What is asked instead if a prompt made from drafts has more tokens than `generator.max_prompt_tokens`.
        Default: an attempt after the problem's prompt; an empty draft."""
        return replace(ask, prompt=problem.prompt, text=None if ask.role == ATTEMPT else "")

    def block(self, attempts: int) -> int:
        """How many attempts are drawn jointly: pass@k counts whole blocks."""
        return 1

    def methods(self, drafts: Sequence[Draft], attempts: int) -> Sequence[str | None] | None:
        """The method that each attempt was told to use, [N], None for one without; None if attempts have no methods."""
        return None

    def remark(self, draft: Draft) -> str:
        """What a page says of a draft beside its text. Default: nothing."""
        return ""

    def planned_drafts(self, attempts: int) -> int:
        """D, the drafts that are planned for a group of `attempts` (N). The learner divides by it where drafts are
        trained."""
        return 0

    def planned_attempts(self, attempts: int) -> int:
        """N, or 0 for a scaffold that solves nothing."""
        return attempts

    @property
    def measured(self) -> Scaffold:
        """What evaluations ask in its place, which has attempts."""
        return self

    def own_problems(self) -> Sequence[Problem] | None:
        """Training problems, in place of those of `problems.source`."""
        return None

    @property
    def content(self) -> str:
        """Hash of what its own problems say beside their prompts; empty for none."""
        return ""

    @property
    def methods_of_plan(self) -> int:
        """K, the methods of a plan of this scaffold."""
        return 1

    def check(self, attempts: int) -> None:  # noqa: B027  (most take any number)
        """Raise `UsageError` for a number of attempts that can't work."""

    def check_training(self) -> None:  # noqa: B027  (most can be trained)
        """Raise `UsageError` for parameters that are for evaluation alone."""

    @cached_property
    def render(self) -> Render:
        """Prompt of chat messages, by the run's chat template; their texts where it has none."""
        return (self.chat or ChatTemplate(PLAIN)).renderer()


def checked_asks(scaffold: Scaffold, problem: Problem, drafts: Sequence[Draft], attempts: int) -> Sequence[Ask]:
    """What `ask` returns. Raises `UsageError` where it raises, or returns what can't be sampled."""
    name = type(scaffold).__name__
    try:
        asks = tuple(scaffold.ask(problem, drafts, attempts))
    except UsageError:
        raise
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise UsageError(f"The scaffold {name} can't ask for {problem.id}: {said}.") from error
    for ask in asks:
        if wrong := _wrong(ask, drafts):
            raise UsageError(f"The scaffold {name} asks for {problem.id} {wrong}.")
    if (final := is_final(asks)) and (got := sum(ask.count for ask in asks)) != scaffold.planned_attempts(attempts):
        raise UsageError(
            f"The scaffold {name} must ask for {scaffold.planned_attempts(attempts)} attempts at {problem.id}, "
            f"asked for {got}."
        )
    if not final and any(ask.role == ATTEMPT for ask in asks):
        raise UsageError(
            f"The scaffold {name} asks for attempts at {problem.id} beside drafts: ask for all of its drafts first."
        )
    return asks


def is_final(asks: Sequence[Ask]) -> bool:
    """Whether these asks are a group's attempts."""
    return all(ask.role == ATTEMPT for ask in asks)


def _wrong(ask: Ask, drafts: Sequence[Draft]) -> str | None:
    if not isinstance(ask, Ask):
        return f"by {type(ask).__name__}, which is no Ask"
    if ask.parent is not None and not 0 <= ask.parent < len(drafts):
        return f"with a parent of number {ask.parent}, and there are {len(drafts)} drafts"
    if not isinstance(ask.prompt, str) or not ask.prompt:
        return f"behind a prompt that is no text: {ask.prompt!r}"
    if ask.count < 1:
        return f"for {ask.count} rollouts of one kind"
    if not ask.role or (ask.max_tokens is not None and ask.max_tokens < 1):
        return f"with role {ask.role!r} and max_tokens {ask.max_tokens}"
    return None
