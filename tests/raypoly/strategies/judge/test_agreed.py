"""Labels on which a judge and execution agree."""

import numpy as np
import pytest

from raypoly.core.config import JudgeConfig
from raypoly.core.values import Evidence, Labels, Problem, Rollout, Verdict
from raypoly.strategies.judge import build_judge
from raypoly.strategies.judge.agreed import AgreedJudge, joined
from raypoly.strategies.judge.structural import StructuralJudge
from tests.support.small_problems import calls


def labels(*ids: int, out: tuple[int, ...] = ()) -> Labels:
    return Labels(np.array(ids, np.int32), np.isin(np.arange(len(ids)), out), "one")


class OneByOne:
    """A judge that has no two programs together."""

    version = "7"

    def __init__(self, config: JudgeConfig) -> None:
        self.config = config

    def label(self, problem: Problem, rollouts: list[Rollout], verdicts: list[Verdict]) -> Labels:
        return labels(*range(1, len(verdicts) + 1))

    def clusters(self) -> None:
        raise AssertionError("these are its own")

    def probe(self) -> None:
        raise ConnectionError


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((1, 2, 3), (1, 2, 3), (1, 2, 3)),
        ((1, 1, 2), (1, 2, 3), (1, 1, 2)),
        ((1, 2, 3), (1, 1, 2), (1, 1, 2)),
        # one chain joins all
        ((1, 1, 2, 2), (1, 2, 2, 1), (1, 1, 1, 1)),
        ((1, 1, 2, 3), (1, 2, 2, 3), (1, 1, 1, 2)),
        ((2, 1, 2), (9, 4, 7), (1, 2, 1)),
    ],
)
def test_two_programs_differ_only_where_both_say_so(
    first: tuple[int, ...], second: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    for one, other in ((first, second), (second, first)):
        found = joined(labels(*one), labels(*other))
        assert tuple(found.ids.tolist()) == expected
        assert found.known
        assert found.judge == "agreed(one+one)"


def test_what_either_calls_degenerate_is_and_links_nothing() -> None:
    found = joined(labels(1, 0, 2, 2, out=(1,)), labels(1, 1, 2, 0, out=(3,)))
    assert found.ids.tolist() == [1, 0, 2, 0]
    assert found.degenerate.tolist() == [False, True, False, True]


def verdict(strategy: str) -> Verdict:
    return Verdict("passed", 1, 1, 0.0, "", Evidence("", ("for",), {}, strategy))


def test_a_judge_is_joined_with_execution_by_its_config() -> None:
    config = JudgeConfig(name=f"{__name__}:OneByOne", labels="agreed")
    judge = build_judge(config)
    problem, verdicts = calls(([1], 1)), [verdict("for"), verdict("while"), verdict("for")]
    assert judge.label(problem, [], verdicts).ids.tolist() == [1, 2, 1]
    unseen = [Verdict("passed", 1, 1, 0.0, "", None)] * 2
    assert judge.label(problem, [], unseen).ids.tolist() == [1, 2]
    assert repr(judge).startswith("agreed(")
    assert judge.version == "7"  # type: ignore[attr-defined]
    assert not hasattr(judge, "clusters")
    with pytest.raises(ConnectionError):
        judge.probe()


def test_labels_of_execution_are_the_structural_judges_whatever_the_judge() -> None:
    config = JudgeConfig(name="openai", labels="execution")
    assert config.name == "structural"
    assert isinstance(build_judge(config), StructuralJudge)
    assert isinstance(build_judge(JudgeConfig(labels="agreed")), StructuralJudge)  # it reads execution itself
    members = ["structural", f"{__name__}:OneByOne"]
    judge = build_judge(JudgeConfig(name="ensemble", members=members, labels="agreed"))
    assert isinstance(judge, AgreedJudge)
    assert repr(judge).count("agreed(") == 1
