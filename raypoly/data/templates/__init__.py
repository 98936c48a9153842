"""Prompts by a template: one text for every problem of a run, in place of its source's own prompt.

    template = load_template("base")                  # or chat, or the path of a text file
    template.fill(statement="Add two numbers.", signature="def add(a, b):")

A template is plain text with `{statement}` and perhaps `{signature}`, the code to be completed. A paragraph (text
between blank lines) whose placeholder is empty is left out: some problems have no code to be completed. Each line
`<<system>>`, `<<user>>` or `<<assistant>>` begins a message of a chat; messages are rendered by the chat template of
`problems.chat_template`. A text without such lines is the prompt itself, for base models.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from raypoly.core.errors import UsageError
from raypoly.core.gguf_models import GgufModel
from raypoly.core.values import Problem
from raypoly.data.prompt_parts import STATEMENT, split_prompt

PLAIN = "plain"

Render = Callable[[Sequence[Mapping[str, Any]]], str]
"""The prompt of chat messages, each `{"role": ..., "content": ...}`."""
OWN = ("base", "chat", "statement", "message")
"""Templates that lie beside this file; `statement` is the statement alone, and `message` the same as a message."""
_FOR_PROGRAMS = ("base", "chat")  # those that ask for a program
_ROLE = re.compile(r"^<<(system|user|assistant)>>[ \t]*\n", re.MULTILINE)
_BLANK = re.compile(r"\n(?:[ \t]*\n)+")
_SAMPLE = "raypoly"


@dataclass(frozen=True)
class PromptTemplate:
    """(role, text with placeholders) of each message; the one role is empty where the text is the prompt itself."""

    name: str
    texts: tuple[tuple[str, str], ...]

    @property
    def is_chat(self) -> bool:
        return bool(self.texts[0][0])

    def fill(self, **values: str) -> str:
        """The prompt of a template without roles. `values`: by placeholder, `statement` and `signature` at least."""
        ((_, text),) = self.texts
        return _fill_text(text, values)

    def messages(self, **values: str) -> list[Mapping[str, str]]:
        """The messages of a template with roles."""
        return [{"role": role, "content": _fill_text(text, values).strip()} for role, text in self.texts]

    def prompt(self, render: Render, **values: str) -> str:
        """The prompt, whether or not the template has roles."""
        return render(self.messages(**values)) if self.is_chat else self.fill(**values)


def load_template(name: str, key: str = "problems.template", own: Path | None = None) -> PromptTemplate:
    """The template `name`: one of `OWN`, or the path of a file; `own` is the file of a template beside these. The
    config key `key` is for messages.

    Raises `UsageError` where there is no such file, or it has no `{statement}`.
    """
    path = own or (Path(__file__).with_name(f"{name}.txt") if name in OWN else Path(name).expanduser())
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(
            f"{key}={name} can't be read ({reason}): name a text file, or one of none, {', '.join(OWN)}."
        ) from error
    return read_template(text, name, f"{key}={name}")


def read_template(text: str, name: str, where: str) -> PromptTemplate:
    """The template that a text is. `where` it stands is for messages. Raises `UsageError` as `load_template`."""
    if "{statement}" not in text:
        raise UsageError(f"{where} has no {{statement}}: write it where the problem's text belongs.")
    first, *rest = _ROLE.split(text)
    if not rest:
        return PromptTemplate(name, (("", text),))
    if first.strip():
        raise UsageError(f"{where} has text before its first <<role>>: nobody would say it.")
    return PromptTemplate(name, tuple(zip(rest[::2], rest[1::2], strict=True)))


# Names that the hub was asked for in vain, and the end of that sentence: without a network each try takes a minute.
_NOT_HAD: dict[str, str] = {}


def load_tokenizer(name: str, key: str) -> Any:
    """The tokenizer in a folder, in a GGUF file, or of the Hugging Face hub.

    Raises `UsageError` that names the config key `key`.
    """
    from transformers import AutoTokenizer  # takes seconds to import

    gguf = GgufModel.find(name, key)
    if gguf is not None:
        return gguf.tokenizer()
    folder = Path(name).expanduser()
    if name in _NOT_HAD and not folder.exists():
        raise UsageError(f"{key}={name} {_NOT_HAD[name]}")
    try:
        return AutoTokenizer.from_pretrained(folder if folder.exists() else name)
    except (OSError, ValueError) as error:
        _NOT_HAD[name] = (
            f"is no tokenizer here and could not be had from the Hugging Face hub ({str(error).partition(chr(10))[0]})."
        )
        raise UsageError(f"{key}={name} {_NOT_HAD[name]}") from error


class ChatTemplateKeys(Protocol):
    """A section of a config with these two keys."""

    @property
    def chat_template(self) -> str | None: ...

    @property
    def chat_template_kwargs(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class ChatTemplate:
    """What renders messages: the chat template of a tokenizer, or with `PLAIN` their texts alone."""

    name: str
    """The tokenizer's folder, GGUF file or hub id."""
    kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Variables of the template."""
    key: str = "problems.chat_template"
    """The config key of the name, for messages."""

    @classmethod
    def of(
        cls, section: ChatTemplateKeys, key: str = "problems.chat_template", default: str | None = None
    ) -> ChatTemplate | None:
        """That of a config's section, or the `default`'s. Raises `UsageError` for variables without a template."""
        name = section.chat_template or default
        if name is not None:
            return cls(name, section.chat_template_kwargs, key)
        if section.chat_template_kwargs:
            raise UsageError(f"{key}_kwargs are variables of a chat template, and there is none: set {key} too.")
        return None

    def renderer(self) -> Render:
        """Raises `UsageError` where there is no such tokenizer, or it has no chat template, or no such variable."""
        if self.name == PLAIN:
            self._check_kwargs("")
            return lambda messages: "\n\n".join(message["content"] for message in messages)
        tokenizer = load_tokenizer(self.name, self.key)
        if not (template := tokenizer.chat_template):
            raise UsageError(
                f"{self.key}={self.name} is a tokenizer without a chat template: name another, or {PLAIN}."
            )
        self._check_kwargs(str(template))
        return tokenizer_renderer(tokenizer, self.kwargs)

    def _check_kwargs(self, template: str) -> None:
        # Jinja ignores a variable that a template does not read: a misspelt one would leave thinking on for weeks
        for name in self.kwargs:
            if not re.search(rf"\b{re.escape(name)}\b", template):
                raise UsageError(
                    f"{self.key}_kwargs.{name} is no variable of the chat template of {self.name}: mend its name, or "
                    "leave it out."
                )


def tokenizer_renderer(tokenizer: Any, kwargs: Mapping[str, Any] | None = None) -> Render:
    """`kwargs`: variables of its chat template."""

    def render(messages: Sequence[Mapping[str, Any]]) -> str:
        own = {**(kwargs or {}), "tokenize": False, "add_generation_prompt": True}
        return str(tokenizer.apply_chat_template(messages, **own))

    return render


def encode_texts(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of texts alone, without anything that the tokenizer would add."""
    return list(tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"])


def encode_prompts(tokenizer: Any, prompts: Sequence[str]) -> list[list[int]]:
    """Token ids of prompts, after what the tokenizer adds in front of a text (a BOS), once.

    What its chat template rendered is left as it is: the template decides what is in front. An empty prompt stays one.
    """
    found, front = encode_texts(tokenizer, prompts), _front(tokenizer)
    if not front:
        return found
    heads = _chat_heads(tokenizer)
    return [
        ids if not ids or ids[: len(front)] == front or prompt.startswith(heads) else front + ids
        for prompt, ids in zip(prompts, found, strict=True)
    ]


def _front(tokenizer: Any) -> list[int]:
    (alone,) = encode_texts(tokenizer, [_SAMPLE])
    whole: list[int] = tokenizer(_SAMPLE, verbose=False)["input_ids"]
    starts = (at for at in range(len(whole) - len(alone) + 1) if whole[at : at + len(alone)] == alone)
    return whole[: next(starts, 0)]


def _chat_heads(tokenizer: Any) -> tuple[str, ...]:
    if not tokenizer.chat_template:
        return ()
    user, heads = {"role": "user", "content": _SAMPLE}, set()
    for messages in ([user], [{"role": "system", "content": _SAMPLE}, user]):
        with suppress(Exception):  # templates refuse what they like, such as a system's message
            heads.add(tokenizer_renderer(tokenizer)(messages).partition(_SAMPLE)[0])
    return tuple(heads - {""})


def prompt_maker(
    name: str,
    chat: ChatTemplate | None,
    key: str = "problems.template",
    chat_key: str = "problems.chat_template",
    render: Render | None = None,
) -> Callable[[Problem], Problem]:
    """A function that returns a problem with its prompt made by the template `name`; the keys are for messages.

    `render`: what renders messages in place of a chat template.

    Raises `UsageError` where the template can't be used. The function raises it where an answer is no program of its
    own, but goes on with the prompt.
    """
    template = load_template(name, key)
    if not template.is_chat:
        render = None
    elif render is None and chat is not None:
        render = chat.renderer()
    elif render is None:
        raise UsageError(
            f"{key}={name} makes messages, and needs {chat_key}: the folder or hub id of the "
            "tokenizer whose chat template renders them, as a rule what model.path says."
        )
    return lambda problem: _with_prompt(problem, template, render, key)


def _with_prompt(problem: Problem, template: PromptTemplate, render: Render | None, key: str) -> Problem:
    if problem.answer == "completion":
        raise UsageError(
            f"{key}={template.name} asks for a program in a fenced block, and {problem.id} of "
            f"{problem.source or 'its source'} is answered by going on with its prompt: leave the template out."
        )
    if problem.tests.kind == "answer" and template.name in _FOR_PROGRAMS:
        raise UsageError(
            f"{key}={template.name} asks for a program, and {problem.id} of {problem.source or 'its source'} asks for "
            f"a value: set {key}=statement, or message for a chat model."
        )
    parts = split_prompt(problem)
    given = {"statement": parts.statement, "signature": parts.signature}
    prompt = template.fill(**given) if render is None else render(template.messages(**given))
    return replace(problem, prompt=prompt, metadata={**problem.metadata, STATEMENT: parts.statement})


def _fill_text(text: str, values: Mapping[str, str]) -> str:
    """The text with its placeholders filled, less each paragraph with a placeholder whose value is empty."""
    gaps, place = _BLANK.findall(text), re.compile(r"\{(" + "|".join(values) + r")\}")
    kept = []
    for paragraph, gap in zip(_BLANK.split(text), [*gaps, ""], strict=True):
        if all(values[name] for name in place.findall(paragraph)):
            kept.append(place.sub(lambda found: values[found[1]], paragraph) + gap)
    return "".join(kept)
