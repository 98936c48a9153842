"""raypoly's own group stages: verdicts, strategy labels, and log-probabilities after the group's prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from actors.learner import LearnerActor
from actors.scorer_pool import ScorerPool
from raypoly.algorithms.group_stage import GroupStage
from raypoly.algorithms.objectives import Objective
from raypoly.algorithms.objectives.objective import needed_stages
from raypoly.analysis.evaluation.evaluation_results import answer_votes
from raypoly.core.config import Config
from raypoly.core.errors import RaypolyError
from raypoly.core.seeds import derive
from raypoly.core.values import CrossLogprobs, Float64, Group, Labels, Problem, Verdict
from raypoly.data.public_tests import example_inputs
from raypoly.learner.training_rows import prompts_of
from raypoly.strategies.judge import SAMPLED_SHARE, in_engine
from raypoly.strategies.judge.algorithm_categories import QUESTION
from raypoly.verifier.code_extraction import program_in
from raypoly.verifier.rewards.terms import build_terms
from raypoly.verifier.rewards.terms.known_terms import GRADES, JudgeTerm
from workflows.step.services import Services
from workflows.step.training_group import SkippedGroups, infra_reason, scored_rollouts, spread_out


class _BuiltIn(GroupStage):
    """One whose finding is kept as it is."""

    def encode(self, finding: Any, size: int) -> Any:
        return finding


class ScoreStage(_BuiltIn):
    """Verdicts of the group's programs on the problem's tests, by the sandboxes: a tuple of N."""

    name = "score"
    after = ()

    async def run(self, group: Group, problem: Problem, services: Services) -> tuple[Verdict, ...]:
        order = (group.step << 12) + group.slot  # what is sampled ahead comes after what the learner waits for
        return await score_group(group, problem, services.scorers, services.skipped, order, partly=True)

    @property
    def used(self) -> bool:
        return self.objective.runs_programs

    def seen(self, group: Group, services: Services) -> None:
        """Raises `TooManySetAside`."""
        services.skipped.count(1, int(infra_reason(group.verdicts) is not None))


async def score_group(
    group: Group, problem: Problem, scorers: ScorerPool, skipped: SkippedGroups, order: int, partly: bool = False
) -> tuple[Verdict, ...]:
    """One verdict a response; `infra` throughout where the problem's tests can't be run, or the sandbox failed on one
    program, unless `partly`: then of that one. Low `order`s run first."""
    codes = [program_in(problem, rollout.text) for rollout in group.rollouts if rollout.outcome is None]
    found = iter(
        await skipped.verdicts(problem, len(codes), lambda: scorers.score(problem, codes, order, partly))
        if codes
        else ()
    )
    return tuple(next(found) if it.outcome is None else Verdict.of_outcome(it.outcome) for it in group.rollouts)


async def signatures(services: Services, group: Group, problem: Problem) -> Sequence[str | None] | None:
    """The votes of self-consistency: each attempt's answer, equal where its value is, or what its program returns for
    the example inputs, as verdicts show it (long results are cut). None for an attempt without an answer, or whose
    program fails on an input; None for all where the problem has no example inputs, or they can't be run."""
    if problem.tests.kind == "answer":
        return answer_votes(group)
    found: list[list[str] | None] = [[] for _ in group.rollouts]
    for example in (examples := example_inputs(problem)):
        verdicts = await score_group(group, example, services.scorers, services.skipped, group.slot)
        if any(verdict.status == "infra" for verdict in verdicts):
            return None
        for place, verdict in enumerate(verdicts):
            own, gave = found[place], verdict.status == "wrong" and verdict.failure is not None
            found[place] = [*own, verdict.failure.got] if own is not None and gave and verdict.failure else None
    return ["\n".join(own) if own is not None else None for own in found] if examples else None


class _Judging(GroupStage):
    """One that asks the judge, which may have to wait for its turn on a GPU."""

    def __init__(self, config: Config, objective: Objective) -> None:
        super().__init__(config, objective)
        if in_engine(config.judge):
            self.device = "between"  # type: ignore[misc]

    async def probe(self, group: Group, problem: Problem, services: Services) -> None:
        await services.judge.probe()


class JudgeStage(_Judging, _BuiltIn):
    """`Labels` of the judge: which of a group's programs share an algorithmic strategy. A group that it can't label is
    `unjudged`."""

    name = "judge"

    def __init__(self, config: Config, objective: Objective) -> None:
        super().__init__(config, objective)
        self._always = self.name in needed_stages(objective) or config.judge.when == "always"

    @property
    def used(self) -> bool:
        return self._always or (self.objective.runs_programs and self.config.judge.when != "needed")

    def wanted(self, group: Group) -> bool:
        if self._always or self.config.judge.when != "sampled":
            return self._always
        return derive(self.config.train.seed, "judge", group.step, group.slot) % SAMPLED_SHARE == 0

    async def run(self, group: Group, problem: Problem, services: Services) -> Labels:
        """A rollout without a verdict has no strategy id."""
        places, rollouts, verdicts = scored_rollouts(group)
        labels: Labels = await services.judge.label(problem, rollouts, verdicts)
        if len(labels.ids) != len(places) or not labels.known:
            raise RaypolyError(
                f"The judge {labels.judge} gave {len(labels.ids)} labels, some unknown, for {len(places)} rollouts of "
                f"{problem.id}: a judge that can't label a group must raise JudgeRefused."
            )
        if len(places) == group.size:
            return labels
        ids, degenerate = np.zeros(group.size, np.int32), np.zeros(group.size, np.bool_)
        ids[places], degenerate[places] = labels.ids, labels.degenerate
        return Labels(ids, degenerate, labels.judge)


class GradesStage(_Judging):
    """float64 [N]: the judge's grades by the question of a term `judge`; NaN without a verdict."""

    name = GRADES
    optional = frozenset({"value"})

    def __init__(self, config: Config, objective: Objective) -> None:
        super().__init__(config, objective)
        terms = (named.term for named in build_terms(config))
        self.question = next((term.config.question for term in terms if isinstance(term, JudgeTerm)), None)

    @property
    def used(self) -> bool:
        return self.question is not None and self.objective.reads_rewards

    async def run(self, group: Group, problem: Problem, services: Services) -> Float64:
        places, rollouts, verdicts = scored_rollouts(group)
        grades = await services.judge.grade(problem, rollouts, verdicts, self.question or "")
        return spread_out(np.array(grades), places, group.size)


class CategoriesStage(GradesStage):
    """The same by the question of D_alg's classifier, for evaluations: `category_of` a grade."""

    name = "categories"

    def __init__(self, config: Config, objective: Objective) -> None:
        super().__init__(config, objective)
        self.question = QUESTION


class PromptLogprobsStage(_BuiltIn):
    """`CrossLogprobs`: log-probabilities of a group's responses after each of the group's prompts, by the learner under
    the weights that sampled them."""

    name = "prompt_logprobs"
    after = ("score", "judge")
    device = "learner"

    @property
    def timed_as(self) -> str:
        return "cross"  # as the rows of metrics.jsonl call it

    @property
    def used(self) -> bool:
        return self.name in needed_stages(self.objective)

    async def run(self, group: Group, problem: Problem, services: Services) -> CrossLogprobs:
        prompts, own = prompts_of(group.rollouts)
        responses = [rollout.tokens for rollout in group.rollouts]
        logprobs = await services.learner.ask("cross", LearnerActor.cross_logprobs, prompts, responses)
        pairs = zip(group.rollouts, logprobs, strict=True)
        return CrossLogprobs(own, tuple(rollout.own(each).astype(np.float32, copy=False) for rollout, each in pairs))
