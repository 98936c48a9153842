"""One advantage a token, by an objective and by `loss.kl_in_reward`: journalled, replayed, and out of memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import numpy as np
import pyarrow.parquet as pq
import pytest

from raypoly.algorithms.group_stage import GroupStage
from raypoly.algorithms.objectives import Credit, Objective, ScoredGroup, build
from raypoly.algorithms.objectives.reinforce_plus_plus import ReinforcePlusPlus
from raypoly.core.errors import Unknown, UsageError
from raypoly.core.token_arrays import TokenArrays, TokensByPlace
from raypoly.core.values import Float32, Group, Problem
from raypoly.run.store.catalogue import Span, step_key
from raypoly.run.store.rollout_files import StepsFile, decode_step, encode_bundle
from raypoly.run.store.step_records import CompletedStep
from tests.support.virtual_clock import run_virtual
from tests.workflows.step.virtual_run import Recorder, Taken, facts, held, open_virtual, stopped_after, taken
from workflows.step.stages.token_stages import ReferenceLogprobsStage

BETA = 0.5
KL = ("loss.name=policy_gradient", f"loss.kl_in_reward={BETA}")


class Scores(GroupStage):
    """A number for each token of each rollout."""

    name = "scores"
    axis = "token"

    async def run(self, group: Group, problem: Problem, services: Any) -> Sequence[Float32]:
        return [(rollout.tokens % 5).astype(np.float32) for rollout in group.rollouts]


class OneTooFew(Scores):
    async def run(self, group: Group, problem: Problem, services: Any) -> Sequence[Float32]:
        return [(rollout.tokens % 5).astype(np.float32)[1:] for rollout in group.rollouts]


class ByScores(Objective):
    """Every second attempt is paid by token, the others with a number."""

    needs = frozenset({"scores"})
    stages = (f"{__name__}:Scores",)

    def compute(self, group: ScoredGroup) -> Credit:
        centred = group.rewards - group.rewards.mean()
        scores = group.findings["scores"]
        return Credit([scores[i] * 0.5 + np.float32(centred[i]) if i % 2 else centred[i] for i in range(group.size)])


OWN = (f"objective.name={__name__}:ByScores",)


def reference_logprobs(tokens: Any) -> Float32:
    return (-((tokens % 11) + 1) / 3).astype(np.float32)


class WithReference(Recorder):
    async def reference_logprobs(self, pairs: Sequence[Any]) -> list[Float32]:
        self.told.append("reference")
        return [reference_logprobs(tokens) for _, tokens in pairs]


@pytest.fixture(autouse=True)
def _reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.workflows.step.virtual_run.Recorder", WithReference)


def run_of(folder: Path, *overrides: str, count: int = 1) -> Taken:
    return taken(open_virtual(folder, (), overrides, shared=False), count)


def by_definition(group: Group, rewards: Any, objective: str = "grpo", beta: float = BETA) -> list[list[float]]:
    """A_t - beta * sum over s from t on, by a loop."""
    found = []
    for rollout, advantage in zip(group.rollouts, build(objective).advantages(rewards), strict=True):
        other = reference_logprobs(rollout.tokens)
        ratio = [float(rollout.logprobs[s]) - float(other[s]) for s in range(len(other))]
        found.append([float(advantage) - beta * sum(ratio[t:]) for t in range(len(other))])
    return found


def test_the_kl_inside_the_reward_is_its_definition(tmp_path: Path) -> None:
    run = run_of(tmp_path, *KL)
    (step,) = run.steps
    for group, rewards, numbers, tokens in zip(
        step.groups, step.rewards, step.advantages, step.token_advantages, strict=True
    ):
        want = by_definition(group, rewards)
        assert [list(map(float, tokens[place])) for place in range(group.size)] == [
            pytest.approx(each, abs=1e-6) for each in want
        ]
        assert numbers.tolist() == pytest.approx([float(np.mean(each)) for each in want], abs=1e-6)
    told = [each for each in run.learner.told if isinstance(each, list)]
    assert all(each.dtype == np.float32 and each.shape == (2,) for rows in told for each in rows)
    assert run.learner.told.count("reference") == 4
    ratios = [-reference_logprobs(r.tokens).mean() for group in step.groups for r in group.rollouts]
    assert step.applied.metrics["reference_logprobs/kl"] == pytest.approx(np.mean(ratios), rel=1e-6)


def test_it_is_taken_off_what_is_whitened_over_the_batch(tmp_path: Path) -> None:
    (step,) = run_of(tmp_path / "kl", "objective.name=reinforce_plus_plus", *KL).steps
    (plain,) = run_of(tmp_path / "plain", "objective.name=reinforce_plus_plus").steps
    for group, tokens, whitened in zip(step.groups, step.token_advantages, plain.advantages, strict=True):
        for place, rollout in enumerate(group.rollouts):
            ratio = -reference_logprobs(rollout.tokens).astype(np.float64)
            want = whitened[place] - BETA * np.cumsum(ratio[::-1])[::-1]
            np.testing.assert_allclose(tokens[place], want, rtol=1e-6)


def test_numbers_stay_numbers_and_the_mean_is_in_the_column(tmp_path: Path) -> None:
    run = run_of(tmp_path, *OWN)
    (step,) = run.steps
    for group, numbers, tokens in zip(step.groups, step.advantages, step.token_advantages, strict=True):
        assert sorted(tokens) == [1, 3]
        for place in (1, 3):
            scores = group.findings["scores"].column("value")[place].as_py()
            assert np.diff(tokens[place]) == pytest.approx(np.diff(np.array(scores) * 0.5), abs=1e-6)
            assert numbers[place] == pytest.approx(tokens[place].mean(), rel=1e-6)
    rows = [each for rows in run.learner.told if isinstance(rows, list) for each in rows]
    assert {np.ndim(each) for each in rows} == {0, 1}
    table = run.opened.durability.journal.load_step(0)
    assert table.token_advantages
    (plain,) = run_of(tmp_path / "plain").steps
    assert plain.token_advantages == ()


@pytest.mark.parametrize("overrides", [KL, OWN], ids=["kl", "own"])
def test_a_run_that_is_stopped_anywhere_ends_alike(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    stage = "reference_logprobs" if overrides == KL else "scores"
    (want,) = run_of(tmp_path / "undisturbed", *overrides).steps
    for stop in (
        0,
        4,
        7,
        8,
        9,
        11,
        12,
    ):  # the step commits 4 groups, their verdicts, what was found of them, and the update
        folder = tmp_path / f"stopped-{stop}"
        run_virtual(stopped_after(open_virtual(folder, (), overrides, shared=False), stop))
        known = held(open_virtual(folder, (), overrides, shared=False), stage)
        run = run_of(folder, *overrides)
        (got,) = run.steps
        assert got.applied.digest == want.applied.digest
        for one, other in zip(got.token_advantages, want.token_advantages, strict=True):
            assert {k: v.tobytes() for k, v in one.items()} == {k: v.tobytes() for k, v in other.items()}
        if overrides == KL:
            assert run.learner.told.count("reference") == 4 - known, stop
    assert known == 4


def test_a_replay_gives_the_learner_the_same_rows(tmp_path: Path) -> None:
    first = run_of(tmp_path, *KL, count=2)
    again = run_of(tmp_path, *KL, count=3)  # replays both
    assert again.steps[0].applied.digest == first.steps[0].applied.digest
    assert again.learner.told.count("reference") == 4, "of the third step alone"


def test_a_step_of_several_row_groups_is_read_back_as_one_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (whole,) = run_of(tmp_path / "whole", *KL).steps
    monkeypatch.setattr("raypoly.run.store.rollout_files._PART_TOKENS", 9)  # a group has 8 tokens
    run = run_of(tmp_path / "parts", *KL)
    store = run.opened.durability.store
    assert pq.ParquetFile(store.fetch(step_key(0))).num_row_groups == 2
    assert facts(run.steps[0].groups) == facts(whole.groups)
    (of_bundle,) = decoded(encode_bundle({0: store.read(step_key(0))}))
    for found in (run.steps[0], of_bundle):
        for one, other in zip(found.token_advantages, whole.token_advantages, strict=True):
            assert {k: v.tobytes() for k, v in one.items()} == {k: v.tobytes() for k, v in other.items()}


def decoded(bundle: bytes) -> list[CompletedStep]:
    file = StepsFile.parse(bundle, Span(0, 0), "the bundle")
    return [decode_step(file.table(step), head) for step, head in file.heads.items()]


def test_nothing_of_it_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[TokensByPlace] = []

    class Noted(TokensByPlace):
        def __init__(self, arrays: Any) -> None:
            super().__init__(arrays)
            made.append(self)

    monkeypatch.setattr("workflows.step.advantages.TokensByPlace", Noted)
    run_of(tmp_path, *KL)
    assert len(made) == 4
    held_arrays = [value for each in made for value in vars(each).values() if isinstance(value, np.ndarray)]
    assert not held_arrays


def test_a_stage_that_gives_another_number_than_tokens_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as refused:
        run_of(tmp_path, f"stages.own=[{__name__}:OneTooFew]")
    (error,) = refused.value.exceptions
    assert isinstance(error, UsageError)
    assert re.search(r"must give rollout 0 of problem p\d+ 2 numbers of value, one a token, and gave 1", str(error))


class WrongTokens(Objective):
    given: ClassVar[Any] = None

    def compute(self, group: ScoredGroup) -> Credit:
        return Credit([self.given, *[0.0] * (group.size - 1)])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (np.zeros(3, np.float32), "must give attempt 0 a number or 2 of them"),
        (np.zeros((2, 1), np.float32), "must give attempt 0 a number or 2 of them"),
        (np.array([0.0, np.nan]), "must give 2 finite advantages of attempts"),
        (float("inf"), "must give 2 finite advantages of attempts"),
    ],
)
def test_credit_that_does_not_fit_is_refused(given: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WrongTokens, "given", given)
    objective = build(f"{__name__}:WrongTokens")
    with pytest.raises(ValueError, match=said):
        objective.credit([1.0, 0.0], lengths=[2, 2])


def test_credit_of_no_numbers_at_all_is_refused() -> None:
    class ForgotToReturn(Objective):
        def compute(self, group: ScoredGroup) -> Any:
            return None

    with pytest.raises(ValueError, match="must give 2 finite advantages of attempts, gave None"):
        ForgotToReturn(ForgotToReturn.Config()).credit([1.0, 0.0], lengths=[2, 2])


def test_refill_goes_by_the_final_credit(tmp_path: Path) -> None:
    dull, refill = {f"p{i}" for i in range(32)}, ("train.refill=4",)
    plain = taken(open_virtual(tmp_path / "plain", dull, refill, shared=False))
    assert len(plain.steps[0].groups) > 4
    with_kl = taken(open_virtual(tmp_path / "kl", dull, (*refill, *KL), shared=False))
    assert len(with_kl.steps[0].groups) == 4, "each has a gradient by its KL"


def test_an_unknown_rollout_leaves_the_others_their_own_scores(tmp_path: Path) -> None:
    """One without a verdict: the others' scores stay with them."""
    (plain,) = run_of(tmp_path / "plain", *OWN).steps
    SECOND.update(group.rollouts[1].seed for group in plain.groups)
    (step,) = run_of(tmp_path / "run", *OWN, f"reward.name={__name__}:unknown_second").steps
    for group, advantages, tokens in zip(step.groups, step.advantages, step.token_advantages, strict=True):
        assert np.isnan(advantages).tolist() == [False, True, False, False]
        scores = [np.array(each) for each in group.findings["scores"].column("value").to_pylist()]
        assert sorted(tokens) == [2], "the second of the known ones"
        assert np.diff(tokens[2]) == pytest.approx(np.diff(scores[2] * 0.5), abs=1e-6)


SECOND: set[int] = set()
"""Seeds of rollouts whose outcome is unknown."""


def unknown_second(problem: Problem, rollout: Any, verdict: Any) -> float | None:
    return None if rollout.seed in SECOND else float(verdict.passed)


@pytest.mark.parametrize("objective", ["grpo", "reinforce_plus_plus"])
def test_a_group_whose_finding_is_unknown_has_no_gradient_and_the_step_goes_on(
    tmp_path: Path, objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ReferenceLogprobsStage.run

    async def sometimes(self: Any, group: Group, problem: Problem, services: Any) -> Any:
        if group.slot == 1:
            raise Unknown("it can't say")
        return await run(self, group, problem, services)

    monkeypatch.setattr(ReferenceLogprobsStage, "run", sometimes)
    (step,) = run_of(tmp_path, f"objective.name={objective}", *KL, "reward.max_unknown=1").steps
    assert [bool(tokens) for tokens in step.token_advantages] == [True, False, True, True]
    assert step.advantages[1].tolist() == [0.0] * 4
    assert step.applied.metrics["unknown_rollouts"] == 4


def test_token_arrays_travel_to_other_processes_as_plain_ones() -> None:
    there = cloudpickle.loads(cloudpickle.dumps(TokenArrays([np.arange(3, dtype=np.float32), np.zeros(0, np.float32)])))
    assert [each.tolist() for each in there] == [[0, 1, 2], []]


class Pairs(ReinforcePlusPlus):
    def compute(self, group: ScoredGroup) -> Any:
        return Credit([np.zeros(2, np.float32)] * group.size)


def test_an_objective_that_normalises_numbers_refuses_tokens_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as refused:
        run_of(tmp_path, f"objective.name={__name__}:Pairs")
    assert "normalises one advantage a response over the batch, and compute() gave one a token" in str(
        refused.value.exceptions[0]
    )


def test_a_loss_that_fits_numbers_refuses_tokens_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as refused:
        run_of(tmp_path, *OWN, "loss.name=flowrl")
    assert "The loss fits one advantage a response" in str(refused.value.exceptions[0])


class Crediting(Scores):
    wrong: ClassVar[Any] = None

    def token_credit(self, finding: Any, rollouts: Any) -> Any:
        return [self.wrong(rollout.length) for rollout in rollouts]


@pytest.mark.parametrize(
    "wrong",
    [lambda T: np.full(T, np.nan), lambda T: np.full(T, 1e39), lambda T: np.ones(T + 1), lambda T: np.ones(1), float],
    ids=["nan", "beyond float32", "one too many", "one", "a number"],
)
def test_a_stages_credit_that_does_not_fit_is_refused(
    tmp_path: Path, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Crediting, "wrong", staticmethod(wrong))
    with pytest.raises(ExceptionGroup) as refused:
        run_of(tmp_path, f"stages.own=[{__name__}:Crediting]")
    assert re.search(
        r"token_credit\(\) of the stage scores must give each .* p\d+ a finite", str(refused.value.exceptions)
    )
