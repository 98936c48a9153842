"""The key of a server: from an environment variable or a file, never from the config, which is written down."""

from __future__ import annotations

import os
from pathlib import Path

from raypoly.config import JudgeConfig
from raypoly.errors import MissingKey, UsageError
from raypoly.judge.openai.token_cost import PUBLIC_URL

DEFAULT_ENV = "OPENAI_API_KEY"


def first_key(config: JudgeConfig) -> str:
    """The key of `judge.base_url`; empty where none was named and another server than OpenAI's is asked.

    Raises `MissingKey` where a key was named and is not there.
    """
    if config.api_key_env and config.api_key_file:
        raise UsageError("judge.api_key_env and judge.api_key_file are both given: drop one.")
    if config.api_key_file:
        return _from_file(config.api_key_file)
    return _from_environment(config.api_key_env, "judge.api_key_env", config.base_url or PUBLIC_URL)


def failover_key(config: JudgeConfig) -> str:
    """The key of `judge.failover_url`, likewise."""
    return _from_environment(config.failover_key_env, "judge.failover_key_env", config.failover_url or "")


def _from_environment(name: str | None, option: str, base_url: str) -> str:
    if name is None:
        # OpenAI's own variable is for OpenAI's own address: no other server is ever sent it unasked
        if base_url.rstrip("/") != PUBLIC_URL:
            return ""
        if key := os.environ.get(DEFAULT_ENV, "").strip():
            return key
        raise MissingKey(f"{DEFAULT_ENV} is not set: export it, or name another place by {option}.")
    key = os.environ.get(name, "").strip()
    if not key:
        raise MissingKey(f"{option}={name!r} is not set: export it, or drop the key.")
    return key


def _from_file(path: str) -> str:
    try:
        key = Path(path).expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise MissingKey(f"judge.api_key_file={path!r} can't be read: {reason}.") from None
    if not key or len(key.split()) != 1:
        raise MissingKey(f"judge.api_key_file={path!r} must hold the key and nothing else.")
    return key
