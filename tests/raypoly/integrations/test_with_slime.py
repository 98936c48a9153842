"""slime's reward functions, called as its `rm_hub` does; by slime itself where it is installed (not on PyPI)."""

import asyncio
import importlib
import json
import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from raypoly.core.errors import Unknown, UsageError
from raypoly.integrations.with_slime import custom_rm, reward_post_process
from tests.raypoly.integrations.test_in_process import BROKEN, DOUBLE, RIGHT

PLACE = "raypoly.integrations.with_slime."
ARGS = SimpleNamespace(
    custom_rm_path=PLACE + "custom_rm",
    custom_reward_post_process_path=PLACE + "reward_post_process",
    reward_key=None,
)


@dataclass
class Sample:
    """The fields of slime's that are read and written."""

    label: str
    response: str
    group_index: int = 0
    response_length: int = 3
    reward: float | None = None
    remove_sample: bool = False

    def get_reward_value(self, args: Any) -> float | None:
        return self.reward


def samples(kind: Any = Sample) -> list[Any]:
    rows = [(DOUBLE, RIGHT), (DOUBLE, "no"), (DOUBLE, "no"), (BROKEN, RIGHT), (DOUBLE, RIGHT), (DOUBLE, "no")]
    return [
        kind(label=json.dumps(row), response=text, group_index=place // 4, response_length=3)
        for place, (row, text) in enumerate(rows)
    ]


def test_an_unknown_sample_is_removed_and_its_group_goes_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    given = samples()
    for sample, reward in zip(given, asyncio.run(custom_rm(ARGS, given)), strict=True):  # type: ignore[arg-type]
        sample.reward = reward
    assert [sample.remove_sample for sample in given] == [False, False, False, True, False, False]
    raw, advantages = reward_post_process(ARGS, given)
    assert raw[:3] + raw[4:] == [1.0, 0.0, 0.0, 1.0, 0.0]
    assert math.isnan(raw[3])
    assert advantages == pytest.approx([2 / 3, -1 / 3, -1 / 3, 0, 0.5, -0.5])
    monkeypatch.setenv("RAYPOLY_OBJECTIVE", '{"name": "rloo"}')
    assert reward_post_process(ARGS, given)[1] == pytest.approx([1, -0.5, -0.5, 0, 1, -1])
    monkeypatch.setenv("RAYPOLY_OBJECTIVE", '{"name": "poly_epo", "set_size": 2}')
    with pytest.raises(UsageError, match="PolyEPO needs labels, which slime does not have"):
        reward_post_process(ARGS, given)


def test_without_our_post_processing_unknown_raises() -> None:
    args = SimpleNamespace(custom_reward_post_process_path=None)
    with pytest.raises(Unknown, match="--custom-reward-post-process-path"):
        asyncio.run(custom_rm(args, samples()[3]))
    assert asyncio.run(custom_rm(args, samples()[0])) == 1.0


def test_slime_itself_calls_it() -> None:
    pytest.importorskip("slime.rollout.rm_hub", reason="needs slime, which is installed from its repository")
    hub, kinds = importlib.import_module("slime.rollout.rm_hub"), importlib.import_module("slime.utils.types")
    given = samples(kinds.Sample)
    found = asyncio.run(hub.batched_async_rm(ARGS, given))
    assert [found[0], found[1], asyncio.run(hub.async_rm(ARGS, given[4]))] == [1.0, 0.0, 1.0]
    assert (math.isnan(found[3]), given[3].remove_sample) == (True, True)
