"""A collective ends on both sides, however one of them fails, and what is raised is what went wrong."""

from __future__ import annotations

import asyncio

import pytest

from actors.weight_delivery import both
from raypoly.errors import TransferBroken, WeightsMismatch


class Side:
    """One that waits for its partner until it is ended, as a collective does."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def work(self) -> None:
        await self.ended.wait()
        raise TransferBroken("ended")

    def end(self) -> None:
        self.ended.set()


async def fails(error: Exception) -> None:
    raise error


def test_the_side_that_is_left_waiting_is_ended_and_the_other_one_s_error_is_told() -> None:
    async def main() -> None:
        left, right = Side(), Side()
        with pytest.raises(WeightsMismatch, match="version 3"):
            await both(left.work(), left.end, fails(WeightsMismatch("version 3")), right.end, grace=0.01)
        assert left.ended.is_set()
        assert not right.ended.is_set()

    asyncio.run(main())


def test_a_side_that_notices_by_itself_is_left_alone() -> None:
    async def main() -> None:
        left, right = Side(), Side()
        with pytest.raises(WeightsMismatch):
            await both(fails(TransferBroken("reset")), left.end, fails(WeightsMismatch("version 3")), right.end)
        assert not left.ended.is_set()
        assert not right.ended.is_set()

    asyncio.run(main())


def test_both_sides_are_waited_for() -> None:
    async def main() -> None:
        done: list[str] = []

        async def late(name: str) -> None:
            await asyncio.sleep(0)
            done.append(name)

        side = Side()
        await both(late("learner"), side.end, late("engine"), side.end)
        assert sorted(done) == ["engine", "learner"]

    asyncio.run(main())
