"""The gold groups: read strictly, whole, and true to what they say of their programs."""

import json
import os
import random
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.errors import UsageError
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.strategies.judge.gold import GoldGroup, read_gold_groups
from raypoly.verifier.sandbox import Sandbox
from tests.support.small_problems import SHARED

ROOT = Path(__file__).parents[4]
EXAMPLES = SHARED / "judge" / "gold-examples.jsonl"
KINDS = {"bug", "decoy", "renamed", "reformatted", "injection", "degenerate", "dead_code"}
ROW: dict[str, Any] = {"id": "g", "problem": "Add.", "programs": ["def f(): 1", ""], "labels": [1, 0]}
OWN = read_gold_groups()


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(ScorerConfig(memory_mib=128), StrategyEvidence()) as sandbox:
        yield sandbox


def kinds(group: GoldGroup, place: int) -> set[str]:
    return {part.partition(":")[0] for part in group.notes.get(place, "").split("; ") if part}


def sample() -> list[GoldGroup]:
    if os.environ.get("RAYPOLY_GOLD") == "all":
        return OWN
    return random.Random(20261121).sample(OWN, 6)


def test_the_set_is_large_enough_to_measure_a_judge_by() -> None:
    assert len(OWN) >= 44
    assert all(len(group.programs) == 8 for group in OWN)
    noted = [kind for group in OWN for place in range(8) for kind in kinds(group, place)]
    assert {kind: noted.count(kind) for kind in KINDS if noted.count(kind) < 5} == {}


@pytest.mark.parametrize("group", OWN, ids=lambda group: group.task_id)
def test_a_group_says_what_it_holds(group: GoldGroup) -> None:
    found = set(group.labels) - {0}
    assert found == set(group.strategies)
    assert 2 <= len(found) <= 5
    assert group.certainty in ("high", "medium")
    assert len(group.reasons) > 40
    assert group.entry_point.rpartition(".")[2] in "".join(group.programs)
    assert len(set(group.programs)) == 8
    assert set().union(*(kinds(group, place) for place in range(8))) <= KINDS


@pytest.mark.parametrize("group", OWN, ids=lambda group: group.task_id)
def test_only_what_is_noted_as_a_bug_or_as_degenerate_fails(group: GoldGroup) -> None:
    assert group.passes is not None
    for place, (label, passed) in enumerate(zip(group.labels, group.passes, strict=True)):
        noted = kinds(group, place)
        assert (label == 0) == ("degenerate" in noted)
        if label:
            assert passed == ("bug" not in noted)


@pytest.mark.parametrize("group", sample(), ids=lambda group: group.task_id)
def test_the_sandbox_confirms_which_programs_pass(sandbox: Sandbox, group: GoldGroup) -> None:
    verdicts = [sandbox.score(group.as_problem(), program) for program in group.programs]
    assert [verdict.status for verdict in verdicts].count("infra") == 0
    assert tuple(verdict.passed for verdict in verdicts) == group.passes


@pytest.mark.skipif(not EXAMPLES.exists(), reason="the shared gold examples are not on this machine")
def test_no_problem_or_program_is_taken_from_the_shared_examples() -> None:
    shared = read_gold_groups(EXAMPLES)
    assert not {group.task_id for group in OWN} & {group.task_id for group in shared}
    words = [" ".join(program.split()) for group in OWN for program in group.programs]
    assert not set(words) & {" ".join(program.split()) for group in shared for program in group.programs}


def test_the_page_counts_right() -> None:
    page = (ROOT / "docs" / "gold-set.md").read_text()
    strategies = [name for group in OWN for name in group.strategies]
    programs = [program for group in OWN for program in group.programs]
    assert f"{len(OWN)} groups, {len(programs)} programs and {len(strategies)} strategies" in page
    noted = Counter(kind for group in OWN for place in range(8) for kind in kinds(group, place))
    assert {kind: int(count) for kind, count in re.findall(r"`(\w+)` \((\d+)", page)} == noted
    sizes = Counter(len(set(group.labels) - {0}) for group in OWN)
    assert f"{sizes[2]} groups have two strategies, {sizes[3]} three, {sizes[4]} four and {sizes[5]} five" in page
    assert f"{sum(group.certainty == 'medium' for group in OWN)} groups are of `medium` certainty" in page


def test_the_wheel_carries_the_set() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "gold.jsonl" in project["tool"]["setuptools"]["package-data"]["raypoly.strategies.judge.gold"]


def test_a_row_needs_four_columns_only(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(ROW) + "\n\n")
    (group,) = read_gold_groups(path)
    assert group == GoldGroup("g", "Add.", ("def f(): 1", ""), (1, 0))


@pytest.mark.parametrize("entry_point", ["f", ""])
def test_a_group_without_tests_can_be_scored_for_its_evidence(
    sandbox: Sandbox, tmp_path: Path, entry_point: str
) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({**ROW, "entry_point": entry_point}))
    (group,) = read_gold_groups(path)
    verdict = sandbox.score(group.as_problem(), group.programs[0])
    assert verdict.evidence is not None
    assert verdict.evidence.canonical.startswith("def ")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({**ROW, "labels": [1]}, "1 labels for 2 programs"),
        ({**ROW, "labels": [1, -1]}, "strategy ids from 1"),
        ({**ROW, "labels": [1, "2"]}, "labels.1"),
        ({**ROW, "labels": [True, 1]}, "labels.0"),
        ({**ROW, "passes": [True]}, "1 passes for 2 programs"),
        ({**ROW, "notes": {"2": "bug"}}, "from 0 to 1"),
        ({**ROW, "strategies": {"2": "loop"}}, "no strategy is given for label 1"),
        ({**ROW, "strategies": {"one": "loop"}}, "by their ids"),
        ({**ROW, "programs": ["only one"], "labels": [1]}, "programs"),
        ({k: v for k, v in ROW.items() if k != "problem"}, "problem: Field required"),
        ([ROW], "the row"),
    ],
)
def test_a_row_that_is_no_gold_group_is_named_by_file_and_line(tmp_path: Path, row: Any, words: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({**ROW, "id": "fine"}) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(UsageError, match=r"mine\.jsonl line 2: ") as refused:
        read_gold_groups(path)
    assert words in str(refused.value)


def test_a_file_without_a_group_or_with_one_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    for content, words in (
        ("", "has no gold group"),
        ((json.dumps(ROW) + "\n") * 2, "line 2: 'g' appears a second time"),
    ):
        path.write_text(content)
        with pytest.raises(UsageError, match=words):
            read_gold_groups(path)
