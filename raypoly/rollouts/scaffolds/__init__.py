"""Scaffolds: how a problem's attempts are asked for, in training and in evaluation (docs/scaffolds.md).

    scaffold = of_run(config)
    scaffold.ask(problem, drafts=(), attempts=8)

To add one, write a file like `direct.py` and name it in KNOWN, or keep it outside the tree and set
`scaffold.name=package.module:Class`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raypoly.algorithms import objectives
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.plugins import load_configured_plugin, load_plugin
from raypoly.data.templates import ChatTemplate
from raypoly.rollouts.scaffolds.scaffold import Ask, Scaffold, ScaffoldConfig

KNOWN: Mapping[str, str] = {
    "direct": "raypoly.rollouts.scaffolds.direct:Direct",
    "chain_of_thought": "raypoly.rollouts.scaffolds.direct:ChainOfThought",
    "plan_and_solve": "raypoly.rollouts.scaffolds.direct:PlanAndSolve",
    "fixed_strategy": "raypoly.rollouts.scaffolds.direct:FixedStrategy",
    "skills": "raypoly.rollouts.scaffolds.direct:Skills",
    "sketch_then_solve": "raypoly.rollouts.scaffolds.sketch_then_solve:SketchThenSolve",
    "plan_search": "raypoly.rollouts.scaffolds.plan_search:PlanSearch",
    "given": "raypoly.rollouts.scaffolds.given:Given",
}

__all__ = ["KNOWN", "Ask", "Scaffold", "ScaffoldConfig", "build", "name_of_run", "of_run"]


def build(name: str, chat: ChatTemplate | None = None, **params: Any) -> Scaffold:
    """Raises `UsageError` for an unknown name, and an unknown or wrong parameter."""
    built: Scaffold = load_configured_plugin(name, KNOWN, "scaffold", params)
    built.chat = chat
    return built


def name_of_run(config: Config) -> str:
    """`scaffold.name`, or else the scaffold of the objective, or else `direct`.

    Raises `UsageError` where the objective needs another scaffold than the config names.
    """
    wanted = objectives.of_run(config).scaffold
    given = config.scaffold.name
    if wanted is not None and given not in (None, wanted) and any(_samples(name) for name in (wanted, given)):
        raise UsageError(
            f"objective.name={config.objective.name} trains with scaffold.name={wanted}, not with "
            f"scaffold.name={given}: leave scaffold.name out."
        )
    return given or wanted or "direct"


def _samples(name: str) -> bool:
    sampling: bool = load_plugin(name, KNOWN, "scaffold.name").samples
    return sampling


def of_run(config: Config, **other: Any) -> Scaffold:
    """The scaffold that a run trains with, or the same with `other` parameters. Raises `UsageError`."""
    name, objective = name_of_run(config), objectives.of_run(config)
    params = config.scaffold.parameters
    if name == objective.scaffold:
        params |= objective.scaffold_parameters()
    return build(name, ChatTemplate.of(config.problems), **(params | other))
