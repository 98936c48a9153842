"""Which groups of a step the learner gets."""

from __future__ import annotations

import numpy as np
import pytest

from raypoly.settings import load
from raypoly.values import Verdict
from tests.support.sample_groups import make_group
from workflows.step.training_group import TrainingGroup
from workflows.step.update_rows import UpdateRows


@pytest.mark.parametrize("loss", ["flowrl", "policy_gradient"])
def test_a_loss_that_fits_advantages_never_sees_zeros_that_are_unknown(loss: str) -> None:
    """Others leave rows of zeros out themselves."""
    fits = loss == "flowrl"
    known, unjudged = make_group(0, 0, 4), make_group(0, 1, 4, unjudged=True)
    aside = known.with_parts(score=(Verdict("infra", 0, 1, 0.0),) * 4)
    for objective, needs_labels in (("poly_epo", True), ("grpo", False)):
        rows = UpdateRows(load(None, [f"objective.name={objective}", f"loss.name={loss}"], lambda text: None))
        counts = [rows.counts(TrainingGroup(group, np.zeros(4), np.zeros(4))) for group in (known, unjudged, aside)]
        assert counts == [True, not (fits and needs_labels), not fits]
