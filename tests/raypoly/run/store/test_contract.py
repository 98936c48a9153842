"""What every store promises, wherever it lies: whole or not at all, immutable, clear about what went wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from raypoly.core.errors import StorageError
from raypoly.run.store import Store

LARGE = 17 << 20
"""More than one request carries."""


def test_committed_object_is_read_back_and_listed(store: Store) -> None:
    store.commit("b/2", b"two")
    store.commit("b/1", b"one")
    store.commit("a", b"")
    assert store.read("b/2") == b"two"
    assert store.read("a") == b""
    assert store.list() == ("a", "b/1", "b/2")
    assert store.list("b/") == ("b/1", "b/2")
    assert store.list("b/2") == ("b/2",)
    assert store.list("nothing/here") == ()
    assert store.peek() == ("a", "b")
    assert store.exists("b/1")
    assert not store.exists("b")


def test_another_process_sees_what_is_committed(reopen: Callable[[], Store]) -> None:
    reopen().commit("a", b"one")
    assert reopen().read("a") == b"one"


def test_store_without_objects_is_empty(store: Store) -> None:
    assert store.list() == ()
    assert store.peek() == ()
    assert not store.exists("config.json")


def test_committed_object_never_changes(store: Store) -> None:
    store.commit("a", b"one")
    store.commit("a", b"one")
    with pytest.raises(StorageError, match="a is committed with other content and can't be replaced"):
        store.commit("a", b"two")
    assert store.read("a") == b"one"
    assert store.list() == ("a",)


def test_digest_is_sha_256_and_the_length(store: Store) -> None:
    store.commit("w", b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1
    assert store.digest("w") == (digest, 3)


def test_large_object_keeps_the_same_promises(store: Store) -> None:
    content = bytes(range(251)) * (LARGE // 251)
    store.commit("large", content)
    store.commit("large", content)
    assert store.digest("large") == (hashlib.sha256(content).hexdigest(), len(content))
    assert store.fetch("large").read_bytes() == content
    assert store.read("large") == content
    with pytest.raises(StorageError, match="can't be replaced"):
        store.commit("large", content[::-1])


def test_derived_file_is_replaced_whole(store: Store) -> None:
    store.put_mutable("summary.json", b"old")
    store.put_mutable("summary.json", b"new")
    assert store.read("summary.json") == b"new"


@pytest.mark.parametrize("size", [3, (8 << 20) + 5])
def test_derived_file_is_replaced_by_a_local_one(store: Store, tmp_path: Path, size: int) -> None:
    (tmp_path / "source").write_bytes(b"ab" * (size // 2))
    store.put_mutable("data/train.jsonl", b"old")
    store.put_mutable("data/train.jsonl", tmp_path / "source")
    assert store.read("data/train.jsonl") == b"ab" * (size // 2)


@pytest.mark.parametrize("key", ["", "/etc/x", "../x", "a/../b", "a//b", ".hidden", "a/.b"])
def test_key_that_leaves_the_run_or_hides_in_it_is_refused(store: Store, key: str) -> None:
    for refused in (
        lambda: store.commit(key, b""),
        lambda: store.put_mutable(key, b""),
        lambda: store.read(key),
        lambda: store.delete(key),
    ):
        with pytest.raises(ValueError, match="is no key"):
            refused()


def test_missing_object_is_named(store: Store) -> None:
    for look in (store.read, store.fetch):
        with pytest.raises(StorageError, match=r"rollouts/x could not be read"):
            look("rollouts/x")
    with pytest.raises(StorageError, match=r"nothing could not be read|nothing/ could not be read"):
        store.fetch("nothing/")


def test_deleted_object_is_gone_and_may_be_deleted_again(store: Store) -> None:
    store.commit("journal/a", b"one")
    store.delete("journal/a")
    store.delete("journal/a")
    assert store.list() == ()
    store.commit("journal/a", b"two")
    assert store.read("journal/a") == b"two"


def test_fetched_folder_holds_its_objects_as_files(store: Store) -> None:
    for name in ("model.safetensors", "sub/state.json"):
        store.commit(f"checkpoints/step-000002/{name}", name.encode())
    folder = store.fetch("checkpoints/step-000002/")
    assert (folder / "model.safetensors").read_bytes() == b"model.safetensors"
    assert (folder / "sub" / "state.json").read_bytes() == b"sub/state.json"


def test_fetched_object_is_the_one_there_now(store: Store) -> None:
    store.put_mutable("summary.json", b"old")
    assert store.fetch("summary.json").read_bytes() == b"old"
    store.put_mutable("summary.json", b"new")
    assert store.fetch("summary.json").read_bytes() == b"new"


def test_damaged_objects_are_kept_aside_under_free_names(store: Store) -> None:
    for content in (b"one", b"two"):
        store.commit("journal/a", content)
        store.quarantine("journal/a", "its checksum does not match")
    assert not store.exists("journal/a")
    assert [store.read(damaged.moved_to) for damaged in store.damaged] == [b"one", b"two"]
    assert [damaged.key for damaged in store.damaged] == ["journal/a", "journal/a"]


def test_workspace_is_named_like_the_run(store: Store) -> None:
    assert store.workspace.name == store.location.name == "run"
