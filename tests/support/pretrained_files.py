"""Files of a learner's Hugging Face folder in memory, as it writes them for a finished model."""

from __future__ import annotations

from typing import Any

from raypoly.learner.policy_learner import PolicyLearner
from raypoly.run.store.store import PART, Pieces


def pretrained_files(one: PolicyLearner, **how: Any) -> dict[str, bytes]:
    """By name; none on ranks other than 0. `how`: `dtype` and `most` of `write_pretrained`."""
    files: dict[str, bytes] = {}

    def write(name: str, pieces: Pieces) -> None:
        once, again = list(pieces.make()), list(pieces.make())  # as a store that has to repeat its request
        assert once == again
        assert max(map(len, once)) <= PART
        files[name] = b"".join(once)
        assert len(files[name]) == pieces.size

    small = one.write_pretrained(write, **how)
    return {**small, **files}
