"""Location of a run (a folder, or a prefix in remote storage), and the options under which it is reached.

Location.parse("~/runs/a"), Location.parse("s3://bucket/runs/a?region=eu-west-1&endpoint_override=http://127.0.0.1:9000")

A location never holds a secret: it is printed, logged and kept.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from raypoly.core.caches import cache_root
from raypoly.core.errors import UsageError

_FAMILIES = {"s3": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
_OPTIONS = {
    "s3": ("region", "scheme", "endpoint_override", "force_virtual_addressing"),
    "gs": ("scheme", "endpoint_override"),
    "az": ("account", "endpoint_override", "scheme"),
}
"""The options that may follow the `?`, by family."""
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}


@dataclass(frozen=True)
class Location:
    scheme: str
    """`file` for a folder of this machine."""
    place: str
    """Bucket or container; empty for a folder."""
    path: str
    """An absolute path, or the prefix within the bucket, without a slash at either end."""
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str | Path) -> Location:
        """Raises `UsageError` if no run can be there, and for credentials inside a URI."""
        scheme, found, rest = str(text).partition("://")
        if not found:
            return cls("file", "", str(Path(text).expanduser().absolute()))
        if not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9+.-]*", scheme):
            raise UsageError("run.dir is neither a folder's path nor a URI like s3://bucket/prefix.")
        if scheme == "file":
            return cls("file", "", str(Path(rest).expanduser().absolute()))
        return cls._remote(scheme.lower(), str(text))

    @classmethod
    def _remote(cls, scheme: str, text: str) -> Location:
        parts = urlsplit(text)
        family = _FAMILIES.get(scheme)
        user, _, place = parts.netloc.rpartition("@")
        if family is None:
            raise UsageError(
                f"run.dir={scheme}://{place}{parts.path} is in no storage that raypoly knows: "
                "give a folder's path, or s3://, gs:// or az://bucket/prefix."
            )
        if user and (scheme not in ("abfs", "abfss") or ":" in user):
            raise UsageError(
                f"run.dir={scheme}://...@{place}{parts.path} holds credentials, which would be printed and kept with "
                f"the run: leave them out and give them by {_CREDENTIALS[family]}."
            )
        if not place:
            raise UsageError(f"run.dir={scheme}://{parts.path} names no bucket: write {scheme}://bucket/prefix.")
        options = tuple(sorted(parse_qsl(parts.query, keep_blank_values=True)))
        unknown = [key for key, _ in options if key not in _OPTIONS[family]]
        if unknown:
            raise UsageError(
                f"run.dir={scheme}://{place}{parts.path} has the option {unknown[0]!r}; known: "
                f"{', '.join(_OPTIONS[family])}. Credentials are given by {_CREDENTIALS[family]}."
            )
        if "//" in parts.path or {".", ".."} & set(parts.path.split("/")):
            raise UsageError(
                f"run.dir={scheme}://{place}{parts.path} has an empty part, `.` or `..`: write it plainly."
            )
        return cls(scheme, parts.netloc, parts.path.strip("/"), options)

    @property
    def family(self) -> str:
        """`s3`, `gs` or `az`."""
        return _FAMILIES[self.scheme]

    @property
    def folder(self) -> Path | None:
        """The folder on this machine; None for remote storage."""
        return Path(self.path) if self.scheme == "file" else None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2] or self.place

    @property
    def plain(self) -> str:
        return self.path if self.scheme == "file" else f"{self.scheme}://{self.place}/{self.path}".rstrip("/")

    def __str__(self) -> str:
        return self.plain + (f"?{urlencode(self.options, safe=':/')}" if self.options else "")

    def child(self, name: str) -> Location:
        return replace(self, path=f"{self.path}/{name}".lstrip("/") if self.place else f"{self.path}/{name}")

    def sibling(self, name: str) -> Location:
        parent, slash, _ = self.path.rpartition("/")
        return replace(self, path=f"{parent}{slash}{name}")


@dataclass(frozen=True)
class StorageOptions:
    """`run.storage_timeout`, `run.storage_patience` and `run.scratch`."""

    timeout: float = 30.0
    """Seconds after which a request without an answer has failed."""
    patience: float = 300.0
    """Seconds over which a failing request is repeated."""
    scratch: Path | None = None
    """The folder for copies that must be files; None for `scratch/` in the user's cache. It may be deleted."""

    def workspace(self, location: Location) -> Path:
        """A run's folder in the scratch, named like the run."""
        root = self.scratch or cache_root() / "scratch"
        return root / hashlib.sha256(str(location).encode()).hexdigest()[:12] / location.name
