"""The end of a step: its row of metrics is committed, its rollout file written, and every so often a checkpoint."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np

from raypoly.algorithms.group_stage import GroupStage
from raypoly.analysis.metrics.decoded_tokens import DecodedTokens
from raypoly.analysis.metrics.pass_at_k import distinct
from raypoly.analysis.metrics.problem_counts import GroupOutcomes
from raypoly.analysis.metrics.program_style import program_style
from raypoly.core.config import Config
from raypoly.core.errors import RaypolyError
from raypoly.core.values import ASSISTANT, WITHOUT_TESTS, Group, Rollout
from raypoly.data.problem_order import pass_count_row
from raypoly.learner.update_stats import UpdateStats
from raypoly.run.sinks import MEASURES
from raypoly.run.store.rollout_columns import OWN_COLUMNS
from raypoly.run.store.step_records import Applied
from raypoly.strategies.judge.structural import structural_labels
from raypoly.verifier.code_extraction import find_code
from raypoly.verifier.response_text import has_thoughts
from workflows.step.learner_session import RANKS
from workflows.step.run_durability import CURSOR, RunDurability
from workflows.step.run_observers import RunObservers
from workflows.step.services import Services
from workflows.step.stages import StageRunner
from workflows.step.stages.reward_stage import RewardStage
from workflows.step.stopwatch import Stopwatch, Waterfall
from workflows.step.training_group import TrainingGroup, scored_rollouts, skip_reason
from workflows.step.weight_sync import WeightSync


class StepSealer:
    def __init__(
        self,
        config: Config,
        services: Services,
        durability: RunDurability,
        observers: RunObservers,
        stages: StageRunner,
        weights: WeightSync,
    ) -> None:
        self._config, self._services, self._stages, self._weights = config, services, stages, weights
        self._durability, self._observers = durability, observers
        self._groups = self._unjudged = 0
        self._rollouts = self._unknown = 0

    async def seal(
        self,
        step: int,
        groups: Sequence[TrainingGroup],
        stats: UpdateStats,
        applied: Applied | None,
        watch: Stopwatch,
        cursor: int,
    ) -> None:
        """Commit an applied step. `applied`: its record of an earlier start. `cursor`: where the next step's problems
        begin, with `train.refill`. Raises `RaypolyError` if the judge could not label too many groups, `UsageError` if
        there is no measure such as train.stop.measure."""
        train, durability, observers = self._config.train, self._durability, self._observers
        if applied is None:
            applied = await self._applied(step, groups, stats, watch, cursor)
            await durability.commit(applied)
        else:
            ranks = applied.metrics.get(RANKS, 1)
            self._services.learner.check_digest(step, stats.weight_digest, applied.digest, ranks)
            observers.judge_usage.restore_reported(applied.metrics.get("judge_step"))
        # before the step counts as completed: a stop may save a checkpoint of it from then on
        durability.memory.take(applied.metrics)
        durability.memory.keep_objective()
        await durability.seal(step, groups, self._stages.encode)
        observers.watchdog.step_done()
        durability.checkpoint_writer.check()
        last = step + 1 == train.steps or durability.memory.plateau.ends_by(step + 1)
        if last or (step + 1) % train.checkpoint_every == 0:
            await durability.checkpoint()
        observers.step_done(applied)
        durability.memory.plateau.check(applied.metrics)
        self._watch_unjudged(groups)
        self._watch_unknown(groups)

    async def _applied(
        self, step: int, groups: Sequence[TrainingGroup], stats: UpdateStats, watch: Stopwatch, cursor: int
    ) -> Applied:
        train, observers = self._config.train, self._observers
        row = metrics_row(
            step,
            groups,
            stats,
            watch.waterfall(),
            observers.judge_pause.take_pauses(),
            observers.summary.clip_share(stats.clipped),
            await observers.judge_numbers(self._services.judge),
            self._stages.stages,
        )
        row |= {name: _number(value) for name, value in self._weights.difference.items()} | watch.counts
        row["off_policy_groups"] = min(self._services.learner.off_policy(step), len(groups))
        if train.refill:
            row |= {"refilled": len(groups) - train.prompts_per_step, CURSOR: cursor}
        if self._config.problems.order == "pass_rate":
            row |= pass_count_row([t.group.problem_id for t in groups], [t.rewards for t in groups])
        if train.ahead:
            row |= _staleness(step, [rollout for trained in groups for rollout in trained.group.rollouts])
        if train.ranks > 1:
            row[RANKS] = train.ranks
        return Applied(step, stats.weight_digest, row)

    def _watch_unjudged(self, groups: Sequence[TrainingGroup]) -> None:
        self._groups += len(groups)
        self._unjudged += sum(trained.group.unjudged for trained in groups)
        limit = self._config.judge.max_unjudged
        if self._unjudged > max(1, limit * self._groups):
            raise RaypolyError(
                f"The judge could not label {self._unjudged} of {self._groups} groups, more than judge.max_unjudged="
                f"{limit:g}: look at its answers, then start again with the same command."
            )

    def _watch_unknown(self, groups: Sequence[TrainingGroup]) -> None:
        sound = [trained for trained in groups if skip_reason(trained.group) is None]
        self._rollouts += sum(trained.group.size for trained in sound)
        self._unknown += sum(trained.unknown_outcomes for trained in sound)
        limit = self._config.reward.max_unknown
        if self._unknown > max(self._config.train.rollouts, limit * self._rollouts):
            raise RaypolyError(
                f"The outcome of {self._unknown} of {self._rollouts} rollouts is unknown, more than reward.max_unknown="
                f"{limit:g}: look at reward.name={self._config.reward.name}"
                + (f" and at the teacher {self._config.distill.teacher}" if self._config.distill.teacher else "")
                + ", then start again with the same command."
            )


_LOOKED_AT = 2  # programs of a group whose style is measured


def metrics_row(
    step: int,
    groups: Sequence[TrainingGroup],
    stats: UpdateStats,
    times: Waterfall,
    pauses: Sequence[Mapping[str, Any]],
    clip_share: float,
    judge: Mapping[str, Any],
    stages: Sequence[GroupStage] = (),
) -> dict[str, Any]:
    """JSON values; null where nothing was measured. `judge`: of `RunObservers.judge_numbers`."""
    sound = [trained for trained in groups if skip_reason(trained.group) is None]
    rollouts = [rollout for trained in groups for rollout in trained.group.rollouts]
    tokens = sum(rollout.length for rollout in rollouts)
    statuses = Counter(v.status for trained in groups for v in trained.group.verdicts or ())
    return {
        "step": step,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "reward": _mean(float(known.mean()) for t in sound if (known := t.rewards[np.isfinite(t.rewards)]).size),
        "strategies": _mean(distinct(t.group.labels.strategies) for t in groups if t.group.labels is not None),
        "strategies_structural": _mean(_structural_strategies([trained.group for trained in sound])),
        "strategies_correct": _mean(_correct_strategies([trained.group for trained in sound])),
        "strategies_correct_judged": _mean(_judged_strategies([trained.group for trained in sound])),
        "zero_advantage": _mean(float(not trained.teaches) for trained in groups),
        "unjudged": sum(trained.group.unjudged for trained in groups),
        "unknown_rollouts": sum(trained.unknown_outcomes for trained in sound),
        "unknown_groups": sum(t.unknown or 0 < t.group.size == t.unknown_outcomes for t in sound),
        "set_aside": len(groups) - len(sound),
        "set_aside_problems": {t.group.problem_id: reason for t in groups if (reason := skip_reason(t.group))},
        "loss": stats.loss,
        "grad_norm": stats.grad_norm,
        "update_norm": _number(stats.update_norm),
        "lr": stats.lr,
        "clipped": int(stats.clipped),
        "clip_share": clip_share,
        "entropy": _number(stats.entropy),
        **{name: _number(value) for name, value in asdict(stats.measured).items()},
        "rows": stats.rows,
        "response_tokens": tokens,
        "response_length": tokens / len(rollouts) if rollouts else None,
        "advantage_variance": _mean(float(t.advantages[t.known].var()) for t in sound if t.valued and t.known.any()),
        **_style([trained.group for trained in sound]),
        **_decoded([trained.group for trained in groups], times),
        "truncated": _mean(float(rollout.finish_reason == "length") for rollout in rollouts),
        **_turns(rollouts),
        "statuses": dict(statuses),
        "seconds": _rounded(times.seconds),
        "exposed": _rounded(times.exposed),
        "tail": _rounded(times.tail),
        # with `train.ahead` a pause may have begun in the turn of the step before
        "paused_seconds": min(sum(pause["seconds"] for pause in pauses), times.seconds["total"]),
        "pauses": list(pauses),
        **judge,
        "labelled_by": dict(Counter(t.group.labels.judge for t in groups if t.group.labels is not None)),
        "weight_digest": stats.weight_digest,
        **_measures(groups),
        **_findings(groups, stages),
        **_kept_by_terms(sound, stages),
    }


def _staleness(step: int, rollouts: Sequence[Rollout]) -> dict[str, float | None]:
    """Of what was sampled: updates between the weights that sampled first and those that learn, a rollout's mean; and
    the share of tokens with any."""
    sampled = [rollout for rollout in rollouts if not rollout.given]
    tokens, stale = sum(r.length for r in sampled), sum(r.stale_tokens(step) for r in sampled)
    lag = _mean(float(step - rollout.weight_version) for rollout in sampled)
    return {"staleness": lag, "stale_tokens": stale / tokens if tokens else None}


def _turns(rollouts: Sequence[Rollout]) -> dict[str, Any]:
    """Of conversations: the policy's turns, how they ended, and means of what tools took and observations have."""
    talks = [rollout for rollout in rollouts if rollout.turns]
    if not talks:
        return {}
    return {
        "turns": _mean(float(len(rollout.own_turns)) for rollout in talks),
        "turns_again": 0,
        "finish_reasons": dict(sorted(Counter(rollout.finish_reason for rollout in talks).items())),
        "tool_seconds": _mean(sum(turn.seconds for turn in rollout.turns) for rollout in talks),
        "observation_tokens": _mean(float(len(rollout.tokens) - rollout.length) for rollout in talks),
        "observations_cut": sum(t.role != ASSISTANT and t.finish_reason == "length" for r in talks for t in r.turns),
    }


def _decoded(groups: Sequence[Group], times: Waterfall) -> dict[str, Any]:
    found, seconds = [DecodedTokens.of_group(group) for group in groups], times.seconds.get("generate")
    roles = sorted({role for each in found for role in each.by_role})
    by_role = {role: sum(each.by_role.get(role, 0) for each in found) for role in roles}
    sampled = sum(by_role.values())
    drafts = Counter(draft.role for group in groups for draft in group.drafts)
    thoughts = Counter(d.role for group in groups for d in group.drafts if has_thoughts(d.rollout.text))
    of_drafts = {
        "decoded_tokens": by_role,
        "drafts": dict(sorted(drafts.items())),
        "drafts_with_thoughts": {role: thoughts[role] for role in sorted(drafts)},
    }
    return {
        **(of_drafts if drafts else {}),
        "tokens_per_second": sampled / seconds if seconds and sampled else None,
    }


def _findings(groups: Sequence[TrainingGroup], stages: Sequence[GroupStage]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for stage in (stage for stage in stages if stage.name not in OWN_COLUMNS):
        name, asked = stage.name, [t.group for t in groups if stage.name in t.group.findings]
        measured = [stage.measures(group.findings[name], group) for group in asked if group.knows(name)]
        found[f"{name}/unknown"] = len(asked) - len(measured)
        for number in sorted({number for each in measured for number in each}):
            found[f"{name}/{number}"] = _mean(each[number] for each in measured if number in each)
    return found


def _kept_by_terms(groups: Sequence[TrainingGroup], stages: Sequence[GroupStage]) -> dict[str, int]:
    """The groups that terms alone gave a gradient."""
    if not any(isinstance(stage, RewardStage) and stage.rewards.terms for stage in stages):
        return {}
    return {"reward/groups_by_terms": sum(trained.by_terms and trained.teaches for trained in groups)}


def _measures(groups: Sequence[TrainingGroup]) -> dict[str, float | None]:
    names = sorted({name for trained in groups for name in trained.measures})
    return {
        f"{MEASURES}{name}": _mean(trained.measures[name] for trained in groups if name in trained.measures)
        for name in names
    }


def _structural_strategies(groups: Sequence[Group]) -> list[int]:
    """Strategies by structure, of the groups that the judge labelled, or all: a count that nobody trains on."""
    labelled = [group for group in groups if group.labels is not None] or groups
    found = [structural_labels(group.verdicts or ()) for group in labelled]
    return [distinct(labels.strategies) for labels in found if labels is not None]


def _correct_strategies(groups: Sequence[Group]) -> list[float]:
    """Strategies by execution trace, among the correct rollouts of each group with tests. Empty if some left no
    evidence: the groups without a correct rollout would be no fair sample."""
    scored = [scored_rollouts(group)[2] for group in groups]
    tested = [verdicts for verdicts in scored if verdicts and WITHOUT_TESTS not in verdicts]
    found = [GroupOutcomes.of(verdicts, None).drawn_strategies for verdicts in tested]
    return [] if None in found else [drawn for drawn in found if drawn is not None]


def _judged_strategies(groups: Sequence[Group]) -> list[int]:
    """Strategies by the judge, among the correct rollouts of each labelled group with tests (code study, fig. 2)."""
    return [
        distinct(group.labels.strategies[place] for place in GroupOutcomes.of(group.verdicts or (), None).correct)
        for group in groups
        if group.labels is not None and WITHOUT_TESTS not in (group.verdicts or ())
    ]


def _style(groups: Sequence[Group]) -> dict[str, float | None]:
    verdicts = [(group, place, verdict) for group in groups for place, verdict in enumerate(group.verdicts or ())]
    programs = [(g, i) for g, i, verdict in verdicts if i < _LOOKED_AT and verdict.status != "no_code"]
    styles = [program_style(find_code(group.rollouts[place].text)) for group, place in programs]
    known = [style for style in styles if style is not None]
    return {
        "comment_share": _mean(style.comment_share for style in known),
        "identifier_length": _mean(s.identifier_length for s in known if s.identifier_length is not None),
        "correct_cpu_seconds": _mean(verdict.cpu_seconds for _, _, verdict in verdicts if verdict.passed),
    }


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return math.fsum(found) / len(found) if found else None


def _rounded(seconds: Mapping[str, float | None]) -> dict[str, float | None]:
    return {stage: None if value is None else round(value, 4) for stage, value in seconds.items()}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
