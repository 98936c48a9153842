"""The store on object stores (S3, Google Cloud Storage, Azure Blob Storage) through obstore.

Credentials and endpoints are found where the providers' tools find them; a profile or the shared credentials file of
AWS is read through boto3.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, S3Store

from raypoly.core.errors import UsageError
from raypoly.run.store.location import Location, StorageOptions
from raypoly.run.store.store import NO_CONDITION, PART, USE_OTHER, Content, RequestFailed, Store, in_parts, size_of

_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run where a role gives them",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or run where a service account gives them",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or run where an identity gives them",
}
_RIGHTS = "allow reading, writing, listing and deleting below this prefix"
_STATUS = re.compile(r"status code: (\d{3}) ?([\w ]*)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_URL = re.compile(r"Error performing \w+ (\S+) in ")
_LATER = {"408", "409", "429"}
_SENTENCES = {
    "NoSuchBucket": ("the bucket does not exist", "create it, or correct run.dir"),
    "ContainerNotFound": ("the container does not exist", "create it, or correct run.dir"),
    "AccessDenied": ("the credentials may not do that", _RIGHTS),
    "ExpiredToken": ("the credentials have expired", "renew them"),
    "InvalidAccessKeyId": ("the credentials are not known", "correct them"),
    "SignatureDoesNotMatch": ("the secret key is wrong", "correct it"),
    "RequestTimeTooSkewed": ("this machine's clock is wrong", "set it"),
    "PermanentRedirect": ("the bucket is in another region", "add region=... to run.dir, or set AWS_REGION"),
    "AuthorizationHeaderMalformed": ("the region is not the bucket's", "add region=... to run.dir, or set AWS_REGION"),
}
_UPLOADS_AT_ONCE = 4
_PART_RETRIES = 5
_CONNECT_SECONDS = 10.0
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")


class ObjectStore(Store):
    """Objects of one bucket and prefix."""

    one_request = 2 * PART

    def __init__(self, location: Location, options: StorageOptions) -> None:
        """Sends no request. Raises `UsageError` for a bad location."""
        super().__init__(location, options.workspace(location), options)
        self._connect()

    def with_options(self, options: StorageOptions) -> Self:
        other = super().with_options(options)
        other._connect()
        return other

    def _connect(self) -> None:
        self._client = _open_client(self.location, self.options.timeout)
        # The library repeats a part that fails; otherwise the whole upload would start again.
        self._uploader = _open_client(self.location, self.options.timeout, _PART_RETRIES)

    def _create(self, key: str, content: bytes | Path) -> bool:
        data = content.read_bytes() if isinstance(content, Path) else content
        try:
            with self._explained():
                self._client.put(key, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    def _put(self, key: str, content: Content) -> None:
        if size_of(content) <= self.one_request:
            data = b"".join(in_parts(content))
            with self._explained():
                self._client.put(key, data, use_multipart=False)
            return
        try:
            with self._explained():
                self._uploader.put(key, in_parts(content), chunk_size=PART, max_concurrency=_UPLOADS_AT_ONCE)
        except FileNotFoundError as error:  # a repeated request may find that the upload is over: start again
            raise RequestFailed("the server no longer knew of the upload") from error

    def _get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        with self._explained():
            if end is not None:
                return bytes(self._client.get_range(key, start=start, end=end))
            return bytes(self._client.get(key).bytes())

    def _size(self, key: str) -> int | None:
        with contextlib.suppress(FileNotFoundError), self._explained():
            return self._client.head(key)["size"]
        return None

    def _keys(self, folder: str) -> Iterator[str]:
        with self._explained():
            for chunk in self._client.list(folder or None, chunk_size=1000):
                yield from (meta["path"] for meta in chunk)

    def _names(self) -> Iterator[str]:
        with self._explained():
            found = self._client.list_with_delimiter()
            yield from (meta["path"] for meta in found["objects"])
            yield from (prefix.rstrip("/") for prefix in found["common_prefixes"])

    def _delete(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._explained():
            self._client.delete(key)

    def _copy(self, key: str, target: str) -> None:
        with self._explained():
            self._client.copy(key, target)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        family, timeout = self.location.family, self.options.timeout
        try:
            yield
        except AlreadyExistsError:
            raise
        except (FileNotFoundError, NotFoundError) as error:
            if any(word in str(error) for word in _NO_BUCKET):
                raise _explain_error(error, family, timeout) from error
            raise FileNotFoundError from error
        except BaseError as error:
            raise _explain_error(error, family, timeout) from error
        except OSError as error:
            raise RequestFailed(str(error)[:200]) from error


def _open_client(location: Location, timeout: float, retries: int = 0) -> S3Store | GCSStore | AzureStore:
    options = dict(location.options)
    endpoint = options.get("endpoint_override") or None
    if endpoint and "://" not in endpoint:
        endpoint = f"{options.get('scheme', 'https')}://{endpoint}"
    common: dict[str, Any] = {
        "prefix": location.path or None,
        "retry_config": {
            "max_retries": retries,
            "retry_timeout": timedelta(seconds=2 * timeout),
            "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=5), "base": 2},
        },
        # Plain http only where the endpoint's own scheme says so; providers' own endpoints are https.
        "client_options": {
            "timeout": timedelta(seconds=timeout),
            "connect_timeout": timedelta(seconds=min(timeout, _CONNECT_SECONDS)),
            "allow_http": True,
        },
    }
    try:
        if location.family == "s3":
            return _s3(location.place, endpoint, options, common)
        if location.family == "gs":
            base: dict[str, Any] = {"base_url": endpoint} if endpoint else {}
            return GCSStore(location.place, **base, **common)
        return _azure(location, endpoint, options, common)
    except UsageError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()).partition(" Debug source:")[0][:200]
        raise UsageError(
            f"run.dir={location.plain} can't be opened ({reason}); {_CREDENTIALS[location.family]}."
        ) from error


def _s3(bucket: str, endpoint: str | None, options: dict[str, str], common: dict[str, Any]) -> S3Store:
    given: dict[str, Any] = {"disable_bulk_delete": True}  # not every S3 has it; objects are deleted one by one
    if not os.environ.get("AWS_ACCESS_KEY_ID") and _has_profile():
        given |= _from_profile()
    if endpoint:
        given["aws_endpoint_url_s3"] = endpoint
    if region := options.get("region"):
        given["region"] = region
    if "force_virtual_addressing" in options:
        given["virtual_hosted_style_request"] = options["force_virtual_addressing"].lower() == "true"
    return S3Store(bucket, **given, **common)


def _azure(location: Location, endpoint: str | None, options: dict[str, str], common: dict[str, Any]) -> AzureStore:
    container, _, host = location.place.partition("@")
    given: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
    if account := options.get("account") or host.partition(".")[0]:
        given["account_name"] = account
    return AzureStore(container, **given, **common)


def _has_profile() -> bool:
    if os.environ.get("AWS_PROFILE"):
        return True
    if os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE") or os.environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        return False
    file = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    return Path(file).expanduser().is_file()


def _from_profile() -> dict[str, Any]:
    if importlib.util.find_spec("boto3") is None:
        raise UsageError("AWS_PROFILE and ~/.aws need the package boto3: pip install boto3, or set AWS_ACCESS_KEY_ID.")
    from botocore.session import get_session
    from obstore.auth.boto3 import Boto3CredentialProvider

    session = get_session()
    given: dict[str, Any] = {"credential_provider": Boto3CredentialProvider(session)}
    if region := session.get_config_variable("region"):
        given["region"] = region
    in_environment = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint := in_environment or session.get_scoped_config().get("endpoint_url"):
        given["aws_endpoint_url_s3"] = endpoint
    return given


def _explain_error(error: Exception, family: str, timeout: float) -> RequestFailed:
    """obstore's `error` as one sentence, and whether the request may succeed later. `family`: `s3`, `gs` or `az`."""
    text = " ".join(str(error).split())
    message = text.partition(" Debug source:")[0]
    status = _STATUS.search(message)
    if isinstance(error, NotSupportedError) or "status code: 501" in text or "<Code>NotImplemented</Code>" in text:
        return RequestFailed(NO_CONDITION, USE_OTHER, transient=False)
    asked_a_machine = "169.254." in message or "metadata.google" in message or "token request" in message
    if isinstance(error, UnauthenticatedError) or asked_a_machine or "MissingAccessKeyId" in message:
        # The machine that gives credentials may just be slow.
        silent = "HTTP error" in message and (status is None or status[1].startswith("5"))
        return RequestFailed("no valid credentials were found", _CREDENTIALS[family], transient=silent)
    if status is None:
        return _unanswered(text, message, timeout)
    code = _CODE.search(message)
    if code and code[1] in _SENTENCES:
        return RequestFailed(*_SENTENCES[code[1]], transient=False)
    answer = f"the server answered {status[1]} {code[1] if code else status[2]}".strip()
    if status[1] in ("401", "403"):
        hint = f"check the credentials, and {_RIGHTS}" if isinstance(error, PermissionDeniedError) else ""
        return RequestFailed(answer, hint or _CREDENTIALS[family], transient=False)
    if status[1].startswith("3"):
        return RequestFailed(*_SENTENCES["PermanentRedirect"], transient=False)
    later = status[1].startswith("5") or status[1] in _LATER
    return RequestFailed(answer, "" if later else "check run.dir and its options", transient=later)


def _unanswered(text: str, message: str, timeout: float) -> RequestFailed:
    """The failure of a request that reached no server, or got no complete answer."""
    url = _URL.search(message)
    host = urlsplit(url[1]).netloc if url else "the server"
    if "kind: Timeout" in text or "TimedOut" in text:
        timeout = min(timeout, _CONNECT_SECONDS) if "ConnectError(" in text else timeout
        return RequestFailed(f"{host} did not answer within {timeout:g} s")
    if "dns error" in text:
        return RequestFailed(f"the host {host} is not known")
    if "ConnectionRefused" in text:
        return RequestFailed(f"nothing answers at {host}")
    if "InvalidContentType" in text or "BadScheme" in text:
        return RequestFailed(
            f"{host} does not speak the scheme of run.dir", "write scheme=http or https", transient=False
        )
    if "HTTP error" in message or "body error" in message:
        return RequestFailed(f"the connection to {host} broke")
    return RequestFailed(message[:200], "check run.dir and its options", transient=False)
