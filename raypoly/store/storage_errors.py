"""What an object store's error means: one sentence for a person, and whether the same request may succeed later."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from obstore.exceptions import NotSupportedError, PermissionDeniedError, UnauthenticatedError

from raypoly.store.backend import BackendFailure

CREDENTIALS = {
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


def explain_error(error: Exception, family: str, timeout: float) -> BackendFailure:
    """`error` of obstore's as a `BackendFailure`; `family` is `s3`, `gs` or `az`."""
    text = " ".join(str(error).split())
    message = text.partition(" Debug source:")[0]
    status = _STATUS.search(message)
    if _lacks_credentials(error, message):
        # A machine that gives credentials may be slow for once.
        silent = "HTTP error" in message and (status is None or status[1].startswith("5"))
        return BackendFailure("no valid credentials were found", CREDENTIALS[family], transient=silent)
    if status is None:
        return _unanswered(text, message, timeout)
    code = _CODE.search(message)
    if code and code[1] in _SENTENCES:
        return BackendFailure(*_SENTENCES[code[1]], transient=False)
    answer = f"the server answered {status[1]} {code[1] if code else status[2]}".strip()
    if status[1] in ("401", "403"):
        hint = f"check the credentials, and {_RIGHTS}" if isinstance(error, PermissionDeniedError) else ""
        return BackendFailure(answer, hint or CREDENTIALS[family], transient=False)
    if status[1].startswith("3"):
        return BackendFailure(*_SENTENCES["PermanentRedirect"], transient=False)
    return BackendFailure(
        answer,
        "" if status[1].startswith("5") or status[1] in _LATER else "check run.dir and its options",
        transient=status[1].startswith("5") or status[1] in _LATER,
    )


def lacks_conditional_writes(error: Exception) -> bool:
    """Whether the store says that it knows no conditional writes."""
    text = str(error)
    return isinstance(error, NotSupportedError) or "status code: 501" in text or "<Code>NotImplemented</Code>" in text


def _lacks_credentials(error: Exception, message: str) -> bool:
    asked_a_machine = "169.254." in message or "metadata.google" in message or "token request" in message
    return isinstance(error, UnauthenticatedError) or asked_a_machine or "MissingAccessKeyId" in message


def _unanswered(text: str, message: str, timeout: float) -> BackendFailure:
    """The request met no server, or the server's answer never came whole."""
    url = _URL.search(message)
    host = urlsplit(url[1]).netloc if url else "the server"
    if "kind: Timeout" in text or "TimedOut" in text:
        return BackendFailure(f"{host} did not answer within {timeout:g} s")
    if "dns error" in text:
        return BackendFailure(f"the host {host} is not known", "")
    if "ConnectionRefused" in text:
        return BackendFailure(f"nothing answers at {host}", "")
    if "InvalidContentType" in text or "BadScheme" in text:
        return BackendFailure(
            f"{host} does not speak the scheme of run.dir", "write scheme=http or https", transient=False
        )
    if "HTTP error" in message or "body error" in message:
        return BackendFailure(f"the connection to {host} broke")
    return BackendFailure(message[:200], "check run.dir and its options", transient=False)
