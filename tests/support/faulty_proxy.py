"""A proxy before an OpenAI-compatible server. It forwards requests and commits the faults that you ask for.

    with running(Proxy(to="http://127.0.0.1:8000/v1", faults=["429", "cut"])) as proxy:
        OpenAIJudge(JudgeConfig(name="openai", base_url=proxy.url, model="my-model"))

A random storm over a real server:

    python -m tests.support.faulty_proxy --to http://127.0.0.1:8000/v1 --port 8124 --share 0.3
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Any

from tests.support.faulty_front import Front, fault_arguments, fault_options, serve_until_interrupted
from tests.support.faulty_handler import Answer
from tests.support.judge_faults import error_body

_TIMEOUT = 600


@dataclass
class Proxy(Front):
    """Passes completions and the list of models to the server at `to`, with the caller's key."""

    to: str = ""

    def answer(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        path = "/completions" if "prompt" in body else "/chat/completions"
        return self._ask(path, headers, json.dumps(body).encode())

    def models(self, headers: Mapping[str, str]) -> Answer:
        return self._ask("/models", headers)

    def _ask(self, path: str, headers: Mapping[str, str], body: bytes | None = None) -> Answer:
        """The server's answer, whatever its status; 502 where it gives none."""
        passed = {"Content-Type": "application/json"}
        if "Authorization" in headers:
            passed["Authorization"] = headers["Authorization"]
        request = urllib.request.Request(self.to.rstrip("/") + path, body, passed)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
                return Answer(answer.status, json.load(answer), _limits(answer.headers))
        except urllib.error.HTTPError as answer:
            with answer:
                return Answer(answer.code, _json(answer.read()), _limits(answer.headers))
        except (OSError, ValueError) as failure:
            return Answer(502, error_body(f"The server behind gave no answer: {failure}", "bad_gateway"))


def _limits(headers: Message) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower().startswith(("x-ratelimit-", "retry-after"))}


def _json(text: bytes) -> Mapping[str, Any]:
    found = json.loads(text)
    return found if isinstance(found, dict) else {"error": found}


def main() -> None:
    parser = fault_options(__doc__)
    parser.add_argument("--to", required=True, help="the server's base URL")
    given = parser.parse_args()
    serve_until_interrupted(Proxy(to=given.to, **fault_arguments(given)))


if __name__ == "__main__":
    main()
