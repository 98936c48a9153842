"""A cached folder is made once however many ask and is never half there; of values the oldest go first."""

from __future__ import annotations

import multiprocessing
import shutil
import time
from pathlib import Path

import pytest

from raypoly.core.caches import FolderCache, LRUCache, cache_root, find_damage
from raypoly.core.errors import UsageError


def make_slowly(folder: Path) -> None:
    time.sleep(0.5)
    (folder / "data").write_text("content")
    with (folder.parent / "made").open("a") as file:
        file.write("once\n")


def ask(root: Path) -> None:
    FolderCache(root).ensure("key", make_slowly)


def test_two_processes_at_once_make_it_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=ask, args=(tmp_path,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert (tmp_path / "made").read_text() == "once\n"
    assert find_damage(tmp_path / "key") is None


@pytest.mark.parametrize("harm", ["truncate", "remove", "manifest"])
def test_any_damage_is_found_and_repaired(tmp_path: Path, harm: str) -> None:
    folder = FolderCache(tmp_path).ensure("key", make_slowly)
    target = folder / ("manifest.json" if harm == "manifest" else "data")
    if harm == "remove":
        target.unlink()
    else:
        target.write_text(target.read_text()[:-1])
    assert find_damage(folder) is not None
    said: list[str] = []
    assert (FolderCache(tmp_path, said.append).ensure("key", make_slowly) / "data").read_text() == "content"
    assert "damaged" in said[0]


def test_a_maker_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        FolderCache(tmp_path).ensure("key", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["key.lock"]


def test_the_users_cache_folder_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAYPOLY_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_root() == Path("/somewhere/raypoly")
    monkeypatch.setenv("RAYPOLY_CACHE", "/else")
    assert cache_root() == Path("/else")


def test_a_cache_that_cant_be_written_names_the_variable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="RAYPOLY_CACHE"):
        FolderCache(tmp_path / "file" / "below").ensure("key", make_slowly)


def test_a_copy_of_a_cached_folder_is_sound(tmp_path: Path) -> None:
    cache = FolderCache(tmp_path)
    first = cache.ensure("first", make_slowly)

    def copy(folder: Path) -> None:
        shutil.copytree(first, folder, dirs_exist_ok=True)

    assert find_damage(cache.ensure("second", copy)) is None


def there(held: LRUCache[str, int], keys: str) -> str:
    return "".join(key for key in keys if key in held)


def test_the_oldest_goes_where_there_are_too_many() -> None:
    held = LRUCache[str, int](count=2, size=100)
    held.put("a", 1, 1)
    held.put("b", 2, 1)
    assert held["a"] == 1
    held.put("c", 3, 1)
    assert there(held, "abc") == "ac"
    assert len(held) == 2


def test_the_oldest_go_where_they_are_too_large_and_the_newest_stays() -> None:
    held = LRUCache[str, int](count=10, size=10)
    for key in "abc":
        held.put(key, 0, 4)
    assert there(held, "abc") == "bc"
    held.put("b", 1, 5)
    assert there(held, "bc") == "bc"
    held.put("d", 1, 50)
    assert there(held, "abcd") == "d"
    held.put("e", 1, 1)
    assert there(held, "de") == "e"
    held.put("f", 1, 9)
    assert there(held, "ef") == "ef"
