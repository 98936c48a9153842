"""A replay that gives other weights is refused where bits must repeat, and marked where they need not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from raypoly.errors import WeightsMismatch
from raypoly.settings import load
from raypoly.store import Lease
from raypoly.store.local import LocalStore
from raypoly.values import Verdict
from tests.raypoly.store.samples import make_group
from workflows.checkpoints import Checkpoints
from workflows.journal import Journal
from workflows.learning import Learning, Trained
from workflows.saving import Saver


def learning(folder: Path, notes: list[str], *overrides: str) -> Learning:
    store = LocalStore(folder / "run")
    lease = Lease.acquire(store, "test")
    journal = Journal(store, lease)
    saver = Saver(Checkpoints(store, lease), journal.settle, notes.append)
    config = load(None, overrides, lambda text: None)
    return Learning(config, folder / "model", journal, saver, lambda rank: {}, notes.append)


def test_other_weights_than_the_run_had_are_refused_on_a_cpu(tmp_path: Path) -> None:
    one = learning(tmp_path, [])
    one.check_digest(3, "abc", "abc", 1)
    with pytest.raises(WeightsMismatch, match="Replaying step 3 gave other weights") as refused:
        one.check_digest(3, "abc", "abd", 1)
    assert "\n" not in str(refused.value)
    assert one.drifted == []


@pytest.mark.parametrize(
    ("override", "advised"),
    [
        ((), True),
        (("loss.aggregation=token_mean",), True),
        (("loss.importance_cap=2",), False),
        (("loss.name=clipped_surrogate",), False),
    ],
)
def test_kernels_that_round_otherwise_are_told_and_remembered(
    override: tuple[str, ...], advised: bool, tmp_path: Path
) -> None:
    notes: list[str] = []
    one = learning(tmp_path, notes, *override)
    one.exact = False
    one.check_digest(3, "abc", "abd", 1)
    assert one.drifted == [3]
    assert len(notes) == 1
    assert "off-policy" in notes[0]
    assert ("loss.importance_cap" in notes[0]) is advised


def test_other_weights_on_another_number_of_ranks_are_told_on_a_cpu_too(tmp_path: Path) -> None:
    notes: list[str] = []
    one = learning(tmp_path, notes, "train.ranks=2")
    one.check_digest(3, "abc", "abd", 1)
    assert one.drifted == [3]
    assert "with train.ranks=1, now 2" in notes[0]
    with pytest.raises(WeightsMismatch, match="step 4"):
        one.check_digest(4, "abc", "abd", 2)


@pytest.mark.parametrize("loss", ["flowrl", "policy_gradient"])
def test_a_loss_that_fits_advantages_never_sees_zeros_that_are_unknown(tmp_path: Path, loss: str) -> None:
    """Others leave rows of zeros out themselves."""
    fits = loss == "flowrl"
    known, unjudged = make_group(0, 0, 4), make_group(0, 1, 4, unjudged=True)
    aside = replace(known, verdicts=(Verdict("infra", 0, 1, 0.0),) * 4)
    for objective, needs_labels in (("poly_epo", True), ("grpo", False)):
        one = learning(tmp_path / objective, [], f"objective.name={objective}", f"loss.name={loss}")
        counts = [one._counts(Trained(group, np.zeros(4), np.zeros(4))) for group in (known, unjudged, aside)]
        assert counts == [True, not (fits and needs_labels), not fits]
