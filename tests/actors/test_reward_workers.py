"""Functions and terms of a user's own, in processes of their own; a server's outage is none of their values."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.reward_workers import RewardWorkers
from raypoly.core.errors import Away, RaypolyError
from raypoly.core.settings import load
from raypoly.core.values import Problem, Rollout, TestSuite, Verdict
from raypoly.verifier.rewards import AnsweredGroup, Rewards
from raypoly.verifier.rewards.terms import Term
from tests.actors.conftest import ACTOR_OPTIONS
from tests.support.ports import free_port

PROBLEM = Problem("p", "prompt", "f", TestSuite("calls", "[]"))


def answered(count: int, text: str = "r{}") -> AnsweredGroup:
    none = np.zeros(0, np.int32)
    rollouts = tuple(Rollout(none, none, np.zeros(0, np.float32), text.format(i), "stop", i, 0) for i in range(count))
    return AnsweredGroup(PROBLEM, rollouts, (Verdict("passed", 1, 1, 0.1),) * count, np.ones(count))


def asked(name: str, group: AnsweredGroup, *more: str) -> Any:
    """Outcomes and the own terms of a group, by fresh workers; and the processes that answered."""
    (found,) = all_asked(name, [group], *more)
    if isinstance(found, RaypolyError):
        raise found
    return found


def all_asked(name: str, groups: Sequence[AnsweredGroup], *more: str) -> list[Any]:
    """The same of several groups, one after the other, or the errors."""

    async def main() -> list[Any]:
        config = load(None, [f"reward.name={__name__}:{name}", "reward.workers=2", *more], lambda text: None)
        workers, found = RewardWorkers(config, Rewards.of_run(config), ACTOR_OPTIONS), list[Any]()
        try:
            await workers.start()
            for group in groups:
                try:
                    found.append((await workers.outcome(group), await workers.terms(group)))
                except RaypolyError as error:
                    found.append(error)
        finally:
            workers.stop()
        return found

    return asyncio.run(main())


def number(problem: Problem, rollout: Rollout, verdict: Verdict) -> dict[str, float]:
    return {"score": float(rollout.text[1:]), "process": os.getpid()}


class Doubled(Term):
    def compute(self, group: AnsweredGroup) -> Any:
        return 2 * group.outcome


def test_a_group_is_shared_out_and_comes_back_in_order() -> None:
    own = ["reward.terms.twice.weight=1", f"reward.terms.twice.name={__name__}:Doubled"]
    valued, terms = asked("number", answered(7), *own)
    assert valued.outcome.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert len(set(valued.parts["part_process"].tolist())) == 2
    assert os.getpid() not in valued.parts["part_process"].tolist()
    assert terms["twice"].tolist() == [2.0] * 7


open_calls = {"now": 0, "most": 0}


async def counts_open(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    open_calls["now"] += 1
    open_calls["most"] = max(open_calls.values())
    await asyncio.sleep(0.2)
    open_calls["now"] -= 1
    return float(open_calls["most"])


def counts_open_sync(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    open_calls["now"] += 1
    open_calls["most"] = max(open_calls.values())
    time.sleep(0.01)
    open_calls["now"] -= 1
    return float(open_calls["most"])


def test_an_async_function_has_many_open_calls_and_a_sync_one_one_at_a_time() -> None:
    assert asked("counts_open", answered(40))[0].outcome.max() == 20  # of each of two workers
    assert asked("counts_open_sync", answered(40))[0].outcome.max() == 1


def broken(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    return {}["absent"] if rollout.text == "r3" else 1.0  # type: ignore[typeddict-item]


def test_an_exception_names_function_problem_response_and_line() -> None:
    with pytest.raises(RaypolyError) as caught:
        asked("broken", answered(8))
    said = str(caught.value)
    assert said.startswith("KeyError: 'absent'. ")
    assert "test_reward_workers.py, line " in said
    assert f"raised by reward.name={__name__}:broken on response 4 to problem p, in step 0." in said


def fails(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    if rollout.text == "StopIteration":
        return next(iter(()))
    raise TimeoutError("the comparison") if "Timeout" in rollout.text else BrokenPipeError("the checker ended")


def test_a_functions_own_error_is_no_outage() -> None:
    errors = ("TimeoutError: the comparison", "StopIteration", "BrokenPipeError")
    for error, said in zip(all_asked("fails", [answered(1, name) for name in errors]), errors, strict=True):
        assert isinstance(error, RaypolyError)
        assert not isinstance(error, Away)
        assert said in str(error)


async def _later(rollout: Rollout) -> float:
    return float(rollout.seed)


def wrapped(problem: Problem, rollout: Rollout, verdict: Verdict) -> Any:
    return _later(rollout)


def test_a_function_that_returns_a_coroutine_is_waited_for() -> None:
    assert asked("wrapped", answered(3))[0].outcome.tolist() == [0.0, 1.0, 2.0]


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        busy = self.server.busy > 0  # type: ignore[attr-defined]
        self.server.busy -= 1  # type: ignore[attr-defined]
        self.send_response(503 if busy else 200)
        self.end_headers()
        self.wfile.write(b"0.5")

    def log_message(self, *arguments: Any) -> None:
        """Nothing."""


@contextmanager
def served(busy: int) -> Iterator[int]:
    """A server that refuses so many requests first."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.busy = busy  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()


def by_http(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{rollout.text}/", timeout=10) as answer:
        return float(answer.read())


def test_a_server_that_is_busy_is_asked_again_and_one_that_stays_away_is_away() -> None:
    with served(busy=2) as soon, served(busy=99) as never:
        groups = [answered(1, str(port)) for port in (soon, never, free_port())]
        (valued, _), busy, gone = all_asked("by_http", groups)
    assert valued.outcome.tolist() == [0.5]
    for error, said in ((busy, "its server answers 503"), (gone, "its server can't be reached (")):
        assert isinstance(error, Away)
        assert said in str(error)


def hangs(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    time.sleep(60)
    return 1.0


async def waits(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    await asyncio.sleep(60)
    return 1.0


@pytest.mark.parametrize("name", ["hangs", "waits"])
def test_what_takes_longer_than_the_timeout_is_away_and_no_value(name: str) -> None:
    with pytest.raises(Away, match=r"no answer within reward\.timeout=0\.2 s"):
        asked(name, answered(1), "reward.timeout=0.2")


def dies_once(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    mark = Path(rollout.text)
    if not mark.exists():
        mark.touch()
        os._exit(1)
    return 1.0


def test_a_process_that_dies_is_replaced_and_asked_again(tmp_path: Path) -> None:
    assert asked("dies_once", answered(1, str(tmp_path / "mark")))[0].outcome.tolist() == [1.0]
