"""What scaffolds write into prompts: an instruction within a problem's own prompt, or a prompt of their own.

    with_instruction(problem, "Use recursion.")                 # the statement, the instruction, how to answer
    own_prompt(problem, "tuple_plan", None, render, methods="4")    # templates/tuple_plan.txt, or the user's file

Text that a model wrote is shown without its thoughts, and with its marks of a chat taken apart: it can't end the
message that it stands in.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from raypoly.core.values import Problem
from raypoly.data.prompt_parts import split_prompt
from raypoly.data.templates import PromptTemplate, Render, load_template
from raypoly.verifier.response_text import answered

_TEMPLATES = Path(__file__).with_name("templates")
_CHAT_MARK = re.compile(r"<(?=\||/?s>|[a-z]+_of_turn>|/?think)", re.IGNORECASE)


def with_instruction(problem: Problem, instruction: str) -> str:
    """The problem's prompt with a text behind its statement; in comments before it where the response goes on with
    the prompt's code."""
    if problem.answer == "completion":
        comments = "".join(f"# {line}".rstrip() + "\n" for line in instruction.strip().splitlines())
        return f"{comments}{problem.prompt}"
    parts = split_prompt(problem)
    statement = "\n\n".join(filter(None, (parts.statement, instruction.strip())))
    gap = "" if parts.tail[:1] in ("", "\n", "<") else "\n\n"
    return f"{parts.head}{statement}{gap}{parts.tail}"


def own_prompt(problem: Problem, name: str, file: str | None, render: Render, **values: str) -> str:
    """A prompt that asks for no program: the template `name` of `templates/`, or the user's `file`, with the problem's
    `{statement}` and `{signature}` and these values. Where responses go on with the prompt's code, it is a short one
    in comments. Raises `UsageError` as `load_template`."""
    if file is not None:
        return from_file(problem, file, f"scaffold.{name}_template", render, **values)
    template = _beside(f"{name}_completion" if problem.answer == "completion" else name)
    return fill_prompt(problem, template, render, **values)


def from_file(problem: Problem, file: str, key: str, render: Render, **values: str) -> str:
    """The user's template, filled. `key`: its config key, for messages. Raises `UsageError` as `load_template`."""
    return fill_prompt(problem, _file(file, key), render, **values)


def fill_prompt(problem: Problem, template: PromptTemplate, render: Render, **values: str) -> str:
    """The prompt of a template with the problem's `{statement}` and `{signature}`, and these values."""
    parts = split_prompt(problem)
    statement = parts.statement or problem.prompt
    return template.prompt(render, statement=statement, signature=parts.signature, **values)


def shown(text: str) -> str:
    """A model's text as prompts show it: trimmed, without thoughts, and without what a tokenizer would read as a mark
    of a chat."""
    return _CHAT_MARK.sub("< ", answered(text)).strip()


@cache
def _beside(name: str) -> PromptTemplate:
    return load_template(name, own=_TEMPLATES / f"{name}.txt")


@cache
def _file(file: str, key: str) -> PromptTemplate:
    return load_template(file, key)
