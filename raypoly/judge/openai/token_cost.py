"""What judging costs: tokens as the server counts them, money where the prices are known, and the budget.

    ledger = Ledger(budget=5.0)
    held = ledger.hold(prices, prompt=1800, completion=600)     # `BudgetSpent` where it could exceed the budget
    ledger.settle(held, prices, usage)

A price that nobody gave is unknown, and so is then the cost: never 0.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from raypoly.config import JudgeConfig
from raypoly.errors import JudgeUnavailable
from raypoly.judge.asker import asker
from raypoly.judge.judge_usage import note, terms

PUBLIC_URL = "https://api.openai.com/v1"
_MILLION = 1e6


class BudgetSpent(JudgeUnavailable):
    """The next call could cost more than `judge.budget_usd` leaves."""


@dataclass(frozen=True)
class Prices:
    """US dollars a million tokens."""

    input: float
    cached: float
    output: float


@dataclass(frozen=True)
class Usage:
    """Tokens of one call; `cached`: those of the prompt that the server had already read, None where it is silent."""

    prompt: int
    cached: int | None
    completion: int


LIST_PRICES = {
    "gpt-4.1": Prices(2.00, 0.50, 8.00),
    "gpt-4.1-mini": Prices(0.40, 0.10, 1.60),
    "gpt-4.1-nano": Prices(0.10, 0.025, 0.40),
}
"""OpenAI's public list for the standard tier as of 2026-04; anything else has to be given."""


def prices(config: JudgeConfig) -> Prices | None:
    """What the config says of the first server, else the public list; None where neither knows."""
    if config.price_input is None or config.price_output is None:
        return listed(config.base_url or PUBLIC_URL, config.model)
    cached = config.price_input if config.price_cached is None else config.price_cached
    return Prices(config.price_input, cached, config.price_output)


def listed(base_url: str, model: str) -> Prices | None:
    """The public list's prices of a model at OpenAI, dated versions included (`gpt-4.1-mini-2025-04-14`)."""
    if base_url.rstrip("/") != PUBLIC_URL:
        return None
    name, _, rest = model.partition("-20")
    return LIST_PRICES.get(name if rest[:2].isdigit() else model)


def cost(prices: Prices, usage: Usage) -> float:
    """US dollars; a server that does not say what it had cached is taken to charge for all."""
    cached = usage.cached or 0
    fresh = usage.prompt - cached
    return (fresh * prices.input + cached * prices.cached + usage.completion * prices.output) / _MILLION


@dataclass
class _Account:
    """One asker's money, in US dollars."""

    budget: float | None = None
    spent: float = 0.0
    """With what calls without an answer may have cost."""
    held: float = 0.0
    refused: float = 0.0
    """What the last call that was held back may have cost."""


class BudgetLedger:
    """Tokens and money of one judge; threads may share it.

    A budget is an asker's: each (`raypoly.judge.asker`) has an account, opened by its first question's terms, and none
    can spend another's. Where an asker says that it has spent more than its account knows, elsewhere or before this
    judge was built, that counts.
    """

    def __init__(self, budget: float | None = None, spent: float = 0.0) -> None:
        """Budget, and what is spent of it already, of whoever asks without terms."""
        self._lock = threading.Lock()
        self._accounts: dict[str, _Account] = {}
        self._nobodys = _Account(budget, spent)
        self._spent = 0.0
        self._unknown = 0
        self._prompt = self._completion = 0
        self._cached: int | None = None

    def hold(self, prices: Prices | None, prompt: int, completion: int) -> float:
        """Set money aside for a call of at most so many tokens; US dollars.

        Raises `BudgetSpent` where the call could exceed the asker's budget. Without prices nothing is set aside.
        """
        most = 0.0 if prices is None else cost(prices, Usage(prompt, 0, completion))
        with self._lock:
            account = self._account()
            self._check(account, most)
            account.held += most
        return most

    def check(self) -> None:
        """Raises `BudgetSpent` while a call like the last one that was held back still could exceed the budget."""
        with self._lock:
            account = self._account()
            self._check(account, account.refused)

    def settle(self, held: float, prices: Prices | None, usage: Usage | None) -> None:
        """A call was answered. Without `usage` the budget counts what was set aside, and the cost is unknown."""
        known = None if usage is None or prices is None else cost(prices, usage)
        with self._lock:
            account = self._account()
            account.held -= held
            account.spent += held if known is None else known
            if usage is not None:
                self._prompt += usage.prompt
                if usage.cached is not None:
                    self._cached = (self._cached or 0) + usage.cached
                self._completion += usage.completion
            self._unknown += known is None
            self._spent += known or 0.0
        if usage is not None:
            note("prompt_tokens", usage.prompt)
            if usage.cached is not None:
                note("cached_tokens", usage.cached)
                note("cached_of", usage.prompt)
            note("completion_tokens", usage.completion)
        note("known_usd", known or 0.0)
        note("unpriced", known is None)
        note("lost_usd", held if known is None else 0.0)

    def release(self, held: float, sent: bool) -> None:
        """A call was not answered; where the server may have worked on it, the budget counts it as if it had."""
        lost = held if sent else 0.0
        with self._lock:
            account = self._account()
            account.held -= held
            account.spent += lost
        note("lost_usd", lost)

    def _account(self) -> _Account:
        """Of whoever this thread asks for."""
        asked = terms()
        if asked is None:
            return self._nobodys
        account = self._accounts.setdefault(asker(), _Account())
        account.budget, account.spent = asked.budget_usd, max(account.spent, asked.spent_usd)
        return account

    def _check(self, account: _Account, most: float) -> None:
        if account.budget is not None and account.spent + account.held + most > account.budget:
            account.refused = most
            raise BudgetSpent(
                f"judge.budget_usd={account.budget:g} would be exceeded: {account.spent:.4f} are spent and "
                f"the next call may cost {most:.4f}; raise it to go on."
            )

    @property
    def tokens(self) -> Usage:
        with self._lock:
            return Usage(self._prompt, self._cached, self._completion)

    @property
    def cost_usd(self) -> float | None:
        """What the answers cost; None where a price or a count of tokens is unknown."""
        with self._lock:
            return None if self._unknown else self._spent
