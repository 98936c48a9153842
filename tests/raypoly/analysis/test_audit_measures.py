"""Measures over groups, and what is asked of them."""

from dataclasses import replace

import pytest

from raypoly.analysis.audit_measures import (
    MEASURES,
    AuditedGroup,
    compare_judges,
    find_unmet,
    measure_judge,
    parse_requirements,
)
from raypoly.core.errors import UsageError

RIGHT = AuditedGroup("right", (1, 1, 2, 0), (5, 5, 1, 0), agreements={"renaming": 1.0})
MERGED = AuditedGroup("merged", (1, 1, 2, 2), (1, 1, 1, 1), agreements={"renaming": 0.5})
REFUSED = AuditedGroup("refused", (1, 2), None, "it refused to answer")


def test_means_are_over_groups_and_counts_are_added_up_over_them() -> None:
    found = measure_judge([RIGHT, MERGED, REFUSED])
    assert list(found) == [name for name in MEASURES if name in found]
    assert found["ari"].value == 0.5  # 1 and 0
    assert found["ari"].interval is not None
    assert found["ari"].interval.count == 2
    assert found["precision"].value == 3 / 7  # 1 of 1 pair, 2 of 6
    assert found["recall"].value == 1.0
    assert found["degenerate_recall"].value == 1.0
    assert found["renaming"].value == 0.75
    assert found["refused"].value == pytest.approx(1 / 3)
    assert "run_to_run" not in found


def test_a_judge_that_refuses_everything_has_no_measure_but_that() -> None:
    found = measure_judge([REFUSED])
    assert {name: measure.value for name, measure in found.items() if measure.value is not None} == {"refused": 1.0}
    assert find_unmet(found, {"ari": 0.1}) == ["ari has no value"]


def test_judges_are_compared_over_the_groups_that_both_labelled() -> None:
    tests = compare_judges([RIGHT, REFUSED, MERGED], [AuditedGroup("right", RIGHT.gold, (1, 2, 3, 0)), RIGHT, MERGED])
    assert tests["ari"].groups == 2
    assert tests["ari"].difference == 0.5
    assert "f1" not in tests


def test_groups_of_one_problem_count_as_one_in_intervals_and_tests() -> None:
    labels = [(1, 2, 1, 2), (1, 1, 2, 2)]
    apart = [AuditedGroup(str(i), (1, 1, 2, 2), labels[i % 4 == 0]) for i in range(16)]
    together = [replace(group, problem=str(i % 4)) for i, group in enumerate(apart)]
    wide, narrow = (measure_judge(groups)["ari"].interval for groups in (together, apart))
    assert wide is not None
    assert narrow is not None
    assert (wide.count, narrow.count, wide.mean) == (4, 16, narrow.mean)
    assert wide.high - wide.low > narrow.high - narrow.low
    for groups, count in ((together, 3), (apart, 12)):
        perfect = [replace(group, found=group.gold) for group in groups]
        assert compare_judges(perfect, groups)["ari"].p_value == pytest.approx(2 / 2**count)


def test_the_p_value_of_a_measure_is_adjusted_for_the_others() -> None:
    names = ("renaming", "reordering")
    one = [AuditedGroup(str(i), (1, 1), (1, 1), agreements=dict.fromkeys(names, 1.0)) for i in range(6)]
    other = [replace(each, agreements={"renaming": 0.5, "reordering": 1.0}) for each in one]
    found = compare_judges(one, other)
    assert found["renaming"].p_value == 2 / 2**6
    assert found["renaming"].holm == pytest.approx(3 * 2 / 2**6), "ari was compared, too"
    assert found["reordering"].holm == 1.0


def test_a_requirement_that_is_met_is_silent_and_one_that_is_not_says_by_how_much() -> None:
    found = measure_judge([RIGHT, MERGED, REFUSED])
    assert find_unmet(found, parse_requirements(["ari=0.5", "refused=0.4"])) == []
    assert find_unmet(found, parse_requirements(["ari=0.7", "refused=0.02"])) == [
        "ari is 0.500, below 0.7",
        "refused is 0.333, above 0.02",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("arii=0.7", "did you mean ari?"),
        ("zzz=0.7", "the measures are ari, precision"),
        ("ari", "write ari=0.7"),
        ("ari=70", "from -1 to 1"),
        ("ari=nan", "from -1 to 1"),
    ],
)
def test_what_is_no_requirement_is_refused_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_requirements([text])
