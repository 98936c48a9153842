"""Object stores (S3, Google Cloud Storage, Azure Blob Storage) through obstore, one request a method.

Credentials and endpoints are found where users of the providers' tools keep them. For S3 these are the environment
(AWS_ACCESS_KEY_ID ..., AWS_REGION, AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_S3), a profile or the shared credentials file
(through boto3, if there is such a file), web identity, and container and instance roles.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
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
from raypoly.run.store.backend import PART, Backend, BackendFailure, Missing, NoCondition
from raypoly.run.store.location import Location

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
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")


class ObjectBackend(Backend):
    """One bucket and prefix of an object store."""

    def __init__(self, location: Location, timeout: float) -> None:
        self._location, self._family, self._timeout = location, location.family, timeout
        self._client = _open_client(location, timeout)
        # The library repeats a part that fails; otherwise the whole upload would start again.
        self._uploader = _open_client(location, timeout, _PART_RETRIES)

    def create(self, key: str, data: bytes) -> bool:
        try:
            with self._explained():
                self._client.put(key, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    def put(self, key: str, data: bytes) -> None:
        with self._explained():
            self._client.put(key, data, use_multipart=False)

    def upload(self, key: str, parts: Iterable[bytes]) -> None:
        try:
            with self._explained():
                self._uploader.put(key, iter(parts), chunk_size=PART, max_concurrency=_UPLOADS_AT_ONCE)
        except Missing as error:  # a repeated request may find that the upload is over: start again
            raise BackendFailure("the server no longer knew of the upload") from error

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        with self._explained():
            if end is not None:
                return bytes(self._client.get_range(key, start=start, end=end))
            return bytes(self._client.get(key).bytes())

    def size(self, key: str) -> int | None:
        try:
            with self._explained():
                return self._client.head(key)["size"]
        except Missing:
            return None

    def list_below(self, folder: str) -> Iterator[tuple[str, int]]:
        with self._explained():
            for chunk in self._client.list(folder or None, chunk_size=1000):
                yield from ((meta["path"], meta["size"]) for meta in chunk)

    def list_top(self) -> Iterator[str]:
        with self._explained():
            found = self._client.list_with_delimiter()
            yield from (meta["path"] for meta in found["objects"])
            yield from (prefix.rstrip("/") for prefix in found["common_prefixes"])

    def delete(self, key: str) -> None:
        try:
            with self._explained():
                self._client.delete(key)
        except Missing:
            return

    def copy(self, key: str, target: str) -> None:
        with self._explained():
            self._client.copy(key, target)

    def with_timeout(self, timeout: float) -> ObjectBackend:
        other = ObjectBackend(self._location, timeout)
        other.conditional = self.conditional
        return other

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except AlreadyExistsError:
            raise
        except (FileNotFoundError, NotFoundError) as error:
            if any(word in str(error) for word in _NO_BUCKET):
                raise _explain_error(error, self._family, self._timeout) from error
            raise Missing from error
        except BaseError as error:
            if _lacks_conditional_writes(error):
                raise NoCondition("the server answered that it is not implemented") from error
            raise _explain_error(error, self._family, self._timeout) from error
        except OSError as error:
            raise BackendFailure(str(error)[:200]) from error


def _open_client(location: Location, timeout: float, retries: int = 0) -> S3Store | GCSStore | AzureStore:
    """A client whose requests fail after `timeout` seconds. Raises `UsageError` for a bad location."""
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
            "connect_timeout": timedelta(seconds=min(timeout, 10)),
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
    """Whether the user keeps credentials where boto3 looks for them."""
    if os.environ.get("AWS_PROFILE"):
        return True
    if os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE") or os.environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        return False
    file = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    return Path(file).expanduser().is_file()


def _from_profile() -> dict[str, Any]:
    """Credentials, region and endpoint of the user's profile, as boto3 reads them."""
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


def _explain_error(error: Exception, family: str, timeout: float) -> BackendFailure:
    """obstore's `error` as one sentence, and whether the request may succeed later. `family`: `s3`, `gs` or `az`."""
    text = " ".join(str(error).split())
    message = text.partition(" Debug source:")[0]
    status = _STATUS.search(message)
    asked_a_machine = "169.254." in message or "metadata.google" in message or "token request" in message
    if isinstance(error, UnauthenticatedError) or asked_a_machine or "MissingAccessKeyId" in message:
        # The machine that gives credentials may just be slow.
        silent = "HTTP error" in message and (status is None or status[1].startswith("5"))
        return BackendFailure("no valid credentials were found", _CREDENTIALS[family], transient=silent)
    if status is None:
        return _unanswered(text, message, timeout)
    code = _CODE.search(message)
    if code and code[1] in _SENTENCES:
        return BackendFailure(*_SENTENCES[code[1]], transient=False)
    answer = f"the server answered {status[1]} {code[1] if code else status[2]}".strip()
    if status[1] in ("401", "403"):
        hint = f"check the credentials, and {_RIGHTS}" if isinstance(error, PermissionDeniedError) else ""
        return BackendFailure(answer, hint or _CREDENTIALS[family], transient=False)
    if status[1].startswith("3"):
        return BackendFailure(*_SENTENCES["PermanentRedirect"], transient=False)
    later = status[1].startswith("5") or status[1] in _LATER
    return BackendFailure(answer, "" if later else "check run.dir and its options", transient=later)


def _lacks_conditional_writes(error: Exception) -> bool:
    """Whether the error says that the store has no conditional writes."""
    text = str(error)
    return isinstance(error, NotSupportedError) or "status code: 501" in text or "<Code>NotImplemented</Code>" in text


def _unanswered(text: str, message: str, timeout: float) -> BackendFailure:
    """The failure of a request that reached no server, or got no complete answer."""
    url = _URL.search(message)
    host = urlsplit(url[1]).netloc if url else "the server"
    if "kind: Timeout" in text or "TimedOut" in text:
        return BackendFailure(f"{host} did not answer within {timeout:g} s")
    if "dns error" in text:
        return BackendFailure(f"the host {host} is not known")
    if "ConnectionRefused" in text:
        return BackendFailure(f"nothing answers at {host}")
    if "InvalidContentType" in text or "BadScheme" in text:
        return BackendFailure(
            f"{host} does not speak the scheme of run.dir", "write scheme=http or https", transient=False
        )
    if "HTTP error" in message or "body error" in message:
        return BackendFailure(f"the connection to {host} broke")
    return BackendFailure(message[:200], "check run.dir and its options", transient=False)
