"""`raypoly check`: whether a part keeps the contract of its kind."""

from __future__ import annotations

from typing import Annotated

import typer

EXAMPLES = """Examples:

raypoly check my_module:MyObjective set_size=4

raypoly check poly_epo

raypoly check flowrl --as loss"""


def check(
    thing: Annotated[str, typer.Argument(help="A short name, or package.module:Name with its folder on PYTHONPATH.")],
    parameters: Annotated[list[str] | None, typer.Argument(metavar="key=value", show_default=False)] = None,
    kind: Annotated[
        str | None,
        typer.Option("--as", help="objective, reward, term, loss, stage, judge, scaffold, environment, if not clear."),
    ] = None,
) -> None:
    """Try a reward, objective, loss, stage, judge, scaffold or environment on made groups. Exit code 1 if it breaks its
    contract."""
    from rich.console import Console

    from raypoly.core.errors import UsageError
    from raypoly.core.settings import parse_value
    from raypoly.integrations.contract_checks import report

    given = {}
    for parameter in parameters or []:
        name, equals, text = parameter.partition("=")
        if not equals:
            raise UsageError(f"{parameter!r} is no parameter: write key=value, such as set_size=4.")
        given[name] = parse_value(name, text, None)
    found = report(thing, kind, given)
    found.print_to(Console())
    raise typer.Exit(1 if found.breaches else 0)
