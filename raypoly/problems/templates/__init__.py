"""Prompts by a template: one text for every problem of a run, in place of the words that its source has.

    template = load_template("base")                  # or chat, or the path of a text file
    template.fill("Add two numbers.", "def add(a, b):")

A template is plain text with `{statement}` and, where it likes, `{signature}`, the code to be completed. A paragraph
(what stands between blank lines) whose placeholder is empty is left out: there is code to be completed or there is not.
Lines `<<system>>`, `<<user>>` and `<<assistant>>` begin a message of a chat each; messages are rendered by the chat
template of `problems.chat_template`. A text without such lines is the prompt itself, as base models want it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from raypoly.config import ProblemsConfig
from raypoly.errors import UsageError
from raypoly.problems import ProblemSet
from raypoly.problems.jsonl import content_hash
from raypoly.problems.prompt_parts import STATEMENT, parts_of
from raypoly.problems.verl_rows import Render, renderer
from raypoly.values import Problem, Split

OWN = ("base", "chat", "statement")
"""Templates that lie beside this file; `statement` is nothing else."""
_ROLE = re.compile(r"^<<(system|user|assistant)>>[ \t]*\n", re.MULTILINE)
_PLACE = re.compile(r"\{(statement|signature)\}")
_BLANK = re.compile(r"\n(?:[ \t]*\n)+")


@dataclass(frozen=True)
class PromptTemplate:
    """Texts with places, by role; the role is empty where the text is the prompt itself."""

    name: str
    texts: tuple[tuple[str, str], ...]

    @property
    def is_chat(self) -> bool:
        return bool(self.texts[0][0])

    def fill(self, statement: str, signature: str) -> str:
        """The prompt of a template without roles."""
        ((_, text),) = self.texts
        return _filled(text, {"statement": statement, "signature": signature})

    def messages(self, statement: str, signature: str) -> list[Mapping[str, str]]:
        """The messages of one with roles."""
        values = {"statement": statement, "signature": signature}
        return [{"role": role, "content": _filled(text, values).strip()} for role, text in self.texts]


def load_template(name: str, key: str = "problems.template") -> PromptTemplate:
    """One of `OWN`, or a file's; `key` of the config names it.

    Raises `UsageError` where there is no such file, or no place for a statement.
    """
    path = Path(__file__).with_name(f"{name}.txt") if name in OWN else Path(name).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(
            f"{key}={name} can't be read ({reason}): name a text file, or one of none, {', '.join(OWN)}."
        ) from error
    if "{statement}" not in text:
        raise UsageError(f"{key}={name} has no {{statement}}: write it where the problem's text belongs.")
    first, *rest = _ROLE.split(text)
    if not rest:
        return PromptTemplate(name, (("", text),))
    if first.strip():
        raise UsageError(f"{key}={name} has text before its first <<role>>: nobody would say it.")
    return PromptTemplate(name, tuple(zip(rest[::2], rest[1::2], strict=True)))


def templated(found: ProblemSet, config: ProblemsConfig) -> ProblemSet:
    """The problems with prompts by `config.template`.

    Raises `UsageError` where the template can't be used, or a problem's answer is no program of its own.
    """
    if config.source == "verl":
        raise UsageError("problems.template goes with rows of problems; those of verl's bring their messages: drop it.")
    ask = asking(config.template, config.chat_template)
    splits: Mapping[Split, Sequence[Problem]] = {
        name: [ask(problem) for problem in problems] for name, problems in found.splits.items()
    }
    return ProblemSet(splits, content_hash(splits))


def asking(
    name: str, chat_template: str | None, key: str = "problems.template", chat_key: str = "problems.chat_template"
) -> Callable[[Problem], Problem]:
    """What gives a problem its prompt by a template. It raises `UsageError` as `templated`, and so does this."""
    template = load_template(name, key)
    if template.is_chat and chat_template is None:
        raise UsageError(
            f"{key}={name} makes messages, and needs {chat_key}: the folder or hub id of the "
            "tokenizer whose chat template renders them, as a rule what model.path says."
        )
    render = renderer(chat_template, chat_key) if template.is_chat and chat_template is not None else None
    return lambda problem: _asked(problem, template, render, key)


def _asked(problem: Problem, template: PromptTemplate, render: Render | None, key: str) -> Problem:
    if problem.answer == "completion":
        raise UsageError(
            f"{key}={template.name} asks for a program in a fenced block, and {problem.id} of "
            f"{problem.source or 'its source'} is answered by going on with its prompt: leave the template out."
        )
    parts = parts_of(problem)
    given = parts.statement, parts.signature
    prompt = template.fill(*given) if render is None else render(template.messages(*given))
    return replace(problem, prompt=prompt, metadata={**problem.metadata, STATEMENT: parts.statement})


def _filled(text: str, values: Mapping[str, str]) -> str:
    """The text with values in their places, without paragraphs that have nothing for one."""
    gaps = _BLANK.findall(text)
    kept = []
    for paragraph, gap in zip(_BLANK.split(text), [*gaps, ""], strict=True):
        if all(values[name] for name in _PLACE.findall(paragraph)):
            kept.append(_PLACE.sub(lambda place: values[place[1]], paragraph) + gap)
    return "".join(kept)
