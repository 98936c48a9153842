"""Keys of a judge's servers: where the config says that they are, and which variables may hold them."""

from __future__ import annotations

import os
from pathlib import Path

from raypoly.core.config import JudgeConfig
from raypoly.core.endpoint_config import check_address, checked_key
from raypoly.core.errors import MissingKey, UsageError

PUBLIC_URL = "https://api.openai.com/v1"
_PUBLIC_VARIABLE = "OPENAI_API_KEY"


def asks_openai(config: JudgeConfig) -> bool:
    """Whether the judge is, or asks among others, the one named `openai`."""
    return "openai" in asked_judges(config)


def asked_judges(config: JudgeConfig) -> list[str]:
    """Names of the judges that are asked: an ensemble's members, or the one."""
    return config.members if config.name == "ensemble" else [config.name]


def key_variable_names(config: JudgeConfig) -> list[str]:
    first = not (config.api_key_env or config.api_key_file)
    second = config.failover_url is not None and config.failover_key_env is None
    default = _PUBLIC_VARIABLE if asks_openai(config) and (first or second) else None
    named = dict.fromkeys([config.api_key_env, config.failover_key_env, default])
    return [name for name in named if name]


def check_addresses(config: JudgeConfig) -> None:
    """Raise `UsageError` where an address of the judge's servers can't be asked, or may not get their key."""
    key, second = "judge.api_key_env", "judge.failover_key_env"
    if config.url is not None or "http" in asked_judges(config):
        check_address("judge.url", config.url, key, config.api_key_env is not None, socks=False)
    if config.base_url is not None or asks_openai(config):
        keyed = bool(config.api_key_env or config.api_key_file)
        check_address("judge.base_url", config.base_url or PUBLIC_URL, key, keyed)
    if config.failover_url is not None:
        check_address("judge.failover_url", config.failover_url, second, config.failover_key_env is not None)


def read_first_key(config: JudgeConfig, option: str = "judge.api_key_env") -> str:
    """The key of `judge.base_url`; empty where none was named and another server than OpenAI's is asked.

    Raises `MissingKey` where a key was named and is not there.
    """
    if config.api_key_env and config.api_key_file:
        raise UsageError("judge.api_key_env and judge.api_key_file are both given: drop one.")
    if config.api_key_file:
        return _key_from_file(config.api_key_file)
    return read_key(config.api_key_env, option, config.base_url or PUBLIC_URL)


def read_failover_key(config: JudgeConfig) -> str:
    return read_key(config.failover_key_env, "judge.failover_key_env", config.failover_url or "")


def read_key(name: str | None, option: str, base_url: str) -> str:
    """The key in the variable `name`, which `option` names. Raises `MissingKey`."""
    if name is None:
        # OpenAI's own variable is for OpenAI's own address: no other server is ever sent it unasked
        if base_url.rstrip("/") != PUBLIC_URL:
            return ""
        if key := os.environ.get(_PUBLIC_VARIABLE, "").strip():
            return checked_key(key, _PUBLIC_VARIABLE)
        raise MissingKey(f"{_PUBLIC_VARIABLE} is not set: export it, or name another place by {option}.")
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
