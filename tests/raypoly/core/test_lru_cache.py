"""What was used last is there; what is too much goes, the oldest first."""

from __future__ import annotations

from raypoly.core.lru_cache import LRUCache


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
