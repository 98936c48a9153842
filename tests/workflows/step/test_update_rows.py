"""Which groups of a step the learner gets."""

from __future__ import annotations

import numpy as np
import pytest

from raypoly.core.settings import load
from raypoly.core.values import Verdict
from tests.support.sample_groups import make_group
from workflows.startup.run_parts import NamedParts
from workflows.step.training_group import TrainingGroup, UpdateRows


@pytest.mark.parametrize("loss", ["flowrl", "policy_gradient"])
def test_a_loss_that_fits_advantages_never_sees_zeros_that_are_unknown(loss: str) -> None:
    """Others leave rows of zeros out themselves. A skipped group has no gradient, of KL and entropy terms neither."""
    fits = loss == "flowrl"
    known, unjudged = make_group(0, 0, 4), make_group(0, 1, 4, unjudged=True)
    aside = known.with_findings(score=(Verdict("infra", 0, 1, 0.0),) * 4)
    for objective, needs_labels in (("poly_epo", True), ("grpo", False)):
        config = load(None, [f"objective.name={objective}", f"loss.name={loss}"], lambda text: None)
        parts = NamedParts.build(config)
        rows = UpdateRows(config, parts.objective, parts.loss, parts.scaffold)
        counts = [rows.counts(TrainingGroup(group, np.zeros(4), np.zeros(4))) for group in (known, unjudged, aside)]
        assert counts == [True, not (fits and needs_labels), False]
