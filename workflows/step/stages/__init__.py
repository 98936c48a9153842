"""The stages of a group between its rollouts and its advantages (`raypoly/algorithms/group_stage.py` has the contract).

    runner = StageRunner(build_stages(config, objective), objective, services, pause, commit)
    for stage in runner.stages:
        group = await runner.advance(group, problem, stage, watch)

Each finding is in the journal before the next stage uses it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import fields
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Any

import pyarrow as pa

from raypoly.algorithms.group_stage import GroupStage, on_drafts, own_stages
from raypoly.algorithms.objectives import Objective, ScoredGroup
from raypoly.algorithms.objectives.objective import needed_stages
from raypoly.core.config import Config
from raypoly.core.errors import Infra, Unknown, UsageError
from raypoly.core.plugins import load_plugin
from raypoly.core.values import UNKNOWN, Group, Problem, Skipped
from raypoly.run.store.rollout_columns import OWN_COLUMNS, TOKENS, of_drafts
from raypoly.run.store.step_records import Record, StageFinding
from workflows.liveness.judge_pause import JudgeOutagePause
from workflows.step.services import Services
from workflows.step.stages.reward_stage import RewardStage
from workflows.step.stopwatch import Stopwatch
from workflows.step.training_group import skip_reason

KNOWN = {
    "score": "workflows.step.stages.built_in:ScoreStage",
    "judge": "workflows.step.stages.built_in:JudgeStage",
    "prompt_logprobs": "workflows.step.stages.built_in:PromptLogprobsStage",
    "grades": "workflows.step.stages.built_in:GradesStage",
    "reference_logprobs": "workflows.step.stages.token_stages:ReferenceLogprobsStage",
    "teacher_logprobs": "workflows.step.stages.token_stages:TeacherLogprobsStage",
    "reward": "workflows.step.stages.reward_stage:RewardStage",
}
_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")
# Names that journal objects, or objectives, use for something else.
_TAKEN = {
    *("generated", "applied", "slot", "own", "start", "probe", "learner", "generator"),
    *(field.name for field in fields(ScoredGroup)),
}


def build_stages(config: Config, objective: Objective) -> Sequence[GroupStage]:
    """raypoly's stages and those of `stages.own`, each after the stages that it reads. Raises `UsageError` for one that
    is missing: the stage itself, one that it reads, or one that the objective needs."""
    found: dict[str, GroupStage] = {}
    ours: list[GroupStage] = [load_plugin(place, KNOWN, "stages.own")(config, objective) for place in KNOWN]
    for stage in (*ours, *own_stages(config, objective)):
        if not _NAME.fullmatch(stage.name) or stage.name in found or stage.name in _TAKEN:
            place = f"{type(stage).__module__}:{type(stage).__qualname__}"
            raise UsageError(f"stages.own={place} is named {stage.name!r}, which is taken or no name: give it another.")
        found[stage.name] = stage
    reward = found["reward"]
    if isinstance(reward, RewardStage) and reward.reads_all:
        reward.after = tuple(name for name in found if name != reward.name)  # type: ignore[misc]
    for stage in found.values():
        if missing := sorted(set(stage.after) - found.keys()):
            raise UsageError(f"The stage {stage.name} comes after {', '.join(missing)}, which is no stage here.")
    if missing := sorted(needed_stages(objective) - found.keys()):
        raise UsageError(
            f"objective.name={config.objective.name} needs {', '.join(missing)}: add the stage to stages.own."
        )
    try:
        return [found[name] for name in TopologicalSorter({n: s.after for n, s in found.items()}).static_order()]
    except CycleError as error:
        raise UsageError(f"The stages {', '.join(error.args[1])} come after each other.") from error


class StageRunner:
    def __init__(
        self,
        stages: Sequence[GroupStage],
        objective: Objective,
        services: Services,
        pause: JudgeOutagePause,
        commit: Callable[[Record], Awaitable[None]],
    ) -> None:
        self._by_name = {stage.name: stage for stage in stages}
        self.stages = [stage for stage in self._by_name.values() if stage.used]
        """Those that training runs, in order."""
        self._services, self._pause, self._commit = services, pause, commit
        credit = {stage.name for stage in stages if stage.gives_credit}
        self._needed = needed_stages(objective) | {RewardStage.name} | credit
        self._learner_turn = asyncio.Lock()  # so that no call waits for long in the learner's queue

    def __getitem__(self, name: str) -> GroupStage:
        return self._by_name[name]

    def runs(self, name: str) -> bool:
        return self[name] in self.stages

    @property
    def before_update(self) -> bool:
        """Whether a stage needs the weights that sampled: then all groups pass it before the step's first update."""
        return any(stage.device == "learner" for stage in self.stages)

    async def advance(self, group: Group, problem: Problem, stage: GroupStage, watch: Stopwatch) -> Group:
        """The group with the stage's finding, from the journal, or else computed, counted and committed; as it is if
        the stage is not wanted, or the group has no gradient anyway."""
        if stage.name in group.findings:
            group = group.with_findings(**{stage.name: _decoded(stage, group.findings[stage.name])})
            self._count(group, stage)
            return group
        if not stage.rows(group):  # no attempts, or no drafts: there is nothing to find out
            return group
        no_gradient = skip_reason(group) is not None or any(
            group.findings.get(name) is UNKNOWN for name in self._needed
        )
        if no_gradient or not stage.wanted(group):
            return group
        group = await self.compute(group, problem, stage, watch)
        self._count(group, stage)
        finding = group.findings[stage.name]
        if group.knows(stage.name):
            finding = _encoded(stage, group, finding)
        after = tuple(name for name in stage.after if name in group.findings)
        await self._commit(StageFinding(group.step, group.slot, stage.name, finding, after))
        watch.done(stage.timed_as)
        return group

    async def compute(self, group: Group, problem: Problem, stage: GroupStage, watch: Stopwatch) -> Group:
        """The same without journal and count."""
        if stage.device != "free":
            await self._services.generator.idle()
        async with self._learner_turn if stage.device == "learner" else nullcontext():
            finding = await self._run(group, problem, stage, watch)
        return group.with_findings(**{stage.name: finding})

    def encode(self, group: Group) -> Group:
        """The group as the store keeps it."""
        known = {name: finding for name, finding in group.findings.items() if group.knows(name)}
        return group.with_findings(**{name: _encoded(self[name], group, finding) for name, finding in known.items()})

    def decode(self, group: Group) -> Group:
        """The inverse of `encode`."""
        return group.with_findings(**{name: _decoded(self[name], finding) for name, finding in group.findings.items()})

    async def _run(self, group: Group, problem: Problem, stage: GroupStage, watch: Stopwatch) -> Any:
        """The finding, `UNKNOWN` or `Skipped`; waits until what is away is back."""
        ask = partial(stage.run, group, problem, self._services)
        probe = partial(stage.probe, group, problem, self._services)
        with watch.stage(stage.timed_as, group.slot):
            try:
                finding = await self._pause.ask(stage.name, ask, probe)
            except Unknown:
                return UNKNOWN
            except Infra as error:
                if stage.name in OWN_COLUMNS:
                    raise
                return Skipped(" ".join(str(error).split()))
        return _decoded(stage, _encoded(stage, group, finding))  # what is used is what is kept

    def _count(self, group: Group, stage: GroupStage) -> None:
        stage.seen(group, self._services)
        finding = group.findings[stage.name]
        if isinstance(finding, Skipped):
            reason = f"{finding.reason.rstrip('.')} (stage {stage.name}, problem {group.problem_id})"
            self._services.skipped.count(0, 1, reason)


def _encoded(stage: GroupStage, group: Group, finding: Any) -> Any:
    rows = stage.encode(finding, stage.rows(group))
    if stage.axis == "token":
        _check_tokens(stage, group, rows)
    return of_drafts(rows) if on_drafts(stage, group) and isinstance(rows, pa.RecordBatch) else rows


def _check_tokens(stage: GroupStage, group: Group, rows: pa.RecordBatch) -> None:
    wanted = [rollout.length for rollout in group.rollouts]
    for name in (name for name, kind in stage.columns.items() if kind == TOKENS):
        lengths = rows.column(name).value_lengths().to_pylist()
        if lengths != wanted:
            place = next(i for i, pair in enumerate(zip(lengths, wanted, strict=True)) if pair[0] != pair[1])
            raise UsageError(
                f"The stage {stage.name} must give rollout {place} of problem {group.problem_id} {wanted[place]} "
                f"numbers of {name}, one a token, and gave {lengths[place]}."
            )


def _decoded(stage: GroupStage, finding: Any) -> Any:
    return stage.decode(finding) if isinstance(finding, pa.RecordBatch) else finding
