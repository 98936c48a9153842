"""One request to an OpenAI-compatible server, with a deadline for the whole of it.

    client = CompletionClient("http://127.0.0.1:8000/v1", key="", timeout=120)
    completion = client.post({"model": "m", "messages": [...]})         # raises `RequestFault`

A fault's kind says what can be done: `transient`: ask again; `limited`: wait, then ask again; `closed`: nothing for now
(somebody has to act, or it can't be reached); `request`: the server will never take this one. It keeps the answer's
words and headers only, since the exception holds the request, whose headers hold the key. Any number of threads may
call `post`.

A field that a 400 names as one that the server does not take is sent by its other name or left out from then on: what
models take differs, and changes. A loopback address is asked past the environment's proxies.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import logging
import re
import ssl
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import openai
from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from raypoly.core.endpoint_config import proxy_of
from raypoly.strategies.judge.openai.token_cost import TokenUsage
from raypoly.strategies.judge.silence import CONNECT_SECONDS, SilenceCheck, Silent

Kind = Literal["transient", "limited", "closed", "request"]
OPTIONAL = frozenset({"temperature", "response_format", "seed"})
"""Fields of a request that may be left out where a server does not take them."""

_NO_QUOTA = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "insufficient_balance")
_THIS_GROUP = (
    "context_length_exceeded",
    "string_above_max_length",
    "content_filter",
    "content_policy_violation",
    "invalid_prompt",
    "context length",
    "context size",
    "maximum model length",
)
_TRANSIENT = frozenset({408, 409, 425})
_CLOSED = {401: "refuses the key", 402: "wants to be paid", 403: "refuses this key the model or the place"}
_BROKEN_OFF = ("error", "abort")  # finish reasons of an answer that the server did not finish
_WORDS = 300
_OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_NOT_TAKEN = re.compile(
    r"unsupported|unrecogni[sz]ed|unknown|unexpected|unavailable|deprecated|no longer|extra[ _]?(?:inputs|fields|forb)"
    r"|(?:not|n't)\s+(?:\w+\s+)?(?:support|allow|accept|permit|implement|available)"
    r"|only\b.*\b(?:supported|allowed|accepted|permitted)|\binstead\b",
    re.IGNORECASE | re.DOTALL,
)
_LOG = logging.getLogger(__name__)


class RequestFault(Exception):
    def __init__(
        self,
        kind: Kind,
        reason: str,
        headers: Mapping[str, str] | None = None,
        *,
        status: int = 0,
        slow: bool = False,
        sent: bool = False,
    ) -> None:
        super().__init__(reason)
        self.kind, self.reason, self.headers = kind, reason, headers or {}
        self.status = status
        """The HTTP status, 0 where there was none."""
        self.slow = slow
        """Whether it took all the time of a call."""
        self.sent = sent
        """Whether the server may have worked on it, and may charge for it."""
        self.about_group = kind == "request" and any(word in reason.lower() for word in _THIS_GROUP)
        """Whether another group may be served."""
        self.refused: str | None = None
        """The field that the server does not take, of those that have another name or may be left out."""


def fault_of(error: Exception, timeout: float, key: str = "judge.timeout") -> RequestFault:
    """The fault of a call's exception; `key` is the config's that sets the timeout."""
    if _without_connection(error):
        return RequestFault("closed", f"can't be reached (no connection within {min(timeout, CONNECT_SECONDS):g} s)")
    if isinstance(error, (TimeoutError, openai.APITimeoutError)):
        return RequestFault("transient", f"gave no whole answer within {key}={timeout:g} s", slow=True, sent=True)
    if isinstance(error, openai.APIStatusError):
        return _of_status(error)
    if isinstance(error, openai.APIConnectionError):
        return RequestFault("transient", f"can't be reached ({_root(error)})", sent=_connected(error))
    return RequestFault(
        "transient", f"answered with something that is no chat completion ({type(error).__name__})", sent=True
    )


def _of_status(error: openai.APIStatusError) -> RequestFault:
    inner = _error_of(error)
    codes = [str(inner[name]) for name in ("code", "type") if inner.get(name) is not None]
    status = error.status_code
    # FastAPI's own errors have a `detail`, and vLLM repeats the status as the code
    parts = (inner.get("message") or inner.get("detail") or "", *codes[:1])
    words = " ".join(" ".join(str(part) for part in parts if part and str(part) != str(status)).split())[:_WORDS]
    said = f" ({words})" if words else ""
    kind: Kind
    if status == 429 and any(code in codes for code in _NO_QUOTA):
        kind, reason = "closed", "has no quota left for this key (insufficient_quota): asking again is no use"
    elif status == 429:
        kind, reason = "limited", f"says that there were too many requests (HTTP 429){said}"
    elif status in _CLOSED:  # its words may repeat a part of the key
        kind, reason = "closed", f"{_CLOSED[status]} (HTTP {status})"
    elif status in _TRANSIENT or status >= 500:
        kind, reason = "transient", f"is not serving (HTTP {status}){said}"
    else:
        kind, reason = "request", f"will not take the request (HTTP {status}){said}"
    return RequestFault(kind, reason, dict(error.response.headers), status=status)


def _error_of(error: openai.APIStatusError) -> dict[str, Any]:
    body: Any = error.body
    inner = body.get("error", body) if isinstance(body, dict) else {}
    return inner if isinstance(inner, dict) else {"message": inner}


def _refused_field(error: Exception, fields: Collection[str]) -> str | None:
    """Which of the fields a 400 (or FastAPI's 422) names as one that the server does not take."""
    if not isinstance(error, openai.APIStatusError) or error.status_code not in (400, 422):
        return None
    inner = _error_of(error)
    words = " ".join(str(inner.get(name) or "") for name in ("message", "detail", "code"))
    if not _NOT_TAKEN.search(words):
        return None
    if param := re.split(r"[.\[]", str(inner.get("param") or ""), maxsplit=1)[0]:
        return param if param in fields else None
    places = {name: found.start() for name in fields if (found := re.search(rf"(?<!\w){name}(?!\w)", words))}
    return min(places, key=lambda name: places[name], default=None)


def _root(error: BaseException) -> str:
    last = list(_causes(error))[-1]
    return (" ".join(str(last).split()) or type(last).__name__)[:_WORDS]


def _without_connection(error: Exception) -> bool:
    return isinstance(error, openai.APITimeoutError) and not _connected(error)


def _connected(error: BaseException) -> bool:
    # Whether the connection had been made before it broke.
    return not any(type(cause).__name__.startswith("Connect") for cause in _causes(error.__cause__))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@dataclass(frozen=True)
class Completion:
    text: str
    refusal: str | None
    finish_reason: str
    usage: TokenUsage | None
    """None where the server does not count."""
    headers: Mapping[str, str]
    prompt_logprobs: list[Any] | None = None
    """As vLLM gives them where they are asked for: an entry a token of the prompt."""


class _Message(BaseModel):
    content: str | list[Any] | None = None
    refusal: str | None = None

    @property
    def text(self) -> str:
        """Its text, or those of its parts; others are thoughts, or calls of tools."""
        if not isinstance(self.content, list):
            return self.content or ""
        found = [part if isinstance(part, dict) else {"type": "text", "text": part} for part in self.content]
        texts = [part.get("text") for part in found if part.get("type") in ("text", "output_text")]
        return "".join(text for text in texts if isinstance(text, str))


class _Choice(BaseModel):
    message: _Message | None = None
    text: str | None = None
    """Of a plain completion."""
    finish_reason: str | None = None
    prompt_logprobs: list[Any] | None = None


class _Details(BaseModel):
    cached_tokens: int | None = None


class _Usage(BaseModel):
    prompt_tokens: NonNegativeInt
    completion_tokens: NonNegativeInt
    prompt_tokens_details: _Details | None = None


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore")
    choices: list[_Choice]
    usage: Any = None


class CompletionClient:
    # Requests run on an event loop in a thread of their own. There a deadline holds for a whole call, where a socket's
    # timeout begins anew with each byte, and a server that drips its answer would never be cut off.

    def __init__(
        self,
        base_url: str,
        key: str,
        timeout: float,
        timeout_key: str = "judge.timeout",
        optional: Collection[str] = OPTIONAL,
    ) -> None:
        self._base_url, self._key, self._timeout, self._timeout_key = base_url, key, timeout, timeout_key
        self._optional, self._proxy = frozenset(optional), proxy_of(base_url)
        self._silence = SilenceCheck(base_url, self._proxy)
        # Names of fields as this server takes them; None: not at all.
        self._taken: dict[str, str | None] = {}
        self._closed = False
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: openai.AsyncOpenAI | None = None

    def post(self, body: Mapping[str, Any]) -> Completion:
        """The server's answer to a chat completion, or to a completion if `body` has a `prompt`.

        Raises `RequestFault`, also after `close`.
        """
        refused: set[str] = set()
        while True:
            try:
                return self._answer(self._as_taken(body))
            except RequestFault as fault:
                name = fault.refused
                # Each name is refused once: a server that takes neither of two is not asked in turns.
                if name is None or name in refused or _OTHER_NAME.get(name) in refused:
                    raise
            refused.add(name)
            self._learn(name)

    def _answer(self, body: Mapping[str, Any]) -> Completion:
        if self._closed:
            raise RequestFault("closed", "is not asked any more")
        future = asyncio.run_coroutine_threadsafe(self._post(body), self._running())
        try:
            return self._silence.result(future)
        except Silent as error:
            raise self._told(RequestFault("closed", f"can't be reached ({error})", sent=True)) from None
        except concurrent.futures.CancelledError:
            raise RequestFault("closed", "is not asked any more") from None
        finally:
            future.cancel()

    def _as_taken(self, body: Mapping[str, Any]) -> dict[str, Any]:
        names = {name: self._taken.get(name, name) for name in body}
        return {taken: body[name] for name, taken in names.items() if taken is not None}

    def _learn(self, name: str) -> None:
        other = _OTHER_NAME.get(name)
        if self._taken.get(name, name) == name:
            how = f"is asked with {other}" if other else "is asked without it"
            _LOG.warning("The server at %s does not take %s: it %s from now on.", self._base_url, name, how)
        self._taken |= {name: other, other: other} if other else {name: None}

    def close(self) -> None:
        """Calls under way end with a `RequestFault`."""
        self._closed = True
        with self._lock:
            loop, self._loop, client, self._client = self._loop, None, self._client, None
        if loop is not None and client is not None:
            asyncio.run_coroutine_threadsafe(_end(client), loop).result(timeout=5)
            loop.call_soon_threadsafe(loop.stop)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._client = openai.AsyncOpenAI(
                    # the client wants a key; servers that need none ignore it
                    api_key=self._key or "none",
                    base_url=self._base_url,
                    max_retries=0,
                    timeout=openai.Timeout(self._timeout, connect=min(self._timeout, CONNECT_SECONDS)),
                    http_client=self._http_client(),
                )
                threading.Thread(target=self._loop.run_forever, name="judge-calls", daemon=True).start()
            return self._loop

    def _http_client(self) -> Any:
        # The client would make a transport for every proxy of the environment, also for those past which it asks.
        if self._proxy is not None:
            return openai.DefaultAsyncHttpxClient(proxy=self._proxy.address)
        return openai.DefaultAsyncHttpxClient(trust_env=False, verify=ssl.create_default_context())

    async def _post(self, body: Mapping[str, Any]) -> Completion:
        assert self._client is not None
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout):
                kind = self._client.completions if "prompt" in body else self._client.chat.completions
                raw = await kind.with_raw_response.create(**body)
                return _read(raw.content, dict(raw.headers))
        except (openai.OpenAIError, TimeoutError, ValidationError, json.JSONDecodeError, UnicodeDecodeError) as error:
            fault = fault_of(error, self._timeout, self._timeout_key)
            if _without_connection(error) and self._silence.heard_since(began):
                fault.kind = "transient"
            # plain completions have one name for their limit
            names = {*self._optional, *(() if "prompt" in body else _OTHER_NAME)} & body.keys()
            fault.refused = None if fault.about_group else _refused_field(error, names)
        except OSError as error:
            fault = RequestFault("transient", f"can't be reached ({error})")
        raise self._told(fault)

    def _told(self, fault: RequestFault) -> RequestFault:
        """The fault with the proxy on the way, which may be its cause, and without the key."""
        if self._proxy is not None and fault.kind != "limited":
            fault.reason += f", asked through the proxy {self._proxy}"
        if self._key:  # a server may repeat it in its answer
            fault.reason = fault.reason.replace(self._key, "[key]")
        fault.args = (fault.reason,)
        return fault


async def _end(client: openai.AsyncOpenAI) -> None:
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await client.close()


def _read(content: bytes, headers: Mapping[str, str]) -> Completion:
    """Raises `ValidationError` where it is no chat completion, `JSONDecodeError` where no choice has a message or a
    text, and `RequestFault` where the server broke it off: half an answer is none."""
    body = _Body.model_validate_json(content)
    if not body.choices:
        raise json.JSONDecodeError("no choices", "", 0)
    choice, usage = body.choices[0], _usage_of(body.usage)
    if choice.finish_reason in _BROKEN_OFF:
        raise RequestFault("transient", f"broke its answer off (finish_reason {choice.finish_reason})", sent=True)
    if choice.message is None and choice.text is None:
        raise json.JSONDecodeError("no message", "", 0)
    message = choice.message or _Message()
    return Completion(
        text=choice.text or message.text,
        refusal=message.refusal,
        finish_reason=choice.finish_reason or "",
        usage=usage,
        headers=headers,
        prompt_logprobs=choice.prompt_logprobs,
    )


def _usage_of(counts: Any) -> TokenUsage | None:
    """None where a count is missing, null or none: an answer is one without them, and unknown is not 0."""
    try:
        found = _Usage.model_validate(counts)
    except ValidationError:
        return None
    details = found.prompt_tokens_details
    cached = None if details is None else details.cached_tokens
    return TokenUsage(found.prompt_tokens, cached, found.completion_tokens)
