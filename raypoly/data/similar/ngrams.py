"""Statements as sets of n-grams, their Jaccard similarity, and all pairs that reach a threshold.

    similar_pairs(left, right, 0.75)     # [(0, 3), (7, 1)]: indices of pairs

The join is exact (S. Chaudhuri, V. Ganti, R. Kaushik, "A primitive operator for similarity joins", ICDE 2006;
R. Bayardo et al., "Scaling up all pairs similarity search", WWW 2007): with n-grams sorted from rare to common, two
sets whose similarity reaches t have one of the first |A| - ceil(t |A|) + 1 of each in common. So numpy is enough;
MinHash would miss some pairs, and needs as many hashes a set as sets have n-grams here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

UInt64 = NDArray[np.uint64]
Int64 = NDArray[np.int64]

_GRAM = 3  # words in a row
_AT_ONCE = 1 << 22  # candidate pairs that are held
_MIX = np.uint64(0x9E3779B97F4A7C15)


class GramHasher:
    """Grams of words; a word is hashed once."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def grams(self, words: Sequence[str]) -> UInt64:
        """uint64 [G], sorted and unique: a hash of each `_GRAM` words in a row; of all where they are fewer."""
        hashes = np.array([self._of(word) for word in words], dtype=np.uint64)
        if not hashes.size:
            return hashes
        width = min(_GRAM, hashes.size)
        mixed = np.zeros(hashes.size - width + 1, dtype=np.uint64)
        for place in range(width):
            mixed = (mixed ^ hashes[place : place + mixed.size]) * _MIX
            mixed ^= mixed >> np.uint64(29)
        return np.unique(mixed)

    def _of(self, word: str) -> int:
        found = self._known.get(word)
        if found is None:
            digest = hashlib.blake2b(word.encode(errors="surrogatepass"), digest_size=8).digest()
            found = self._known[word] = int.from_bytes(digest, "little")
        return found


def jaccard(one: UInt64, another: UInt64) -> float:
    """|A & B| / |A | B| of two sets of grams, one of them not empty."""
    common = np.intersect1d(one, another, assume_unique=True).size
    return common / (one.size + another.size - common)


def similar_pairs(left: Sequence[UInt64], right: Sequence[UInt64], threshold: float) -> list[tuple[int, int]]:
    """Pairs (index in left, index in right) whose similarity is at least `threshold`, which is above 0; sorted."""
    sizes = np.array([grams.size for grams in (*left, *right)], dtype=np.int64)
    if not len(left) or not len(right) or not sizes.sum():
        return []
    rank, owner = _prefixes(np.concatenate([*left, *right]), sizes, threshold)
    ours = owner < len(left)
    by_rank = np.argsort(rank[~ours], kind="stable")
    their_rank, their_owner = rank[~ours][by_rank], owner[~ours][by_rank] - len(left)
    our_rank, our_owner = rank[ours], owner[ours]
    first = np.searchsorted(their_rank, our_rank, "left")
    count = np.searchsorted(their_rank, our_rank, "right") - first
    pairs: set[tuple[int, int]] = set()
    for some in _chunks(count):
        here = np.repeat(our_owner[some], count[some])
        steps = np.arange(here.size) - np.repeat(np.cumsum(count[some]) - count[some], count[some])
        there = their_owner[np.repeat(first[some], count[some]) + steps]
        small, large = np.sort(np.stack([sizes[here], sizes[there + len(left)]]), axis=0)
        fits = small >= threshold * large
        keys = np.unique(here[fits] * len(right) + there[fits])
        pairs.update((int(key // len(right)), int(key % len(right))) for key in keys)
    return sorted((i, j) for i, j in pairs if jaccard(left[i], right[j]) >= threshold)


def _prefixes(grams: UInt64, sizes: Int64, threshold: float) -> tuple[Int64, Int64]:
    """Ranks by rarity of each set's rarest grams, as many as have to be looked at, and whose they are."""
    owner = np.repeat(np.arange(sizes.size), sizes)
    _, which, count = np.unique(grams, return_inverse=True, return_counts=True)
    rank_of = np.empty(count.size, dtype=np.int64)
    rank_of[np.argsort(count, kind="stable")] = np.arange(count.size)
    rank = rank_of[which]
    order = np.lexsort((rank, owner))
    place = np.arange(grams.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    length = sizes - np.ceil(threshold * sizes - 1e-9).astype(np.int64) + 1
    wanted = order[place < length[owner]]
    return rank[wanted], owner[wanted]


def _chunks(count: Int64) -> list[slice]:
    """Slices whose counts add up to about `_AT_ONCE`."""
    ends = np.cumsum(count)
    bounds = np.searchsorted(ends, np.arange(_AT_ONCE, int(ends[-1]) if ends.size else 0, _AT_ONCE)) + 1
    edges = [0, *np.unique(bounds).tolist(), count.size]
    return [slice(a, b) for a, b in pairwise(edges) if a < b]
