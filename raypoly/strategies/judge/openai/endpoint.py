"""One server with one model: send requests within its limits, retry, and notice when it is away.

    endpoint = Endpoint("https://api.openai.com/v1", "gpt-4.1-mini", key, config, prices, ledger)
    completion = endpoint.complete(messages, schema, answer_tokens=640)

Raises `JudgeUnavailable` for what time or a person can mend, `JudgeRefused` where the server will never take this
group, and `UsageError` where it takes no group and never took one (an unknown model).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raypoly.core.config import JudgeConfig
from raypoly.core.errors import JudgeRefused, UsageError
from raypoly.strategies.judge.judge_keys import PUBLIC_URL, check_addresses, read_failover_key, read_first_key
from raypoly.strategies.judge.openai.completion_request import OPTIONAL, Completion, CompletionClient, RequestFault
from raypoly.strategies.judge.openai.judge_prompt import Message
from raypoly.strategies.judge.openai.rate_limiter import CircuitBreaker, RateLimiter, SharedLimiter, parse_retry_after
from raypoly.strategies.judge.openai.token_cost import BudgetLedger, TokenPrices, configured_prices, list_prices_of

TRIES = 5
_SLOW = 3  # tries that a slow call counts for
_LIMITED_TRIES = 12
_LONGEST_BACKOFF = 8.0
_LONGEST_WAIT = 60.0  # seconds; a server that asks for a longer wait is away
PROBE: list[Message] = [{"role": "user", "content": "Answer with the word ok."}]
PROBE_TOKENS = 16
"""The most tokens of the answer to `PROBE`."""
_CHARS_A_TOKEN = 3.5


@dataclass(frozen=True)
class EndpointWords:
    """A server's name in messages, and the keys that set what is sent."""

    who: str
    timeout: str
    address: str
    request: str


JUDGE_WORDS = EndpointWords(
    "The judge",
    "judge.timeout",
    "judge.base_url and judge.model",
    "judge.model, judge.answer_schema, judge.temperature and judge.max_answer_tokens",
)


class Endpoint:
    """One server with one model; thread-safe."""

    kind = "openai"
    """The judge's, on labels."""

    def __init__(
        self,
        base_url: str,
        model: str,
        key: str,
        config: JudgeConfig,
        prices: TokenPrices | None = None,
        ledger: BudgetLedger | None = None,
        backoff: float = 0.5,
        words: EndpointWords = JUDGE_WORDS,
        optional: Collection[str] = OPTIONAL,
        probe: Sequence[Message] | Sequence[int] = PROBE,
    ) -> None:
        """`config` and `ledger` are shared by the servers of a judge. `backoff` is the first wait before a retry, in
        seconds; it doubles. `optional`: fields that are left out where the server takes none. `probe`: what it is
        asked to see whether it is there."""
        self.base_url, self.model, self.prices, self._words = base_url, model, prices, words
        self.name = f"{words.who} {model} at {base_url}"
        self.breaker = CircuitBreaker(self.name)
        self._config, self._ledger, self._backoff = config, ledger or BudgetLedger(), backoff
        self._counts = self._ledger.counts
        self._wire = CompletionClient(base_url, key, config.timeout, words.timeout, optional)
        limiter = RateLimiter(config.requests_per_minute, config.tokens_per_minute, config.concurrency)
        self._limiter = SharedLimiter(limiter)
        self._estimate = _TokenEstimate()
        self._served = False
        self._probe = probe
        self._slow: set[int] = set()  # hashes of the requests that were given up as slow
        # newer models want the newer name, and servers other than OpenAI's may know the older one alone
        official = base_url.rstrip("/") == PUBLIC_URL or ".openai.azure.com" in base_url
        self._limit_name = "max_completion_tokens" if official else "max_tokens"

    def __repr__(self) -> str:
        return f"Endpoint({self.model} at {self.base_url})"

    def complete(self, messages: Sequence[Message], schema: dict[str, Any], answer_tokens: int) -> Completion:
        """The answer to `messages`, held to a JSON schema and `answer_tokens` tokens.

        Raises `JudgeRefused` also for what is too slow again after an outage, though others are answered.
        """
        wanted = {"name": "clusters", "strict": True, "schema": schema}
        fields: dict[str, Any] = {"response_format": {"type": "json_schema", "json_schema": wanted}}
        return self._served_answer(self._body(messages, answer_tokens) | fields, answer_tokens, refuses_slow=True)

    def respond(
        self,
        prompt: str | Sequence[Message] | Sequence[int],
        answer_tokens: int,
        refuses_slow: bool = False,
        **fields: Any,
    ) -> Completion:
        """The response to messages, or the continuation of a text or of token ids, of at most `answer_tokens` tokens.

        `fields`: further ones of the request, by the names of the client `openai`. `refuses_slow`: as in `complete`.
        """
        return self._served_answer(self._body(prompt, answer_tokens) | fields, answer_tokens, refuses_slow)

    def _served_answer(self, body: dict[str, Any], answer_tokens: int, refuses_slow: bool = False) -> Completion:
        spent, limited = 0, 0
        while True:
            trial = self.breaker.check()
            try:
                return self._once(body, answer_tokens)
            except RequestFault as fault:
                spent += 0 if fault.kind == "limited" else _SLOW if fault.slow else 1
                limited += fault.kind == "limited"
                wait = parse_retry_after(fault.headers) or 0.0
                if fault.kind == "request":
                    raise self._never(fault) from None
                gives_up = wait > _LONGEST_WAIT or spent >= TRIES or limited >= _LIMITED_TRIES
                if refuses_slow and fault.slow and gives_up and not trial:
                    self._refuse_slow(body, fault.reason)
                if fault.kind == "closed" or trial or gives_up:
                    raise self.breaker.opened(fault.reason, trial) from None
            self._counts.add("retries")
            if spent:  # after a 429 the limiter holds everybody back
                backoff = min(_LONGEST_BACKOFF, self._backoff * 2 ** (spent - 1))
                time.sleep(max(wait, backoff * random.uniform(0.5, 1.0)))

    def probe(self) -> None:
        """Ask for one word, whatever the breaker says. Returns where it came, else raises `JudgeUnavailable`."""
        self._ledger.check()
        body = self._body(self._probe, PROBE_TOKENS)
        held = self._ledger.hold(self.prices, self._estimate.prompt(body), PROBE_TOKENS)
        self._counts.add("probes")
        try:
            completion = self._wire.post(body)
        except RequestFault as fault:
            self._ledger.release(held, sent=fault.sent)
            if fault.kind == "request":
                raise self._never(fault) from None
            raise self.breaker.opened(fault.reason, trial=True) from None
        self._ledger.settle(held, self.prices, completion.usage)
        self._served = True
        self.breaker.closed()
        self._limiter.leave(lambda limiter, now: limiter.resume(now))

    def close(self) -> None:
        self._wire.close()

    def _refuse_slow(self, body: dict[str, Any], reason: str) -> None:
        """Note a request given up as slow. Raises `JudgeRefused` for one that was before, if the probe is served."""
        # The first time, the server may be away. Without the second, an outage that the probe ends and this request
        # begins again would have no end.
        request = hash(str(body))
        if request in self._slow:
            self.probe()
            raise JudgeRefused(f"{self.name} {reason}, though it answers others.") from None
        self._slow.add(request)

    def _once(self, body: dict[str, Any], answer_tokens: int) -> Completion:
        """Wait for a turn and send. Raises `RequestFault`; `JudgeUnavailable` where server or budget is gone."""
        prompt_tokens = self._estimate.prompt(body)
        held = self._ledger.hold(self.prices, prompt_tokens, answer_tokens)
        try:
            sent = self._limiter.enter(prompt_tokens + self._estimate.completion(answer_tokens), self._still_there)
        except BaseException:
            self._ledger.release(held, sent=False)
            raise
        self._counts.add("calls")
        away = self.breaker.away_since
        try:
            completion = self._wire.post(body)
        except BaseException as error:
            fault = error if isinstance(error, RequestFault) else RequestFault("transient", "", sent=True)
            limited = fault.kind == "limited"
            self._ledger.release(held, sent=fault.sent)
            self._limiter.leave(
                lambda limiter, now: limiter.refused(sent, now, fault.headers) if limited else limiter.failed(sent, now)
            )
            self._counts.add("limited", limited)
            raise
        usage = completion.usage
        self._ledger.settle(held, self.prices, usage)
        total = None if usage is None else usage.prompt + usage.completion
        if usage is not None:
            self._estimate.learn(body, usage.prompt, answer_tokens, usage.completion)
        self._limiter.leave(lambda limiter, now: limiter.answered(sent, now, total, completion.headers))
        self._served = True
        if self.breaker.away_since == away:  # one sent before the outage says nothing about its end
            self.breaker.closed()
        return completion

    def _still_there(self) -> None:
        if self.breaker.away:
            self.breaker.check()

    def _body(self, prompt: str | Sequence[Message] | Sequence[int], answer_tokens: int) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model}
        if isinstance(prompt, str) or isinstance(prompt[0], int):
            body |= {"prompt": prompt, "max_tokens": answer_tokens}
        else:
            body |= {"messages": list(prompt), self._limit_name: answer_tokens}
        if self._config.temperature is not None:
            body["temperature"] = self._config.temperature
        return body

    def _never(self, fault: RequestFault) -> Exception:
        # A server that has answered before does not show a bad config.
        if fault.about_group:
            return JudgeRefused(f"{self.name} {fault.reason}.")
        if self._served and fault.status == 404:
            return self.breaker.opened(fault.reason)
        if self._served:
            return JudgeRefused(f"{self.name} {fault.reason}.")
        keys = self._words.address if fault.status == 404 else self._words.request
        return UsageError(f"{self.name} {fault.reason}: see {keys}.")


def build_endpoints(config: JudgeConfig, ledger: BudgetLedger, backoff: float) -> list[Endpoint]:
    """The first server, and the second if there is one. Raises `UsageError`."""
    check_addresses(config)
    first, key = config.base_url or PUBLIC_URL, read_first_key(config)
    endpoints = [Endpoint(first, config.model, key, config, configured_prices(config), ledger, backoff)]
    if (url := config.failover_url) is not None:
        model, key = config.failover_model or config.model, read_failover_key(config)
        endpoints.append(Endpoint(url, model, key, config, list_prices_of(url, model), ledger, backoff))
    return endpoints


class _TokenEstimate:
    # Estimates of a call's tokens, which its limits are kept by, from the server's counts so far.
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._a_char, self._answered = 1 / _CHARS_A_TOKEN, 0.5

    def prompt(self, body: Mapping[str, Any]) -> int:
        return int(_count_chars(body) * self._a_char) + 1

    def completion(self, most: int) -> int:
        return int(most * self._answered) + 1

    def learn(self, body: Mapping[str, Any], prompt: int, most: int, completion: int) -> None:
        with self._lock:
            self._a_char += 0.2 * (prompt / max(1, _count_chars(body)) - self._a_char)
            self._answered += 0.2 * (min(1.0, completion / most) - self._answered)


def _count_chars(body: Mapping[str, Any]) -> int:
    messages: Sequence[Message] = body.get("messages") or [{"role": "user", "content": body["prompt"]}]
    return sum(len(message["content"]) for message in messages)
