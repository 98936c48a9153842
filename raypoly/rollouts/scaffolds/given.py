"""given: the responses are those of a file; nothing is sampled (supervised fine-tuning, docs/supervised.md).

    {"prompt": "Add two numbers.", "response": "def add(a, b):\\n    return a + b\\n"}
    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}

The rows are the training problems too, one each; rows with the same `problem` are the N responses to one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from raypoly.core.errors import UsageError
from raypoly.core.values import ATTEMPT, Draft, Problem, TestSuite
from raypoly.data.formats.row_fields import Identifier, error_reason
from raypoly.data.formats.row_files import files_of, rows_of
from raypoly.data.templates import PLAIN, ChatTemplate, Render
from raypoly.rollouts.scaffolds.scaffold import Ask, Scaffold, ScaffoldConfig

_RESPONSES = "responses"  # the key of a problem's metadata that holds its responses, as JSON


class _Message(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)
    role: str = Field(min_length=1)
    content: str


class _Row(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)
    prompt: str | list[_Message] | None = None
    messages: list[_Message] | None = None
    response: str | None = None
    problem: Identifier | None = None

    @model_validator(mode="after")
    def _asks_and_answers(self) -> _Row:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("it needs a prompt, or messages, and not both")
        if not (self.prompt or self.messages):
            raise ValueError("its prompt is empty")
        if self.response is None and not (self.messages and self.messages[-1].role == "assistant"):
            raise ValueError("it has no response, and no last message of the role assistant")
        if self.response == "" or (self.response is None and self.messages and not self.messages[-1].content):
            raise ValueError("its response is empty")
        if self.response is None and self.messages is not None and len(self.messages) == 1:
            raise ValueError("nothing stands before its response")
        return self

    def pair(self, render: Render) -> tuple[str, str]:
        """The prompt and the response."""
        if isinstance(self.prompt, str):
            return self.prompt, self.response or ""
        asked = self.prompt or self.messages or []
        answer = self.response
        if answer is None:
            asked, answer = asked[:-1], asked[-1].content
        return render([message.model_dump() for message in asked]), answer


class GivenConfig(ScaffoldConfig):
    rows: str = Field(
        min_length=1,
        description="The responses: a file of rows, JSON lines or Parquet, a folder of such files, or a pattern. Each "
        "has a `prompt` (text or messages) and a `response`, or `messages` with the response last, and perhaps a "
        "`problem`: rows of the same one are the train.rollouts responses to it.",
    )


class Given(Scaffold):
    Config = GivenConfig
    config: GivenConfig
    samples = False

    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> Sequence[Ask]:
        if _RESPONSES not in problem.metadata:
            raise UsageError(
                f"{problem.id} is no problem of scaffold.rows={self.config.rows}, so nothing is given for it."
            )
        return [Ask(problem.prompt, ATTEMPT, text=said) for said in json.loads(problem.metadata[_RESPONSES])]

    def check(self, attempts: int) -> None:
        for problem in self.own_problems():
            if (count := len(json.loads(problem.metadata[_RESPONSES]))) != attempts:
                few = "1 response" if count == 1 else f"{count} responses"
                raise UsageError(
                    f"scaffold.rows={self.config.rows} has {few} to {problem.id}, and train.rollouts={attempts}: set "
                    f"train.rollouts={count}; every problem needs as many."
                )

    def own_problems(self) -> Sequence[Problem]:
        """One for each row, or each `problem` that rows name, in the order of the file.

        Raises `UsageError` for the first row that can't be used.
        """
        files = files_of(Path(self.config.rows).expanduser())
        stamps = tuple((file, file.stat().st_mtime_ns) for file in files if file.is_file())
        if len(stamps) < len(files):
            raise UsageError(f"scaffold.rows={self.config.rows} is not a file.")
        return _problems(stamps, self.config.rows, self.chat)

    @property
    def content(self) -> str:
        digest = hashlib.sha256()
        for problem in self.own_problems():
            digest.update(json.dumps([problem.id, problem.prompt, problem.metadata[_RESPONSES]]).encode())
        return digest.hexdigest()


@dataclass
class _Asked:
    prompt: str
    responses: list[str]
    place: str


@lru_cache(maxsize=1)
def _problems(files: Sequence[tuple[Path, int]], name: str, chat: ChatTemplate | None) -> Sequence[Problem]:
    """`files`: each with when it was last changed."""
    render = _renderer(name, chat)
    found: dict[str, _Asked] = {}
    for file, _ in files:
        for number, row in _rows(file):
            place = f"{file} row {number}"
            prompt, response = row.pair(render)
            same = found.setdefault(row.problem or f"row-{len(found) + 1}", _Asked(prompt, [], place))
            if same.prompt != prompt:
                raise UsageError(
                    f"{place} has another prompt than {same.place}, and both name the problem {row.problem}: give it "
                    "another problem."
                )
            same.responses.append(response)
    if not found:
        raise UsageError(f"scaffold.rows={name} has no rows.")
    return tuple(
        Problem(key, it.prompt, "", TestSuite("none", ""), source=name, metadata={_RESPONSES: json.dumps(it.responses)})
        for key, it in found.items()
    )


def _rows(file: Path) -> Iterator[tuple[int, _Row]]:
    for number, row in rows_of(file):
        try:
            if isinstance(row, ValueError):
                raise row
            yield number, _Row.model_validate(row)
        except ValueError as error:
            reason = error_reason(error).removeprefix("row: ")
            raise UsageError(f"{file} row {number} can't be trained on: {reason}. Mend it, or take it out.") from None


def _renderer(name: str, chat: ChatTemplate | None) -> Render:
    """Renders messages by the chat template, which is read where there are some."""
    made: list[Render] = []

    def render(messages: Any) -> str:
        if chat is None:
            raise UsageError(
                f"scaffold.rows={name} has messages, which need problems.chat_template: the folder or hub id of the "
                f"tokenizer whose chat template makes prompts of them, or {PLAIN} for their texts alone."
            )
        if not made:
            made.append(chat.renderer())
        return made[0](messages)

    return render
