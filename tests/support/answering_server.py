"""An OpenAI-like server that answers problems: right for an even seed, cut off where five divides the seed.

    with running(AnsweringServer(key="secret", faults=["429", "500"])) as server: ...

It speaks /v1/chat/completions and /v1/completions, and knows one model, `solver`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.faulty_front import Front
from tests.support.faulty_handler import Answer
from tests.support.judge_faults import error_body

RIGHT = "```python\ndef f(x):\n    return x + x\n```"
WRONG = "```python\ndef f(x):\n    return x\n```"


@dataclass
class AnsweringServer(Front):
    """Solves "twice the number", for whoever has the key."""

    key: str = ""

    def answer(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        if self.key and headers.get("Authorization") != f"Bearer {self.key}":
            return Answer(401, error_body(f"Incorrect API key provided: {self.key}.", "invalid_api_key"))
        if body["model"] != "solver":
            return Answer(404, error_body(f"The model `{body['model']}` does not exist.", "model_not_found"))
        text = RIGHT if body["seed"] % 2 == 0 else WRONG
        reason = "length" if body["seed"] % 5 == 0 else "stop"
        said = {"text": text} if "prompt" in body else {"message": {"role": "assistant", "content": text}}
        content = {
            "id": "1",
            "object": "text_completion" if "prompt" in body else "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [{"index": 0, "finish_reason": reason, **said}],
        }
        return Answer(200, content)
