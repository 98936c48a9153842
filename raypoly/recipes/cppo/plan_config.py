"""The keys of `raypoly make-plans`."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from raypoly.core.config import ProblemsConfig, Section
from raypoly.core.endpoint_config import EndpointConfig, check_address
from raypoly.core.errors import UsageError
from raypoly.data.preparing.prepare_config import FolderConfig


class PlansConfig(Section):
    methods: int = Field(4, ge=1, le=26, description="K, the methods of a plan.")
    proposals: int = Field(6, ge=1, le=26, description="Methods that the teacher is asked for, at least `methods`.")
    answer_tokens: int = Field(1024, ge=16, description="Longest answer of the teacher and of the judge, in tokens.")
    temperature: float | None = Field(
        0.7, ge=0, description="The teacher's sampling temperature; null leaves it to the server. The judge has 0."
    )
    seed: int = Field(0, description="Seed of the plans that are held out, and of the rows of a gate.")
    held_out: float = Field(
        0.2, ge=0, lt=1, description="Share of the problems whose plans measure a gate, and do not train it."
    )
    label: tuple[str, ...] = Field(
        (),
        description="Folders of runs that have trained a planner: the judge labels plans that it wrote, and they are "
        "among the gate's rows.",
    )
    label_plans: int = Field(
        4, ge=1, description="Most plans of a problem that are labelled: the newest different ones of all these runs."
    )
    gate_rows: str = Field(
        "gate",
        pattern=r"^gate[A-Za-z0-9_-]*$",
        description="The gate's rows are in data/NAME.jsonl and data/NAME_held_out.jsonl. With `label` give another "
        "name, such as gate_2: a gate that is trained keeps its rows.",
    )
    teacher: EndpointConfig = Field(default_factory=EndpointConfig)
    """It proposes methods."""
    judge: EndpointConfig = Field(default_factory=EndpointConfig)
    """It says which are good."""

    @model_validator(mode="after")
    def _asks_enough(self) -> Self:
        if self.proposals < self.methods:
            raise ValueError(f"proposals={self.proposals} are too few for plans of methods={self.methods}")
        if self.label and self.gate_rows == "gate":
            raise ValueError("label needs gate_rows of another name, such as gate_2: a trained gate keeps its rows")
        return self

    @property
    def gate_files(self) -> tuple[str, str]:
        """The rows of a gate: those that train it, and those that measure it."""
        return f"data/{self.gate_rows}.jsonl", f"data/{self.gate_rows}_held_out.jsonl"


class PlanMakingConfig(FolderConfig):
    folder_prefix = "plans"
    later = ("plans.held_out", "plans.label", "plans.gate_rows", "plans.seed")
    problems: ProblemsConfig = Field(default_factory=ProblemsConfig)
    plans: PlansConfig = Field(default_factory=PlansConfig)

    def check_servers(self) -> None:
        """Raise `UsageError` where a server can't be asked."""
        for name, endpoint in (("teacher", self.plans.teacher), ("judge", self.plans.judge)):
            if not endpoint.name:
                raise UsageError(f"plans.{name}.name is missing: name the model of the {name}'s server.")
            keyed = endpoint.api_key_env is not None
            check_address(f"plans.{name}.url", endpoint.url, f"plans.{name}.api_key_env", keyed)
