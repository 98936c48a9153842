"""The joint loss of CPPO (equation 13): worked numbers, and a gradient that is the sum of its two regions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from raypoly.losses import Loss, Tokens, build
from raypoly.losses.aggregation import Normalisers, response_weight
from raypoly.objectives.cppo import CPPO
from tests.support.worked_numbers import worked_cases

Row = dict[str, Any]


def loss_of(loss: Loss, rows: Sequence[Row], normalisers: Normalisers, logp_T: torch.Tensor | None = None) -> Any:
    """The step's loss over these rows, and the log-probabilities that its gradient goes through."""
    lengths = [len(row["logp"]) for row in rows]

    def flat(key: str) -> torch.Tensor:
        return torch.tensor([value for row in rows for value in row[key]], dtype=torch.float64)

    live_T = flat("logp").requires_grad_() if logp_T is None else logp_T
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
    return (loss.total(tokens) * torch.tensor(weights, dtype=torch.float64)).sum(), live_T


@pytest.mark.parametrize("case", worked_cases("cppo_loss", "cppo"))
def test_worked_numbers(case: Any) -> None:
    given = case["input"]
    rows = [*given["plans"], *given["solves"]]
    loss = build("clipped_surrogate", **{**CPPO.loss_defaults, "aggregation": given["aggregation"]})
    found, _ = loss_of(loss, rows, Normalisers(given["prompts"], len(rows), given["t_max"] or 1))
    assert found.item() == pytest.approx(case["expected"]["loss"], abs=1e-10)


def test_the_joint_gradient_is_that_of_plans_and_that_of_attempts() -> None:
    torch.manual_seed(0)

    def row(size: int, advantage: float) -> Row:
        logp = (-2 * torch.rand(size, dtype=torch.float64)).tolist()
        return {"logp": logp, "old": [x + 0.1 for x in logp], "ref": [x - 0.2 for x in logp], "A": advantage}

    plans = [row(5, 0.7), row(3, -0.7)]
    attempts = [row(4, 1.0), row(2, -1.0), row(6, 0.0), row(1, 0.0)]
    loss = build("clipped_surrogate", **CPPO.loss_defaults)
    normalisers = Normalisers(1, len(plans) + len(attempts), 1)  # planned rows, whatever has rows

    def gradient(rows: Sequence[Row]) -> torch.Tensor:
        value, live_T = loss_of(loss, rows, normalisers)
        value.backward()
        assert live_T.grad is not None
        return live_T.grad

    joint = gradient([*plans, *attempts])
    parts = torch.cat([gradient(plans), gradient(attempts)])
    torch.testing.assert_close(joint, parts, rtol=0, atol=1e-12)
    assert gradient(plans).any()
    assert gradient(attempts)[6:].any(), (
        "a zero advantage has a gradient by the KL term: so a region has no rows at all"
    )
