"""What can go wrong with one request, by what can be done about it.

    fault = fault_of(error)            # an exception of the openai package, or a timeout
    fault.kind                         # "transient": ask again; "limited": wait, then ask again; "closed": asking again
                                       # is no use until somebody acts; "request": the server will never take this one

A fault keeps the answer's words and headers only: the exception holds the request, whose headers hold the key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import openai

Kind = Literal["transient", "limited", "closed", "request"]

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
_WORDS = 300


class RequestFault(Exception):
    """One request that was not served."""

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
        """Whether it took the whole time that a call may take."""
        self.sent = sent
        """Whether the server may have worked on it, and charge for it, without saying what."""
        self.about_group = kind == "request" and any(word in reason.lower() for word in _THIS_GROUP)
        """Whether another group might well be served."""


@dataclass(frozen=True)
class _Answered:
    """An answer that is an error."""

    status: int
    headers: Mapping[str, str]
    words: str
    """The server's own message and code, cut."""
    codes: tuple[str, ...] = field(default=())


def fault_of(error: Exception, timeout: float) -> RequestFault:
    """The fault that an exception of a call stands for."""
    if isinstance(error, (TimeoutError, openai.APITimeoutError)):
        return RequestFault(
            "transient", f"gave no whole answer within judge.timeout={timeout:g} s", slow=True, sent=True
        )
    if isinstance(error, openai.APIStatusError):
        return _of_status(_answered(error))
    if isinstance(error, openai.APIConnectionError):
        return RequestFault("transient", f"can't be reached ({_root(error)})", sent=_connected(error))
    return RequestFault(
        "transient", f"answered with something that is no chat completion ({type(error).__name__})", sent=True
    )


def _of_status(it: _Answered) -> RequestFault:
    said = f" ({it.words})" if it.words else ""
    headers, status = it.headers, it.status
    if it.status == 429 and any(code in it.codes for code in _NO_QUOTA):
        return RequestFault(
            "closed",
            "has no quota left for this key (insufficient_quota): asking again is no use",
            headers,
            status=status,
        )
    if it.status == 429:
        return RequestFault(
            "limited", f"says that there were too many requests (HTTP 429){said}", headers, status=status
        )
    if it.status in _CLOSED:
        # its words may repeat a part of the key
        return RequestFault("closed", f"{_CLOSED[it.status]} (HTTP {it.status})", headers, status=status)
    if it.status in _TRANSIENT or it.status >= 500:
        return RequestFault("transient", f"is not serving (HTTP {it.status}){said}", headers, status=status)
    return RequestFault("request", f"will not take the request (HTTP {it.status}){said}", headers, status=status)


def _answered(error: openai.APIStatusError) -> _Answered:
    body: Any = error.body
    inner = body.get("error", body) if isinstance(body, dict) else {}
    inner = inner if isinstance(inner, dict) else {"message": inner}
    codes = tuple(str(inner[name]) for name in ("code", "type") if inner.get(name) is not None)
    # FastAPI's own errors have a `detail`, and vLLM repeats the status as the code
    said = inner.get("message") or inner.get("detail") or ""
    words = " ".join(str(part) for part in (said, *codes[:1]) if part and str(part) != str(error.status_code))
    return _Answered(error.status_code, dict(error.response.headers), " ".join(words.split())[:_WORDS], codes)


def _root(error: BaseException) -> str:
    """The innermost cause in words: `Connection refused`, `Name or service not known`, `certificate verify failed`."""
    last = list(_causes(error))[-1]
    words = " ".join(str(last).split()) or type(last).__name__
    return words[:_WORDS]


def _connected(error: BaseException) -> bool:
    """Whether the connection broke only after it had been made."""
    return not any(type(cause).__name__.startswith("Connect") for cause in _causes(error.__cause__))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
