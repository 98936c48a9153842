"""What the KL terms push a policy towards, on policies small enough to take every expectation exactly."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch

from raypoly.algorithms.losses.loss import kl_terms
from raypoly.algorithms.losses.loss_config import Estimator

Logits = torch.Tensor


def logits(*shape: int, seed: int) -> Logits:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gradient(value: torch.Tensor, by: Logits) -> torch.Tensor:
    return torch.autograd.grad(value, by)[0]


def expected_gradient(term: Callable[[torch.Tensor], torch.Tensor], theta: Logits) -> torch.Tensor:
    """Of a per-token loss of log pi over single tokens that are drawn from pi, every token taken once."""
    logp_V = theta.log_softmax(-1)
    return gradient((logp_V.exp().detach() * term(logp_V)).sum(), theta)


@pytest.fixture
def theta() -> Logits:
    return logits(5, seed=0).requires_grad_()


REFERENCE_V = logits(5, seed=1).log_softmax(-1)


@pytest.mark.parametrize("kind", ["k1", "k2"])
def test_k1_and_k2_have_the_gradient_of_the_kl(kind: Estimator, theta: Logits) -> None:
    logp_V = theta.log_softmax(-1)
    true = gradient((logp_V.exp() * (logp_V - REFERENCE_V)).sum(), theta)
    found = expected_gradient(lambda logp: kl_terms(logp, REFERENCE_V, kind), theta)
    torch.testing.assert_close(found, true)
    assert true.norm() > 0.1


def test_k3_has_the_gradient_of_the_reverse_kl(theta: Logits) -> None:
    logp_V = theta.log_softmax(-1)
    reverse = gradient((REFERENCE_V.exp() * (REFERENCE_V - logp_V)).sum(), theta)
    found = expected_gradient(lambda logp: kl_terms(logp, REFERENCE_V, "k3"), theta)
    torch.testing.assert_close(found, reverse)
    assert reverse.norm() > 0.1


def test_the_plain_difference_of_log_probabilities_would_push_nowhere(theta: Logits) -> None:
    found = expected_gradient(lambda logp: logp - REFERENCE_V, theta)
    torch.testing.assert_close(found, torch.zeros_like(found))


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_k1_and_k3_have_the_value_of_the_kl_and_k2_is_near_it(kind: Estimator, theta: Logits) -> None:
    logp_V = theta.detach().log_softmax(-1)
    true = (logp_V.exp() * (logp_V - REFERENCE_V)).sum()
    torch.testing.assert_close((logp_V.exp() * kl_terms(logp_V, REFERENCE_V, kind)).sum(), true)
    near_V = (theta.detach() + 0.01 * logits(5, seed=2)).log_softmax(-1)
    small = (logp_V.exp() * (logp_V - near_V)).sum()
    torch.testing.assert_close((logp_V.exp() * kl_terms(logp_V, near_V, "k2")).sum(), small, rtol=0.05, atol=0)


@pytest.mark.parametrize("kind", ["k1", "k2"])
def test_over_two_tokens_the_gradient_is_that_of_each_token_given_its_prefix(kind: Estimator) -> None:
    """That the first token decides which second ones are met is left out, as the docstring says."""
    first, second = logits(3, seed=3).requires_grad_(), logits(3, 3, seed=4).requires_grad_()
    reference_first, reference_second = logits(3, seed=5).log_softmax(-1), logits(3, 3, seed=6).log_softmax(-1)
    logp_V, logp_VV = first.log_softmax(-1), second.log_softmax(-1)
    loss = torch.zeros((), dtype=torch.float64)
    for a, b in product(range(3), repeat=2):
        chance = (logp_V[a] + logp_VV[a, b]).exp().detach()
        pair = torch.stack([logp_V[a], logp_VV[a, b]])
        loss = loss + chance * kl_terms(pair, torch.stack([reference_first[a], reference_second[a, b]]), kind).sum()
    found = torch.autograd.grad(loss, (first, second), retain_graph=True)
    of_first = (logp_V.exp() * (logp_V - reference_first)).sum()
    of_second = (logp_V.exp().detach()[:, None] * logp_VV.exp() * (logp_VV - reference_second)).sum()
    torch.testing.assert_close(found, torch.autograd.grad(of_first + of_second, (first, second)))
