"""Metrics that a run shows to Prometheus.

`workflows/observers/ray_metrics.py` emits them, a panel of configs/grafana.json shows each, and docs/cluster.md has a
table of them (`make docs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from raypoly.run.sinks import MEASURES

Source = Literal["step", "evaluation", "now", "call", "ray"]
"""Its origin: each step's row, each split's newest evaluation, the state now, each call that ends, or Ray."""
SPLIT = "split"
_SUFFIX = {"gauge": "", "counter": "_total", "histogram": "_bucket"}


@dataclass(frozen=True)
class RunMetric:
    name: str
    text: str
    kind: Literal["gauge", "counter", "histogram"] = "gauge"
    source: Source = "step"
    number: str = ""
    """The number shown, if its name is not the metric's. With a label: the prefix of several names, whose rests are the
    label's values."""
    label: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        return (*([SPLIT] if self.source == "evaluation" else []), *([self.label] if self.label else []))

    @property
    def served(self) -> str:
        """Its name in Prometheus. Ray puts `ray_` before each."""
        return f"ray_{'' if self.source == 'ray' else 'raypoly_'}{self.name}{_SUFFIX[self.kind]}"

    def points(self, numbers: Mapping[str, float]) -> Iterator[tuple[float, dict[str, str]]]:
        if not self.label and (self.number or self.name) in numbers:
            yield numbers[self.number or self.name], {}
        elif self.label:
            for name, value in numbers.items():
                if name.startswith(self.number):
                    yield value, {self.label: name.removeprefix(self.number)}


def _measured(name: str, text: str, number: str, label: str = "") -> RunMetric:
    return RunMetric(name, text, source="evaluation", number=number, label=label)


_CORRECT = "strategies_correct"
_CALL = "Seconds of each call of an actor or of storage: a chunk of programs, a group to judge, a commit, ..."
RUN_METRICS = (
    RunMetric("step", "The newest step; the first is 0."),
    RunMetric("reward", "Mean reward of the step's rollouts."),
    RunMetric("reward_part", "Outcome and terms: means, spreads, unknown.", number="reward/", label="part"),
    RunMetric("unknown_rollouts", "Rollouts of the step whose outcome is unknown, which are left out."),
    RunMetric("strategies", "Mean distinct judged strategies in a group."),
    RunMetric("strategies_structural", "Mean distinct strategies in a group by structure, over the same groups."),
    RunMetric("strategies_correct", "Mean distinct strategies, by execution, among a group's correct rollouts."),
    RunMetric("strategies_correct_judged", "Mean distinct strategies, by the judge, among a group's correct rollouts."),
    _measured("pass_at_k", "Unbiased pass@k of the newest evaluation.", "pass@", "k"),
    _measured("evaluation_step", "Its step: the updates before it.", "step"),
    _measured("evaluation_strategies", "Its distinct correct strategies in 8 draws, by execution.", _CORRECT),
    _measured("evaluation_strategies_judge", "The same by the judge's labels.", f"{_CORRECT}_judge"),
    _measured("evaluation_strategies_structural", "The same by structure.", f"{_CORRECT}_structural"),
    RunMetric("zero_advantage", "Share of groups without a gradient."),
    RunMetric("unjudged", "Groups of the step that the judge could not label."),
    RunMetric("judge_agreement", "The judge's mean agreement (adjusted Rand index) with gold groups."),
    RunMetric("grad_norm", "Gradient norm before clipping."),
    RunMetric("update_norm", "Norm of the change of the weights, of an update."),
    RunMetric("clip_share", "Share of steps whose gradient was clipped."),
    RunMetric("lr", "Learning rate of the step."),
    RunMetric("entropy", "Mean token entropy of the sampling policy, in nats."),
    RunMetric("mismatch_max", "Largest difference of a sampled log-probability between engine and learner."),
    RunMetric("mismatch_k3", "KL of the sampling engine to the learner, nats a token."),
    RunMetric("probe_mean", "Mean difference of a log-probability between them, right after the step's weight sync."),
    RunMetric("probe_q99", "The 0.99 quantile of these differences."),
    RunMetric("staleness", "Updates between a rollout's weights and those it is learned with, with train.ahead."),
    RunMetric("importance_ess", "Effective sample size of the learner/sampler ratios, as a share of the tokens."),
    RunMetric("ratio_clipped_low", "Share of tokens whose loss the lower bound of the ratio decided."),
    RunMetric("ratio_clipped_high", "Share of tokens whose loss the upper bound of the ratio decided."),
    RunMetric("kl_reference", "KL to the starting model, nats a token, where the loss has such a term."),
    RunMetric("tokens_per_second", "Sampled tokens a second."),
    RunMetric("truncated", "Share of rollouts that reached the length limit."),
    RunMetric("tail_seconds", "Seconds from the end of generation to the last group's labels.", number="tail/seconds"),
    RunMetric("tail_exposed", "Seconds of those in which nothing hid scoring and judging.", number="tail/exposed"),
    RunMetric("stage_seconds", "Seconds of each stage of the step.", number="seconds/", label="stage"),
    RunMetric("exposed_seconds", "Seconds that the step waited for each stage.", number="exposed/", label="stage"),
    RunMetric("objective", "The objective's own numbers.", number=MEASURES, label="measure"),
    RunMetric("rollouts", "Rollouts by verdict.", "counter", number="statuses/", label="status"),
    RunMetric("response_tokens", "Sampled tokens of attempts.", "counter"),
    RunMetric(
        "decoded_tokens",
        "Sampled tokens by role, where a scaffold has drafts.",
        "counter",
        number="decoded_tokens/",
        label="role",
    ),
    RunMetric("drafts", "Drafts by role.", "counter", number="drafts/", label="role"),
    RunMetric("thoughts", "Drafts with a thought, by role.", "counter", number="drafts_with_thoughts/", label="role"),
    RunMetric("pause_seconds", "Seconds waited for the judge.", "counter", number="paused_seconds"),
    RunMetric("judge_usd", "US dollars that the judge's answers cost.", "counter", number="judge_step/cost_usd"),
    RunMetric("paused", "1 while the run waits for the judge.", source="now"),
    RunMetric("calls", "Calls in flight.", source="now", number="calls/", label="stage"),
    RunMetric("programs_waiting", "Programs that no scorer has.", source="now"),
    RunMetric("scorers", "Scorers: busy, idle, starting.", source="now", number="scorers/", label="state"),
    RunMetric("retries_left", "Retries left in the run's budget for lost actors.", source="now"),
    RunMetric("restarts", "Actors that were lost.", source="now", number="restarts/", label="actor"),
    RunMetric("judge_calls", "Requests to the judge's server, over all starts of the run.", source="now"),
    RunMetric("judge_cache_hits", "Answers of the judge that its cache had, over all starts.", source="now"),
    RunMetric("commit_age_seconds", "Seconds since the last commit.", source="now"),
    RunMetric("call_seconds", _CALL, "histogram", "call", label="stage"),
    RunMetric("object_store_used_memory", "Bytes in each node's object store, of all jobs.", source="ray"),
)
