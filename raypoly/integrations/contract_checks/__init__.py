"""Does a part of yours keep its contract: an objective, reward, term, loss, group stage, judge, scaffold, environment?

    def test_mine() -> None:
        check("my_module:MyObjective", set_size=4)          # AssertionError, with the table of what was tried

    @pytest.mark.parametrize("one", checks_of("my_module:MyObjective", set_size=4))
    def test_mine_one_by_one(one) -> None:
        one()

`raypoly check` is the same as a command (docs/add-an-objective.md).
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple
from unittest import SkipTest

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from raypoly.core.errors import MissingKey, MissingPackage, UsageError
from raypoly.core.plugins import load_plugin
from raypoly.integrations.contract_checks.comparing import Breach, Untried, short
from raypoly.integrations.contract_checks.contract import Contract

__all__ = ["KINDS", "Report", "check", "checks_of", "contract_of", "report"]

_HERE = "raypoly.integrations.contract_checks"
KINDS: Mapping[str, str] = {
    "objective": f"{_HERE}.estimator_contracts:ObjectiveContract",
    "reward": f"{_HERE}.estimator_contracts:RewardContract",
    "term": f"{_HERE}.estimator_contracts:TermContract",
    "loss": f"{_HERE}.estimator_contracts:LossContract",
    "stage": f"{_HERE}.group_contracts:StageContract",
    "judge": f"{_HERE}.group_contracts:JudgeContract",
    "scaffold": f"{_HERE}.group_contracts:ScaffoldContract",
    "environment": f"{_HERE}.group_contracts:EnvironmentContract",
}


class Result(NamedTuple):
    check: str
    state: str
    """`holds`, `broken` or `not tried`."""
    said: str = ""
    """The sentence of a breach, or why it was not tried."""


class Report(NamedTuple):
    title: str
    results: Sequence[Result]

    @property
    def breaches(self) -> Sequence[str]:
        return list(dict.fromkeys(it.said for it in self.results if it.state == "broken"))

    def print_to(self, console: Console) -> None:
        """A table of what was tried, and a sentence for each breach."""
        table = Table("what was tried", "result", title=self.title, title_justify="left")
        for it in self.results:
            table.add_row(it.check, f"not tried: {escape(it.said)}" if it.state == "not tried" else it.state)
        console.print(table)
        for said in self.breaches:
            console.print(said, highlight=False, markup=False, soft_wrap=True)


def check(thing: Any, kind: str | None = None, **params: Any) -> None:
    """Raise `AssertionError`, with the table, where a part breaks its contract.

    `thing`: a short name, `package.module:Name`, a class or function. `kind`: of `KINDS`, where a name has several.
    Raises `UsageError` for anything else, and for wrong parameters.
    """
    found, out = report(thing, kind, params), io.StringIO()
    if found.breaches:
        found.print_to(Console(file=out, width=100))
        raise AssertionError(f"\n{out.getvalue()}")


def checks_of(thing: Any, kind: str | None = None, **params: Any) -> Sequence[Callable[[], None]]:
    """Each check by itself: it raises `AssertionError`, or `SkipTest` where it can't be made. Raises as `check`."""
    return [_raising(each) for each in _trial(thing, kind, params).checks]


def report(thing: Any, kind: str | None, params: Mapping[str, Any]) -> Report:
    """All checks of a part. Raises as `check`."""
    trial = _trial(thing, kind, params)
    name = thing if isinstance(thing, str) else getattr(thing, "__name__", repr(thing))
    return Report(f"{trial.kind} {name}", [_result(each) for each in trial.checks])


def contract_of(kind: str) -> type[Contract]:
    """Raises `UsageError` for an unknown kind."""
    contract: type[Contract] = load_plugin(kind, KINDS, "--as")
    return contract


def _raising(one: Callable[[], None]) -> Callable[[], None]:
    @wraps(one)
    def run() -> None:
        result = _result(one)
        if result.state == "not tried":
            raise SkipTest(result.said)
        assert result.state == "holds", result.said

    return run


def _result(one: Callable[[], None]) -> Result:
    name = one.__name__.removeprefix("check_").replace("__", ", ").replace("_", " ")
    try:
        one()
    except (Untried, MissingKey) as error:
        return Result(name, "not tried", str(error).rstrip("."))
    except Breach as error:
        return Result(name, "broken", str(error))
    except Exception as error:  # noqa: BLE001 - what a part raises where it may not is its breach
        return Result(name, "broken", f"It raises {short(error)}; mend it.")
    return Result(name, "holds")


def _trial(thing: Any, kind: str | None, params: Mapping[str, Any]) -> Contract:
    contracts = [contract_of(name) for name in (KINDS if kind is None else [kind])]
    if isinstance(thing, str):
        named = [it for it in contracts if thing in it.known]
        if len(named) > 1:
            kinds = " or --as ".join(it.kind for it in named)
            raise UsageError(f"{thing!r} is several things: say which by --as {kinds}.")
        contracts = named or contracts
        thing = _loaded(thing, {name: place for it in contracts for name, place in it.known.items()})
    elif not isinstance(thing, type) and hasattr(thing, "config") and not params:  # an instance
        thing, params = type(thing), thing.config.model_dump()
    fitting = [it for it in contracts if it.is_one(thing)]
    if not fitting:
        whats = ", ".join(f"{it.kind} ({it.what})" for it in contracts)
        raise UsageError(f"{short(thing)} is none of these: {whats}.")
    trial = fitting[0](thing, params)
    try:
        importlib.import_module(trial.package)
        trial.make()
    except ModuleNotFoundError as error:
        raise MissingPackage.of(error) or error from error
    except UsageError as error:
        if not isinstance(error, MissingKey):
            raise
    except Exception:  # noqa: BLE001 - the checks meet it again, and say it
        return trial
    return trial


def _loaded(name: str, known: Mapping[str, str]) -> Any:
    try:
        return load_plugin(name, known, "THING")
    except UsageError as error:
        missing = MissingPackage.of(error.__cause__) if isinstance(error.__cause__, ModuleNotFoundError) else None
        raise missing or error from error
