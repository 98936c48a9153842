"""Verdicts of responses for a trainer that hands over one, or a few, with a ground truth.

A ground truth is a problem's row (docs/problem-formats.md), a mapping or its JSON, or the id of a problem that the
server at RAYPOLY_SERVE_URL has (`raypoly serve`). Without a server, sandboxes of this process score.

    rewards([(row, response), ...])                    ->  [1.0, 0.0, None]
    await known_rewards_async([(row, response), ...])  ->  [1.0, 0.0], or raises `Unknown`
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from raypoly.core.errors import Unknown, UsageError
from raypoly.core.values import Problem
from raypoly.data.formats import problem_of
from raypoly.integrations.http_client import VerdictClient
from raypoly.integrations.in_process import Verifier
from raypoly.verifier.code_extraction import program_in

GroundTruth = str | Mapping[str, Any]
Pair = tuple[GroundTruth, str]
"""A ground truth and a response to it."""
TRIES, PAUSE_SECONDS = 3, 1.0
"""For a verdict that is unknown: how often it is asked for, and the time between."""
_own: list[Verifier] = []
_starting = threading.Lock()


def statuses(pairs: Iterable[Pair]) -> list[str]:
    """A verdict's status for each pair, in order; `infra` where none is known after some tries.

    Raises `UsageError` for a ground truth that can't be used, `RuntimeError` where the server doesn't answer.
    """
    given = list(pairs)
    found = ["infra"] * len(given)
    for attempt in range(TRIES):
        places = [place for place, status in enumerate(found) if status == "infra"]
        if not places:
            break
        time.sleep(PAUSE_SECONDS if attempt else 0)
        for place, status in zip(places, _ask([given[place] for place in places]), strict=True):
            found[place] = status
    return found


def rewards(pairs: Iterable[Pair]) -> list[float | None]:
    """1.0 for each pair that passed, 0.0 for one that did not, None where that is unknown. Raises as `statuses`."""
    return [None if status == "infra" else float(status == "passed") for status in statuses(pairs)]


def known_rewards(pairs: Iterable[Pair]) -> list[float]:
    """`rewards`, all known. Raises `Unknown` where one is not: for trainers that can't leave one response out."""
    found = rewards(pairs)
    known = [reward for reward in found if reward is not None]
    if len(known) < len(found):
        missing = f"{len(found) - len(known)} of {len(found)} responses"
        raise Unknown(f"No verdict for {missing}: a sandbox failed, or a problem's tests can't be run.")
    return known


async def rewards_async(pairs: Iterable[Pair]) -> list[float | None]:
    """`rewards`, while other tasks go on."""
    return await asyncio.to_thread(rewards, pairs)


async def known_rewards_async(pairs: Iterable[Pair]) -> list[float]:
    """`known_rewards`, while other tasks go on."""
    return await asyncio.to_thread(known_rewards, pairs)


def _ask(pairs: Sequence[Pair]) -> list[str]:
    named = [(_row_or_id(truth), response) for truth, response in pairs]
    if (url := os.environ.get("RAYPOLY_SERVE_URL")) is not None:
        rows = [
            {"problem_id" if isinstance(it, str) else "problem": it, "response": response} for it, response in named
        ]
        client = VerdictClient(url, os.environ.get("RAYPOLY_SERVE_TOKEN", ""))
        return [str(verdict["status"]) for verdict in client.verdicts(rows)]
    programs = []
    for row, response in named:
        if isinstance(row, str):
            raise UsageError(
                f"The ground truth {row!r} is an id, which only a server knows: set RAYPOLY_SERVE_URL, or give the row."
            )
        problem = _problem(json.dumps(row, sort_keys=True))
        programs.append((problem, program_in(problem, response)))
    return [verdict.status for verdict in _verifier().score(programs)]


def _row_or_id(truth: GroundTruth) -> GroundTruth:
    if not isinstance(truth, str):
        return truth
    try:
        return dict(json.loads(truth)) if truth.lstrip()[:1] == "{" else truth
    except ValueError as error:
        raise UsageError(f"A ground truth is no JSON: {error}.") from error


@lru_cache(1024)
def _problem(text: str) -> Problem:
    try:
        return problem_of(json.loads(text))
    except ValueError as error:
        raise UsageError(f"A ground truth can't be used: {error}.") from error


def _verifier() -> Verifier:
    with _starting:
        if not _own:
            _own.append(Verifier([], workers=2, evidence=False))
        return _own[0]
