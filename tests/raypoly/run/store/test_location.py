"""A run's place is one line, and never a secret's."""

from __future__ import annotations

from pathlib import Path

import pytest

from raypoly.core.errors import UsageError
from raypoly.run.store import open_store
from raypoly.run.store.location import Location, StorageOptions


def test_path_is_absolute_and_home_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for text in ("~/a", "a", f"file://{tmp_path}/a", f"{tmp_path}/a"):
        location = Location.parse(text)
        assert str(location) == f"{tmp_path}/a"
        assert location.folder == tmp_path / "a"
        assert location.name == "a"


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/runs/a",
        "s3://bucket/a?endpoint_override=http://127.0.0.1:5000&region=us-east-1",
        "gs://bucket/a",
        "az://container/a?account=mine",
        "abfss://container@mine.dfs.core.windows.net/a",
    ],
)
def test_uri_is_read_and_written_the_same(text: str) -> None:
    location = Location.parse(text)
    assert str(location) == text
    assert location.folder is None
    assert location.name == "a"
    assert location.plain == text.partition("?")[0]
    assert str(Location.parse(str(location))) == text


def test_bucket_alone_is_a_place() -> None:
    assert Location.parse("s3://bucket").name == "bucket"
    assert Location.parse("s3://bucket/").path == ""


def test_sibling_and_child_keep_the_options() -> None:
    location = Location.parse("s3://bucket/runs/a?region=eu-west-1")
    assert str(location.sibling("a-2")) == "s3://bucket/runs/a-2?region=eu-west-1"
    assert str(Location.parse("s3://bucket").child("b")) == "s3://bucket/b"
    assert str(Location.parse("/runs").child("b")) == "/runs/b"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("s3://AKIA:sesame@bucket/run", "AWS_PROFILE"),
        ("s3://sesame@bucket/run", "AWS_PROFILE"),
        ("s3://bucket/run?secret_key=sesame", "'secret_key'"),
        ("s3://bucket/run?access_key=sesame&region=x", "'access_key'"),
        ("gs://sesame@bucket/run", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("abfss://container:sesame@mine.dfs.core.windows.net/a", "AZURE_STORAGE_ACCOUNT_KEY"),
        ("az://container/a?sas_token=sesame", "'sas_token'"),
    ],
)
def test_credentials_inside_are_refused_without_repeating_them(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as refused:
        Location.parse(text)
    assert "sesame" not in str(refused.value)


@pytest.mark.parametrize("text", ["s3:///run", "s3://bucket/a//b", "s3://bucket/../b", "1s://bucket"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"run\.dir"):
        Location.parse(text)


def test_scheme_that_nobody_serves_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"nosuch://place/run is in no storage .*s3://, gs://") as refused:
        Location.parse("nosuch://user:secret@place/run")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("uri", ["gs://bucket/run", "az://container/run?account=mine"])
def test_other_clouds_are_opened_without_a_request(uri: str, tmp_path: Path) -> None:
    assert open_store(uri, StorageOptions(scratch=tmp_path)).uri == uri
