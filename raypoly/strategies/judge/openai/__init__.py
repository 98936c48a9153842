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
from raypoly.strategies.judge.judge_usage import JudgeStats, current_terms
from raypoly.strategies.judge.openai import judge_prompt, judge_reply
from raypoly.strategies.judge.openai.answer_cache import AnswerCache, InFlightQuestions, cache_folder, cache_key
from raypoly.strategies.judge.openai.endpoint import Endpoint, build_endpoints
from raypoly.strategies.judge.openai.judge_prompt import JudgePrompt, Message, ShownPrograms, show_programs
from raypoly.strategies.judge.openai.judge_reply import AssignedCluster, InvalidAnswer
from raypoly.strategies.judge.openai.token_cost import BudgetLedger, BudgetSpent

ATTEMPTS = 5
"""Orders of a group's programs that are tried before it is given up."""
_TOKENS_A_PROGRAM = 64
_TOKENS_AROUND = 128
_LONGEST_ANSWER = 32_768


@dataclass(frozen=True)
class Clusters:
    """Labels of N rollouts, and the judge's names for the strategies."""

    labels: Labels
    strategies: Mapping[int, str]
    """By strategy id, from the first vote; empty where nothing was asked."""


@dataclass(frozen=True)
class _Question:
    problem: str
    statement: str
    shown: ShownPrograms
    prompt: JudgePrompt
    graded: bool = False

    def order(self, vote: int, attempt: int) -> list[int]:
        """An order of the programs that follows from their content: equal sets are asked alike."""
        order = list(range(len(self.shown.texts)))
        if vote or attempt:
            random.Random(derive("judge order", *self.shown.hashes, vote, attempt)).shuffle(order)
        return order

    def messages(self, order: Sequence[int]) -> list[Message]:
        texts = [self.shown.texts[i] for i in order]
        verb = "Grade" if self.graded else "Group"
        return judge_prompt.render_messages(self.prompt.instructions, self.statement, texts, verb)

    def sign(self, endpoint: Endpoint) -> str:
        """The judge's name on labels."""
        return f"{endpoint.kind}:{endpoint.model}@{self.prompt.version}"


class OpenAIJudge:
    """Clusters groups by asking a model; thread-safe."""

    shared = True
    reads_texts = True

    def __init__(self, config: JudgeConfig, *, backoff: float = 0.5) -> None:
        """`backoff` is the first wait before a retry, in seconds."""
        self.config = config
        own = judge_prompt.read_instructions(config.prompt_file)
        if own is None and config.answer_schema == "map":
            raise UsageError("judge.answer_schema=map needs judge.prompt_file, instructions that ask for a map.")
        self._prompt = JudgePrompt(own or judge_prompt.INSTRUCTIONS)
        self._text_prompt = JudgePrompt(own or judge_prompt.TEXT_INSTRUCTIONS)
        ledger = BudgetLedger(config.budget_usd)
        self._counts = ledger.counts
        self._endpoints = self._to_ask(config, ledger, backoff)
        self.check_budget(config.budget_usd)
        self.cache = AnswerCache(cache_folder(config.cache_dir), config.cache_mib)
        self._in_flight = InFlightQuestions()

    def __repr__(self) -> str:
        first = self._endpoints[0]
        return f"OpenAIJudge({first.model} at {first.base_url}, prompt {self._prompt.version})"

    def _to_ask(self, config: JudgeConfig, ledger: BudgetLedger, backoff: float) -> Sequence[Endpoint]:
        return build_endpoints(config, ledger, backoff)

    @property
    def version(self) -> str:
        """Of both prompts: it changes with the content of `judge.prompt_file`."""
        return f"{self._prompt.version} {self._text_prompt.version}"

    def check_budget(self, budget_usd: float | None) -> None:
        """Raise `UsageError` for a budget whose spending can't be counted, without prices."""
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
        asked = self._question(problem, rollouts, verdicts)
        shown = asked.shown
        if shown.certain:
            self._counts.add("free")
            found = [AssignedCluster(1, "")] * len(shown.texts)
            names = [asked.sign(self._endpoints[0])]
        else:
            votes = [self._vote(asked, vote) for vote in range(self.config.votes)]
            ids = judge_reply.merge_votes([[answer[name].cluster for name in shown.hashes] for answer, _ in votes])
            found = [AssignedCluster(i, votes[0][0][name].strategy) for i, name in zip(ids, shown.hashes, strict=True)]
            names = sorted({name for _, name in votes})
        self._counts.add("groups")
        self._counts.add("shortened", shown.shortened)
        return _spread(found, shown.places, " and ".join(names))

    def grade(
        self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict], question: str
    ) -> list[float]:
        """Grades of N rollouts by a question, 0 to 1; 0 without code. Programs are shown as written. Raises as
        `label`."""
        shown = show_programs(problem, rollouts, verdicts, "raw", self.config.max_program_chars)
        prompt = JudgePrompt(judge_prompt.GRADE_INSTRUCTIONS.replace("QUESTION", question.strip()))
        statement = judge_prompt.shorten_statement(problem.prompt, "raw", self.config.max_problem_chars)
        asked = _Question(problem.id, statement, shown, prompt, graded=True)
        votes = [self._vote(asked, vote)[0] for vote in range(self.config.votes)] if shown.texts else []
        found = [sum(vote[name].cluster for vote in votes) / len(votes) for name in shown.hashes]
        self._counts.add("groups")
        return [0.0 if place is None else found[place] / judge_reply.BEST_GRADE for place in shown.places]

    def show(self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]) -> ShownPrograms:
        """The distinct programs of a group, as the judge sees them."""
        return show_programs(problem, rollouts, verdicts, self.config.view, self.config.max_program_chars)

    def preview(self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]) -> list[Message]:
        """The messages of the first request about a group; nothing is asked."""
        asked = self._question(problem, rollouts, verdicts)
        return asked.messages(asked.order(0, 0))

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
        return self._counts.stats(self._endpoints[0].breaker.away_since)

    def close(self) -> None:
        for endpoint in self._endpoints:
            endpoint.close()
        self.cache.close()

    def _question(self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]) -> _Question:
        shown = self.show(problem, rollouts, verdicts)
        statement = judge_prompt.shorten_statement(problem.prompt, self.config.view, self.config.max_problem_chars)
        return _Question(problem.id, statement, shown, self._prompt if shown.programs else self._text_prompt)

    def _vote(self, asked: _Question, vote: int) -> tuple[Mapping[str, AssignedCluster], str]:
        # The second server stands in while the first is away.
        first, *others = self._endpoints
        try:
            return self._answer(first, asked, vote), asked.sign(first)
        except BudgetSpent:
            raise  # a second server is for outages, not for going on at another's cost
        except JudgeUnavailable as error:
            for other in others:
                try:
                    answer = self._answer(other, asked, vote)
                except JudgeUnavailable as too:
                    raise JudgeUnavailable(f"{error} {too}") from None
                self._counts.add("failovers")
                return answer, asked.sign(other)
            raise

    def _answer(self, endpoint: Endpoint, asked: _Question, vote: int) -> Mapping[str, AssignedCluster]:
        config, hashes = self.config, asked.shown.hashes
        sampling = f"{config.answer_schema} {config.temperature} vote {vote}"
        key = cache_key(endpoint.model, asked.prompt.version, config.view, sampling, asked.statement, *hashes)
        fresh = (terms := current_terms()) is not None and terms.fresh
        # without a cache the same group is meant to be asked as often as it comes
        with self._in_flight.alone(key) if self.cache.limit and not fresh else nullcontext():
            known = None if fresh else self.cache.get(key)
            if known is not None and known.keys() == set(hashes):
                self._counts.add("cache_hits")
                return known
            answer = self._ask(endpoint, asked, vote)
            if not fresh:
                self.cache.put(key, answer)
            self._counts.add("answers")
            return answer

    def _ask(self, endpoint: Endpoint, asked: _Question, vote: int) -> Mapping[str, AssignedCluster]:
        """Ask until an answer can be used. Raises `JudgeRefused` after `ATTEMPTS`."""
        count = len(asked.shown.texts)
        longest = self.config.max_answer_tokens or _TOKENS_AROUND + _TOKENS_A_PROGRAM * count
        fault = ""
        for attempt in range(ATTEMPTS):
            # A judge that can't answer may be stuck on the order: another one is another question.
            order = asked.order(vote, attempt)
            try:
                assigned = self._one_answer(endpoint, asked.messages(order), count, longest, asked.graded)
            except InvalidAnswer as error:
                fault = str(error)
                longest = min(2 * longest, _LONGEST_ANSWER) if isinstance(error, _TooLong) else longest
                continue
            return {asked.shown.hashes[i]: found for i, found in zip(order, assigned, strict=True)}
        self._counts.add("unjudged")
        raise JudgeRefused(
            f"{endpoint.name} gave no labels for problem {asked.problem} in {ATTEMPTS} attempts: {fault}."
        )

    def _one_answer(
        self, endpoint: Endpoint, messages: Sequence[Message], count: int, longest: int, graded: bool
    ) -> list[AssignedCluster]:
        """One answer, or its repair. Raises `InvalidAnswer`."""
        form = "portable" if graded and self.config.answer_schema == "map" else self.config.answer_schema
        schema = judge_reply.answer_schema(count, form, graded)
        for last in (False, True):
            completion = endpoint.complete(messages, schema, longest)
            if completion.refusal or completion.finish_reason == "content_filter":
                self._counts.add("refusals")
                raise InvalidAnswer("it refused to answer")
            if completion.finish_reason == "length":
                self._counts.add("invalid")
                raise _TooLong(f"its answer was cut off after {longest} tokens")
            try:
                answer = judge_reply.listed(completion.text) if form == "map" else completion.text
                return judge_reply.parse_answer(answer, count, graded)
            except InvalidAnswer as error:
                if last:
                    self._counts.add("invalid")
                    raise
                self._counts.add("repairs")
                messages = judge_prompt.repair_messages(messages, completion.text, str(error))
        raise AssertionError("unreachable")


class _TooLong(InvalidAnswer):
    """The answer did not fit its tokens."""


def _spread(found: Sequence[AssignedCluster], places: Sequence[int | None], judge: str) -> Clusters:
    """Labels of the rollouts from those of their texts; ids from 1 by first occurrence."""
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
