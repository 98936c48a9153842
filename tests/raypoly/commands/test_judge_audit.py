"""Auditing a judge: its table, the file, and the exit it earns."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from raypoly.analysis.audit_measures import CONSISTENCIES, measure_judge
from raypoly.commands.judge_audit import audit, audit_file
from raypoly.commands.section_config import (
    JudgeChoice,
    choose_judge,
    choose_other_judge,
    split_requirements,
)
from raypoly.core.config import JudgeConfig, ScorerConfig
from raypoly.core.errors import RaypolyError, SandboxError, UsageError
from raypoly.core.values import Labels, Problem, Rollout, Verdict
from raypoly.strategies.judge.gold import read_gold_groups
from raypoly.strategies.judge.openai.answer_cache import describe_cache
from tests.support.faulty_server import Server, running
from tests.support.gold_rows import ROW, write_rows

SCORER = ScorerConfig(workers=2)
STRUCTURAL = JudgeChoice(JudgeConfig(), SCORER)


class ByText:
    """A judge that a name, a comment or a blank line leads astray: equal texts, equal strategies."""

    def __init__(self, config: JudgeConfig) -> None:
        self.config = config

    def label(self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]) -> Labels:
        texts = [rollout.text for rollout in rollouts]
        ids = np.array([1 + texts.index(text) for text in texts], np.int32)
        return Labels(ids, np.zeros(len(texts), np.bool_), "by-text")

    def probe(self) -> None:
        """Always there."""


class Fickle(ByText):
    """A judge that says something else each time."""

    calls: ClassVar[list[str]] = []

    def label(self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]) -> Labels:
        self.calls.append(problem.id)
        ids = np.arange(len(rollouts)) if len(self.calls) % 2 else np.zeros(len(rollouts))
        return Labels(1 + ids.astype(np.int32), np.zeros(len(rollouts), np.bool_), "fickle")


def choice(judge: type[ByText]) -> JudgeChoice:
    return JudgeChoice(JudgeConfig(name=f"{__name__}:{judge.__name__}"), SCORER)


def test_the_structural_judge_is_steady_under_every_change_of_a_groups_text(tmp_path: Path) -> None:
    (audited,) = audit(read_gold_groups(write_rows(tmp_path / "g.jsonl", ROW)), [STRUCTURAL], runs=2)
    (result,) = audited.results
    assert result.found == (1, 2, 1, 0)
    assert result.ari == 1.0
    assert result.agreements == {name: 1.0 for name in (*CONSISTENCIES, "run_to_run")}


def test_a_judge_that_reads_texts_alone_is_found_out(tmp_path: Path) -> None:
    same = ROW | {"programs": [ROW["programs"][0]] * 6, "labels": [1] * 6}
    (audited,) = audit(read_gold_groups(write_rows(tmp_path / "g.jsonl", same)), [choice(ByText)], runs=1)
    measures = measure_judge(audited.results)
    assert measures["ari"].value == 1.0
    assert measures["reordering"].value == 1.0
    for name in ("renaming", "comments", "dead_code"):
        assert measures[name].value == 0.0


def test_a_judge_that_answers_otherwise_the_second_time_has_no_run_to_run_agreement(tmp_path: Path) -> None:
    Fickle.calls.clear()
    (audited,) = audit(
        read_gold_groups(write_rows(tmp_path / "g.jsonl", ROW)), [choice(Fickle)], runs=2, consistency=False
    )
    assert measure_judge(audited.results)["run_to_run"].value == 0.0


def test_later_runs_ask_anew_past_kept_answers(tmp_path: Path) -> None:
    programs = [f"def f(n):\n    return n, 'strategy_{i}'\n" for i in (1, 2)]
    row = {"id": "a", "problem": "p", "entry_point": "f", "programs": programs, "labels": [1, 2]}
    golds = read_gold_groups(write_rows(tmp_path / "g.jsonl", row))
    with running(Server()) as server:
        judge = JudgeConfig(name="openai", base_url=server.url, model="marker", cache_dir=str(tmp_path / "kept"))
        for _ in range(2):
            (audited,) = audit(golds, [JudgeChoice(judge, SCORER)], runs=3, consistency=False)
            assert measure_judge(audited.results)["run_to_run"].value == 1.0
        assert len(server.bodies) == 1 + 2 + 2
    assert describe_cache(judge).endswith("1 answers, 0.0 MiB of 256 MiB.")
    assert describe_cache(judge, clear=True).endswith("forgotten.")
    assert " 0 answers" in describe_cache(judge)


def test_the_cache_of_a_folder_without_one_is_not_made_by_looking(tmp_path: Path) -> None:
    assert describe_cache(JudgeConfig(cache_dir=str(tmp_path / "none"))).endswith("no answers are kept.")
    assert list(tmp_path.iterdir()) == []


def test_two_judges_stand_side_by_side_and_the_worst_groups_are_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    gold, out = write_rows(tmp_path / "g.jsonl", ROW, ROW | {"id": "other"}), tmp_path / "audit.json"
    audit_file(gold, [choice(ByText), STRUCTURAL], consistency=False, worst=1, json_out=out)
    shown = capfd.readouterr().out
    assert shown.count("gold   1 2 1 0\n  found  1 2 3 4\n  1 = hash table") == 1, "the groups that went worst"
    assert "by-text" in shown
    assert "difference" in shown
    document = json.loads(out.read_text())
    first, second = document["judges"]
    assert first["groups"][0]["found"] == [1, 2, 3, 4]
    assert second["measures"]["ari"]["value"] == 1.0
    assert document["tests"]["ari"]["difference"] == -1.0
    assert 0 < document["tests"]["ari"]["p_value"] <= 1


def test_a_requirement_decides_the_end_and_the_table_is_shown_first(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    gold = write_rows(tmp_path / "g.jsonl", ROW)
    audit_file(gold, [STRUCTURAL], consistency=False, require=["ari=0.9", "refused=0"])
    with pytest.raises(RaypolyError, match=r"by-text is not good enough: ari is 0.000, below 0.7\.") as caught:
        audit_file(gold, [choice(ByText)], consistency=False, require=["ari=0.7"])
    assert caught.value.exit_code == 1
    assert capfd.readouterr().out.count("pairwise F1") == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"require": ["run_to_run=0.9"]}, "needs --runs 2"),
        ({"require": ["renaming=0.9"], "consistency": False}, "drop one"),
        ({"json_out": Path("/nowhere/a.json")}, "there is no folder /nowhere"),
    ],
)
def test_what_can_not_be_had_is_said_before_anything_is_run(options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        audit_file(None, [STRUCTURAL], **options)  # type: ignore[arg-type]


def test_gold_programs_that_could_not_be_run_end_the_audit(tmp_path: Path) -> None:
    golds = read_gold_groups(write_rows(tmp_path / "g.jsonl", ROW | {"tests": "def check(candidate:\n"}))
    with pytest.raises(SandboxError, match="twice could not be run"):
        audit(golds, [STRUCTURAL], runs=1, consistency=False)


def test_the_second_judge_is_another_name_or_the_first_with_one_key_changed() -> None:
    first = choose_judge("openai", ["judge.votes=3", "scorer.memory_mib=99"])
    second = choose_other_judge(first, "judge.view=raw")
    assert (second.judge.name, second.judge.votes, second.judge.view) == ("openai", 3, "raw")
    assert second.scorer == first.scorer
    assert choose_other_judge(first, "structural").judge.name == "structural"
    assert choose_judge("openai", ["judge.name=http"]).judge.name == "openai"
    for same in ("openai", "judge.votes=3"):
        with pytest.raises(UsageError, match="nothing to compare"):
            choose_other_judge(first, same)
    with pytest.raises(UsageError, match="no key of the judge"):
        choose_other_judge(first, "view=raw")


def test_measures_behind_require_are_requirements_and_the_rest_are_overrides() -> None:
    assert split_requirements(["f1=0.8", "judge.view=raw"], ["ari=0.7"]) == (["judge.view=raw"], ["ari=0.7", "f1=0.8"])
    assert split_requirements(["f1=0.8"], []) == (["f1=0.8"], [])
