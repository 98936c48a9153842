"""What judging costs: tokens as the server counts them, money where the prices are known, and the budget.

    ledger = BudgetLedger(budget=5.0)
    held = ledger.hold(prices, prompt=1800, completion=600)     # `BudgetSpent` where it could exceed the budget
    ledger.settle(held, prices, usage)

Without a price the cost is unknown, never 0.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from raypoly.core.config import JudgeConfig
from raypoly.core.errors import JudgeUnavailable
from raypoly.strategies.judge.judge_keys import PUBLIC_URL
from raypoly.strategies.judge.judge_usage import JudgeCounters, current_asker, current_terms

_MILLION = 1e6


class BudgetSpent(JudgeUnavailable):
    """The next call could cost more than `judge.budget_usd` leaves."""


@dataclass(frozen=True)
class TokenPrices:
    """US dollars a million tokens."""

    input: float
    cached: float
    output: float


@dataclass(frozen=True)
class TokenUsage:
    """Tokens of one call."""

    prompt: int
    cached: int | None
    """Part of the prompt that the server had already read; None where it does not say."""
    completion: int


# OpenAI's public list for the standard tier as of 2026-04; other prices have to be in the config.
_LIST_PRICES = {
    "gpt-4.1": TokenPrices(2.00, 0.50, 8.00),
    "gpt-4.1-mini": TokenPrices(0.40, 0.10, 1.60),
    "gpt-4.1-nano": TokenPrices(0.10, 0.025, 0.40),
}


def configured_prices(config: JudgeConfig) -> TokenPrices | None:
    """The first server's prices by the config, else by the public list; None where neither has them."""
    if config.price_input is None or config.price_output is None:
        return list_prices_of(config.base_url or PUBLIC_URL, config.model)
    cached = config.price_input if config.price_cached is None else config.price_cached
    return TokenPrices(config.price_input, cached, config.price_output)


def list_prices_of(base_url: str, model: str) -> TokenPrices | None:
    """The public list's prices of a model at OpenAI, dated versions included (`gpt-4.1-mini-2025-04-14`)."""
    if base_url.rstrip("/") != PUBLIC_URL:
        return None
    name, _, rest = model.partition("-20")
    return _LIST_PRICES.get(name if rest[:2].isdigit() else model)


def compute_cost(prices: TokenPrices, usage: TokenUsage) -> float:
    """US dollars; where the server does not say what it had cached, all tokens are charged in full."""
    cached = usage.cached or 0
    fresh = usage.prompt - cached
    return (fresh * prices.input + cached * prices.cached + usage.completion * prices.output) / _MILLION


@dataclass
class _Account:
    budget: float | None = None
    spent: float = 0.0
    """Includes what calls without an answer may have cost."""
    held: float = 0.0
    refused: float = 0.0
    """What the last refused call could have cost."""


class BudgetLedger:
    """Budgets of those who ask one judge, and its counts; thread-safe.

    Each asker (`judge_usage.current_asker`) has a budget that no other can spend. Where it says that it has spent more
    than its account knows (elsewhere, or before this judge was built), that counts.
    """

    def __init__(self, budget: float | None = None) -> None:
        """`budget`: of whoever asks without terms."""
        self.counts = JudgeCounters()
        self._lock = threading.Lock()
        self._accounts: dict[str, _Account] = {}
        self._nobodys = _Account(budget)

    def hold(self, prices: TokenPrices | None, prompt: int, completion: int) -> float:
        """Set money aside for a call of at most so many tokens; US dollars, 0 without prices.

        Raises `BudgetSpent` where the call could exceed the asker's budget.
        """
        # Money is set aside before a call: many threads that each saw the same rest would spend it several times.
        most = 0.0 if prices is None else compute_cost(prices, TokenUsage(prompt, 0, completion))
        with self._lock:
            account = self._account()
            self._check(account, most)
            account.held += most
        return most

    def check(self) -> None:
        """Raise `BudgetSpent` while a call like the last refused one could still exceed the budget."""
        with self._lock:
            account = self._account()
            self._check(account, account.refused)

    def settle(self, held: float, prices: TokenPrices | None, usage: TokenUsage | None) -> None:
        """Settle a call that was answered. Without `usage` the budget counts what was held, and the cost is unknown."""
        known = None if usage is None or prices is None else compute_cost(prices, usage)
        self._pay(held, held if known is None else known)
        if usage is not None:
            self.counts.add("prompt_tokens", usage.prompt)
            self.counts.add("completion_tokens", usage.completion)
            if usage.cached is not None:
                self.counts.add("cached_tokens", usage.cached)
                self.counts.add("cached_of", usage.prompt)
        self.counts.add("known_usd", known or 0.0)
        self.counts.add("unpriced", known is None)
        self.counts.add("lost_usd", held if known is None else 0.0)

    def release(self, held: float, sent: bool) -> None:
        """Settle a call that was not answered. Where it was sent, the budget counts what was held."""
        lost = held if sent else 0.0
        self._pay(held, lost)
        self.counts.add("lost_usd", lost)

    def _pay(self, held: float, cost: float) -> None:
        with self._lock:
            account = self._account()
            account.held -= held
            account.spent += cost

    def _account(self) -> _Account:
        asked = current_terms()
        if asked is None:
            return self._nobodys
        account = self._accounts.setdefault(current_asker(), _Account())
        account.budget, account.spent = asked.budget_usd, max(account.spent, asked.spent_usd)
        return account

    def _check(self, account: _Account, most: float) -> None:
        if account.budget is not None and account.spent + account.held + most > account.budget:
            account.refused = most
            raise BudgetSpent(
                f"judge.budget_usd={account.budget:g} would be exceeded: {account.spent:.4f} are spent and "
                f"the next call may cost {most:.4f}; raise it to go on."
            )
