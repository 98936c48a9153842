"""The ensemble: a majority on every pair, and no label that only a bridge would give."""

from collections.abc import Sequence

import numpy as np
import pytest

from raypoly.core.config import JudgeConfig
from raypoly.core.errors import JudgeRefused, JudgeUnavailable, UsageError
from raypoly.core.values import Evidence, Labels, Problem, Rollout, TestSuite, Verdict
from raypoly.strategies.judge import build_judge
from raypoly.strategies.judge.ensemble import combine_votes

PROBLEM = Problem("p", "# pairs", "f", TestSuite("check", ""))
ROLLOUT = Rollout(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32), "", "stop", 1, 0)
HERE = "tests.raypoly.strategies.judge.test_ensemble"


def vote(*ids: int) -> Labels:
    """One judge's labels; 0 is degenerate."""
    return Labels(np.array(ids, np.int32), np.array([i == 0 for i in ids], np.bool_), "one")


def verdict(*features: str) -> Verdict:
    return Verdict("wrong", 0, 1, 0.0, "", Evidence("", (), {}, "", features))


def ask(members: list[str], verdicts: Sequence[Verdict]) -> Labels:
    judge = build_judge(JudgeConfig(name="ensemble", members=members))
    return judge.label(PROBLEM, [ROLLOUT] * len(verdicts), verdicts)


class Lumping:
    """Everything is one strategy."""

    def __init__(self, config: JudgeConfig) -> None:
        pass

    def label(self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]) -> Labels:
        return vote(*[1] * len(verdicts))

    def probe(self) -> None:
        pass


class Refusing(Lumping):
    def label(self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]) -> Labels:
        raise JudgeRefused("I will not.")


class Away(Lumping):
    def label(self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]) -> Labels:
        raise JudgeUnavailable("I am out.")

    def probe(self) -> None:
        raise JudgeUnavailable("I am out.")


def test_a_pair_is_together_only_where_more_than_half_say_so() -> None:
    assert combine_votes([vote(1, 1, 2), vote(1, 1, 2), vote(1, 2, 2)]).ids.tolist() == [1, 1, 2]
    assert combine_votes([vote(1, 1), vote(1, 2)]).ids.tolist() == [1, 2]


def test_a_bridge_joins_no_two_clusters() -> None:
    # 0-1 and 1-2 have a majority, 0-2 has none
    assert combine_votes([vote(1, 1, 1), vote(1, 1, 2), vote(1, 2, 2)]).ids.tolist() == [1, 1, 2]


def test_degenerate_goes_by_majority_and_is_no_cluster() -> None:
    labels = combine_votes([vote(0, 1, 0), vote(0, 0, 1), vote(1, 1, 0)])
    assert labels.degenerate.tolist() == [True, False, True]
    assert labels.ids.tolist() == [0, 1, 0]
    assert labels.known


def test_ids_of_one_judge_are_never_compared_with_those_of_another() -> None:
    assert combine_votes([vote(1, 2, 2), vote(2, 1, 1), vote(5, 3, 3)]).ids.tolist() == [1, 2, 2]


def test_it_asks_the_judges_that_the_config_names() -> None:
    groups = [verdict("depth_1", "hash"), verdict("depth_2"), verdict("depth_2")]
    labels = ask(["structural", f"{HERE}:Lumping"], groups)
    assert labels.ids.tolist() == [1, 2, 2]
    assert labels.judge == "ensemble(structural-approach-4+one)"


@pytest.mark.parametrize(("member", "error"), [("Refusing", JudgeRefused), ("Away", JudgeUnavailable)])
def test_it_refuses_or_is_away_where_a_member_is(member: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        ask(["structural", f"{HERE}:{member}"], [verdict("hash")])


def test_its_probe_waits_for_every_member() -> None:
    with pytest.raises(JudgeUnavailable):
        build_judge(JudgeConfig(name="ensemble", members=["structural", f"{HERE}:Away"])).probe()


@pytest.mark.parametrize("members", [[], ["structural"], ["structural", "ensemble"], ["structural"] * 3])
def test_members_that_make_no_ensemble_are_refused_by_name(members: list[str]) -> None:
    with pytest.raises(UsageError, match=r"judge\.members"):
        build_judge(JudgeConfig(name="ensemble", members=members))
