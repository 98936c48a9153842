"""An OpenAI-like server with two models: `teacher` proposes methods, `judge` judges them, both by a script.

    with running(PlanningServer(script, faults=["429", "500"])) as server: ...

The script says for each problem, by a word of its statement, what the teacher answers to the first and the second
question about it, and what the judge says of methods, by a word of theirs.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from raypoly.data.preparing import PrepareConfig
from raypoly.recipes.cppo.plan_config import PlanMakingConfig
from tests.support.faulty_front import Front
from tests.support.faulty_handler import Answer
from tests.support.judge_faults import error_body
from tests.support.preparation_rows import problem_row, write_rows
from workflows.prepare import prepare

GOOD = {"specific": True, "actionable": True, "hook": True, "code_or_answer": False, "same_as": 0}
REFUSAL = "I will not."
CUT = "cut off"


def proposal(*methods: str) -> str:
    return json.dumps({"methods": methods})


@dataclass
class PlanningServer(Front):
    """Answers by its script, for whoever has the key."""

    script: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The teacher's answers about a problem, by a word of its statement; the last one repeats."""
    verdicts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What differs from `GOOD` in the verdict on a method, by a word of it."""
    judge_answers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The judge's answers about a problem, in place of its verdicts."""
    key: str = ""
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Questions that were answered, by model and problem."""

    def answer(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        if self.key and headers.get("Authorization") != f"Bearer {self.key}":
            return Answer(401, error_body(f"Incorrect API key provided: {self.key}.", "invalid_api_key"))
        if len(body["messages"]) == 1:  # asks whether it is there
            return _answer(body["model"], "ok")
        statement = body["messages"][1]["content"]
        problem = next(word for word in self.script if word in statement)
        turn = len(body["messages"]) // 2 - 1  # a second question holds the first and its answer
        self.asked[body["model"], problem] += 1
        said = self.script if body["model"] == "teacher" else self.judge_answers
        text = said[problem][min(turn, len(said[problem]) - 1)] if problem in said else self._verdict(statement)
        return _answer(body["model"], text)

    def _verdict(self, statement: str) -> str:
        listed = re.findall(r"^(\d+)\. (.*)$", statement.partition("Methods:\n")[2], re.MULTILINE)
        found = []
        for number, method in listed:
            own: Mapping[str, Any] = next((self.verdicts[word] for word in self.verdicts if word in method), {})
            found.append({"index": int(number), **GOOD, **own})
        return json.dumps({"methods": found})


def _answer(model: str, text: str) -> Answer:
    refusal = text if text == REFUSAL else None
    message = {"role": "assistant", "content": None if refusal else text, "refusal": refusal}
    choice = {"index": 0, "finish_reason": "length" if text == CUT else "stop", "message": message}
    return Answer(200, {"id": "1", "object": "chat.completion", "created": 0, "model": model, "choices": [choice]})


def prepared(folder: Path, count: int, **split: int) -> Path:
    """The folder of a preparation of so many problems, one about each of `WORDS`."""
    rows = write_rows(folder.with_suffix(".jsonl"), [problem_row(f"p{n}", n) for n in range(count)])
    values = {"sources": {"mine": {"path": str(rows)}}, "solutions": {"check": False}, "sampling": "off"}
    prepare(PrepareConfig.model_validate({**values, "run": {"dir": str(folder)}, "split": split}))
    return folder


def plan_making(
    url: str, folder: Path, problems: Path, server: Mapping[str, Any] = MappingProxyType({}), **plans: Any
) -> PlanMakingConfig:
    """`server`: more keys of teacher and judge."""
    asked = {name: {"url": url, "name": name, "concurrency": 4, **server} for name in ("teacher", "judge")}
    return PlanMakingConfig.model_validate(
        {
            "run": {"dir": str(folder)},
            "problems": {"source": "prepared", "path": str(problems)},
            "plans": {**asked, **plans},
        }
    )
