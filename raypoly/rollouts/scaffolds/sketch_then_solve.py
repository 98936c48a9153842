"""sketch_then_solve: each attempt has a sketch of its own, and is sampled after it. No sketch sees another."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from raypoly.core.values import Draft, Problem
from raypoly.rollouts.scaffolds.prompt_writing import own_prompt, shown, with_instruction
from raypoly.rollouts.scaffolds.scaffold import Ask, Scaffold, ScaffoldConfig


class SketchThenSolveConfig(ScaffoldConfig):
    plan_tokens: int = Field(256, ge=1, description="Longest sketch, in tokens.")
    sketch_template: str | None = Field(None, description="Your own prompt for sketches: a text file, as for `direct`.")


class SketchThenSolve(Scaffold):
    Config = SketchThenSolveConfig
    config: SketchThenSolveConfig

    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> Sequence[Ask]:
        if not drafts:
            prompt = own_prompt(problem, "sketch", self.config.sketch_template, self.render)
            return [Ask(prompt, "sketch", attempts, max_tokens=self.config.plan_tokens)]
        return [Ask(_behind(problem, draft), parent=place) for place, draft in enumerate(drafts)]

    def planned_drafts(self, attempts: int) -> int:
        return attempts


def _behind(problem: Problem, sketch: Draft) -> str:
    # The prompt after a sketch; the problem's own where the sketch is empty or was cut.
    text = shown(sketch.rollout.text)
    if not text or sketch.rollout.finish_reason == "length":
        return problem.prompt
    return with_instruction(problem, f"Solve it by this sketch:\n{text}")
