"""Learner ranks as local processes, forked from one process that has imported what they need.

with RankProcesses() as ranks:
    answers = ranks.run(4, function, "argument")       # function(ranks, "argument") on each rank
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

import raypoly.learner.policy_learner  # noqa: F401  (so that ranks are forked with it)
from raypoly.learner.ranks import Ranks
from raypoly.learner.sharding import RendezvousStore, ShardedRanks

T = TypeVar("T")
P = ParamSpec("P")
HOST = "127.0.0.1"
with contextlib.suppress(ImportError):
    import peft  # noqa: F401


class RankProcesses:
    """At most four ranks at a time, while the `with` block runs."""

    def __enter__(self) -> RankProcesses:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self._pool = ProcessPoolExecutor(4, context)
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def run(
        self, size: int, function: Callable[Concatenate[Ranks, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> list[T]:
        """Call the function on each rank and return the results in rank order. Raises what the function raises."""
        store = RendezvousStore(HOST)
        answers: list[Any] = [
            self._pool.submit(_run_rank, (rank, size, HOST, store.port), function, *args, **kwargs)
            for rank in range(size)
        ]
        return [answer.result(timeout=600) for answer in answers]


def _run_rank(place: tuple[int, int, str, int], function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    torch.set_num_threads(1)
    os.environ.pop("TORCHDYNAMO_DISABLE", None)  # of an engine that tests of this process had before the fork
    ranks = ShardedRanks(*place, torch.device("cpu"))
    try:
        return function(ranks, *args, **kwargs)
    finally:
        ranks.leave()
