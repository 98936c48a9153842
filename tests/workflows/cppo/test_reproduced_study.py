"""CPPO's section of docs/reproduce.md, word for word at the tiny model's size; its 63 runs are planned and not made."""

from __future__ import annotations

import re

import pytest

from tests.support.faulty_front import running
from tests.workflows.cppo.planning_server import PlanningServer, proposal
from tests.workflows.test_study import Reader, commands, reader

__all__ = ["reader"]

METHODS = ("Sort by the end.", "Count with a heap.", "Sweep over the days.", "Search the smallest bound.")


@pytest.mark.slow
def test_cppos_data_plans_and_forecast_are_made(reader: Reader) -> None:
    *made, planned, _ = list(commands("## CPPO's"))
    with running(PlanningServer(script={"Count": [proposal(*METHODS, "Guess a bit.", "Try it out.")]})) as server:
        asked = [f"plans.{who}.{key}" for who in ("teacher", "judge") for key in (f"url={server.url}", f"name={who}")]
        plans = [*asked, f"problems.chat_template={reader.model}"]
        for words in made:
            reader.types(words, plans if words[0] == "make-plans" else None)
    assert (reader.folder / "prepared/cppo_plans/data/plans.jsonl").read_text().count("\n") == 10
    said = reader.types(planned, [f"problems.chat_template={reader.model}"])
    (equal,) = re.findall(r"^Loss of (.*): clipped_surrogate, ", said, re.M)
    assert equal.startswith("passk_training, pkpo, upskill, warm_up, joint, outcome, gate_alone, plans_1"), "one loss"
