"""Terms: their formulas, their gates, and what is unknown; how objectives take them, by numbers worked by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from raypoly.algorithms.objectives import Batch, build
from raypoly.core.errors import RaypolyError
from raypoly.core.settings import load
from raypoly.core.values import Evidence, Float64, Problem, Rollout, TestSuite, Verdict
from raypoly.verifier.rewards import AnsweredGroup, Rewards
from raypoly.verifier.rewards.terms import Term, build_terms

PROBLEM = Problem("p", "prompt", "f", TestSuite("calls", "[]"))
EVIDENCE = Evidence("", (), {}, "")


class Given(Term):
    """Gives the lengths, with what `GIVEN` sets in their place."""

    def compute(self, group: AnsweredGroup) -> Any:
        return GIVEN["values"]


GIVEN: dict[str, Any] = {}


def group(lengths: Sequence[int], outcome: Sequence[float], texts: Sequence[str] = (), **more: Any) -> AnsweredGroup:
    texts = texts or [""] * len(lengths)
    tokens = [np.zeros(length, np.int32) for length in lengths]
    rollouts = tuple(
        Rollout(np.zeros(1, np.int32), own, np.zeros(len(own), np.float32), text, "stop", 0, 0)
        for own, text in zip(tokens, texts, strict=True)
    )
    verdicts = tuple(
        Verdict("passed" if it >= 1 else "wrong", int(it >= 1), 1, 0.1, evidence=EVIDENCE) for it in outcome
    )
    return AnsweredGroup(PROBLEM, rollouts, verdicts, np.array(outcome), max_tokens=100, **more)


def values(name: str, answered: AnsweredGroup, *more: str) -> Float64:
    config = load(None, [f"reward.terms.{name}.weight=1", *more], lambda text: None)
    (term,) = build_terms(config)
    return term.values(answered)


def test_length_pays_the_shortest_right_answer_most() -> None:
    answered = group([10, 20, 5, 40], [1, 1, 0, 1])
    gated = values("length", answered, "reward.terms.length.when=passed")
    assert gated.tolist() == [1.0, 0.5, 0.0, 0.25]
    less = values("length", answered, "reward.terms.length.when=passed", "reward.terms.length.penalty=true")
    assert less.tolist() == [0.0, -0.5, 0.0, -0.75]
    assert values("length", answered).tolist() == [1.0, 0.5, 1.0, 0.25]
    assert values("length", answered, "reward.terms.length.when=failed").tolist() == [0.0, 0.0, 1.0, 0.0]


def test_length_is_unknown_where_nothing_is_right_unless_nobody_has_it() -> None:
    answered = group([10, 20], [0, 0.5])
    assert np.isnan(values("length", answered)).all()
    assert values("length", answered, "reward.terms.length.when=passed").tolist() == [0.0, 0.0]


def test_overlong_falls_from_the_buffer_on() -> None:
    answered = group([70, 80, 90, 100], [1, 0, 1, 0])
    assert values("overlong", answered).tolist() == [0.0, 0.0, -0.5, -1.0]
    assert values("overlong", answered, "reward.terms.overlong.buffer=40").tolist() == [-0.25, -0.5, -0.75, -1.0]


def test_format_asks_for_a_fenced_block_that_parses() -> None:
    answered = group([1, 1], [0, 0], ["```python\nx = 1\n```", "x = 1"])
    assert values("format", answered).tolist() == [1.0, 0.0]


def test_random_is_a_coin_by_seed_step_and_place() -> None:
    draws = [
        values("random", group([1] * 64, [0] * 64, step=step, seed=seed))
        for step, seed in ((0, 0), (0, 0), (1, 0), (0, 1))
    ]
    assert draws[0].tolist() == draws[1].tolist()
    assert draws[0].tolist() != draws[2].tolist() != draws[3].tolist()
    assert 16 < draws[0].sum() < 48
    part = group([1] * 64, [0] * 64).of(range(3, 9))
    assert values("random", part).tolist() == draws[0][3:9].tolist(), "a rollout's coin does not depend on the others"


@pytest.mark.parametrize("given", [[1.0], [[1.0, 2.0]], [1.0, float("inf")]])
def test_a_term_that_gives_no_n_numbers_is_named(given: Any) -> None:
    GIVEN["values"] = given
    with pytest.raises(RaypolyError, match=r"^reward\.terms\.mine gave .* for the 2 responses to problem p:"):
        values("mine", group([1, 1], [1, 0]), f"reward.terms.mine.name={__name__}:Given")


def test_one_unknown_value_leaves_the_term_out_for_the_group_if_it_counts() -> None:
    own = f"reward.terms.mine.name={__name__}:Given"
    GIVEN["values"] = [2.0, float("nan")]
    assert np.isnan(values("mine", group([1, 1], [1, 0]), own)).all()
    assert values("mine", group([1, 1], [1, 0]), own, "reward.terms.mine.when=passed").tolist() == [2.0, 0.0]


def test_the_same_section_builds_outcome_terms_and_weights() -> None:
    words = ["reward.terms.length.weight=0.1", "reward.terms.length.when=passed", "reward.terms.random.weight=-0.5"]
    rewards = Rewards.of_run(load(None, words, lambda text: None))
    assert rewards.in_stage
    assert not rewards.own
    assert dict(rewards.weights) == {"length": 0.1, "random": -0.5}
    assert not Rewards.of_run(load(None)).in_stage


OUTCOMES = ([1, 1, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1], [0.5, 0, 0, 0, 0, 0, 0, 1])
TERMS = {
    "short": ([1, 0.5, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5], [0, 0, 0, 0, 0, 0, 0, 1]),
    "form": ([1, 1, 1, 1, 0, 0, 0, 0], [1] * 8, [0, 1, 0, 1, 0, 1, 0, 1]),
    "long": ([0, 0, -1, 0, 0, 0, 0, 0], [0] * 8, [-0.5, 0, 0, 0, 0, 0, 0, 0]),
}
WEIGHTS = {"short": 0.2, "form": 0.1, "long": 0.5}


def parts(number: int) -> dict[str, Any]:
    terms = {name: np.array(given[number], float) for name, given in TERMS.items()}
    return {"rewards": OUTCOMES[number], "terms": terms, "weights": WEIGHTS}


def test_linear_objectives_take_the_weighted_sum() -> None:
    # 1 + .2 + .1, 1 + .1 + .1, .1 - .5, .1, 0 ...: their mean is 2.2 / 8
    found = build("grpo").advantages(**parts(0))
    assert found == pytest.approx([1.025, 0.925, -0.675, -0.175, *[-0.275] * 4], abs=1e-12)
    # all right: 1.3 four times and 1.2 four times
    assert build("grpo").advantages(**parts(1)) == pytest.approx([0.05] * 4 + [-0.05] * 4, abs=1e-12)
    # .5 - .25, .1, 0, .1, 0, .1, 0, 1 + .2 + .1: their mean is 1.85 / 8
    third = [0.25, 0.1, 0, 0.1, 0, 0.1, 0, 1.3]
    assert build("rloo").advantages(**parts(2)) == pytest.approx([(r - 1.85 / 8) * 8 / 7 for r in third], abs=1e-12)


def test_objectives_that_multiply_get_the_outcome_and_the_terms_beside() -> None:
    labels = [1, 2, 1, 2, 3, 3, 3, 3]
    poly = build("poly_epo", set_size=4)
    alone = poly.advantages(rewards=OUTCOMES[0], labels=labels)
    # the terms' sums are .3, .2, -.4, .1, 0, 0, 0, 0: their mean is .2 / 8
    beside = np.array([0.3, 0.2, -0.4, 0.1, 0, 0, 0, 0]) - 0.025
    assert poly.advantages(labels=labels, **parts(0)) == pytest.approx(alone + beside, abs=1e-12)
    # a term in the rewards would make them -1 throughout, and novelty a punishment
    bad = {"rewards": [0.0] * 8, "labels": labels, "terms": {"t": [-1.0] * 8}, "weights": {"t": 1.0}}
    assert poly.advantages(**bad) == pytest.approx(np.zeros(8), abs=1e-12)
    assert poly.advantages(rewards=[-1.0] * 8, labels=[2] + [1] * 7)[0] == pytest.approx(-8.75)


def normalised(values: Any) -> Float64:
    found: Float64 = (np.asarray(values, float) - np.mean(values)) / (np.std(values, ddof=1) + 1e-6)
    return found


def test_gdpo_normalises_each_part_then_whitens_the_batch() -> None:
    gdpo = build("gdpo")
    found = [gdpo.advantages(**parts(number)) for number in range(3)]
    for number, got in enumerate(found):
        terms = (w * normalised(TERMS[name][number]) for name, w in WEIGHTS.items())
        assert got == pytest.approx(normalised(OUTCOMES[number]) + sum(terms), abs=1e-12)
    whole = np.concatenate(found)
    expected = np.split((whole - whole.mean()) / (whole.std(ddof=1) + 1e-6), 3)
    final = gdpo.finish(Batch.of(found, [np.ones(8)] * 3))
    np.testing.assert_allclose(np.array(final), np.array(expected), atol=1e-12)


def test_gdpo_with_the_outcome_alone_is_grpo_whitened_over_the_batch() -> None:
    grpo = [build("grpo", std="sample").advantages(outcome) for outcome in OUTCOMES]
    whole = np.concatenate(grpo)
    expected = (whole - whole.mean()) / (whole.std(ddof=1) + 1e-6)
    found = build("gdpo").finish(Batch.of([build("gdpo").advantages(o) for o in OUTCOMES], [np.ones(8)] * 3))
    np.testing.assert_allclose(np.concatenate(found), expected, atol=1e-12)


def test_gdpo_tells_apart_what_one_sum_does_not() -> None:
    # of two answers one has the outcome, the other the term: one sum for both, but the term is rarer in its part
    outcome, term = [1.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 0.0]
    both = {"rewards": outcome, "terms": {"t": term}, "weights": {"t": 1.0}}
    assert np.ptp(build("grpo").advantages(**both)) == 0
    outcome[2] = 0.0
    both = {"rewards": outcome, "terms": {"t": term}, "weights": {"t": 1.0}}
    sums, parted = build("grpo").advantages(**both), build("gdpo").advantages(**both)
    assert sums[0] == sums[1]
    assert parted[1] > parted[0]
