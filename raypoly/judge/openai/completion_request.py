"""One request to an OpenAI-compatible server, with a deadline for the whole of it.

    client = CompletionClient("http://127.0.0.1:8000/v1", key="", timeout=120)
    completion = client.post({"model": "m", "messages": [...]})         # raises `RequestFault`

Requests run on an event loop in a thread of their own, so that even a server that drips its answer byte by byte is
cut off in time. `post` may be called from any number of threads.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import openai
from pydantic import BaseModel, ConfigDict, ValidationError

from raypoly.judge.openai.request_faults import RequestFault, fault_of
from raypoly.judge.openai.token_cost import TokenUsage


@dataclass(frozen=True)
class Completion:
    """The server's answer."""

    text: str
    refusal: str | None
    finish_reason: str
    usage: TokenUsage | None
    """None where the server does not count."""
    headers: Mapping[str, str]


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Details(BaseModel):
    cached_tokens: int | None = None


class _Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore")
    choices: list[_Choice]
    usage: _Usage | None = None


class CompletionClient:
    """The connections to one server."""

    def __init__(self, base_url: str, key: str, timeout: float) -> None:
        self._base_url, self._key, self._timeout = base_url, key, timeout
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: openai.AsyncOpenAI | None = None

    def __repr__(self) -> str:
        return f"Wire({self._base_url})"

    def post(self, body: Mapping[str, Any]) -> Completion:
        """The server's answer to a chat completion. Raises `RequestFault`."""
        future = asyncio.run_coroutine_threadsafe(self._post(body), self._running())
        try:
            return future.result()
        finally:
            future.cancel()

    def close(self) -> None:
        """Let go of the connections and the thread."""
        with self._lock:
            loop, self._loop, client, self._client = self._loop, None, self._client, None
        if loop is not None and client is not None:
            asyncio.run_coroutine_threadsafe(client.close(), loop).result(timeout=5)
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
                    timeout=self._timeout,
                )
                threading.Thread(target=self._loop.run_forever, name="judge-calls", daemon=True).start()
            return self._loop

    async def _post(self, body: Mapping[str, Any]) -> Completion:
        assert self._client is not None
        try:
            async with asyncio.timeout(self._timeout):
                raw = await self._client.chat.completions.with_raw_response.create(**body)
                return _read(raw.content, dict(raw.headers))
        except (openai.OpenAIError, TimeoutError, ValidationError, json.JSONDecodeError, UnicodeDecodeError) as error:
            fault = fault_of(error, self._timeout)
        except OSError as error:
            fault = RequestFault("transient", f"can't be reached ({error})")
        raise self._remove_key(fault)

    def _remove_key(self, fault: RequestFault) -> RequestFault:
        """The fault without the key, which a server may repeat. Raise it bare: a cause holds the request's headers."""
        if self._key and self._key in fault.reason:
            fault.reason = fault.reason.replace(self._key, "[key]")
            fault.args = (fault.reason,)
        return fault


def _read(content: bytes, headers: Mapping[str, str]) -> Completion:
    """Raises `ValidationError` where it is no chat completion with at least one choice."""
    body = _Body.model_validate_json(content)
    if not body.choices:
        raise json.JSONDecodeError("no choices", "", 0)
    choice, usage = body.choices[0], body.usage
    details = usage.prompt_tokens_details if usage is not None else None
    cached = None if details is None else details.cached_tokens
    return Completion(
        text=choice.message.content or "",
        refusal=choice.message.refusal,
        finish_reason=choice.finish_reason or "",
        usage=None if usage is None else TokenUsage(usage.prompt_tokens, cached, usage.completion_tokens),
        headers=headers,
    )
