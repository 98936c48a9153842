"""Keys of an OpenAI-compatible server that is no run's judge, and checks of a server's address and key."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field

from raypoly.core.config import JudgeConfig, Section, resumable
from raypoly.core.errors import MissingKey, UsageError


class EndpointConfig(Section):
    """An OpenAI-compatible server, and how it may be asked."""

    url: str | None = resumable(None, description="Its address, such as http://127.0.0.1:8000/v1.")
    name: str | None = Field(None, description="The model's name there.")
    api_key_env: str | None = resumable(
        None,
        description="Environment variable that holds the server's key. Default at OpenAI's public address: "
        "OPENAI_API_KEY.",
    )
    timeout: float = resumable(600.0, gt=0, description="Most seconds for one response in all.")
    concurrency: int = resumable(64, ge=1, description="Most requests in flight; it adapts.")
    requests_per_minute: int | None = resumable(None, ge=1, description="Your own limit, on top of the server's.")
    tokens_per_minute: int | None = resumable(None, ge=1, description="Your own limit, on top of the server's.")
    max_pause: float | None = resumable(
        None,
        gt=0,
        description="Seconds of outage after which the command exits with 75. Default: wait without end.",
    )
    extra: dict[str, Any] = Field(
        default_factory=dict,
        description="Further fields of each request, such as {top_p: 0.95}. `seed: null` sends no seed.",
    )

    @property
    def extra_fields(self) -> dict[str, Any]:
        """`extra` as the client `openai` takes it, without what is null."""
        given = {name: value for name, value in self.extra.items() if value is not None}
        return {"extra_body": given} if given else {}

    def as_judge(self, temperature: float | None) -> JudgeConfig:
        """The same keys as a judge's, whose client asks."""
        return JudgeConfig(
            name="openai",
            base_url=self.url,
            model=self.name or "",
            api_key_env=self.api_key_env,
            temperature=temperature,
            timeout=self.timeout,
            concurrency=self.concurrency,
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
        )


def refuse_login(option: str, url: str | None, key: str) -> None:
    """Raise `UsageError` where an address holds a name or a password. `option` and `key`: the options for the address
    and for the variable that holds the key."""
    if "@" in re.split(r"[/?#]", (url or "").partition("://")[2] or url or "", maxsplit=1)[0]:
        raise UsageError(
            f"{option} has a name or a password in its address, which messages would show: take it out, and name "
            f"the environment variable that holds the key by {key}."
        )


def checked_key(key: str, place: str) -> str:
    """The key, if a header can carry it; `place`: where it was found. Raises `MissingKey`, which does not show it."""
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise MissingKey(f"{place} holds characters that no key has: copy the whole key again.")
    return key
