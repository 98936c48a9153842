"""A learner whose tensors leave and come back computes, tells and saves the bits of one whose tensors stay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from raypoly.learner import offload
from raypoly.learner.ranks import ONE, Ranks
from tests.raypoly.learner.test_sharding import Case, Told
from tests.support.compilers import needs_compiler, needs_peft
from tests.support.pretrained_files import pretrained_files
from tests.support.random_rows import NORMALISERS, random_rows
from tests.support.rank_processes import RankProcesses

CASES = {
    "several buckets": Case(),
    "weight decay": Case({"weight_decay": 0.1, "warmup_steps": 2}),
    "a reference": Case(loss={"kl_coefficient": 0.2, "entropy_coefficient": 0.01}),
    "adapters": Case(model={"lora_rank": 4}, loss={"kl_coefficient": 0.2}),
    "a head of the loss": Case(loss={"name": "flowrl", "beta": 1.0}),
    "compiled": Case({"compile": True}, counts=(8, 5)),
}
NEEDS: dict[str, Any] = {"adapters": needs_peft, "compiled": [needs_compiler, pytest.mark.slow]}


def of_kind(case: Case, kind: str) -> Case:
    return replace(case, train=case.train | {"offload": kind})


def lived(ranks: Ranks, case: Case, folder: Path) -> tuple[Told, list[Any]]:
    """Steps whose weights leave before each and in its middle, as an engine that is lost would ask. All that is told,
    and what was told while they were away."""
    offload.BUCKET = 1 << 14
    one, prompt, stats, away = case.learner(ranks, folder), np.arange(5, dtype=np.int32), [], []
    for step, count in enumerate(case.counts):
        logp_T = one.logprobs(prompt, prompt, 1.0)
        one.release()
        away.append((one.weight_hashes(), one.digest(), one.save(), [(n, t.clone()) for n, t in one.whole_weights()]))
        one.begin(step, NORMALISERS)
        one.accumulate(random_rows(step)[: count // 2])
        one.release()
        one.accumulate(random_rows(step)[count // 2 : count])
        one.release()
        if step == 1:
            one.update()
            one.accumulate(random_rows(7))
        stats.append(one.apply())
    one.release()
    told = Told(stats, logp_T.tolist(), one.export(), one.weight_hashes(), one.save(), pretrained_files(one))
    return told, away


def assert_equal(got: Any, want: Any) -> None:
    if isinstance(want, (torch.Tensor, np.ndarray)):
        assert got.dtype == want.dtype
        assert bool((got == want).all())
    elif isinstance(want, dict):
        assert got.keys() == want.keys()
        for key in want:
            assert_equal(got[key], want[key])
    elif isinstance(want, (list, tuple)):
        for one, other in zip(got, want, strict=True):
            assert_equal(one, other)
    elif isinstance(want, Told):
        assert_equal(vars(got), vars(want))
    else:
        assert repr(got) == repr(want)


@pytest.mark.parametrize("name", [pytest.param(n, marks=NEEDS.get(n, ())) for n in CASES])
def test_every_bit_that_is_told_is_that_of_a_learner_whose_tensors_stay(folder: Path, name: str) -> None:
    case = CASES[name]
    want = lived(ONE, case, folder)
    for kind in ("optimizer", "all"):
        assert_equal(lived(ONE, of_kind(case, kind), folder), want)


@pytest.mark.parametrize("name", ["a head of the loss", pytest.param("several buckets", marks=pytest.mark.slow)])
def test_two_ranks_give_their_bits_too(together: RankProcesses, folder: Path, name: str) -> None:
    case = CASES[name]
    want = together.run(2, lived, case, folder)
    assert_equal(together.run(2, lived, of_kind(case, "all"), folder), want)


def test_a_checkpoint_is_read_alike_into_every_state_and_from_each(folder: Path) -> None:
    case, saved = Case(counts=(8, 5)), list[Any]()
    for kind in ("none", "optimizer", "all"):
        one = of_kind(case, kind).learner(ONE, folder)
        case.update(one)
        one.release()
        saved.append(one.save())
    assert_equal(saved[1:], saved[:1] * 2)
    again = [of_kind(case, kind).learner(ONE, folder) for kind in ("none", "optimizer", "all")]
    stats = []
    for one in again:
        one.load(saved[0])
        one.release()
        one.load(saved[0])  # while its weights are away
        assert_equal(one.save(), saved[0])
        stats.append(case.update(one))
    assert_equal(stats[1:], stats[:1] * 2)


@pytest.mark.parametrize("fails_at", [0, 7, 30])
def test_a_move_that_fails_midway_loses_nothing(folder: Path, fails_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory can't be page-locked, and where the device has no room for what comes back."""
    one = of_kind(Case(), "all").learner(ONE, folder)
    want, made, resized = one.export(), iter(range(99)), iter(range(99))
    buffer, resize = offload.host_buffer, torch.UntypedStorage.resize_

    def page_lock(size: int, device: torch.device) -> torch.Tensor:
        if next(made) == fails_at:
            raise MemoryError("no memory")
        return buffer(size, device)

    def allocate(storage: torch.UntypedStorage, size: int) -> Any:
        if size and next(resized) == fails_at:
            raise torch.OutOfMemoryError("no room")
        return resize(storage, size)

    monkeypatch.setattr(offload, "host_buffer", page_lock)
    monkeypatch.setattr(torch.UntypedStorage, "resize_", allocate)
    with pytest.raises(MemoryError, match="no memory"):
        one.release()
    assert one.offload.on_device > 0
    assert_equal(one.export(), want)
    one.release()
    assert one.offload.on_device == 0
    with pytest.raises(torch.OutOfMemoryError, match="no room"):
        one.begin(0, NORMALISERS)
    assert_equal(one.export(), want)
    one.begin(0, NORMALISERS)
    assert_equal(one.export(), want)


def test_what_is_away_has_no_bytes_on_the_device_and_its_buffers_are_made_once(folder: Path) -> None:
    one = of_kind(Case(), "all").learner(ONE, folder)
    weights, on_host = one.offload.on_device, set[int]()
    for step in range(3):
        one.begin(step, NORMALISERS)
        one.accumulate(random_rows(step))
        one.apply()
        assert one.offload.on_device == weights, "the moments are away"
        one.release()
        assert one.offload.on_device == 0
        on_host.add(one.offload.on_host)
    assert on_host == {3 * weights}
