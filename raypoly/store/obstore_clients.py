"""obstore's clients for a location, with credentials and endpoints found where users of the providers' tools keep them.

S3: the environment (AWS_ACCESS_KEY_ID ..., AWS_REGION, AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_S3), a profile or the shared
credentials file (through boto3, where such a file is), web identity, container and instance roles.
"""

from __future__ import annotations

import importlib.util
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obstore.store import AzureStore, GCSStore, S3Store

from raypoly.errors import UsageError
from raypoly.store.location import Location
from raypoly.store.storage_errors import CREDENTIALS

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

Client = S3Store | GCSStore | AzureStore


def open_client(location: Location, timeout: float, retries: int = 0) -> Client:
    """One client. A request without an answer in `timeout` seconds fails. Raises `UsageError` for a bad location."""
    options = dict(location.options)
    endpoint = options.get("endpoint_override") or None
    if endpoint and "://" not in endpoint:
        endpoint = f"{options.get('scheme', 'https')}://{endpoint}"
    common: dict[str, Any] = {
        "prefix": location.path or None,
        "retry_config": _retry(timeout, retries),
        "client_options": _http(timeout),
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
            f"run.dir={location.plain} can't be opened ({reason}); {CREDENTIALS[location.family]}."
        ) from error


def _s3(bucket: str, endpoint: str | None, options: dict[str, str], common: dict[str, Any]) -> S3Store:
    given: dict[str, Any] = {"disable_bulk_delete": True}  # not every S3 has it, and objects are deleted one by one
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


def _http(timeout: float) -> ClientConfig:
    seconds = timedelta(seconds=timeout)
    # Plain http only where the endpoint's own scheme says so; providers' own endpoints are https.
    return {"timeout": seconds, "connect_timeout": min(seconds, timedelta(seconds=10)), "allow_http": True}


def _retry(timeout: float, retries: int) -> RetryConfig:
    return {
        "max_retries": retries,
        "retry_timeout": timedelta(seconds=2 * timeout),
        "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=5), "base": 2},
    }
