"""Scaffolds of several rounds: what is sampled when, what is kept, and that a killed run ends with the same bits."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from raypoly.algorithms.objectives import Credit, Objective, ScoredGroup
from raypoly.algorithms.objectives.grpo import relative
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.core.values import Draft, Problem, Rollout, TestSuite
from raypoly.rollouts.scaffolds import Ask, Scaffold
from raypoly.rollouts.scaffolds.run_scaffolds import named_scaffolds
from raypoly.run.store.step_records import CompletedStep, Drafted, decode, encode
from tests.support.virtual_clock import run_virtual
from tests.workflows.step.virtual_run import Recorder, facts, open_virtual, stopped_after, taken


def number(draft: Draft) -> int:
    return int(draft.rollout.tokens[0])


class TwoRounds(Scaffold):
    """Two plans, two attempts behind each, whose prompts hold what the plan said."""

    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> list[Ask]:
        if not drafts:
            return [Ask(f"7 {problem.prompt}", "plan", 2, max_tokens=5)]
        return [Ask(f"{number(drafts[i % 2])} {problem.prompt}", parent=i % 2) for i in range(attempts)]

    def planned_drafts(self, attempts: int) -> int:
        return 2


class Thinks(TwoRounds):
    """Its plans' prompt has begun a thought."""

    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> list[Ask]:
        asks = super().ask(problem, drafts, attempts)
        return asks if drafts else [replace(ask, prompt=f"{ask.prompt} <think>\n") for ask in asks]


class FourRounds(Scaffold):
    """Rounds of one, two and three drafts, each made from the one before, then the attempts."""

    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> list[Ask]:
        if len(drafts) == 6:
            return [Ask(f"{number(drafts[3 + i % 3])} {problem.prompt}", parent=3 + i % 3) for i in range(attempts)]
        made = {0: 1, 1: 2, 3: 3}[len(drafts)]
        last = len(drafts) - 1
        said = f"{number(drafts[last])} " if drafts else ""
        return [Ask(f"{i} {said}{problem.prompt}", "note", parent=last if drafts else None) for i in range(made)]


class Ragged(Scaffold):
    """Every second problem is asked at once, the others behind a draft."""

    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> list[Ask]:
        if int(problem.id[1:]) % 2:
            return [Ask(problem.prompt, count=attempts)]
        if not drafts:
            return [Ask(problem.prompt, "note")]
        return [
            Ask(problem.prompt, parent=0),
            Ask(f"{number(drafts[0])} {problem.prompt}", parent=0, count=attempts - 1),
        ]


class PaysDrafts(Objective):
    """A draft is paid the mean reward of the attempts behind it."""

    trains_drafts = True

    def compute(self, group: ScoredGroup) -> Credit:
        assert group.draft_of is not None
        behind = [group.rewards[group.draft_of == d] for d in range(len(group.drafts))]
        drafts = np.array([rewards.mean() - 0.4 if rewards.size else 0.1 for rewards in behind])
        return Credit(relative(group.rewards, "none"), drafts)


def named(kind: type) -> str:
    return f"{__name__}:{kind.__name__}"


def finished(folder: Path, *overrides: str) -> tuple[CompletedStep, Recorder, list[list[int]], Sequence[str]]:
    """A step as the journal has it, what the learner was told, the submissions, and the kinds that were committed."""
    run = taken(open_virtual(folder, {"p1"}, overrides))
    return run.steps[0], run.learner, run.submitted, run.kinds


def test_a_thought_that_a_prompt_began_stands_in_the_draft_and_is_counted(tmp_path: Path) -> None:
    step, *_ = finished(tmp_path / "thinks", f"scaffold.name={named(Thinks)}")
    texts = [draft.rollout.text for group in step.groups for draft in group.drafts]
    assert all(text.startswith("<think>\n") for text in texts)
    assert not any("<think>" in rollout.text for group in step.groups for rollout in group.rollouts)
    counted = {name: step.applied.metrics[name] for name in ("drafts", "drafts_with_thoughts")}
    assert counted == {name: {"plan": len(texts)} for name in counted}
    without, *_ = finished(tmp_path / "plans", f"scaffold.name={named(TwoRounds)}")
    assert without.applied.metrics["drafts_with_thoughts"] == {"plan": 0}


def test_plans_come_first_then_an_attempt_behind_each_with_the_seed_that_it_has_without(tmp_path: Path) -> None:
    step, _, submitted, kinds = finished(tmp_path / "plans", f"scaffold.name={named(TwoRounds)}")
    assert [len(each) for each in submitted] == [4, 8], "one submission a round: four prompts, then two for each group"
    assert kinds.count("drafted-0") == 4
    assert kinds.index("generated") > max(i for i, kind in enumerate(kinds) if kind == "drafted-0")
    for group in step.groups:
        assert [draft.role for draft in group.drafts] == ["plan", "plan"]
        assert group.draft_of.tolist() == [0, 1, 0, 1]
        for rollout, of in zip(group.rollouts, group.draft_of, strict=True):
            assert rollout.prompt_tokens[0] == number(group.drafts[of])
        seeds = {r.seed for r in group.rollouts} | {d.rollout.seed for d in group.drafts}
        assert len(seeds) == 6
    plain, *_ = finished(tmp_path / "plain")
    for group, same in zip(step.groups, plain.groups, strict=True):
        assert [r.seed for r in group.rollouts] == [r.seed for r in same.rollouts]


def test_groups_of_one_step_may_need_different_rounds(tmp_path: Path) -> None:
    step, recorder, submitted, _ = finished(tmp_path, f"scaffold.name={named(Ragged)}")
    assert [len(each) for each in submitted] == [4, 2 * sum(bool(group.drafts) for group in step.groups)]
    drafted = [group for group in step.groups if group.drafts]
    assert drafted
    for group in drafted:
        assert group.draft_of.tolist() == [0, 0, 0, 0]
    assert sum(recorder.calls) == 4, "a draft has no row"


@pytest.mark.parametrize("scaffold", [TwoRounds, FourRounds, Ragged])
def test_a_run_killed_anywhere_ends_with_the_same_bits_and_commits_no_draft_twice(
    tmp_path: Path, scaffold: type[Scaffold]
) -> None:
    """Each of eight times after random commits, once to three times."""
    own = (f"scaffold.name={named(scaffold)}", f"objective.name={named(PaysDrafts)}")
    if scaffold is Ragged:
        own = own[:1]
    whole, _, _, kinds = finished(tmp_path / "whole", *own)
    rng = random.Random(3)
    for trial in range(8):
        killed, left = tmp_path / f"killed-{trial}", len(kinds) - 1
        for _ in range(rng.randrange(1, 4)):
            commits = rng.randrange(left)
            run_virtual(stopped_after(open_virtual(killed, {"p1"}, own), commits))
            left = max(1, left - commits)
        again, *_ = finished(killed, *own)  # the journal refuses a second record of a kind
        assert facts(again.groups) == facts(whole.groups)
        assert again.applied.digest == whole.applied.digest, "the same rows, in the same order"


def test_what_a_killed_round_has_kept_is_not_sampled_into_another_prompt(tmp_path: Path) -> None:
    """The drafts that were kept are those that the next round reads, even if sampling would now give others."""
    own = (f"scaffold.name={named(TwoRounds)}",)
    _, _, _, kinds = finished(tmp_path / "whole", *own)
    run_virtual(stopped_after(open_virtual(tmp_path / "killed", (), own), 4))
    step, _, submitted, later = finished(tmp_path / "killed", *own)
    assert [len(each) for each in submitted] == [8], "the whole first round was known: only attempts are sampled"
    assert "drafted-0" not in later
    assert len(step.groups) == 4
    assert kinds.count("drafted-0") == 4


def test_drafts_are_trained_only_where_the_objective_answers_for_them(tmp_path: Path) -> None:
    own = f"scaffold.name={named(TwoRounds)}"
    plain, of_attempts, *_ = finished(tmp_path / "plain", own)
    paid, of_both, *_ = finished(tmp_path / "paid", own, f"objective.name={named(PaysDrafts)}")
    rows = [sum(len(each) for each in told if isinstance(each, list)) for told in (of_attempts.told, of_both.told)]
    trained = [t.any() for t in plain.advantages]
    assert rows == [16, 24]
    assert any(trained)
    assert plain.draft_advantages == (None,) * 4
    for group, rewards, advantages in zip(paid.groups, paid.rewards, paid.draft_advantages, strict=True):
        assert advantages is not None
        expected = [rewards[group.draft_of == d].mean() - 0.4 for d in (0, 1)]
        np.testing.assert_array_equal(advantages, expected)


class PlansAlone(Scaffold):
    """Two plans and no attempt."""

    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> list[Ask]:
        return [] if drafts else [Ask(f"7 {problem.prompt}", "plan", 2)]

    def planned_drafts(self, attempts: int) -> int:
        return 2

    def planned_attempts(self, attempts: int) -> int:
        return 0


class ShortPlans(Objective):
    trains_drafts = True

    def compute(self, group: ScoredGroup) -> Credit:
        return Credit(np.zeros(0), np.array([number(draft) % 7 - 3.0 for draft in group.drafts]))


def test_a_scaffold_that_solves_nothing_is_trained_on_its_drafts_and_nothing_is_scored(tmp_path: Path) -> None:
    own = (f"scaffold.name={named(PlansAlone)}", f"objective.name={named(ShortPlans)}")
    whole, _, submitted, kinds = finished(tmp_path / "whole", *own)
    assert [len(each) for each in submitted] == [4]
    assert "score" not in kinds
    assert whole.applied.metrics["reward"] is None
    for group, advantages in zip(whole.groups, whole.draft_advantages, strict=True):
        assert (group.size, len(group.drafts)) == (0, 2)
        np.testing.assert_array_equal(advantages, [number(draft) % 7 - 3.0 for draft in group.drafts])
    for commits in range(len(kinds)):
        folder = tmp_path / f"killed-{commits}"
        run_virtual(stopped_after(open_virtual(folder, {"p1"}, own), commits))
        again, *_ = finished(folder, *own)
        assert facts(again.groups) == facts(whole.groups)
        assert again.applied.digest == whole.applied.digest


class Wrong(Scaffold):
    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> list[Ask]:
        return [Ask(problem.prompt, count=attempts - 1)]


class Orphan(Scaffold):
    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> list[Ask]:
        return [Ask(problem.prompt, count=attempts, parent=0)]


class Raises(Scaffold):
    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> list[Ask]:
        raise KeyError("topic")


@pytest.mark.parametrize(
    ("scaffold", "said"),
    [
        (Wrong, r"The scaffold Wrong must ask for 4 attempts at p\d+, asked for 3\."),
        (Orphan, r"asks for p\d+ with a parent of number 0, and there are 0 drafts\."),
        (Raises, r"The scaffold Raises can't ask for p\d+: KeyError: 'topic'\."),
    ],
)
def test_a_scaffold_that_can_t_be_asked_ends_the_run_before_anything_is_sampled(
    tmp_path: Path, scaffold: type, said: str
) -> None:
    with pytest.raises(ExceptionGroup) as refused:
        finished(tmp_path, f"scaffold.name={named(scaffold)}")
    (error,) = refused.value.exceptions
    assert isinstance(error, UsageError)
    with pytest.raises(UsageError, match=said):
        raise error


def test_a_prompt_made_of_sampled_text_that_is_too_long_ends_no_run(tmp_path: Path) -> None:
    step, *_ = finished(tmp_path, f"scaffold.name={named(LongBehind)}", "generator.max_prompt_tokens=3")
    for group in step.groups:
        assert {len(rollout.prompt_tokens) for rollout in group.rollouts} == {1, 3}
        assert len(group.rollouts) == 4


class LongBehind(Scaffold):
    """The first attempt's prompt holds more than fits."""

    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> list[Ask]:
        if not drafts:
            return [Ask(problem.prompt, "plan")]
        said = number(drafts[0])
        return [Ask(f"{' '.join([str(said)] * (4 if i == 0 else 2))} {problem.prompt}") for i in range(attempts)]


def test_records_of_drafts_come_back_as_they_were() -> None:
    tokens, logprobs = np.array([1, 2], np.int32), np.array([-1.0, -0.5], np.float32)
    rollout = Rollout(tokens, tokens, logprobs, "A: loop", "length", 7, 3)
    drafts = (Draft(rollout, "plan"), Draft(rollout, "note", 0))
    (record,) = decode(4, 1, encode(4, 1, [Drafted(4, 2, 1, drafts)]))
    assert isinstance(record, Drafted)
    assert (record.step, record.slot, record.round) == (4, 2, 1)
    assert [(d.role, d.parent) for d in record.drafts] == [("plan", None), ("note", 0)]
    np.testing.assert_array_equal(record.drafts[1].rollout.logprobs, logprobs)


def test_the_scaffold_that_the_docs_show_runs_from_a_file_outside_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "scaffolds.md"
    (source,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    assert source.count("\n") <= 12
    (tmp_path / "hinted.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    step, *_ = finished(tmp_path / "run", "scaffold.name=hinted:Hinted")
    assert all(len(group.rollouts) == 4 for group in step.groups)
    config = load(None, [], str)
    asked = named_scaffolds(config, ["direct", "hinted:Hinted"], ())
    assert asked is not None
    problem = Problem("p", "Add.", "f", TestSuite("none", ""))
    prompts = [ask.prompt for ask in asked["hinted:Hinted"].ask(problem, (), 4)]
    assert prompts == ["Add.", "# Use a loop.\nAdd."] * 2
    with pytest.raises(UsageError, match=r"scaffold\.skill=3 is no parameter of direct"):
        named_scaffolds(config, ["direct"], ["scaffold.skill=3"])
