"""Gate prompt and its two answer tokens.

    question = GateQuestion.of(tokenizer)
    question.prompt(problem, "A: Sort it.\nB: Use a heap.")     # ends where the model goes on
    question.first_tokens                                       # of `pass` and of `fail`

Rows of its training and questions in a run are made here, so that they have the same tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from raypoly.core.errors import UsageError
from raypoly.core.values import Float64, Problem
from raypoly.data.templates import (
    PLAIN,
    ChatTemplate,
    PromptTemplate,
    Render,
    encode_prompts,
    encode_texts,
    read_template,
    tokenizer_renderer,
)
from raypoly.rollouts.scaffolds.prompt_writing import fill_prompt, shown

WORDS = ("pass", "fail")
TEMPLATE = """\
<<user>>
Are these methods for the problem valid? Each line must name a method of its own that solves it, specific enough to \
follow, without code or answer.

{statement}

```python
{signature}
```

{plan}

Answer {accept} or {refuse}:
"""
COMPLETION_TEMPLATE = "{plan}\n{statement}\n# Plan: "
"""A short one, for a base model whose prompts are code."""


class GateAnswers(NamedTuple):
    p: Float64
    """[D]: that a plan is valid."""
    mass: Float64
    """[D]: of a model's two words together; NaN where none was asked."""


@dataclass(frozen=True)
class GateQuestion:
    words: tuple[str, str]
    """For a valid plan, and for another."""
    text: str
    """The template's, with `{statement}` and `{plan}`, perhaps `{signature}`, `{accept}` and `{refuse}` (the words)."""
    template: PromptTemplate
    render: Render
    tokenizer: Any

    @classmethod
    def of(
        cls,
        tokenizer: Any,
        words: Sequence[str] = WORDS,
        text: str = TEMPLATE,
        where: str = "The gate",
        kwargs: Mapping[str, Any] | None = None,
    ) -> GateQuestion:
        """The question by one tokenizer, whose chat template renders messages with `kwargs`; without one their texts
        are joined. `where`: for messages.

        Raises `UsageError` where the template lacks a placeholder, or both words begin with the same token.
        """
        template = read_template(text, "gate", f"{where}: its template")
        if "{plan}" not in text:
            raise UsageError(f"{where}: its template has no {{plan}}: write it where the plan belongs.")
        chat = bool(tokenizer.chat_template)
        render = tokenizer_renderer(tokenizer, kwargs) if chat else ChatTemplate(PLAIN).renderer()
        accept, refuse = words
        question = cls((accept, refuse), text, template, render, tokenizer)
        if not accept or not refuse or len(set(question.first_tokens)) < 2:
            raise UsageError(
                f"{where}: the words {accept!r} and {refuse!r} begin with the same token of this tokenizer, so that "
                "its model can't tell them apart: choose two others."
            )
        return question

    @property
    def first_tokens(self) -> tuple[int, int]:
        # apart from the prompt, as training encodes prompts and responses: together they may merge into one token
        accept, refuse = (ids[0] for ids in encode_texts(self.tokenizer, self.words))
        return accept, refuse

    def prompt(self, problem: Problem, plan: str) -> str:
        return _fill(problem, plan, self.words, self.template, self.render)

    def tokens(self, problem: Problem, plan: str) -> list[int]:
        (found,) = encode_prompts(self.tokenizer, [self.prompt(problem, plan)])
        return found


def question_prompt(problem: Problem, plan: str, text: str, render: Render) -> str:
    """The prompt of `GateQuestion` without a tokenizer. `text`: the template."""
    return _fill(problem, plan, WORDS, read_template(text, "gate", "The gate's template"), render)


def _fill(problem: Problem, plan: str, words: Sequence[str], template: PromptTemplate, render: Render) -> str:
    accept, refuse = words
    return fill_prompt(problem, template, render, plan=shown(plan), accept=accept, refuse=refuse)
