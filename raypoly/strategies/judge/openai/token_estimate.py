"""How many tokens a call will take, before the server counts them: its limits are kept by such estimates."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from raypoly.strategies.judge.openai.judge_prompt import Message

_CHARS_A_TOKEN = 3.5


class TokenEstimate:
    """Estimates a call's tokens from those that the server counted so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._a_char, self._answered = 1 / _CHARS_A_TOKEN, 0.5

    def prompt(self, messages: Sequence[Message]) -> int:
        return int(_chars(messages) * self._a_char) + 1

    def completion(self, most: int) -> int:
        return int(most * self._answered) + 1

    def learn(self, messages: Sequence[Message], prompt: int, most: int, completion: int) -> None:
        with self._lock:
            self._a_char += 0.2 * (prompt / max(1, _chars(messages)) - self._a_char)
            self._answered += 0.2 * (min(1.0, completion / most) - self._answered)


def messages_of_body(body: Mapping[str, Any]) -> Sequence[Message]:
    """The messages of a request; a text to be continued counts as one."""
    found: Sequence[Message] = body.get("messages") or [{"role": "user", "content": body["prompt"]}]
    return found


def _chars(messages: Sequence[Message]) -> int:
    return sum(len(message["content"]) for message in messages)
