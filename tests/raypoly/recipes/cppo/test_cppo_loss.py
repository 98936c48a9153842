"""The joint loss of CPPO (equation 13): worked numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from raypoly.algorithms.losses import Loss, Tokens, build
from raypoly.algorithms.losses.aggregation import Normalisers, response_weight
from raypoly.recipes.cppo.cppo import CPPO
from tests.support.worked_numbers import worked_cases

Row = dict[str, Any]


def loss_of(loss: Loss, rows: Sequence[Row], normalisers: Normalisers) -> float:
    """The step's loss over these rows."""
    lengths = [len(row["logp"]) for row in rows]

    def flat(key: str) -> torch.Tensor:
        return torch.tensor([value for row in rows for value in row[key]], dtype=torch.float64)

    live_T = flat("logp")
    tokens = Tokens(
        logp_T=live_T,
        sampler_logp_T=flat("old"),
        advantage_T=torch.tensor([row["A"] for row in rows], dtype=torch.float64).repeat_interleave(
            torch.tensor(lengths)
        ),
        response_T=torch.arange(len(rows)).repeat_interleave(torch.tensor(lengths)),
        length_S=torch.tensor(lengths),
        entropy_T=torch.zeros_like(live_T),
        reference_logp_T=flat("ref"),
    )
    kind = loss.config.aggregation
    weights = [response_weight(kind, size, normalisers) for size in lengths for _ in range(size)]
    return (loss.total(tokens) * torch.tensor(weights, dtype=torch.float64)).sum().item()


@pytest.mark.parametrize("case", worked_cases("cppo_loss", "cppo"))
def test_worked_numbers(case: Any) -> None:
    given = case["input"]
    rows = [*given["plans"], *given["solves"]]
    loss = build("clipped_surrogate", **{**CPPO.loss_defaults, "aggregation": given["aggregation"]})
    found = loss_of(loss, rows, Normalisers(given["prompts"], len(rows), given["t_max"] or 1))
    assert found == pytest.approx(case["expected"]["loss"], abs=1e-10)
