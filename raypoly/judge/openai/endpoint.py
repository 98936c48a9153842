"""One server with one model: asks it within its limits, again where that may help, and says when it is away.

    endpoint = Endpoint("https://api.openai.com/v1", "gpt-4.1-mini", key, prices, settings, ledger, counts)
    completion = endpoint.complete(messages, schema, answer_tokens=640)

Raises `JudgeUnavailable` for whatever time or a person may mend, `JudgeRefused` where the server will never take this
group, and `UsageError` where it takes none (an unknown model) and never took one.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from raypoly.errors import JudgeRefused, UsageError
from raypoly.judge.openai.circuit_breaker import CircuitBreaker
from raypoly.judge.openai.completion_request import Completion, Wire
from raypoly.judge.openai.judge_prompt import Message
from raypoly.judge.openai.judge_stats import JudgeCounters
from raypoly.judge.openai.rate_limiter import Limiter, Sent, retry_after
from raypoly.judge.openai.request_faults import Fault
from raypoly.judge.openai.request_gate import RequestGate
from raypoly.judge.openai.token_cost import PUBLIC_URL, BudgetLedger, Prices

TRIES = 5
_SLOW = 3
"""Tries that a call counts for which took all its time."""
_LIMITED_TRIES = 12
LONGEST_BACKOFF = 8.0
_PATIENCE = 60.0
"""A server that wants to be left alone for longer than this many seconds is away."""
_CHARS_A_TOKEN = 3.5
_PROBE: list[Message] = [{"role": "user", "content": "Answer with the word ok."}]
_PROBE_TOKENS = 16


@dataclass(frozen=True)
class Settings:
    """What both servers of a judge have in common."""

    timeout: float
    temperature: float | None
    concurrency: int
    requests_per_minute: int | None
    tokens_per_minute: int | None
    backoff: float = 0.5
    """Seconds of the first wait before asking again; doubles."""


class Endpoint:
    """One server with one model; any number of threads may use it."""

    def __init__(
        self,
        base_url: str,
        model: str,
        key: str,
        prices: Prices | None,
        settings: Settings,
        ledger: BudgetLedger,
        counts: JudgeCounters,
    ) -> None:
        self.base_url, self.model, self.prices = base_url, model, prices
        self.name = f"The judge {model} at {base_url}"
        self.breaker = CircuitBreaker(self.name)
        self._settings, self._ledger, self._counts = settings, ledger, counts
        self._wire = Wire(base_url, key, settings.timeout)
        limiter = Limiter(settings.requests_per_minute, settings.tokens_per_minute, settings.concurrency)
        self._gate = RequestGate(limiter)
        self._estimate = _Estimate()
        self._served = False
        # newer models want the newer name, and servers other than OpenAI's may know the older one alone
        official = base_url.rstrip("/") == PUBLIC_URL or ".openai.azure.com" in base_url
        self._limit_name = "max_completion_tokens" if official else "max_tokens"

    def __repr__(self) -> str:
        return f"Endpoint({self.model} at {self.base_url})"

    def complete(self, messages: Sequence[Message], schema: dict[str, Any], answer_tokens: int) -> Completion:
        """The answer to `messages`, held to a JSON schema and `answer_tokens` tokens."""
        body = self._body(messages, answer_tokens)
        wanted = {"name": "clusters", "strict": True, "schema": schema}
        body["response_format"] = {"type": "json_schema", "json_schema": wanted}
        spent, limited = 0, 0
        while True:
            trial = self.breaker.check()
            try:
                return self._once(body, answer_tokens)
            except Fault as fault:
                spent += 0 if fault.kind == "limited" else _SLOW if fault.slow else 1
                limited += fault.kind == "limited"
                asked = retry_after(fault.headers) or 0.0
                if fault.kind == "request":
                    raise self._never(fault) from None
                if fault.kind == "closed" or trial or asked > _PATIENCE or spent >= TRIES or limited >= _LIMITED_TRIES:
                    raise self.breaker.opened(fault.reason, trial) from None
            self._counts.add("retries")
            if spent:  # after a 429 the gate holds everybody back
                backoff = min(LONGEST_BACKOFF, self._settings.backoff * 2 ** (spent - 1))
                time.sleep(max(asked, backoff * random.uniform(0.5, 1.0)))

    def probe(self) -> None:
        """Ask for one word, whatever the breaker says. Returns where it came, else raises `JudgeUnavailable`."""
        self._ledger.check()
        body = self._body(_PROBE, _PROBE_TOKENS)
        held = self._ledger.hold(self.prices, self._estimate.prompt(_PROBE), _PROBE_TOKENS)
        self._counts.add("probes")
        try:
            completion = self._wire.post(body)
        except Fault as fault:
            self._ledger.release(held, sent=fault.sent)
            if fault.kind == "request":
                raise self._never(fault) from None
            raise self.breaker.opened(fault.reason, trial=True) from None
        self._ledger.settle(held, self.prices, completion.usage)
        self._served = True
        self.breaker.closed()
        self._gate.leave(lambda limiter, now: limiter.resume(now))

    def close(self) -> None:
        self._wire.close()

    def _once(self, body: dict[str, Any], answer_tokens: int) -> Completion:
        """One request in its turn. Raises `Fault`, and `JudgeUnavailable` where the server or the budget is gone."""
        messages = body["messages"]
        prompt_tokens = self._estimate.prompt(messages)
        held = self._ledger.hold(self.prices, prompt_tokens, answer_tokens)
        try:
            sent = self._gate.enter(prompt_tokens + self._estimate.completion(answer_tokens), self._still_there)
        except BaseException:
            self._ledger.release(held, sent=False)
            raise
        self._counts.add("calls")
        away = self.breaker.away_since
        try:
            completion = self._wire.post(body)
        except BaseException as error:
            lost = not isinstance(error, Fault) or error.sent
            self._ledger.release(held, sent=lost)
            self._gate.leave(_ending(sent, error))
            self._counts.add("limited", isinstance(error, Fault) and error.kind == "limited")
            raise
        usage = completion.usage
        self._ledger.settle(held, self.prices, usage)
        total = None if usage is None else usage.prompt + usage.completion
        if usage is not None:
            self._estimate.learn(messages, usage.prompt, answer_tokens, usage.completion)
        self._gate.leave(lambda limiter, now: limiter.answered(sent, now, total, completion.headers))
        self._served = True
        if self.breaker.away_since == away:  # one sent before the outage says nothing about its end
            self.breaker.closed()
        return completion

    def _still_there(self) -> None:
        """Whoever waits for a turn need not, once another call has found the server away."""
        if self.breaker.away:
            self.breaker.check()

    def _body(self, messages: Sequence[Message], answer_tokens: int) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "messages": list(messages), self._limit_name: answer_tokens}
        if self._settings.temperature is not None:
            body["temperature"] = self._settings.temperature
        return body

    def _never(self, fault: Fault) -> Exception:
        """A server that has answered before is no matter of the config; this group may be, or the server's state."""
        if fault.about_group:
            return JudgeRefused(f"{self.name} {fault.reason}.")
        if self._served and fault.status == 404:
            return self.breaker.opened(fault.reason)
        if self._served:
            return JudgeRefused(f"{self.name} {fault.reason}.")
        keys = "judge.base_url and judge.model"
        if fault.status != 404:
            keys = "judge.model, judge.answer_schema, judge.temperature and judge.max_answer_tokens"
        return UsageError(f"{self.name} {fault.reason}: see {keys}.")


class _Estimate:
    """Tokens before they are counted, learned from those that were."""

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


def _chars(messages: Sequence[Message]) -> int:
    return sum(len(message["content"]) for message in messages)


def _ending(sent: Sent, error: BaseException) -> Callable[[Limiter, float], None]:
    """What a limiter is told of a call that failed."""
    if isinstance(error, Fault) and error.kind == "limited":
        return lambda limiter, now: limiter.refused(sent, now, error.headers)
    return lambda limiter, now: limiter.failed(sent, now)
