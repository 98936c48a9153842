"""What the doctor says of a machine: a line each."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.text import Text

from raypoly.core.errors import RaypolyError
from raypoly.run.crash import describe_error


@dataclass(frozen=True)
class MachineFinding:
    """One line of the report."""

    what: str
    ok: bool
    detail: str
    """What there is; or what is wrong, and what to do."""


def attempt(what: str, work: Callable[[], str]) -> MachineFinding:
    """The finding of `work`, which returns what there is and raises what is wrong."""
    try:
        ok, detail = True, work()
    except RaypolyError as error:
        ok, detail = False, str(error)
    except Exception as error:  # noqa: BLE001 - a user's part or a broken package may raise anything: that is a finding
        ok, detail = False, f"it failed: {describe_error(error)}"
    return MachineFinding(what, ok, " ".join(detail.split()))


def attempt_all(works: Mapping[str, Callable[[], str]], seconds: float) -> list[MachineFinding]:
    """`attempt` each, side by side. One that hangs is a finding; its thread is left behind, since none can be ended."""
    found: dict[str, MachineFinding] = {}

    def run(what: str) -> None:
        found[what] = attempt(what, works[what])

    threads = [threading.Thread(target=run, args=(what,), name=what, daemon=True) for what in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
    late = f"no answer in {seconds:.0f} s: see whether its server, disk or network hangs"
    return [found.get(what) or MachineFinding(what, False, late) for what in works]


def print_findings(findings: Sequence[MachineFinding], as_json: bool) -> bool:
    """Print a line for each, or JSON; returns whether all are ok."""
    sound = all(finding.ok for finding in findings)
    if as_json:
        state = "ok" if sound else "not ok"
        print(json.dumps({"state": state, "checks": [asdict(finding) for finding in findings]}, indent=2))
        return sound
    console, width = Console(), max(len(finding.what) for finding in findings)
    for finding in findings:
        mark = ("ok", "green") if finding.ok else ("NO", "red")
        line = Text.assemble(mark, f"  {finding.what:<{width}}  {finding.detail}")
        console.print(line, highlight=False, soft_wrap=True)
    return sound
