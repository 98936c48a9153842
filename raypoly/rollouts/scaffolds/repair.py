"""repair: a try, run on the problem's public tests alone; where it fails, another one after the problem, the program
and its first failure.

A try that passed its public tests, or for which there are none, is not asked again: it is the attempt. Hidden tests
decide the reward and are never shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from raypoly.core.values import ATTEMPT, Draft, Problem
from raypoly.rollouts.scaffolds.prompt_writing import from_file, shown, with_instruction
from raypoly.rollouts.scaffolds.scaffold import Ask, Scaffold, ScaffoldConfig
from raypoly.verifier.code_extraction import extract_code, find_code

_LONGEST = 400  # characters of an input or a result that are shown


class RepairConfig(ScaffoldConfig):
    turns: int = Field(1, ge=1, le=16, description="Most further tries behind a failed one.")
    show: Literal["failure", "status"] = Field(
        "failure", description="Show the first public test that failed (`failure`), or only how the program ended."
    )
    public_tests: int = Field(
        2, ge=1, description="Tests that are set apart for showing, where a problem has no public tests of its own."
    )
    credit: Literal["last", "all"] = Field(
        "last", description="Train the final attempt alone, or its tries too, with its advantage (`all`)."
    )
    template: str | None = Field(
        None, description="Your own prompt for repairs: a text file, as for `direct`, with {program} and {failure}."
    )


class Repair(Scaffold):
    Config = RepairConfig
    config: RepairConfig

    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> Sequence[Ask]:
        if not drafts:
            return [Ask(problem.prompt, "try", attempts, score=True)]
        lines = _lines(drafts, attempts)
        turns = max(len(line) for line in lines)
        open_ = [_failed(drafts[line[-1]]) and len(line) == turns for line in lines]
        if turns < self.config.turns and any(open_):
            failed = [line[-1] for line, again in zip(lines, open_, strict=True) if again]
            return [Ask(self._prompt(problem, drafts[d]), "try", parent=d, score=True) for d in failed]
        return [
            Ask(self._prompt(problem, drafts[line[-1]]), parent=line[-1])
            if again
            else Ask(problem.prompt, parent=line[-1], take=line[-1])
            for line, again in zip(lines, open_, strict=True)
        ]

    def too_long(self, problem: Problem, ask: Ask) -> Ask:
        """The try as it is."""
        if ask.role == ATTEMPT:
            return replace(ask, prompt=problem.prompt, take=ask.parent)
        return super().too_long(problem, ask)

    def planned_drafts(self, attempts: int) -> int:
        return attempts * self.config.turns

    @property
    def shown_tests(self) -> int:
        return self.config.public_tests

    @property
    def trains_drafts(self) -> bool:
        return self.config.credit == "all"

    def _prompt(self, problem: Problem, draft: Draft) -> str:
        text = draft.rollout.text
        program, failure = shown(extract_code(problem, text) or find_code(text)), self._failure(draft)
        if self.config.template is not None:
            given = {"program": program, "failure": failure}
            return from_file(problem, self.config.template, "scaffold.template", self.render, **given)
        if problem.answer == "completion":
            return with_instruction(problem, f"Wrong:\n{shown(draft.rollout.text)}\n{failure}\nRight:")
        return with_instruction(
            problem, f"This program is wrong:\n```python\n{program}\n```\n\n{failure}\n\nWrite a right one."
        )

    def _failure(self, draft: Draft) -> str:
        verdict = draft.verdict
        assert verdict is not None, "a try is scored before its repair is asked for"
        found = verdict.failure if self.config.show == "failure" else None
        if found is None or found.test == 0:
            return f"It ended with: {verdict.status}." + (
                f" {_cut(found.got)}" if found is not None and found.got else ""
            )
        expected = f"\nExpected: {_cut(found.expected)}" if found.expected else ""
        return f"Input: {_cut(found.input)}{expected}\nGot: {_cut(found.got)}"


def _lines(drafts: Sequence[Draft], attempts: int) -> list[list[int]]:
    # A repair belongs to the line of its parent.
    lines = [[place] for place in range(attempts)]
    of = {place: place for place in range(attempts)}
    for place, draft in enumerate(drafts[attempts:], attempts):
        assert draft.parent is not None, "a repair has the try that failed as its parent"
        of[place] = of[draft.parent]
        lines[of[place]].append(place)
    return lines


def _failed(draft: Draft) -> bool:
    # A try without a verdict was not run: there are no public tests.
    return draft.verdict is not None and not draft.verdict.passed


def _cut(text: str) -> str:
    return shown(text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ...")
