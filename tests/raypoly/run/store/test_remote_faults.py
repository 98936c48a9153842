"""Whatever request fails, before or after it took effect: one object, the right bytes, or one clear sentence."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from raypoly.core.errors import StaleEpoch, StorageError, UsageError
from raypoly.run.store import Store, object_store, open_store
from raypoly.run.store.location import Location, StorageOptions
from tests.support.ports import silent_port
from tests.support.s3_server import Fault, Request, S3Server

HASTY = StorageOptions(timeout=1.0, patience=20.0)
"""A test that hangs a request waits so long for it."""
STRUCK = [(kind, after) for kind in ("error", "slow_down", "cut", "hang") for after in (False, True)]


@pytest.fixture
def options(tmp_path: Path) -> StorageOptions:
    return replace(HASTY, scratch=tmp_path / "scratch")


@pytest.fixture
def reopen(open_s3: Callable[[], Store]) -> Callable[[], Store]:
    return open_s3


@pytest.fixture
def content() -> bytes:
    return b"a record" * 1000


@pytest.fixture
def large(tmp_path: Path) -> Path:
    source = tmp_path / "weights"
    source.write_bytes(bytes(range(251)) * ((17 << 20) // 251))
    return source


@pytest.mark.parametrize(("kind", "after"), STRUCK)
def test_commit_whose_request_fails_leaves_exactly_one_object(
    s3: S3Server, store: Store, content: bytes, kind: str, after: bool
) -> None:
    s3.faults.append(Fault(kind, after=after))
    store.commit("journal/a", content)
    assert s3.requests[0].struck == kind
    assert store.list() == ("journal/a",)
    assert store.read("journal/a") == content
    with pytest.raises(StorageError, match="can't be replaced"):
        store.commit("journal/a", b"other")


@pytest.mark.parametrize(("kind", "after"), STRUCK)
def test_every_request_of_every_method_may_fail(
    s3: S3Server, reopen: Callable[[], Store], kind: str, after: bool
) -> None:
    if kind == "hang" and after:
        pytest.skip("takes long, and differs from `cut` by nothing that the client sees")
    reopen().commit("damaged/b", b"an earlier one")
    struck, requests = 0, 1
    while struck < requests:
        struck += 1
        s3.faults[:] = []
        s3.requests.clear()
        s3.faults.append(Fault(kind, at=struck, after=after))
        store = reopen()
        prefix = f"{kind}{after}{struck}"
        store.commit(f"{prefix}/a", b"one")
        store.put_mutable(f"{prefix}/m", b"old")
        store.put_mutable(f"{prefix}/m", b"new")
        assert store.read(f"{prefix}/a") == b"one"
        assert store.list(f"{prefix}/") == (f"{prefix}/a", f"{prefix}/m")
        assert store.exists(f"{prefix}/m")
        assert store.fetch(f"{prefix}/m").read_bytes() == b"new"
        store.quarantine(f"{prefix}/a", "a test")
        store.delete(f"{prefix}/m")
        assert store.list(f"{prefix}/") == ()
        assert store.read(f"damaged/{prefix}/a") == b"one"
        requests = len([request for request in s3.requests if not request.struck]) if kind != "hang" else 3
    assert struck > 2


@pytest.mark.parametrize(("kind", "after"), [("error", False), ("cut", False), ("cut", True)])
def test_every_request_of_an_upload_may_fail(
    s3: S3Server, reopen: Callable[[], Store], large: Path, kind: str, after: bool
) -> None:
    content = large.read_bytes()
    reopen().commit("undisturbed", content)
    requests = len(s3.requests)
    assert requests >= 5  # a look, the beginning, three parts, the end
    for at in range(1, requests + 1):
        s3.faults[:] = [Fault(kind, at=at, after=after)]
        store = reopen()
        store.commit(f"at-{at}", content)
        s3.faults.clear()
        assert store.read(f"at-{at}") == content


def test_answer_that_ends_early_is_read_again(s3: S3Server, store: Store, content: bytes) -> None:
    store.commit("a", content)
    s3.faults.append(Fault("short", times=2, where=lambda request: request.method == "GET"))
    assert store.read("a") == content
    s3.faults[:] = [Fault("short", where=lambda request: request.method == "GET")]
    assert store.fetch("a").read_bytes() == content


def test_storage_that_hangs_is_found_within_its_time(s3: S3Server, s3_location: Location, tmp_path: Path) -> None:
    store = open_store(s3_location, StorageOptions(timeout=0.5, patience=1.0, scratch=tmp_path))
    s3.faults.append(Fault("hang", times=-1))
    started = time.monotonic()
    with pytest.raises(StorageError, match=r"a could not be written \(127\.0\.0\.1:\d+ did not answer within 0\.5 s\)"):
        store.commit("a", b"")
    assert time.monotonic() - started < 30  # 1.5 s on a machine that has time
    s3.faults.clear()
    assert store.list() == ()


def test_storage_that_can_not_be_connected_to_is_told_with_the_seconds_that_were_waited(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "_CONNECT_SECONDS", 0.3)
    with silent_port() as port:
        place = f"s3://bucket/run?endpoint_override=http://127.0.0.1:{port}"
        store = open_store(place, StorageOptions(timeout=30.0, patience=0.1, scratch=tmp_path))
        with pytest.raises(StorageError, match=r"127\.0\.0\.1:\d+ did not answer within 0\.3 s\)"):
            store.commit("a", b"")


def test_storage_that_fails_for_a_while_is_waited_for(
    s3: S3Server, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.commit("a", b"")
    s3.faults.append(Fault("slow_down", times=5, where=lambda request: request.key.endswith("/b")))
    with caplog.at_level(logging.WARNING):
        store.commit("b", b"")
    told = [record.message for record in caplog.records if "/b could not be written" in record.message]
    assert len(told) == 1, "one line for a request, not one a try"
    assert "the server answered 503 SlowDown" in told[0]


def test_refusal_is_told_at_once_with_what_to_do(s3: S3Server, store: Store) -> None:
    s3.faults.append(Fault("denied", times=-1))
    with pytest.raises(StorageError, match=r"the credentials may not do that\); allow reading, writing, listing"):
        store.commit("a", b"")
    assert len(s3.requests) == 1


def test_missing_bucket_is_named(s3: S3Server, options: StorageOptions) -> None:
    store = open_store(f"s3://no-such-bucket/run?endpoint_override={s3.endpoint}", options)
    for request in (lambda: store.commit("a", b""), lambda: store.read("a"), store.peek, store.list):
        with pytest.raises(StorageError, match=r"s3://no-such-bucket/run.*the bucket does not exist\); create it"):
            request()


def test_wrong_address_is_told_soon(s3: S3Server, tmp_path: Path) -> None:
    options = StorageOptions(timeout=1.0, patience=1.0, scratch=tmp_path)
    store = open_store("s3://bucket/run?endpoint_override=http://127.0.0.1:9", options)
    with pytest.raises(StorageError, match=r"nothing answers at 127\.0\.0\.1:9\); tried for"):
        store.commit("a", b"")
    store = open_store(f"s3://bucket/run?endpoint_override={s3.endpoint.replace('http', 'https')}", options)
    with pytest.raises(StorageError, match="does not speak the scheme"):
        store.commit("a", b"")


def test_missing_credentials_are_told_with_where_they_come_from(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    with pytest.raises(UsageError, match=r"can't be opened .*mine.*; set AWS_ACCESS_KEY_ID .* or AWS_PROFILE"):
        open_store(s3.uri("run"))


def test_profile_of_the_shared_credentials_file_is_used(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in s3.environment:
        monkeypatch.delenv(name)
    (tmp_path / "credentials").write_text("[mine]\naws_access_key_id = a\naws_secret_access_key = b\n")
    (tmp_path / "config").write_text(f"[profile mine]\nregion = us-east-1\nendpoint_url = {s3.endpoint}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    store = open_store(f"s3://{s3.bucket}/profile")
    store.commit("a", b"one")
    assert store.read("a") == b"one"


def test_endpoint_of_the_environment_is_used(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, s3.endpoint)
        store = open_store(f"s3://{s3.bucket}/{name}")
        store.commit("a", b"one")
        assert store.read("a") == b"one"
        monkeypatch.delenv(name)


def test_nothing_is_sent_once_the_fence_is_up(s3: S3Server, store: Store, large: Path) -> None:
    store.commit("a", b"one")

    def up() -> None:
        raise StaleEpoch("taken over")

    store.fence = up
    s3.requests.clear()
    for change in (
        lambda: store.commit("b", b""),
        lambda: store.commit("c", large.read_bytes()),
        lambda: store.put_mutable("d", b""),
        lambda: store.delete("a"),
        lambda: store.quarantine("a", "a test"),
    ):
        with pytest.raises(StaleEpoch):
            change()
    assert {request.method for request in s3.requests} <= {"GET", "HEAD"}
    assert store.read("a") == b"one"


def test_fence_that_goes_up_during_an_outage_stops_the_repetition(s3: S3Server, store: Store) -> None:
    def struck(request: Request) -> None:
        def up() -> None:
            raise StaleEpoch("taken over")

        store.fence = up

    s3.on_request = struck
    s3.faults.append(Fault("cut", times=-1))
    with pytest.raises(StaleEpoch):
        store.commit("a", b"")
    assert len(s3.requests) == 1
