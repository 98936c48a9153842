"""An OpenAI-like server that labels programs and commits the faults that you ask for.

    with running(Server(faults=["500", "reset"])) as server:        # the first two requests fail, the rest are served
        OpenAIJudge(JudgeConfig(name="openai", base_url=server.url, model="marker"))

It speaks /v1/chat/completions and /v1/models. A program that holds `strategy_<number>` gets that cluster (0 is
degenerate), any other one by the length of its text, so answers are deterministic and do not depend on the order shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.faulty_front import Front, running
from tests.support.faulty_handler import Answer
from tests.support.judge_faults import FAULTS, error_body, programs_of

__all__ = ["FAULTS", "Server", "programs_of", "running"]

_MARKER = re.compile(r"strategy_(\d+)")
_CHARS_A_TOKEN = 4
_ANSWER_TOKENS_A_PROGRAM = 25


@dataclass
class Server(Front):
    """Labels by the marker, for whoever has the key."""

    key: str = ""

    def answer(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        if self.key and headers.get("Authorization") != f"Bearer {self.key}":
            return Answer(401, error_body("Incorrect API key provided.", "invalid_api_key"))
        content = completion(body)
        room, limits = self.admit(content["usage"]["total_tokens"])
        if not room:
            return Answer(429, error_body("Rate limit reached.", "rate_limit_exceeded"), limits)
        return Answer(200, content, limits)

    def admit(self, tokens: int) -> tuple[bool, dict[str, str]]:
        """Whether there is room for a request, and the headers that say so."""
        return True, {}


def cluster_of(program: str) -> int:
    marker = _MARKER.search(program)
    return int(marker.group(1)) if marker else 1000 + len(program) % 7


def completion(body: Mapping[str, Any]) -> dict[str, Any]:
    """A chat completion that labels the programs asked about."""
    programs = programs_of(body)
    graded = any("\nGrade programs" in message["content"] for message in body["messages"])
    said, number = ("reason", "grade") if graded else ("strategy", "cluster_id")
    entries = [
        {"index": index, said: f"way {cluster_of(program)}", number: cluster_of(program)}
        for index, program in enumerate(programs, 1)
    ]
    message = {"role": "assistant", "content": json.dumps({"programs": entries}), "refusal": None}
    prompt = sum(len(each["content"]) for each in body["messages"]) // _CHARS_A_TOKEN
    answer = _ANSWER_TOKENS_A_PROGRAM * len(programs) + 10
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": answer,
            "total_tokens": prompt + answer,
            "prompt_tokens_details": {"cached_tokens": prompt // 2},
        },
    }
