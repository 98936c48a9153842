"""The judge that is a language model behind any OpenAI-compatible endpoint.

    judge = OpenAIJudge(JudgeConfig(name="openai", base_url="http://127.0.0.1:8000/v1", model="my-model"))
    judge.label(problem, rollouts, verdicts).ids      ->  [1, 2, 1, 0]
    judge.stats().cost_usd                            ->  0.0132, or None where a price is unknown

One instance is shared by any number of threads, each of which labels a group: they share the server's rate limits, the
circuit breaker, the cache and the budget. `docs/judge.md` tells what is sent, what it costs, and what happens when the
server is away.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass

import numpy as np

from raypoly.core.config import JudgeConfig
from raypoly.core.errors import JudgeRefused, JudgeUnavailable, UsageError
from raypoly.core.seeds import derive
from raypoly.core.values import Labels, Problem, Rollout, Verdict
from raypoly.strategies.judge.judge_usage import JudgeCounters, JudgeStats, current_terms
from raypoly.strategies.judge.openai import judge_prompt, judge_reply, token_cost
from raypoly.strategies.judge.openai.answer_cache import AnswerCache, InFlightQuestions, cache_folder, cache_key
from raypoly.strategies.judge.openai.endpoint import Endpoint, build_endpoints
from raypoly.strategies.judge.openai.judge_prompt import JudgePrompt, ShownPrograms, show_programs
from raypoly.strategies.judge.openai.judge_reply import AssignedCluster, InvalidAnswer
from raypoly.strategies.judge.openai.token_cost import BudgetSpent

ATTEMPTS = 5
"""Orders in which a group's programs are shown before it is given up."""
_TOKENS_A_PROGRAM = 64
_TOKENS_AROUND = 128
_LONGEST_ANSWER = 32_768


@dataclass(frozen=True)
class Clusters:
    """Labels of N rollouts, and what the judge calls their strategies."""

    labels: Labels
    strategies: Mapping[int, str]
    """By strategy id, in the words of the first vote; empty where nothing had to be asked."""


class OpenAIJudge:
    """Clusters groups by asking a model; thread-safe."""

    shared = True
    """Its limits are the server's: all jobs of a cluster ask one instance."""
    reads_texts = True
    """It also groups the answers to problems without tests."""

    def __init__(self, config: JudgeConfig, *, backoff: float = 0.5) -> None:
        """`backoff` is the first wait before a retry, in seconds."""
        self.config = config
        own = judge_prompt.read_instructions(config.prompt_file)
        self._prompt = JudgePrompt(own or judge_prompt.INSTRUCTIONS)
        self._text_prompt = JudgePrompt(own or judge_prompt.TEXT_INSTRUCTIONS)
        self._counts = JudgeCounters()
        self._ledger = token_cost.BudgetLedger(config.budget_usd)
        self._endpoints = build_endpoints(config, self._ledger, self._counts, backoff)
        self.check_budget(config.budget_usd)
        self.cache = AnswerCache(cache_folder(config.cache_dir), config.cache_mib)
        self._in_flight = InFlightQuestions()

    def __repr__(self) -> str:
        return (
            f"OpenAIJudge({self._endpoints[0].model} at {self._endpoints[0].base_url}, prompt {self._prompt.version})"
        )

    def check_budget(self, budget_usd: float | None) -> None:
        """Raise `UsageError` for a budget where prices are unknown, so that its spending can't be counted."""
        if budget_usd is not None and self._endpoints[0].prices is None:
            raise UsageError(
                f"judge.budget_usd={budget_usd:g} needs prices, and those of {self.config.model} are unknown: "
                "give judge.price_input and judge.price_output."
            )

    def label(self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]) -> Labels:
        """Ids count from 1 in order of first occurrence. Raises `JudgeUnavailable` and `JudgeRefused`."""
        return self.clusters(problem, rollouts, verdicts).labels

    def clusters(self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]) -> Clusters:
        """Labels, with the strategies in words. Raises as `label` does."""
        shown = self.show(problem, rollouts, verdicts)
        if shown.certain:
            self._counts.add("free")
            found = [AssignedCluster(1, "")] * len(shown.texts)
            names = [self._name(self._endpoints[0], shown)]
        else:
            question = judge_prompt.shorten_statement(problem.prompt, self.config.view, self.config.max_problem_chars)
            votes = [self._vote(problem.id, question, shown, vote) for vote in range(self.config.votes)]
            ids = judge_reply.merge_votes([[answer[name].cluster for name in shown.hashes] for answer, _ in votes])
            found = [AssignedCluster(i, votes[0][0][name].strategy) for i, name in zip(ids, shown.hashes, strict=True)]
            names = sorted({name for _, name in votes})
        self._counts.add("groups")
        self._counts.add("shortened", shown.shortened)
        return _spread(found, shown.places, " and ".join(names))

    def show(self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]) -> ShownPrograms:
        """The distinct programs that the judge sees of a group."""
        return show_programs(problem, rollouts, verdicts, self.config.view, self.config.max_program_chars)

    def preview(
        self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]
    ) -> list[judge_prompt.Message]:
        """The messages of the first request about a group; nothing is asked."""
        shown = self.show(problem, rollouts, verdicts)
        question = judge_prompt.shorten_statement(problem.prompt, self.config.view, self.config.max_problem_chars)
        return self._messages(question, shown, _order(shown, 0, 0))

    def probe(self) -> None:
        """Return where a server can be asked again, else raise `JudgeUnavailable` with the first one's reason."""
        first, *others = self._endpoints
        try:
            first.probe()
        except BudgetSpent:
            raise
        except JudgeUnavailable:
            for other in others:
                with suppress(JudgeUnavailable):  # the first server's reason is the one to mend
                    other.probe()
                    return
            raise

    def stats(self) -> JudgeStats:
        """The counts so far."""
        tokens, counts = self._ledger.tokens, self._counts
        names = ("groups", "free", "cache_hits", "answers", "calls", "retries", "limited", "repairs", "refusals")
        more = ("invalid", "unjudged", "shortened", "failovers", "probes")
        return JudgeStats(
            **{name: counts[name] for name in (*names, *more)},
            prompt_tokens=tokens.prompt,
            cached_tokens=tokens.cached,
            completion_tokens=tokens.completion,
            cost_usd=self._ledger.cost_usd,
            away_since=self._endpoints[0].breaker.away_since,
        )

    def close(self) -> None:
        """Close the connections and the cache's file."""
        for endpoint in self._endpoints:
            endpoint.close()
        self.cache.close()

    def _prompt_for(self, shown: ShownPrograms) -> JudgePrompt:
        return self._prompt if shown.programs else self._text_prompt

    def _messages(self, question: str, shown: ShownPrograms, order: Sequence[int]) -> list[judge_prompt.Message]:
        instructions = self._prompt_for(shown).instructions
        return judge_prompt.render_messages(instructions, question, [shown.texts[i] for i in order])

    def _name(self, endpoint: Endpoint, shown: ShownPrograms) -> str:
        return f"openai:{endpoint.model}@{self._prompt_for(shown).version}"

    def _vote(
        self, group: str, question: str, shown: ShownPrograms, vote: int
    ) -> tuple[Mapping[str, AssignedCluster], str]:
        """One vote's answer by program hash, and who gave it: the first server, or the second while that is away."""
        first, *others = self._endpoints
        try:
            return self._answer(first, group, question, shown, vote), self._name(first, shown)
        except BudgetSpent:
            raise  # a second server is for outages, not for going on at another's cost
        except JudgeUnavailable as error:
            for other in others:
                try:
                    answer = self._answer(other, group, question, shown, vote)
                except JudgeUnavailable as too:
                    raise JudgeUnavailable(f"{error} {too}") from None
                self._counts.add("failovers")
                return answer, self._name(other, shown)
            raise

    def _answer(
        self, endpoint: Endpoint, group: str, question: str, shown: ShownPrograms, vote: int
    ) -> Mapping[str, AssignedCluster]:
        config = self.config
        sampling = f"{config.answer_schema} {config.temperature} vote {vote}"
        key = cache_key(endpoint.model, self._prompt_for(shown).version, config.view, sampling, question, *shown.hashes)
        fresh = (asked := current_terms()) is not None and asked.fresh
        # without a cache the same group is meant to be asked as often as it comes
        with self._in_flight.alone(key) if self.cache.limit and not fresh else nullcontext():
            known = None if fresh else self.cache.get(key)
            if known is not None and known.keys() == set(shown.hashes):
                self._counts.add("cache_hits")
                return known
            answer = self._ask(endpoint, group, question, shown, vote)
            if not fresh:
                self.cache.put(key, answer)
            self._counts.add("answers")
            return answer

    def _ask(
        self, endpoint: Endpoint, group: str, question: str, shown: ShownPrograms, vote: int
    ) -> Mapping[str, AssignedCluster]:
        """Ask in one order after the other until an answer can be used. Raises `JudgeRefused` after `ATTEMPTS`."""
        count = len(shown.texts)
        longest = self.config.max_answer_tokens or _TOKENS_AROUND + _TOKENS_A_PROGRAM * count
        fault = ""
        for attempt in range(ATTEMPTS):
            order = _order(shown, vote, attempt)
            try:
                assigned = self._one_answer(endpoint, self._messages(question, shown, order), count, longest)
            except InvalidAnswer as error:
                fault = str(error)
                longest = min(2 * longest, _LONGEST_ANSWER) if isinstance(error, _TooLong) else longest
                continue
            return {shown.hashes[i]: found for i, found in zip(order, assigned, strict=True)}
        self._counts.add("unjudged")
        raise JudgeRefused(f"{endpoint.name} gave no labels for problem {group} in {ATTEMPTS} attempts: {fault}.")

    def _one_answer(
        self, endpoint: Endpoint, messages: Sequence[judge_prompt.Message], count: int, longest: int
    ) -> list[AssignedCluster]:
        """One answer, or its repair. Raises `InvalidAnswer`."""
        schema = judge_reply.answer_schema(count, indexed=self.config.answer_schema == "indexed")
        for last in (False, True):
            completion = endpoint.complete(messages, schema, longest)
            if completion.refusal or completion.finish_reason == "content_filter":
                self._counts.add("refusals")
                raise InvalidAnswer("it refused to answer")
            if completion.finish_reason == "length":
                self._counts.add("invalid")
                raise _TooLong(f"its answer was cut off after {longest} tokens")
            try:
                return judge_reply.parse_answer(completion.text, count)
            except InvalidAnswer as error:
                if last:
                    self._counts.add("invalid")
                    raise
                self._counts.add("repairs")
                messages = judge_prompt.repair_messages(messages, completion.text, str(error))
        raise AssertionError("unreachable")


class _TooLong(InvalidAnswer):
    """The answer did not fit the tokens that it was given."""


def _order(shown: ShownPrograms, vote: int, attempt: int) -> list[int]:
    """The order in which programs are shown, by their content alone: the same set is always asked in the same way."""
    order = list(range(len(shown.texts)))
    if vote or attempt:
        random.Random(derive("judge order", *shown.hashes, vote, attempt)).shuffle(order)
    return order


def _spread(found: Sequence[AssignedCluster], places: Sequence[int | None], judge: str) -> Clusters:
    """What was found for each text, copied to the rollouts that share it; ids from 1 by first occurrence."""
    ids = np.zeros(len(places), np.int32)
    degenerate = np.ones(len(places), np.bool_)
    seen: dict[int, int] = {}
    strategies: dict[int, str] = {}
    for i, place in enumerate(places):
        if place is None or found[place].cluster == judge_reply.DEGENERATE:
            continue
        degenerate[i] = False
        ids[i] = seen.setdefault(found[place].cluster, len(seen) + 1)
        if found[place].strategy:
            strategies.setdefault(int(ids[i]), found[place].strategy)
    return Clusters(Labels(ids=ids, degenerate=degenerate, judge=judge), strategies)
