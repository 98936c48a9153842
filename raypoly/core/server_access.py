"""What is checked of a server's address and key, before anything is sent to it or said about it."""

from __future__ import annotations

import re

from raypoly.core.errors import MissingKey, UsageError


def refuse_login(option: str, url: str | None, key: str) -> None:
    """Raise `UsageError` where an address holds a name or a password. `option` names the address, and `key` is the
    option that names the variable of the server's key instead."""
    if "@" in re.split(r"[/?#]", (url or "").partition("://")[2] or url or "", maxsplit=1)[0]:
        raise UsageError(
            f"{option} has a name or a password in its address, which messages would show: take it out, and name "
            f"the environment variable that holds the key by {key}."
        )


def checked_key(key: str, place: str) -> str:
    """The key, if a request's header can carry it. `place` is where it was found.

    Raises `MissingKey`, which does not show it.
    """
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise MissingKey(f"{place} holds characters that no key has: copy the whole key again.")
    return key
