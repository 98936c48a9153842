"""Keys of an OpenAI-compatible server that is no run's judge, and checks of a server's address and key."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

from pydantic import Field

from raypoly.core.config import JudgeConfig, Section, resumable
from raypoly.core.errors import MissingKey, UsageError

_PRIVATE_NAMES = (".internal", ".lan", ".local", ".home.arpa")


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


@dataclass(frozen=True)
class Proxy:
    """What the environment puts between this machine and a server."""

    variable: str
    address: str

    def __str__(self) -> str:
        scheme, _, place = self.address.partition("://")
        return f"{self.variable}={scheme}://{place.rpartition('@')[2]}"


def proxy_of(url: str) -> Proxy | None:
    """The proxy on the way to an address; none for this machine's own (loopback), which no proxy elsewhere reaches."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if _is_loopback(host) or proxy_bypass(parts.netloc):
        return None
    names = (f"{parts.scheme}_proxy", "all_proxy")
    for variable in (spelled for name in names for spelled in (name, name.upper())):
        if place := os.environ.get(variable, "").strip():
            return Proxy(variable, place if "://" in place else f"http://{place}")
    return None


def check_address(option: str, url: str | None, key: str, keyed: bool, socks: bool = True) -> None:
    """Raise `UsageError` for an address that holds a name or a password, that can't be asked, or to which a key would
    go readable for anybody.

    `option` and `key`: the options for the address and for the variable that holds the key. `keyed`: there is a key.
    `socks`: the client can use such a proxy.
    """
    url = url or "null"
    if "@" in re.split(r"[/?#]", url.partition("://")[2] or url, maxsplit=1)[0]:
        raise UsageError(
            f"{option} has a name or a password in its address, which messages would show: take it out, and name "
            f"the environment variable that holds the key by {key}."
        )
    if not _is_web_address(url):
        shown = url if url.isprintable() else repr(url)
        raise UsageError(f"{option}={shown} is no http(s) address with a host, as http://127.0.0.1:8000/v1 is.")
    parts = urlsplit(url)
    if keyed and parts.scheme == "http" and not _is_private(parts.hostname or ""):
        raise UsageError(
            f"{option}={url} would get the key in clear text: give its https address, reach it by a tunnel (ssh -L) "
            f"at 127.0.0.1, or drop {key}. Over http a key is sent within a private network alone."
        )
    proxy = proxy_of(url)
    kind = "http" if proxy is None else proxy.address.partition("://")[0].lower()
    able = socks and kind in ("socks5", "socks5h")
    if not (kind in ("http", "https") or (able and find_spec("socksio"))):
        way = "install socksio (pip install socksio)" if able else "use an http proxy"
        raise UsageError(
            f"{option}={url} can't be asked through the proxy {proxy}: {way}, unset the variable, or name the host in "
            "NO_PROXY."
        )


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none, half an IPv6 address
        return False
    return named and parts.scheme in ("http", "https") and url.isprintable() and " " not in url


def _is_loopback(host: str) -> bool:
    try:
        found = ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return found.is_loopback or found.is_unspecified


def _is_private(host: str) -> bool:
    # A name that can't be looked up is private only if it is of a form that the internet does not have.
    if host.endswith(_PRIVATE_NAMES) or _is_loopback(host):
        return True
    try:
        found = [ip_address(str(entry[4][0])) for entry in socket.getaddrinfo(host, None)]
    except (OSError, UnicodeError):
        return "." not in host
    return not any((getattr(address, "ipv4_mapped", None) or address).is_global for address in found)


def checked_key(key: str, place: str) -> str:
    """The key, if a header can carry it; `place`: where it was found. Raises `MissingKey`, which does not show it."""
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise MissingKey(f"{place} holds characters that no key has: copy the whole key again.")
    return key
