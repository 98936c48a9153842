"""One server with one model: send requests within its limits, retry, and notice when it is away.

    endpoint = Endpoint("https://api.openai.com/v1", "gpt-4.1-mini", key, prices, config, ledger, counts)
    completion = endpoint.complete(messages, schema, answer_tokens=640)

Raises `JudgeUnavailable` for what time or a person can mend, `JudgeRefused` where the server will never take this
group, and `UsageError` where it takes no group and never took one (an unknown model).
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raypoly.core.config import JudgeConfig
from raypoly.core.endpoint_config import checked_key
from raypoly.core.errors import JudgeRefused, MissingKey, UsageError
from raypoly.strategies.judge import refuse_logins
from raypoly.strategies.judge.judge_usage import JudgeCounters
from raypoly.strategies.judge.openai.completion_request import Completion, CompletionClient, RequestFault
from raypoly.strategies.judge.openai.judge_prompt import Message
from raypoly.strategies.judge.openai.rate_limiter import CircuitBreaker, RateLimiter, SharedLimiter, parse_retry_after
from raypoly.strategies.judge.openai.token_cost import (
    PUBLIC_URL,
    BudgetLedger,
    TokenPrices,
    configured_prices,
    list_prices_of,
)
from raypoly.strategies.judge.openai.token_estimate import TokenEstimate, messages_of_body

_DEFAULT_KEY_VARIABLE = "OPENAI_API_KEY"
TRIES = 5
_SLOW = 3
"""Tries that a call counts for which took all its time."""
_LIMITED_TRIES = 12
_LONGEST_BACKOFF = 8.0
_LONGEST_WAIT = 60.0
"""Seconds; a server that asks for a longer wait is away."""
PROBE: list[Message] = [{"role": "user", "content": "Answer with the word ok."}]
"""What is asked to find out whether a server answers, of `PROBE_TOKENS` at most."""
PROBE_TOKENS = 16


@dataclass(frozen=True)
class EndpointWords:
    """What a server is called in messages, and which keys set what is sent."""

    who: str
    timeout: str
    """The key of the most seconds of a call."""
    address: str
    """Where its address and model are named."""
    request: str
    """The keys that a request is made of."""


JUDGE_WORDS = EndpointWords(
    "The judge",
    "judge.timeout",
    "judge.base_url and judge.model",
    "judge.model, judge.answer_schema, judge.temperature and judge.max_answer_tokens",
)


class Endpoint:
    """One server with one model; any number of threads may use it."""

    def __init__(
        self,
        base_url: str,
        model: str,
        key: str,
        prices: TokenPrices | None,
        config: JudgeConfig,
        ledger: BudgetLedger,
        counts: JudgeCounters,
        backoff: float = 0.5,
        words: EndpointWords = JUDGE_WORDS,
    ) -> None:
        """`config` has what the servers of a judge have in common; `backoff`: the first wait before asking again, in
        seconds; it doubles."""
        self.base_url, self.model, self.prices, self._words = base_url, model, prices, words
        self.name = f"{words.who} {model} at {base_url}"
        self.breaker = CircuitBreaker(self.name)
        self._config, self._ledger, self._counts, self._backoff = config, ledger, counts, backoff
        self._wire = CompletionClient(base_url, key, config.timeout, words.timeout)
        limiter = RateLimiter(config.requests_per_minute, config.tokens_per_minute, config.concurrency)
        self._limiter = SharedLimiter(limiter)
        self._estimate = TokenEstimate()
        self._served = False
        self._slow: set[int] = set()  # hashes of the requests that were given up as slow
        # newer models want the newer name, and servers other than OpenAI's may know the older one alone
        official = base_url.rstrip("/") == PUBLIC_URL or ".openai.azure.com" in base_url
        self._limit_name = "max_completion_tokens" if official else "max_tokens"

    def __repr__(self) -> str:
        return f"Endpoint({self.model} at {self.base_url})"

    def complete(self, messages: Sequence[Message], schema: dict[str, Any], answer_tokens: int) -> Completion:
        """The answer to `messages`, held to a JSON schema and `answer_tokens` tokens.

        Raises `JudgeRefused` also where they took all their time again, after an outage, though others are answered.
        """
        wanted = {"name": "clusters", "strict": True, "schema": schema}
        fields: dict[str, Any] = {"response_format": {"type": "json_schema", "json_schema": wanted}}
        return self._served_answer(self._body(messages, answer_tokens) | fields, answer_tokens, refuses_slow=True)

    def respond(self, prompt: str | Sequence[Message], answer_tokens: int, **fields: Any) -> Completion:
        """The response to messages, or the continuation of a text, of at most `answer_tokens` tokens.

        `fields`: further ones of the request, by the names of the client `openai`.
        """
        return self._served_answer(self._body(prompt, answer_tokens) | fields, answer_tokens)

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
        body = self._body(PROBE, PROBE_TOKENS)
        held = self._ledger.hold(self.prices, self._estimate.prompt(PROBE), PROBE_TOKENS)
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
        """Return where a request is given up as slow for the first time, since the server may be away.

        Raises `JudgeRefused` for one that was before, if the probe is served, and else `JudgeUnavailable`: without
        this, an outage that the probe ends and the request begins would have no end.
        """
        request = hash(str(body))
        if request in self._slow:
            self.probe()
            raise JudgeRefused(f"{self.name} {reason}, though it answers others.") from None
        self._slow.add(request)

    def _once(self, body: dict[str, Any], answer_tokens: int) -> Completion:
        """Wait for a turn and send. Raises `RequestFault`; `JudgeUnavailable` where server or budget is gone."""
        messages = messages_of_body(body)
        prompt_tokens = self._estimate.prompt(messages)
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
            self._estimate.learn(messages, usage.prompt, answer_tokens, usage.completion)
        self._limiter.leave(lambda limiter, now: limiter.answered(sent, now, total, completion.headers))
        self._served = True
        if self.breaker.away_since == away:  # one sent before the outage says nothing about its end
            self.breaker.closed()
        return completion

    def _still_there(self) -> None:
        """Stop waiting for a turn once another call has found the server away."""
        if self.breaker.away:
            self.breaker.check()

    def _body(self, prompt: str | Sequence[Message], answer_tokens: int) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model}
        if isinstance(prompt, str):
            body |= {"prompt": prompt, "max_tokens": answer_tokens}
        else:
            body |= {"messages": list(prompt), self._limit_name: answer_tokens}
        if self._config.temperature is not None:
            body["temperature"] = self._config.temperature
        return body

    def _never(self, fault: RequestFault) -> Exception:
        """The error for a request that the server refuses. If it answered before, the config is not to blame."""
        if fault.about_group:
            return JudgeRefused(f"{self.name} {fault.reason}.")
        if self._served and fault.status == 404:
            return self.breaker.opened(fault.reason)
        if self._served:
            return JudgeRefused(f"{self.name} {fault.reason}.")
        keys = self._words.address if fault.status == 404 else self._words.request
        return UsageError(f"{self.name} {fault.reason}: see {keys}.")


def build_endpoints(config: JudgeConfig, ledger: BudgetLedger, counts: JudgeCounters, backoff: float) -> list[Endpoint]:
    """The first server, and the second where the config names one. Raises `UsageError`."""
    refuse_logins(config)
    for option, url in (("judge.base_url", config.base_url), ("judge.failover_url", config.failover_url)):
        if url is not None and not url.startswith(("http://", "https://")):
            raise UsageError(f"{option}={url!r} is no http(s) address.")
    servers = [(config.base_url or PUBLIC_URL, config.model, read_first_key(config), configured_prices(config))]
    if (url := config.failover_url) is not None:
        model = config.failover_model or config.model
        servers.append((url, model, read_failover_key(config), list_prices_of(url, model)))
    return [Endpoint(*server, config, ledger, counts, backoff) for server in servers]


def read_first_key(config: JudgeConfig, option: str = "judge.api_key_env") -> str:
    """The key of `judge.base_url`; empty where none was named and another server than OpenAI's is asked.

    Raises `MissingKey` where a key was named and is not there.
    """
    if config.api_key_env and config.api_key_file:
        raise UsageError("judge.api_key_env and judge.api_key_file are both given: drop one.")
    if config.api_key_file:
        return _key_from_file(config.api_key_file)
    return _key_from_environment(config.api_key_env, option, config.base_url or PUBLIC_URL)


def read_failover_key(config: JudgeConfig) -> str:
    """The key of `judge.failover_url`, likewise."""
    return _key_from_environment(config.failover_key_env, "judge.failover_key_env", config.failover_url or "")


def _key_from_environment(name: str | None, option: str, base_url: str) -> str:
    if name is None:
        # OpenAI's own variable is for OpenAI's own address: no other server is ever sent it unasked
        if base_url.rstrip("/") != PUBLIC_URL:
            return ""
        if key := os.environ.get(_DEFAULT_KEY_VARIABLE, "").strip():
            return checked_key(key, _DEFAULT_KEY_VARIABLE)
        raise MissingKey(f"{_DEFAULT_KEY_VARIABLE} is not set: export it, or name another place by {option}.")
    key = os.environ.get(name, "").strip()
    if not key:
        raise MissingKey(f"{option}={name!r} is not set: export it, or drop the key.")
    return checked_key(key, f"{option}={name!r}")


def _key_from_file(path: str) -> str:
    try:
        key = Path(path).expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise MissingKey(f"judge.api_key_file={path!r} can't be read: {reason}.") from None
    if not key or len(key.split()) != 1:
        raise MissingKey(f"judge.api_key_file={path!r} must hold the key and nothing else.")
    return checked_key(key, f"judge.api_key_file={path!r}")
