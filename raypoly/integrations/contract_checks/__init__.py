"""Does a part keep its contract: an objective, reward, loss, group stage, judge or scaffold of yours?

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
from typing import Any, NamedTuple
from unittest import SkipTest

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from raypoly.core.errors import MissingKey, MissingPackage, UsageError
from raypoly.core.plugins import load_plugin
from raypoly.integrations.contract_checks.comparing import short
from raypoly.integrations.contract_checks.contract import (
    CHECKS,
    KINDS,
    Breach,
    Check,
    Trial,
    Untried,
    contract_of,
)

__all__ = ["KINDS", "Report", "check", "checks_of", "contract_of", "report"]


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
    found = report(thing, kind, params)
    if found.breaches:
        out = io.StringIO()
        found.print_to(Console(file=out, width=100))
        raise AssertionError(f"\n{out.getvalue()}")


def checks_of(thing: Any, kind: str | None = None, **params: Any) -> Sequence[Callable[[], None]]:
    """Each check by itself: it raises `AssertionError`, or `SkipTest` where it can't be made. Raises as `check`."""
    trial = _trial(thing, kind, params)
    return [_one(trial, each) for each in (*CHECKS, *trial.contract.own)]


def report(thing: Any, kind: str | None, params: Mapping[str, Any]) -> Report:
    """All checks of a part. Raises as `check`."""
    trial = _trial(thing, kind, params)
    name = thing if isinstance(thing, str) else getattr(thing, "__name__", repr(thing))
    return Report(f"{trial.contract.kind} {name}", [_result(trial, each) for each in (*CHECKS, *trial.contract.own)])


def _one(trial: Trial, each: Check) -> Callable[[], None]:
    def run() -> None:
        result = _result(trial, each)
        if result.state == "not tried":
            raise SkipTest(result.said)
        assert result.state == "holds", result.said

    run.__name__ = each.name.replace(" ", "_")
    return run


def _result(trial: Trial, each: Check) -> Result:
    try:
        each.run(trial)
    except (Untried, MissingKey) as error:
        return Result(each.name, "not tried", str(error).rstrip("."))
    except Breach as error:
        return Result(each.name, "broken", str(error))
    except Exception as error:  # noqa: BLE001 - what a part raises where it may not is its breach
        return Result(each.name, "broken", f"It raises {short(error)}; mend it.")
    return Result(each.name, "holds")


def _trial(thing: Any, kind: str | None, params: Mapping[str, Any]) -> Trial:
    contracts = [contract_of(name) for name in (KINDS if kind is None else [kind])]
    if isinstance(thing, str):
        if named := [it for it in contracts if thing in it.known]:
            contracts = named
        if len(named) > 1:
            raise UsageError(
                f"{thing!r} is several things: say which by --as {' or --as '.join(it.kind for it in named)}."
            )
        thing = _loaded(thing, {name: place for it in contracts for name, place in it.known.items()})
    elif not isinstance(thing, type) and hasattr(thing, "config") and not params:  # an instance
        thing, params = type(thing), thing.config.model_dump()
    fitting = [it for it in contracts if it.is_one(thing)]
    if not fitting:
        whats = ", ".join(f"{it.kind} ({it.what})" for it in contracts)
        raise UsageError(f"{short(thing)} is none of these: {whats}.")
    trial = Trial(fitting[0], thing, params)
    try:
        importlib.import_module(fitting[0].package)
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
