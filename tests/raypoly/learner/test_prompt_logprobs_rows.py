"""How likely responses are behind each prompt: as one row at a time, beside training, and on several ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from raypoly.algorithms.losses import build
from raypoly.core.config import TrainConfig
from raypoly.core.values import Float32, Int32, Rollout
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.ranks import ONE, Ranks
from raypoly.learner.training_rows import prompts_of, rows_of
from tests.support.random_rows import NORMALISERS, random_rows
from tests.support.rank_processes import RankProcesses


def learner(folder: Path, ranks: Ranks = ONE, budget: int = 40) -> PolicyLearner:
    config = TrainConfig.model_validate({"token_budget": budget, "lr": 1e-4})
    return PolicyLearner(folder, config, build("policy_gradient"), 0.7, ranks=ranks)


def asked(responses: int = 5) -> tuple[list[Int32], list[Int32]]:
    """Prompts, and responses of which one is empty."""
    rng = np.random.default_rng(4)
    prompts = [rng.integers(2, 200, length).astype(np.int32) for length in (3, 9, 4)]
    lengths = (7, 0, 1, 15, 4)[:responses]
    return prompts, [rng.integers(2, 200, length).astype(np.int32) for length in lengths]


def test_they_are_those_of_one_row_at_a_time(folder: Path) -> None:
    one, (prompts, responses) = learner(folder), asked()
    found = one.cross_logprobs(prompts, responses)
    assert [(each.dtype, each.shape) for each in found] == [(np.float32, (3, len(tokens))) for tokens in responses]
    for tokens, logp_PT in zip(responses, found, strict=True):
        for prompt, logp_T in zip(prompts, logp_PT, strict=True):
            np.testing.assert_allclose(logp_T, one.logprobs(prompt, tokens, 0.7), atol=5e-6)
    assert float(np.abs(found[3][0] - found[3][1]).max()) > 1e-3, "a prompt makes a difference"
    again = one.cross_logprobs(prompts, responses)
    assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))


def test_of_empty_responses_there_is_nothing(folder: Path) -> None:
    (only,) = learner(folder).cross_logprobs(asked()[0], [np.zeros(0, np.int32)])
    assert only.shape == (3, 0)


def test_asking_within_a_step_changes_nothing_of_it(folder: Path) -> None:
    digests = []
    for asks in (False, True):
        one = learner(folder)
        for step in range(2):
            one.begin(step, NORMALISERS)
            for piece in (random_rows(step)[:3], random_rows(step)[3:]):
                one.accumulate(piece)
                if asks:
                    one.cross_logprobs(*asked())
            digests.append(one.apply().weight_digest)
    assert digests[:2] == digests[2:]


def crossed_within_a_step(ranks: Ranks, folder: Path, responses: int) -> tuple[Sequence[Float32], float]:
    """Between two pieces of a step; and the norm of its gradient."""
    one = learner(folder, ranks)
    one.begin(0, NORMALISERS)
    one.accumulate(random_rows()[:3])
    found = one.cross_logprobs(*asked(responses))
    one.accumulate(random_rows()[3:])
    return found, one.apply().grad_norm


@pytest.mark.parametrize(("size", "responses"), [(2, 5), (4, 1)], ids=["two ranks", "fewer rows than four ranks"])
def test_several_ranks_tell_what_one_tells(together: RankProcesses, folder: Path, size: int, responses: int) -> None:
    want, norm = crossed_within_a_step(ONE, folder, responses)
    (got, norm_of_several), *others = together.run(size, crossed_within_a_step, folder, responses)
    assert norm_of_several == pytest.approx(norm, rel=1e-5)
    assert len(got) == responses
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, atol=5e-6)
    assert all(found == () for found, _ in others)


def test_a_group_s_rows_go_prompt_by_prompt_and_keep_their_order_where_there_is_one() -> None:
    prompts = [np.array([z], np.int32) for z in (7, 5, 9)]
    own = [0, 1, 2, 0, 1]
    rollouts = [
        Rollout(prompts[z], np.array([i], np.int32), np.zeros(1, np.float32), "", "stop", i, 0)
        for i, z in enumerate(own)
    ]
    found, numbers = prompts_of(rollouts)
    assert [prompt.tolist() for prompt in found] == [[7], [5], [9]]
    assert numbers.tolist() == own
    made = rows_of(rollouts, np.arange(5.0))
    assert [int(row.tokens[0]) for row in made] == [0, 3, 1, 4, 2] == [int(row.advantage) for row in made]
    assert [int(row.tokens[0]) for row in rows_of(rollouts[:1] + rollouts[3:4], np.zeros(2))] == [0, 3]
