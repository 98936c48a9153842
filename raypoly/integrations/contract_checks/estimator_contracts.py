"""What makes gradients: rewards, objectives (`objectives/objective.py`) and losses (`losses/loss.py`)."""

from __future__ import annotations

import inspect
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from raypoly.algorithms import losses, objectives
from raypoly.algorithms.losses import Loss, Tokens
from raypoly.algorithms.objectives import Batch, Objective, ScoredGroup
from raypoly.algorithms.objectives.objective import measures_of, needed_stages
from raypoly.core.errors import UsageError
from raypoly.core.plugins import recipe_parts
from raypoly.core.values import Problem, Rollout, Verdict
from raypoly.integrations.contract_checks import contract as trials
from raypoly.integrations.contract_checks.comparing import same
from raypoly.integrations.contract_checks.contract import Check, Contract, Fault, Input, Trial, need, need_json
from raypoly.integrations.contract_checks.made_groups import PROGRAMS, made_group, made_problems, taken_sizes, turned
from raypoly.verifier.rewards import reads_findings


class AnyFinding(np.ndarray[Any, Any]):
    """A finding of a stage that is not known here: each of its columns is all of it."""

    def __getitem__(self, key: Any) -> Any:
        return self if isinstance(key, str) else super().__getitem__(key)


class AnyNumber(float):
    """As `AnyFinding`, of one rollout."""

    def __getitem__(self, key: str) -> Any:
        return self


class RewardContract(Contract):
    kind, key, what, seconds = "reward", "reward.name", "a function of problem, rollout and verdict", 0.25
    hint = "it is called with (problem, rollout, verdict), and each verdict but infra has a reward"
    known: ClassVar = {name: f"raypoly.verifier.rewards:{name}" for name in ("passed", "fraction")}

    def is_one(self, thing: Any) -> bool:
        return callable(thing) and not isinstance(thing, type)

    def build(self, thing: Any, params: Mapping[str, Any]) -> Any:
        if params:
            raise UsageError(f"A reward function takes no parameters, and {', '.join(params)} is given.")
        return thing

    def samples(self, part: Any) -> Iterator[Input]:
        for start, (program, status, _) in enumerate(PROGRAMS):
            group = made_group(1, start)
            for verdict in (group.findings["score"][0], Verdict(status, 0, 0, 0.1)):
                tests = f"{verdict.tests_passed} of {verdict.tests_total} tests"
                args = made_problems()[start % 2], group.rollouts[0], verdict
                yield Input(f"the verdict {status!r} with {tests} on {program[:30]!r}", args)

    def answer(self, part: Any, problem: Problem, rollout: Rollout, verdict: Verdict) -> Any:
        if "solution_str" in inspect.signature(part).parameters:  # verl's
            found = part(data_source="made", solution_str=rollout.text, ground_truth="4", extra_info={})
            return found["score"] if isinstance(found, Mapping) else found
        findings = defaultdict[str, Any](lambda: AnyNumber(0.5))
        return part(problem, rollout, verdict, **({"findings": findings} if reads_findings(part) else {}))

    def right(self, value: Any, *args: Any) -> None:
        if inspect.iscoroutine(value):
            value.close()  # no warning that nobody waited for it
        need(isinstance(value, Real | np.bool_), "It has to give one number, or raise if it is not known", value)
        need(math.isfinite(value), "It has to give a finite number, or raise if it is not known", value)

    def faulty(self, fault: Fault, *args: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
        for place, what in enumerate(("the problem", "the response", "the verdict")):
            yield what, (*args[:place], fault, *args[place + 1 :])


class ObjectiveContract(Contract):
    kind, key, what = "objective", "objective.name", "a subclass of Objective"
    hint = "a field of the group that `needs` does not name is None"
    known: ClassVar = {**objectives.KNOWN, **recipe_parts("objective.name")}

    def is_one(self, thing: Any) -> bool:
        return isinstance(thing, type) and issubclass(thing, Objective)

    def samples(self, part: Objective) -> Iterator[Input]:
        for size in taken_sizes(part.check):
            graded = np.random.default_rng(7).normal(size=size).round(2) * 10
            for rewards in ((np.arange(size) % 3 == 0) * 1.0, np.zeros(size), np.ones(size), graded):
                for none in sorted({0, (size + 1) // 3, size}) if "labels" in part.needs else [0]:
                    group = _scored(part, rewards, np.arange(size)[::-1] < none)
                    shown = {n: getattr(group, n) for n in ("rewards", "labels", "degenerate", "lengths")}
                    texts = [f"{n}={value.tolist()}" for n, value in shown.items() if value is not None]
                    yield Input(", ".join(texts), (group,))

    def answer(self, part: Any, group: ScoredGroup) -> Any:
        found = {"advantages": part.compute(group)}
        drafts = part.compute_drafts(group) if isinstance(group, ScoredGroup) and group.drafts else None
        return found if drafts is None else {**found, "drafts": drafts}

    def right(self, value: Any, group: ScoredGroup) -> None:
        trials.need_array(value["advantages"], np.float64, group.size, "What compute() gives")
        if "drafts" in value:
            trials.need_array(value["drafts"], np.float64, len(group.drafts), "What compute_drafts() gives")

    def faulty(self, fault: Fault, group: ScoredGroup) -> Iterator[tuple[str, tuple[Any, ...]]]:
        yield "the group", (fault,)

    def reordered(self, part: Any, value: Any, group: ScoredGroup) -> Any:
        if getattr(part.config, "sets", None) or getattr(part.config, "estimator", "") == "bootstrap":
            return None  # sets are drawn by place
        order, chosen = turned(group.size), dict[str, Any]()
        for name in ("rewards", "labels", "degenerate", "lengths", "own_prompt", "draft_of"):
            if (it := getattr(group, name)) is not None:
                chosen[name] = it[order]
        for name in ("outcomes", "statements", "cross_logprobs"):
            if (it := getattr(group, name)) is not None:
                chosen[name] = tuple(it[i] for i in order)
        own = {n: it if group.drafts else it[order] for n, it in group.findings.items()}
        return (replace(group, **chosen, findings=own),), {**value, "advantages": value["advantages"][order]}


def _scored(part: Objective, rewards: Any, degenerate: Any) -> ScoredGroup:
    """A group with what the objective needs, and nothing else."""
    size, turns, group = len(rewards), np.arange(len(rewards)), made_group(len(rewards))
    drafts = group.drafts[: min(2, size)]
    values: dict[str, dict[str, Any]] = {
        "labels": {"labels": turns % 3 + 1, "degenerate": degenerate},
        "lengths": {"lengths": 20 + 7 * turns[::-1]},
        "outcomes": {"outcomes": [f"outcome {place % 2}" for place in range(size)]},
        "statements": {"statements": [{"a = b", f"c = {place % 3}"} if place % 4 else () for place in range(size)]},
        "cross_logprobs": {
            "cross_logprobs": [np.full((2, 3), -0.1 * place - 1) for place in turns],
            "own_prompt": turns % 2,
        },
        "problem": {"problem": f"problem {rewards.tolist()} {degenerate.tolist()}"},
        "step": {"step": 3},
        "drafts": {"drafts": drafts, "draft_of": group.draft_of},
    }
    given = {key: value for name in part.needs for key, value in values.get(name, {}).items()}
    rows = len(drafts) if "drafts" in part.needs else size
    stages = needed_stages(part) - {"judge", "score", "prompt_logprobs"}
    findings = {name: np.linspace(0, 0.9, rows).view(AnyFinding) for name in stages}
    return part.scored(rewards=rewards, **given, findings=findings)


def _strategies_have_no_names(trial: Trial) -> None:
    need("labels" in trial.make().needs, "it needs no labels", error=trials.Untried)

    def renamed(value: Any, group: Any) -> Any:
        return (replace(group, labels=np.int32(9) - group.labels),), value

    def emptied(value: Any, group: Any) -> Any:
        return (replace(group, labels=np.where(group.degenerate, np.int32(1), group.labels)),), value

    trial.compare("It depends on how strategies are numbered, and ids only say which are equal", renamed)
    trial.compare("It reads the ids of degenerate rollouts, which mean nothing", emptied)
    for it in trial.answers:
        group, found, out = it.sample.args[0], it.value["advantages"], it.sample.args[0].degenerate
        if 0 < out.sum() < group.size and not np.ptp(group.rewards):
            said = f"A degenerate rollout is paid above every attempt of the same reward: {it.sample.shown}"
            need(found[out].max() <= found[~out].max() + 1e-9, said, found)


def _declares(trial: Trial) -> None:
    part = trial.make()
    need(isinstance(part.needs, frozenset), f"needs={part.needs!r} has to be a frozenset of texts")
    names = [spec.name for spec in fields(ScoredGroup)]
    for name in part.needs - {*names, *recipe_parts("stages.own")}:
        near = get_close_matches(name, names, n=1, cutoff=0.8)
        need(not near, f"needs names {name!r}, which would be a stage: {''.join(near)!r} is a field of the group")
    for size in taken_sizes(part.check):
        need(0 < part.scale(size) < math.inf, f"scale({size}) has to be a finite number above 0", part.scale(size))
    for it in trial.answers:
        trial.contract.answer(part, *it.sample.args)
        measures_of(part)
    if not part.reads_rewards:
        said = "It has reads_rewards=False, and reads them"
        trial.compare(said, lambda value, group: ((replace(group, rewards=group.rewards + 3),), value))


def _remembers(trial: Trial) -> None:
    part, fresh, empty = trial.make(), trial.make(), not trial.make().state_dict()
    for it in trial.answers:
        trial.contract.answer(part, *it.sample.args)
    state = part.state_dict()
    kept = need_json(state, "What state_dict() gives, and checkpoints keep,")
    need(not (state and empty), "state_dict() is empty before the first group and not after: give all keys at once")
    fresh.load_state_dict(kept)
    for it in trial.answers if state else ():
        was, now = (trial.contract.answer(each, *it.sample.args) for each in (part, fresh))
        need(same(was, now, 1e-9), f"After load_state_dict(state_dict()) it differs: {it.sample.shown}", now, was)


def _finishes(trial: Trial) -> None:
    rows = [it.value["advantages"] for it in trial.answers]
    for places in (range(len(rows)), range(1), range(0)):
        turns = ([rows[i].copy() for i in turn] for turn in (places, places[::-1]))
        batch, back = (Batch.of(it, [np.arange(len(row)) + 5 for row in it]) for it in turns)
        found, again = trial.make().finish(batch), trial.make().finish(back)
        need(len(found) == len(batch), f"finish() has to give advantages of all {len(batch)} groups", found)
        for advantages, place in zip(found, places, strict=True):
            trials.need_array(advantages, np.float64, len(rows[place]), "What finish() gives")
        need(same(batch, [rows[i] for i in places]), "finish() changes the batch, where it may only change a copy")
        need(same(found[::-1], again, 1e-6), "finish() depends on the order of a step's groups", again, found[::-1])


ObjectiveContract.own = (
    Check("strategies have no names, and degenerate rollouts no strategy", _strategies_have_no_names),
    Check("what it declares and measures fits", _declares),
    Check("state survives a restart as JSON", _remembers),
    Check("finish keeps a step's groups", _finishes),
)


class LossContract(Contract):
    kind, key, what, package, known = "loss", "loss.name", "a subclass of Loss", "torch", losses.KNOWN
    hint = "a field of the tokens that `needs` does not name is None"

    def is_one(self, thing: Any) -> bool:
        return isinstance(thing, type) and issubclass(thing, Loss)

    def samples(self, part: Loss) -> Iterator[Input]:
        for lengths, gap in (([1], 0.0), ([3], 0.0), ([2, 1, 4], 0.0), ([3, 5, 1, 4], 0.3), ([4, 2], 100.0)):
            yield Input(f"responses of {lengths} tokens, log-ratios up to {gap:g}", (_tokens(part, lengths, gap),))

    def answer(self, part: Loss, tokens: Tokens) -> Any:
        import torch

        with torch.enable_grad():
            given = replace(tokens, logp_T=tokens.logp_T.clone().requires_grad_())
            if "entropy" in part.needs:
                given = replace(given, entropy_T=tokens.entropy_T.clone().requires_grad_())
            if given.prompt_hidden_SH is not None:
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(0)
                    head = part.head(given.prompt_hidden_SH.shape[1])
                given = replace(given, head_S=None if head is None else head(given.prompt_hidden_SH))
            own_T, total_T, bounds = part.token_losses(given), part.total(given), part.clipped(given)
            if getattr(total_T, "requires_grad", False):
                total_T.sum().backward()  # type: ignore[no-untyped-call]
        found: dict[str, Any] = {"token_losses": own_T, "total": total_T, "gradient": given.logp_T.grad}
        found |= {} if bounds is None else {"low": bounds[0], "high": bounds[1]}
        return {name: it.detach().numpy() if hasattr(it, "detach") else it for name, it in found.items()}

    def right(self, value: Any, tokens: Tokens) -> None:
        need(value["gradient"] is not None, "No gradient reaches tokens.logp_T: don't detach it")
        for name, found in value.items():
            dtype, what = (np.bool_, "") if name in ("low", "high") else (np.float32, " (neither sum nor mean)")
            trials.need_array(found, dtype, len(tokens.logp_T), f"{name}{what}")

    def faulty(self, fault: Any, tokens: Tokens) -> Iterator[tuple[str, tuple[Any, ...]]]:
        yield "the advantages", (replace(tokens, advantage_T=fault),)

    def reordered(self, part: Any, value: Any, tokens: Tokens) -> Any:
        return _alone(value, tokens, turned(len(tokens.length_S)))


def _tokens(part: Loss, lengths: Sequence[int], gap: float) -> Tokens:
    """Responses with advantages above, below, and of zero."""
    import torch

    wave_T = torch.sin(torch.arange(sum(lengths)) * 2.3)
    response_T = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    advantage_S = torch.tensor([(1.0, -0.7, 0.0, 0.4)[s % 4] for s in range(len(lengths))])
    return Tokens(
        logp_T=wave_T - 2.5,
        sampler_logp_T=wave_T - 2.5 + gap * torch.cos(torch.arange(sum(lengths)) * 1.7),
        advantage_T=advantage_S[response_T],
        response_T=response_T,
        length_S=torch.tensor(lengths),
        entropy_T=wave_T.abs() + 0.5,
        reference_logp_T=wave_T.cos() - 3 if "reference" in part.needs else None,
        prompt_hidden_SH=torch.outer(advantage_S + 1, torch.arange(6.0)) if "prompt_hidden" in part.needs else None,
    )


def _alone(value: Any, tokens: Tokens, responses: Sequence[int]) -> Any:
    """These responses, in this order, and what their tokens' losses should be."""
    import torch

    places = torch.cat([torch.nonzero(tokens.response_T == s)[:, 0] for s in responses])
    given = {spec.name: getattr(tokens, spec.name) for spec in fields(tokens)}
    chosen = {n: it[places if n.endswith("_T") else list(responses)] for n, it in given.items() if it is not None}
    chosen["response_T"] = torch.repeat_interleave(torch.arange(len(responses)), chosen["length_S"])
    return (replace(tokens, **chosen),), {name: found[places.numpy()] for name, found in value.items()}


def _is_alone(trial: Trial) -> None:
    said = "A token's loss or gradient depends on other responses, and micro-batches divide them in any way"
    trial.compare(said, lambda value, tokens: _alone(value, tokens, [0]))


def _falls(trial: Trial) -> None:
    need(not trial.make().zero_advantage_matters, "it fits advantages, or has another term", error=trials.Untried)
    for it in trial.answers:
        (tokens,), slope_T = it.sample.args, it.value["gradient"]
        for s in range(len(tokens.length_S)):
            own = (tokens.response_T == s).numpy()
            advantage, slope = float(tokens.advantage_T[own][0]), float(slope_T[own].sum())
            said = "A response with advantage 0 has a gradient, and the learner leaves such out: set fits_advantages"
            need(advantage or not slope_T[own].any(), f"{said}: {it.sample.shown}", slope_T)
            likely = "more likely" if advantage > 0 else "less likely"
            said = f"It does not fall as a response of advantage {advantage:.1f} gets {likely}"
            off_policy = bool((tokens.logp_T != tokens.sampler_logp_T).any())
            need(off_policy or not advantage or advantage * slope < 0, f"{said}: {it.sample.shown}", slope_T)


def _masks(trial: Trial) -> None:
    part = trial.make(mask_low=0.9, mask_high=1.1)
    for it in trial.answers:
        (tokens,), found = it.sample.args, trial.contract.answer(part, *it.sample.args)
        ratio_T = (tokens.logp_T - tokens.sampler_logp_T).clamp(-20, 20).exp().numpy()
        out_T = (ratio_T < 0.9) | (ratio_T > 1.1)
        for name in ("total", "gradient"):
            said = f"A masked token has a {name}, with mask_low=0.9 mask_high=1.1: {it.sample.shown}"
            need(found[name] is None or not found[name][out_T].any(), said, found[name])


def _reads_the_sampler(trial: Trial) -> None:
    need(not trial.make().needs_sampler, "it declares that it reads the sampler", error=trials.Untried)
    said = "It reads sampler_logp_T, which is NaN of given responses, and does not say so: set takes_ratio = True"
    trial.compare(said, lambda value, it: ((replace(it, sampler_logp_T=it.sampler_logp_T * float("nan")),), value))


LossContract.own = (
    Check("a response's loss is its own, in any micro-batch", _is_alone),
    Check("it falls as good responses get likelier", _falls),
    Check("masked tokens have no gradient", _masks),
    Check("it reads the sampler as it declares", _reads_the_sampler),
)
