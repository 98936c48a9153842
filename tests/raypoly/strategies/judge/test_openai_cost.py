"""What judging costs, and the budget that is never exceeded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from raypoly.core.config import JudgeConfig
from raypoly.core.errors import JudgeUnavailable
from raypoly.strategies.judge.judge_keys import PUBLIC_URL
from raypoly.strategies.judge.judge_usage import QuestionTerms, asking_for, count_usage, usage_to_json
from raypoly.strategies.judge.openai.token_cost import (
    BudgetLedger,
    BudgetSpent,
    TokenPrices,
    TokenUsage,
    compute_cost,
    configured_prices,
    list_prices_of,
)
from tests.raypoly.strategies.judge.openai_groups import TWO, group, ids, judge, program
from tests.support.faulty_server import Server, running

MINI = TokenPrices(0.40, 0.10, 1.60)


def test_cached_tokens_cost_less() -> None:
    assert compute_cost(MINI, TokenUsage(1_000_000, 0, 0)) == pytest.approx(0.40)
    assert compute_cost(MINI, TokenUsage(1_000_000, 750_000, 100_000)) == pytest.approx(0.10 + 0.075 + 0.16)


def test_what_a_silent_server_had_cached_is_unknown_and_charged_in_full() -> None:
    assert compute_cost(MINI, TokenUsage(1_000_000, None, 0)) == compute_cost(MINI, TokenUsage(1_000_000, 0, 0))
    ledger = BudgetLedger()
    with count_usage(QuestionTerms()) as use:
        ledger.settle(0.0, MINI, TokenUsage(100, None, 10))
        assert usage_to_json(use)["cached_tokens"] is ledger.counts.stats().cached_tokens is None
        ledger.settle(0.0, MINI, TokenUsage(100, 60, 10))
    assert usage_to_json(use)["cached_tokens"] == ledger.counts.stats().cached_tokens == 60
    assert use["cached_of"] == 100


@pytest.mark.parametrize("model", ["gpt-4.1-mini", "gpt-4.1-mini-2025-04-14"])
def test_the_public_price_is_known_for_the_default_model_at_its_public_address_alone(model: str) -> None:
    assert list_prices_of(PUBLIC_URL, model) == MINI
    assert list_prices_of("http://127.0.0.1:8000/v1", model) is None
    assert list_prices_of(PUBLIC_URL, "gpt-4.1-mini-tuned") is None


def test_prices_of_the_config_win_and_half_a_price_is_none() -> None:
    assert configured_prices(JudgeConfig(price_input=1, price_output=2)) == TokenPrices(1, 1, 2)
    assert configured_prices(JudgeConfig(price_input=1, price_cached=0.5, price_output=2)) == TokenPrices(1, 0.5, 2)
    assert configured_prices(JudgeConfig(price_input=1)) == MINI
    assert configured_prices(JudgeConfig(model="other", price_input=1)) is None


def test_tokens_and_money_are_those_that_the_server_counted(tmp_path: Path) -> None:
    with running(Server()) as server, judge(server, tmp_path, price_input=1.0, price_output=2.0) as asked:
        asked.label(*TWO)
        stats = asked.stats()
    assert stats.prompt_tokens == sum(len(m["content"]) for m in server.bodies[0]["messages"]) // 4
    assert stats.cached_tokens == stats.prompt_tokens // 2
    assert stats.cost_usd == pytest.approx((stats.prompt_tokens + 2 * stats.completion_tokens) / 1e6)


def test_the_judge_stops_before_the_budget_is_exceeded_and_says_so(tmp_path: Path) -> None:
    options = {"price_input": 100.0, "price_output": 400.0, "budget_usd": 1.5}
    with running(Server(latency=0.05)) as server, judge(server, tmp_path, **options) as asked:

        def outcome(number: int) -> str:
            try:
                return str(ids(asked.label(*group(program(1, f"w{number}"), program(2)))))
            except JudgeUnavailable as error:
                return str(error)

        with ThreadPoolExecutor(6) as threads:
            outcomes = list(threads.map(outcome, range(18)))
        stats = asked.stats()
        assert stats.cost_usd is not None
        assert 0.5 < stats.cost_usd <= 1.5
        assert outcomes.count("[1, 2]") == stats.answers
        assert sum("judge.budget_usd=1.5" in outcome for outcome in outcomes) == 18 - stats.answers
        with suppress(BudgetSpent):
            for i in range(18):  # alone, so that no call under way holds money back
                asked.label(*group(program(1, f"i{i}"), program(2)))
        with pytest.raises(JudgeUnavailable, match="budget"):
            asked.probe()


def test_answers_that_are_kept_cost_nothing_even_without_a_budget_left(tmp_path: Path) -> None:
    options = {"price_input": 1.0, "price_output": 1.0}
    with running(Server()) as server:
        with judge(server, tmp_path, **options) as asked:
            asked.label(*TWO)
        with judge(server, tmp_path, **options, budget_usd=1e-9) as poor:
            assert ids(poor.label(*TWO)) == [1, 2, 1]
            with pytest.raises(BudgetSpent):
                poor.label(*group(program(1), program(2)))


def test_a_spent_budget_is_no_outage_for_a_second_server_to_stand_in(tmp_path: Path) -> None:
    options = {"price_input": 1.0, "price_output": 1.0, "budget_usd": 1e-9}
    with running(Server()) as first, running(Server()) as second:
        with judge(first, tmp_path, failover_url=second.url, **options) as asked, pytest.raises(BudgetSpent):
            asked.label(*TWO)
        assert first.bodies == second.bodies == []


def held(run: str, terms: QuestionTerms, ledger: BudgetLedger, tokens: int = 300_000) -> float:
    """Money set aside for a call of so many dollars a million, asked by `run`."""
    with asking_for(run), count_usage(terms):
        return ledger.hold(TokenPrices(1, 1, 1), tokens, 0)


def test_each_run_has_a_budget_of_its_own_that_no_other_can_spend() -> None:
    ledger = BudgetLedger()
    for _ in range(3):
        held("a", QuestionTerms(budget_usd=1.0), ledger)
        held("b", QuestionTerms(budget_usd=1.0), ledger)
    with pytest.raises(BudgetSpent, match="budget_usd=1 "):
        held("a", QuestionTerms(budget_usd=1.0), ledger)
    held("a", QuestionTerms(budget_usd=2.0), ledger)
    held("c", QuestionTerms(), ledger, 10**9)
    with pytest.raises(BudgetSpent):
        held("b", QuestionTerms(budget_usd=1.0), ledger)


def test_what_a_run_has_spent_elsewhere_counts_in_its_account_and_is_not_counted_twice() -> None:
    ledger = BudgetLedger()
    with pytest.raises(BudgetSpent, match=r"0\.8000 are spent"):
        held("a", QuestionTerms(1.0, spent_usd=0.8), ledger)
    first = held("a", QuestionTerms(1.0, spent_usd=0.2), ledger, 100_000)
    with asking_for("a"), count_usage(QuestionTerms(1.0, spent_usd=0.2)) as use:
        ledger.settle(first, TokenPrices(1, 1, 1), TokenUsage(100_000, 0, 0))
    assert use["known_usd"] == pytest.approx(0.1)
    with pytest.raises(BudgetSpent, match=r"0\.9000 are spent"):
        held("a", QuestionTerms(1.0, spent_usd=0.3), ledger)


def test_a_question_knows_its_own_use_beside_all_others(tmp_path: Path) -> None:
    with running(Server(faults=["cut"])) as server, judge(server, tmp_path, price_input=1.0, price_output=2.0) as asked:
        with count_usage(QuestionTerms()) as first:
            asked.label(*TWO)
        with count_usage(QuestionTerms()) as second:
            asked.label(*TWO)
        with count_usage(QuestionTerms(fresh=True)) as third:
            asked.label(*TWO)
        stats = asked.stats()
    assert (first["calls"], first["retries"], first["cache_hits"]) == (2, 1, 0)
    assert second == {"groups": 1, "cache_hits": 1}
    assert (third["calls"], third["cache_hits"]) == (1, 0), "a kept answer won't do"
    assert first["prompt_tokens"] + third["prompt_tokens"] == stats.prompt_tokens
    assert first["known_usd"] + third["known_usd"] == pytest.approx(stats.cost_usd)
    assert first["lost_usd"] > 0, "the answer that was cut off may have cost something"


def test_without_a_price_the_cost_is_unknown_and_not_zero(tmp_path: Path) -> None:
    with running(Server()) as server, judge(server, tmp_path) as asked, count_usage(QuestionTerms()) as use:
        asked.label(*TWO)
        assert asked.stats().cost_usd is None
        assert asked.stats().prompt_tokens > 0
    assert usage_to_json(use)["cost_usd"] is None
    assert "known_usd" not in usage_to_json(use)


def test_a_call_whose_answer_was_lost_counts_against_the_budget_and_one_never_sent_does_not() -> None:
    ledger, prices = BudgetLedger(budget=1.0), TokenPrices(1, 1, 1)
    for sent in (False, True):
        ledger.release(ledger.hold(prices, 300_000, 300_000), sent=sent)
    with pytest.raises(BudgetSpent):
        ledger.hold(prices, 300_000, 300_000)
    assert ledger.counts.stats().cost_usd == 0
