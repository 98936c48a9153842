"""A teacher behind a server that takes token ids and gives log-probabilities of a prompt, as vLLM's does.

    server = TeacherServer(config.distill)
    server.check(tokenizer)                              # one small request; raises `UsageError`
    server.ask(prompt_tokens, tokens)                    # float32 [T], before temperature

Limits, retries and breaker are those of the judge's endpoint. The key stays in this process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from raypoly.core.config import DistillConfig
from raypoly.core.endpoint_config import EndpointConfig, check_address
from raypoly.core.errors import Away, JudgeRefused, UsageError
from raypoly.core.values import Float32, Int32
from raypoly.strategies.judge.judge_keys import read_first_key
from raypoly.strategies.judge.openai.endpoint import Endpoint, EndpointWords

_WORDS = EndpointWords("The teacher", "distill.timeout", "distill.server and distill.teacher", "distill.teacher")
_ROUNDING = 1e-3  # above a log-probability of 0
_COMPARED = 64
"""Tokens of the student that the server is asked to name."""


class TeacherServer:
    """Thread-safe."""

    def __init__(self, config: DistillConfig) -> None:
        """Raises `UsageError` for a bad address or a key that is not there."""
        url = config.server or ""
        check_address("distill.server", url, "distill.api_key_env", config.api_key_env is not None)
        asked = EndpointConfig(
            url=url,
            name=config.teacher,
            api_key_env=config.api_key_env,
            timeout=config.timeout,
            concurrency=config.concurrency,
        ).as_judge(temperature=1.0)
        key = read_first_key(asked, "distill.api_key_env")
        self._endpoint = Endpoint(url, asked.model, key, asked, words=_WORDS, probe=[0])

    def ask(self, prompt: Int32, tokens: Int32) -> Float32:
        """Raises `Away` and `JudgeRefused` as an endpoint does, and `UsageError` for a server that gives something else
        than one log-probability a token."""
        found = self._entries([*prompt.tolist(), *tokens.tolist()])
        pairs = zip(found[len(prompt) :], tokens.tolist(), strict=True)
        return np.array([self._entry(entry, token)["logprob"] for entry, token in pairs], np.float32)

    def check(self, tokenizer: Any) -> None:
        """Ask for log-probabilities of some of the student's tokens, and compare the server's names of them. Raises
        `UsageError` also where it is away."""
        last = len(tokenizer) - 1
        tokens = sorted({round(last * place / (_COMPARED - 1)) for place in range(_COMPARED)})
        try:
            found = self._entries(tokens)
        except (Away, JudgeRefused) as error:
            raise UsageError(f"{error} See distill.server and distill.api_key_env.") from error
        for entry, token in zip(found[1:], tokens[1:], strict=True):
            theirs, own = self._entry(entry, token).get("decoded_token"), tokenizer.decode([token])
            if isinstance(theirs, str) and "\ufffd" not in theirs + own and theirs.strip() != own.strip():
                raise UsageError(
                    f"distill.server={self._endpoint.base_url} has another tokenizer than the student: token {token} "
                    f"is {own!r} here and {theirs!r} there. Take a teacher of the same family."
                )

    def probe(self) -> None:
        """Return when the server answers. Raises `Away`."""
        self._endpoint.probe()

    def close(self) -> None:
        self._endpoint.close()

    def _entries(self, tokens: Sequence[int]) -> Sequence[Any]:
        """One a token; the first has none."""
        answer = self._endpoint.respond(tokens, 1, refuses_slow=True, extra_body={"prompt_logprobs": 0})
        if answer.prompt_logprobs is None or len(answer.prompt_logprobs) != len(tokens):
            raise UsageError(
                f"{self._endpoint.name} gives no log-probabilities of a prompt's tokens: it has to take "
                "`prompt_logprobs` with a prompt of token ids, as vLLM's server does."
            )
        return answer.prompt_logprobs

    def _entry(self, entry: Any, token: int) -> Mapping[str, Any]:
        found = entry.get(str(token)) if isinstance(entry, Mapping) else None
        found = found if isinstance(found, Mapping) else {}
        logprob = found.get("logprob")
        if not isinstance(logprob, int | float) or not -math.inf < logprob <= _ROUNDING:
            raise UsageError(f"{self._endpoint.name} gave no log-probability of token {token}.")
        return found
