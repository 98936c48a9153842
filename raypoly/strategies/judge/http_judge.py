"""A judge behind an HTTP server: one JSON request for each group.

    POST <judge.url>  {"problem": "...", "entry_point": "f", "programs": ["...", ...]}
    200               {"ids": [1, 1, 2], "degenerate": [false, false, false], "judge": "name-1"}

A missing answer (refused or reset connection, timeout, bad key, 408, 425, 429, 5xx) is `JudgeUnavailable`: the step
waits. An answer that does not label the group is `JudgeRefused`. A GET of the same URL is the probe.
The key travels in the Authorization header and appears in no message.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from raypoly.core.config import JudgeConfig
from raypoly.core.endpoint_config import proxy_of
from raypoly.core.errors import JudgeRefused, JudgeUnavailable
from raypoly.core.values import Labels, Problem, Rollout, Verdict
from raypoly.strategies.judge.judge_keys import check_addresses, read_key
from raypoly.strategies.judge.silence import SilenceCheck, Silent, in_thread

_LARGEST_ANSWER = 1 << 20
# Client errors that are temporary, or that an operator can fix while the run waits (an expired key).
_WAIT = frozenset({401, 403, 408, 425, 429})


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True)
    ids: list[Annotated[int, Field(ge=0, le=2**31 - 1)]]
    degenerate: list[bool]
    judge: str = "http"


class HttpJudge:
    def __init__(self, config: JudgeConfig) -> None:
        check_addresses(config)
        self.url, self._timeout = config.url or "", config.timeout
        self._proxy = proxy_of(self.url)
        self._silence = SilenceCheck(self.url, self._proxy)
        proxies = {} if self._proxy is None else {self.url.partition(":")[0].lower(): self._proxy.address}
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
        self._key = read_key(config.api_key_env, "judge.api_key_env", self.url)

    def label(self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]) -> Labels:
        """Raises `JudgeUnavailable` and `JudgeRefused`."""
        programs = [_program(problem, rollout, verdict) for rollout, verdict in zip(rollouts, verdicts, strict=True)]
        request = {"problem": problem.prompt, "entry_point": problem.entry_point, "programs": programs}
        body = self._ask(json.dumps(request).encode())
        try:
            answer = _Answer.model_validate_json(body)
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"])) or "the start"
            raise JudgeRefused(
                f"The judge at {self.url} answered problem {problem.id} with something else than labels"
                f" ({error.error_count()} faults, the first at {where})."
            ) from None
        ids, degenerate = np.array(answer.ids, np.int32), np.array(answer.degenerate, np.bool_)
        count = len(rollouts)
        if len(ids) != count or len(degenerate) != count or bool(np.any((ids < 1) != degenerate)):
            raise JudgeRefused(
                f"The judge at {self.url} labelled {len(ids)} of {count} programs of problem {problem.id}, or gave one"
                " that is not degenerate no id."
            )
        return Labels(ids=ids, degenerate=degenerate, judge=answer.judge)

    def probe(self) -> None:
        """Return if the endpoint answers a GET, else raise `JudgeUnavailable`."""
        self._ask(None)

    def _ask(self, body: bytes | None) -> bytes:
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(self.url, data=body, headers=headers)

        def fetch() -> bytes:
            with self._opener.open(request, timeout=self._timeout) as response:
                answer: bytes = response.read(_LARGEST_ANSWER + 1)
                return answer

        try:
            answer = self._silence.result(in_thread(fetch))
        except urllib.error.HTTPError as error:
            error.close()
            if error.code >= 500 or error.code in _WAIT:
                raise JudgeUnavailable(f"The judge at {self.url} is not serving (HTTP {error.code}).") from None
            raise JudgeRefused(f"The judge at {self.url} refused the request (HTTP {error.code}).") from None
        except (OSError, Silent, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, TimeoutError):
                reason = f"no answer within judge.timeout={self._timeout:g} s"
            way = "" if self._proxy is None else f" through the proxy {self._proxy}"
            raise JudgeUnavailable(f"The judge at {self.url} can't be reached{way}: {reason}.") from None
        if len(answer) > _LARGEST_ANSWER:
            raise JudgeRefused(f"The judge at {self.url} answered with more than {_LARGEST_ANSWER} bytes.")
        return answer

    def __repr__(self) -> str:
        return f"HttpJudge({self.url})"


def _program(problem: Problem, rollout: Rollout, verdict: Verdict) -> str:
    """Empty if there is none."""
    if verdict.status == "no_code":
        return ""
    return problem.prefix + rollout.text if problem.answer == "completion" else rollout.text
