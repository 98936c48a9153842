"""`raypoly judge cache`: how much paid answers take, and forgetting them."""

from __future__ import annotations

from raypoly.config import JudgeConfig
from raypoly.errors import StorageError
from raypoly.judge.openai.answer_cache import AnswerCache, folder_of


def described(config: JudgeConfig, clear: bool = False) -> str:
    """One line about the kept answers, which `clear` forgets. Raises `StorageError` where they can't be read."""
    folder = folder_of(config.cache_dir)
    closed = AnswerCache(folder, limit_mib=0)
    if not closed.path.is_file():
        return f"{closed.path}: no answers are kept."
    # opened with room for all: a look at a cache must not be what makes it smaller
    cache = AnswerCache(folder, limit_mib=1 << 20)
    try:
        answers, size = cache.size()
        if clear:
            cache.clear()
        if cache.failures:
            raise StorageError(f"{cache.path} can't be used as the judge's cache: see judge.cache_dir.")
    finally:
        cache.close()
    what = f"{answers:,} answers, {size / (1 << 20):.1f} MiB of {config.cache_mib} MiB"
    return f"{cache.path}: {what}" + (" forgotten." if clear else ".")
