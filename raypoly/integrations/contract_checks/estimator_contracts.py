"""What makes gradients: rewards, objectives (`objectives/objective.py`) and losses (`losses/loss.py`)."""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from raypoly.algorithms import losses, objectives
from raypoly.algorithms.losses import Loss, Tokens
from raypoly.algorithms.objectives import Batch, Credit, Objective, ScoredGroup
from raypoly.algorithms.objectives.objective import needed_stages, numbers_of
from raypoly.core.errors import UsageError
from raypoly.core.plugins import load_plugin, recipe_parts
from raypoly.core.values import Problem, Rollout, Verdict
from raypoly.integrations.contract_checks import made_groups as made
from raypoly.integrations.contract_checks.comparing import Untried, need, need_array, need_json, need_same, same
from raypoly.integrations.contract_checks.contract import Contract, Inputs
from raypoly.verifier.rewards import AnsweredGroup, RewardFunction
from raypoly.verifier.rewards.reward_function import form_of
from raypoly.verifier.rewards.terms import KNOWN as TERMS
from raypoly.verifier.rewards.terms import Term


class AnyFinding(np.ndarray[Any, Any]):
    """A finding of a stage that is not known here: each of its columns is all of it."""

    def __getitem__(self, key: Any) -> Any:
        return self if isinstance(key, str) else super().__getitem__(key)


class AnyNumber(float):
    """As `AnyFinding`, of one rollout."""

    def __getitem__(self, key: str) -> Any:
        return self


class RewardContract(Contract):
    kind, what, seconds = "reward", "a function of problem, rollout and verdict", 0.25
    hint = "it is called with (problem, rollout, verdict), or as verl or TRL call theirs, of each verdict but infra"
    inputs = ("the problem", "the response", "the verdict")
    known: ClassVar = {name: f"raypoly.verifier.rewards:{name}" for name in ("passed", "fraction")}

    @classmethod
    def is_one(cls, thing: Any) -> bool:
        return callable(thing) and not isinstance(thing, type)

    def build(self, params: Mapping[str, Any]) -> Any:
        if params:
            raise UsageError(f"A reward function takes no parameters, and {', '.join(params)} is given.")
        return self.thing

    def samples(self, part: Any) -> Inputs:
        for start, (program, status, _) in enumerate(made.PROGRAMS):
            group = made.made_group(1, start)
            for verdict in (group.findings["score"][0], Verdict(status, 0, 0, 0.1)):
                tests = f"{verdict.tests_passed} of {verdict.tests_total} tests"
                args = made.made_problems()[start % 2], group.rollouts[0], verdict
                yield f"the verdict {status!r} with {tests} on {program[:30]!r}", args

    def answer(self, part: Any, problem: Problem, rollout: Rollout, verdict: Verdict) -> Any:
        function = RewardFunction("It", part, form_of(part, "It"))
        if function.reads_findings:
            found = part(problem, rollout, verdict, findings=defaultdict[str, Any](lambda: AnyNumber(0.5)))
            return asyncio.run(_awaited(found)) if inspect.isawaitable(found) else found
        row = {"data_source": "made", "ground_truth": '"4"', "extra_info": "{}"}
        answered = AnsweredGroup(replace(problem, metadata=row), (rollout,), (verdict,))
        return asyncio.run(function.results(answered))[0]

    def right(self, value: Any, *args: Any) -> None:
        score = value.get("score", value) if isinstance(value, Mapping) else value
        said = 'It has to give one number, None where it is not known, or a dict whose "score" is one of these'
        need(score is None or (isinstance(score, Real | np.bool_) and math.isfinite(score)), said, value)


async def _awaited(value: Any) -> Any:
    return await value


class TermContract(Contract):
    kind, what, base, inputs = "term", "a subclass of Term", Term, ("the group",)
    seconds = 0.25
    hint = "compute() is called with every group, and gives NaN where it can't say"
    known: ClassVar = TERMS

    def samples(self, part: Term) -> Inputs:
        for said, group in made.made_groups():
            verdicts = group.findings["score"]
            for outcome in (np.zeros(group.size), np.array([float(verdict.passed) for verdict in verdicts])):
                answered = AnsweredGroup(made.made_problems()[0], group.rollouts, verdicts, outcome, max_tokens=64)
                yield f"{said} with outcomes {outcome.tolist()}", (answered,)

    def answer(self, part: Term, group: AnsweredGroup) -> Any:
        return np.asarray(part.compute(group), dtype=np.float64)

    def right(self, value: Any, group: AnsweredGroup) -> None:
        said = f"compute() has to give {group.size} numbers, NaN where it can't say"
        need(value.shape == (group.size,) and not np.isinf(value).any(), said, value)

    def reordered(self, value: Any, group: AnsweredGroup) -> tuple[tuple[Any, ...], Any]:
        order = made.turned(group.size)
        return (group.of(order),), value[order]


class ObjectiveContract(Contract):
    kind, what, base, inputs = "objective", "a subclass of Objective", Objective, ("the group",)
    hint = "a field of the group that `needs` does not name is None"
    known: ClassVar = {**objectives.KNOWN, **recipe_parts("objective.name")}

    def samples(self, part: Objective) -> Inputs:
        by_token = self._reads_tokens(part)
        for size in made.taken_sizes(part.check):
            graded = np.random.default_rng(7).normal(size=size).round(2) * 10
            for rewards in ((np.arange(size) % 3 == 0) * 1.0, np.zeros(size), np.ones(size), graded):
                for none in sorted({0, (size + 1) // 3, size}) if "labels" in part.needs else [0]:
                    group = _scored(part, rewards, np.arange(size)[::-1] < none, by_token)
                    shown = {name: getattr(group, name) for name in ("rewards", "labels", "degenerate", "lengths")}
                    texts = [f"{name}={it.tolist()}" for name, it in shown.items() if it is not None]
                    yield ", ".join(texts), (group,)

    def _reads_tokens(self, part: Objective) -> bool:
        """Whether findings of its stages have a number for each token: where it can't take one for each rollout."""
        size = min(made.taken_sizes(part.check), default=1)
        try:
            self.make().valued(_scored(part, np.arange(size) % 2 * 1.0, np.zeros(size, bool), False))
            return False
        except Exception:  # noqa: BLE001 - what it raises of the other findings is shown
            return bool(_stages_of(part))

    def answer(self, part: Any, group: ScoredGroup) -> Any:
        credit = part.compute(group)
        credit = credit if isinstance(credit, Credit) else Credit(credit)
        given = credit.attempts
        found = {"advantages": tuple(map(_entry, given)) if isinstance(given, list) else given}
        return found if credit.drafts is None else {**found, "drafts": credit.drafts}

    def right(self, value: Any, group: ScoredGroup) -> None:
        given = value["advantages"]
        if isinstance(given, tuple):
            said = f"compute() has to give {group.size} attempts a finite number or float32 [T] each"
            need(len(given) == group.size, said, given)
            for entry, tokens in zip(given, _lengths(group.size), strict=True):
                if isinstance(entry, np.ndarray):
                    need_array(entry, np.float32, int(tokens), "What compute() gives an attempt")
                else:
                    need(isinstance(entry, Real) and math.isfinite(entry), said, given)
        else:
            need_array(given, np.float64, group.size, "What compute() gives")
        if "drafts" in value:
            need_array(value["drafts"], np.float64, len(group.drafts), "What compute() gives drafts")

    def reordered(self, value: Any, group: ScoredGroup) -> Any:
        config = self.make().config
        if getattr(config, "sets", None) or getattr(config, "estimator", "") == "bootstrap":
            return None  # sets are drawn by place
        order = made.turned(group.size)
        rows = ("rewards", "labels", "degenerate", "lengths", "outcomes", "statements", "cross_logprobs", "own_prompt")
        moved = made.with_order(group, order, *rows, "draft_of")
        own = {name: it if group.drafts else made.in_order(it, order) for name, it in group.findings.items()}
        return (replace(moved, findings=own),), {**value, "advantages": made.in_order(value["advantages"], order)}

    def check_strategies_have_no_names_and_degenerate_rollouts_no_strategy(self) -> None:
        need("labels" in self.make().needs, "it needs no labels", error=Untried)
        said = "It depends on how strategies are numbered, and ids only say which are equal"
        self.ignores(said, lambda group: {"labels": np.int32(9) - group.labels})
        said = "It reads the ids of degenerate rollouts, which mean nothing"
        self.ignores(said, lambda group: {"labels": np.where(group.degenerate, np.int32(1), group.labels)})
        for it in self.answers:
            (group,), found, out = it.args, numbers_of(it.value["advantages"]), it.args[0].degenerate
            if 0 < out.sum() < group.size and not np.ptp(group.rewards):
                said = f"A degenerate rollout is paid above every attempt of the same reward: {it.shown}"
                need(found[out].max() <= found[~out].max() + 1e-9, said, found)

    def check_what_it_declares_and_measures_fits(self) -> None:
        part = self.make()
        need(isinstance(part.needs, frozenset), f"needs={part.needs!r} has to be a frozenset of texts")
        names = [spec.name for spec in fields(ScoredGroup)]
        brought = {load_plugin(place, {}, "stages.own").name for place in part.stages}
        for name in part.needs - {*names, *brought, *recipe_parts("stages.own")}:
            near = get_close_matches(name, names, n=1, cutoff=0.8)
            need(not near, f"needs names {name!r}, which would be a stage: {''.join(near)!r} is a field of the group")
        for size in made.taken_sizes(part.check):
            need(0 < part.scale(size) < math.inf, f"scale({size}) has to be a finite number above 0", part.scale(size))
        for it in self.answers:
            part.valued(*it.args)
        if not part.reads_rewards:
            said = "It has reads_rewards=False, and reads them"
            self.ignores(said, lambda group: {"rewards": group.rewards + 3})

    def check_state_survives_a_restart_as_json(self) -> None:
        part, fresh, empty = self.make(), self.make(), not self.make().state_dict()
        for it in self.answers:
            self.answer(part, *it.args)
        state = part.state_dict()
        kept = need_json(state, "What state_dict() gives, and checkpoints keep,")
        need(not (state and empty), "state_dict() is empty before the first group and not after: give all keys at once")
        fresh.load_state_dict(kept)
        for it in self.answers if state else ():
            was, now = (self.answer(each, *it.args) for each in (part, fresh))
            need_same(now, was, f"After load_state_dict(state_dict()) it differs: {it.shown}", 1e-9)

    def check_finish_keeps_the_groups_of_a_step(self) -> None:
        rows = [it.value["advantages"] for it in self.answers]
        for given in (rows, rows[:1], []):
            turns = ([copy.deepcopy(row) for row in turn] for turn in (given, given[::-1]))
            batch, back = (Batch.of(turn, [np.arange(len(row)) + 5 for row in turn]) for turn in turns)
            found, again = self.make().finish(batch), self.make().finish(back)
            need(len(found) == len(batch), f"finish() has to give advantages of all {len(batch)} groups", found)
            for advantages, row in zip(found, given, strict=True):
                if isinstance(row, np.ndarray):
                    need_array(advantages, np.float64, len(row), "What finish() gives")
                fits = list(map(np.shape, advantages)) == list(map(np.shape, row))
                need(fits, "finish() has to keep a group's attempts, and their tokens", advantages)
            need(same(batch, given), "finish() changes the batch, where it may only change a copy")
            need_same(again, found[::-1], "finish() depends on the order of a step's groups", 1e-6)


def _entry(given: Any) -> Any:
    """Float64 is taken as float32."""
    return given.astype(np.float32) if isinstance(given, np.ndarray) and given.dtype == np.float64 else given


def _lengths(size: int) -> Any:
    """Response tokens, int [N]."""
    return 20 + 7 * np.arange(size)[::-1]


def _stages_of(part: Objective) -> frozenset[str]:
    return needed_stages(part) - {"judge", "score", "prompt_logprobs"}


def _scored(part: Objective, rewards: Any, degenerate: Any, by_token: bool) -> ScoredGroup:
    """A group with what the objective needs, and nothing else."""
    size, places, group = len(rewards), np.arange(len(rewards)), made.made_group(len(rewards))
    drafts = group.drafts[: min(2, size)]
    given: dict[str, Any] = {
        "labels": places % 3 + 1,
        "degenerate": degenerate,
        "lengths": _lengths(size),
        "outcomes": [f"outcome {place % 2}" for place in places],
        "statements": [{"a = b", f"c = {place % 3}"} if place % 4 else () for place in places],
        "cross_logprobs": [np.full((2, 3), -0.1 * place - 1) for place in places],
        "own_prompt": places % 2,
        "problem": f"problem {rewards.tolist()} {degenerate.tolist()}",
        "step": 3,
        "drafts": drafts,
        "draft_of": group.draft_of,
    }
    comes_with = {"degenerate": "labels", "own_prompt": "cross_logprobs", "draft_of": "drafts"}
    needed = {name: it for name, it in given.items() if comes_with.get(name, name) in part.needs}
    rows = len(drafts) if "drafts" in part.needs else size
    findings: dict[str, Any] = {}
    for name in _stages_of(part):
        findings[name] = np.linspace(0, 0.9, rows).view(AnyFinding)
        if by_token:
            findings[name] = tuple(np.linspace(0, 0.9, n, dtype=np.float32) for n in _lengths(rows))
    return part.scored(rewards=rewards, **needed, findings=findings)


class LossContract(Contract):
    kind, what, base, package, known = "loss", "a subclass of Loss", Loss, "torch", losses.KNOWN
    hint = "a field of the tokens that `needs` does not name is None"

    def samples(self, part: Loss) -> Inputs:
        for lengths, gap in (([1], 0.0), ([3], 0.0), ([2, 1, 4], 0.0), ([3, 5, 1, 4], 0.3), ([4, 2], 100.0)):
            yield f"responses of {lengths} tokens, log-ratios up to {gap:g}", (_tokens(part, lengths, gap),)

    def answer(self, part: Loss, tokens: Tokens) -> Any:
        import torch

        with torch.enable_grad():
            logp_T, entropy_T = (it.clone().requires_grad_() for it in (tokens.logp_T, tokens.entropy_T))
            given = replace(tokens, logp_T=logp_T, entropy_T=entropy_T)
            if given.prompt_hidden_SH is not None:
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(0)
                    head = part.head(given.prompt_hidden_SH.shape[1])
                given = replace(given, head_S=None if head is None else head(given.prompt_hidden_SH))
            own_T, total_T, bounds = part.token_losses(given), part.total(given), part.clipped(given)
            if getattr(total_T, "requires_grad", False):
                total_T.sum().backward()  # type: ignore[no-untyped-call]
        found: dict[str, Any] = {"token_losses": own_T, "total": total_T, "gradient": logp_T.grad}
        found |= {} if bounds is None else {"low": bounds[0], "high": bounds[1]}
        return {name: it.detach().numpy() if hasattr(it, "detach") else it for name, it in found.items()}

    def right(self, value: Any, tokens: Tokens) -> None:
        need(value["gradient"] is not None, "No gradient reaches tokens.logp_T: don't detach it")
        for name, found in value.items():
            dtype, what = (np.bool_, "") if name in ("low", "high") else (np.float32, " (neither sum nor mean)")
            need_array(found, dtype, len(tokens.logp_T), f"{name}{what}")

    def faulty(self, fault: Any, tokens: Tokens) -> Inputs:
        yield "the advantages", (replace(tokens, advantage_T=fault),)

    def reordered(self, value: Any, tokens: Tokens) -> Any:
        return _alone(value, tokens, made.turned(len(tokens.length_S)))

    def check_a_response_has_its_own_loss_in_any_micro_batch(self) -> None:
        said = "A token's loss or gradient depends on other responses, and micro-batches divide them in any way"
        self.compare(said, lambda value, tokens: _alone(value, tokens, [0]))

    def check_it_falls_as_good_responses_get_likelier(self) -> None:
        need(not self.make().zero_advantage_matters, "it fits advantages, or has another term", error=Untried)
        for it in self.answers:
            (tokens,), slope_T = it.args, it.value["gradient"]
            advantage_T, response_T = tokens.advantage_T.numpy(), tokens.response_T.numpy()
            said = "A response with advantage 0 has a gradient, and the learner leaves such out: set fits_advantages"
            need(not slope_T[advantage_T == 0].any(), f"{said}: {it.shown}", slope_T)
            off_policy = bool((tokens.logp_T != tokens.sampler_logp_T).any())
            for advantage, slope in zip(advantage_T, np.bincount(response_T, slope_T)[response_T], strict=True):
                likely = "more likely" if advantage > 0 else "less likely"
                said = f"It does not fall as a response of advantage {advantage:.1f} gets {likely}"
                need(off_policy or not advantage or advantage * slope < 0, f"{said}: {it.shown}", slope_T)

    def check_masked_tokens_have_no_gradient(self) -> None:
        part = self.make(mask_low=0.9, mask_high=1.1)
        for it in self.answers:
            (tokens,), found = it.args, self.answer(part, *it.args)
            ratio_T = (tokens.logp_T - tokens.sampler_logp_T).clamp(-20, 20).exp().numpy()
            out_T = (ratio_T < 0.9) | (ratio_T > 1.1)
            for name in ("total", "gradient"):
                said = f"A masked token has a {name}, with mask_low=0.9 mask_high=1.1: {it.shown}"
                need(found[name] is None or not found[name][out_T].any(), said, found[name])

    def check_it_reads_the_sampler_as_it_declares(self) -> None:
        need(not self.make().needs_sampler, "it declares that it reads the sampler", error=Untried)
        said = "It reads sampler_logp_T, which is NaN of given responses, and does not say so: set takes_ratio = True"
        self.ignores(said, lambda tokens: {"sampler_logp_T": tokens.sampler_logp_T * math.nan})


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
    names = [spec.name for spec in fields(tokens)]
    chosen = made.with_order(tokens, places, *(name for name in names if name.endswith("_T")))
    chosen = made.with_order(chosen, responses, *(name for name in names if not name.endswith("_T")))
    response_T = torch.repeat_interleave(torch.arange(len(responses)), chosen.length_S)
    return (replace(chosen, response_T=response_T),), {name: found[places.numpy()] for name, found in value.items()}
