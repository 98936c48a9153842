"""CPPO: a planner writes K methods in one response, a solver answers once after each (arXiv 2605.27000, docs/cppo.md).

`KNOWN` gives its parts short names by config key, `COMMANDS` adds commands to `raypoly`. Its workflows are in
`workflows/cppo`.
"""

from __future__ import annotations

from collections.abc import Mapping

_HERE = "raypoly.recipes.cppo"
KNOWN: Mapping[str, Mapping[str, str]] = {
    "objective.name": {"cppo": f"{_HERE}.cppo:CPPO"},
    "scaffold.name": {
        "tuple": f"{_HERE}.tuple_plans:TuplePlans",
        "gold_plans": f"{_HERE}.given_plans:GoldPlans",
        "labelled_plans": f"{_HERE}.given_plans:LabelledPlans",
    },
    "stages.own": {
        "contract_gate": f"{_HERE}.gate_stage:ContractGate",
        "model_gate": f"{_HERE}.gate_stage:ModelGate",
    },
}
COMMANDS: Mapping[str, str] = {
    "make-plans": "workflows.cppo.plan_making:make_plans_command",
    "train-gate": "workflows.cppo.gate_training:train_gate_command",
    "audit-plans": "workflows.cppo.plan_audit:audit_plans_command",
}
