"""The keys of an OpenAI-compatible server that is asked for samples, methods or verdicts, and is no run's judge."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from raypoly.core.config import JudgeConfig, Section, resumable


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
        """The same in the words of a judge that is a server, whose client asks: limits, deadline, and where its key
        is."""
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
