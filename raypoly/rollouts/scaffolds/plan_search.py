"""plan_search: observations on the problem, more from subsets of them, a plan for each subset, code by each plan
(PlanSearch, Wang et al. 2024, arXiv 2409.03733)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, combinations, islice

from pydantic import Field

from raypoly.core.values import Draft, Problem
from raypoly.rollouts.scaffolds.prompt_writing import own_prompt, shown, with_instruction
from raypoly.rollouts.scaffolds.scaffold import Ask, Scaffold, ScaffoldConfig
from raypoly.verifier.response_text import answered

_ITEM = re.compile(r"^\s*(?:[-*+]|\d{1,3}[.):]|O\d{1,3}[.:])\s+(?P<text>\S.*?)\s*$")


class PlanSearchConfig(ScaffoldConfig):
    observations: int = Field(4, ge=1, le=64, description="Observations to ask for, in one response.")
    order: int = Field(2, ge=1, description="Most observations in a subset.")
    plans: int = Field(8, ge=1, description="Subsets, each with further observations and a plan. Attempts take turns.")
    plan_tokens: int = Field(256, ge=1, description="Longest response that is no attempt, in tokens.")


class PlanSearch(Scaffold):
    Config = PlanSearchConfig
    config: PlanSearchConfig

    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> Sequence[Ask]:
        if not drafts:
            return [self._draft(problem, "observations", "observe", None, count=str(self.config.observations))]
        found = observed(drafts[0].rollout.text)[: self.config.observations]
        chosen = subsets(len(found), self.config.order, self.config.plans)
        if not chosen:
            return [Ask(problem.prompt, count=attempts, parent=0)]
        known = ["\n".join(f"- {shown(found[i])}" for i in subset) for subset in chosen]
        if len(drafts) == 1:
            return [self._draft(problem, "observations_more", "observe_more", 0, observations=text) for text in known]
        more = drafts[1 : 1 + len(chosen)]
        if len(drafts) == 1 + len(chosen):
            both = [f"{text}\n{shown(draft.rollout.text)}".strip() for text, draft in zip(known, more, strict=True)]
            return [self._draft(problem, "plan_of", "plan", 1 + i, observations=text) for i, text in enumerate(both)]
        first = 1 + len(chosen)
        return [self._attempt(problem, drafts, first + i % len(chosen)) for i in range(attempts)]

    def block(self, attempts: int) -> int:
        return attempts

    def planned_drafts(self, attempts: int) -> int:
        return 1 + 2 * len(subsets(self.config.observations, self.config.order, self.config.plans))

    def _draft(self, problem: Problem, template: str, role: str, parent: int | None, **values: str) -> Ask:
        prompt = own_prompt(problem, template, None, self.render, **values)
        return Ask(prompt, role, parent=parent, max_tokens=self.config.plan_tokens)

    def _attempt(self, problem: Problem, drafts: Sequence[Draft], place: int) -> Ask:
        text = shown(drafts[place].rollout.text)
        return Ask(with_instruction(problem, f"Use this plan:\n{text}") if text else problem.prompt, parent=place)


def subsets(observations: int, order: int, plans: int) -> list[tuple[int, ...]]:
    """The first `plans` subsets of so many observations with at most `order` members, by size, then by place."""
    sizes = range(1, min(order, observations) + 1)
    return list(islice(chain.from_iterable(combinations(range(observations), size) for size in sizes), plans))


def observed(text: str) -> list[str]:
    """The observations of a response: its list items, or else its lines; none within a thought."""
    lines = [line for line in answered(text).splitlines() if line.strip()]
    items = [item["text"] for line in lines if (item := _ITEM.match(line))]
    return items or [line.strip() for line in lines]
