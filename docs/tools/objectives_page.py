"""The tables of docs/objectives.md, written from the objectives themselves so that they can't be out of date.

python -m docs.tools.objectives_page docs/objectives.md      (make docs)

The text around them is the page's own: what stands between `<!-- table: NAME -->` and `<!-- end -->` is replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from raypoly.algorithms.objectives import KNOWN, Batch, build
from raypoly.analysis.reports.pages import fill_place, place_marker
from raypoly.core.tables import ReportTable
from raypoly.core.values import Draft, Float64, Rollout


@dataclass(frozen=True)
class Eight:
    """Eight rollouts of one problem, with all that an objective may ask about them."""

    rewards: Sequence[int]
    strategies: Sequence[str]
    """Empty where a rollout is no attempt."""
    tokens: Sequence[int]
    outcomes: Sequence[str]
    statements: Sequence[str]
    """A letter a statement."""
    nats: Sequence[int]
    """How much likelier it is behind its own prompt than behind others, where rollouts have prompts of their own."""

    def crossed(self, own: Sequence[int]) -> list[Float64]:
        """As log-probabilities of one token, float64 [P, 1] each."""
        return [
            np.array([[-9.0 + nats * (prompt == mine)] for prompt in range(max(own) + 1)])
            for nats, mine in zip(self.nats, own, strict=True)
        ]


MIXED = Eight(
    rewards=(1, 1, 1, 0, 0, 0, 0, 0),
    strategies=("loop", "loop", "recursion", "loop", "loop", "loop", "table", ""),
    tokens=(40, 90, 60, 35, 50, 120, 80, 10),
    outcomes=("passed", "passed", "passed", "gave 3", "gave 3", "timeout", "gave 0", "no code"),
    statements=("abc", "abcd", "xyz", "abe", "abe", "abff", "uvw", ""),
    nats=(0, 0, 1, 0, 0, 0, 1, 0),
)
WRONG_NOVELTY = Eight(
    rewards=(1, 1, 1, 1, 1, 1, 1, 0),
    strategies=("loop",) * 6 + ("comprehension", "recursion"),
    tokens=(50,) * 8,
    outcomes=("passed",) * 7 + ("gave 0",),
    statements=("abc",) * 6 + ("uv", "xyz"),
    nats=(0,) * 6 + (1, 1),
)


_PLAN = Draft(Rollout(np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.float32), "", "stop", 0, 0), "plan")
"""Of the eight, the first four are behind one plan and the others behind another, both accepted."""


def advantages(name: str, eight: Eight) -> Float64:
    """Advantages by the objective `name` with its default parameters, in a step of this group alone."""
    objective = build(name)
    objective.check(len(eight.rewards))
    own = [i % objective.scaffold_parameters().get("skills", 1) for i in range(len(eight.rewards))]
    ids = {strategy: number for number, strategy in enumerate(dict.fromkeys(eight.strategies), 1)}
    values = objective.advantages(
        rewards=eight.rewards,
        labels=[ids[strategy] for strategy in eight.strategies],
        degenerate=[not strategy for strategy in eight.strategies],
        lengths=eight.tokens,
        outcomes=eight.outcomes,
        statements=[set(letters) for letters in eight.statements],
        cross_logprobs=eight.crossed(own),
        own_prompt=own,
        problem="p",
        step=0,
        drafts=[_PLAN] * 2,
        draft_of=[0] * 4 + [1] * 4,
        findings={"gate": {"p": np.ones(2), "accepted": np.ones(2, bool)}},
    )
    return objective.finish(Batch.of([values], [eight.tokens]))[0]


def describe_objectives() -> str:
    """Each objective in its own words."""
    rows = [
        (f"[`{name}`](../{_module(name).replace('.', '/')}.py)", _sentence(name), ", ".join(sorted(build(name).needs)))
        for name in KNOWN
    ]
    return ReportTable(("objective.name", "what it is", "needs beside rewards"), rows).markdown()


def compare_advantages(eight: Eight, facts: Sequence[str]) -> str:
    """Advantages of the eight rollouts by every objective, under the rows of `facts` that tell the rollouts apart."""
    known: Mapping[str, Sequence[object]] = {
        "reward": eight.rewards,
        "strategy": [strategy or "no attempt" for strategy in eight.strategies],
        "tokens": eight.tokens,
        "outcome": eight.outcomes,
        "statements": [letters or "none" for letters in eight.statements],
        "own prompt, nats": eight.nats,
    }
    rows = [(f"*{what}*", *map(str, known[what])) for what in facts]
    rows += [(f"`{name}`", *map(_number, advantages(name, eight))) for name in KNOWN if build(name).reads_rewards]
    return ReportTable(("rollout", *map(str, range(1, 9))), rows).markdown()


_FACTS = ("reward", "strategy", "tokens", "outcome", "statements", "own prompt, nats")
TABLES: Mapping[str, Callable[[], str]] = {
    "objectives": describe_objectives,
    "mixed": lambda: compare_advantages(MIXED, _FACTS),
    "wrong novelty": lambda: compare_advantages(WRONG_NOVELTY, (_FACTS[0], _FACTS[1], _FACTS[-1])),
}


def fill_tables(page: str) -> str:
    """The page with those tables that it has a place for, as they are now."""
    for name, table in TABLES.items():
        if place_marker("table", name) in page:
            page = fill_place(page, "table", name, table(), "The page")
    return page


def _module(name: str) -> str:
    return KNOWN[name].partition(":")[0]


def _sentence(name: str) -> str:
    """The first sentence of its module's docstring."""
    text = sys.modules[type(build(name)).__module__].__doc__ or ""
    return " ".join(text.split("\n\n")[0].split()).partition(". ")[0].rstrip(".") + "."


def _number(value: float) -> str:
    """Two decimals with a sign; a true zero has none. Rounded twice, so that a tie falls alike on every machine."""
    near = round(float(value), 9)
    return f"{near:+.2f}" if near else "0"


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(fill_tables(file.read_text()))
