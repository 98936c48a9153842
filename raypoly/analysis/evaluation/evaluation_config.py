"""Config of `raypoly evaluate --model` and `--endpoint`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from pydantic import Field

from raypoly.core.config import (
    Config,
    GeneratorConfig,
    JudgeConfig,
    ModelConfig,
    RayConfig,
    RunConfig,
    ScorerConfig,
    Section,
    TrainConfig,
    resumable,
)
from raypoly.core.endpoint_config import EndpointConfig
from raypoly.core.errors import UsageError
from raypoly.core.settings import load_of
from raypoly.data.preparing.prepare_config import SamplingConfig, SourceConfig


class EvaluationPromptsConfig(Section):
    """How problems are put to the model."""

    template: str = Field(
        "auto",
        description="`auto`: `chat` if the model has a chat template or is behind an endpoint (`message` where all "
        "problems ask for a value), else `none`. `none`: the prompts that the problems have. Others as in "
        "problems.template.",
    )
    chat_template: str | None = Field(
        None,
        description="For a template of messages: folder or hub id of the tokenizer whose chat template renders them. "
        "Default: the model's own. An endpoint renders messages itself.",
    )


class EvaluationSamplingConfig(SamplingConfig):
    """How often each problem is tried."""

    samples: int = resumable(16, ge=1, description="Responses for each problem. More later add to those that exist.")
    greedy: bool = Field(False, description="Take the likeliest token each time; one response for each problem.")


class EvaluationGeneratorConfig(GeneratorConfig):
    """The engine, with other defaults than in training."""

    temperature: float = Field(0.8, gt=0, description="Sampling temperature.")
    max_tokens: int = Field(512, ge=1, description="Longest response, in tokens.")


class ModelEvaluationConfig(Section):
    """One evaluation of one model on one file of problems."""

    run: RunConfig = Field(default_factory=RunConfig)
    problems: SourceConfig
    prompts: EvaluationPromptsConfig = Field(default_factory=EvaluationPromptsConfig)
    sampling: EvaluationSamplingConfig = Field(default_factory=EvaluationSamplingConfig)
    endpoint: EndpointConfig = Field(default_factory=EndpointConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    generator: EvaluationGeneratorConfig = Field(default_factory=EvaluationGeneratorConfig)
    scorer: ScorerConfig = Field(default_factory=ScorerConfig)
    ray: RayConfig = Field(default_factory=RayConfig)

    @property
    def judge_of_a_run(self) -> JudgeConfig:
        """The endpoint as a judge that is a server: limits, deadline, and where its key is."""
        if self.endpoint.url is None:
            return JudgeConfig()
        return self.endpoint.as_judge(0.0 if self.sampling.greedy else self.generator.temperature)

    def of_a_run(self) -> Config:
        """A training config for the actors and Ray; it hides the endpoint's key from Ray."""
        return Config(
            run=self.run,
            model=self.model,
            generator=self.generator,
            scorer=self.scorer,
            judge=self.judge_of_a_run,
            train=TrainConfig(seed=self.sampling.seed, rollouts=self.sampling.samples),
            ray=self.ray,
        )


def evaluation_config(path: str | None, overrides: Sequence[str]) -> ModelEvaluationConfig:
    """The config of the file `path`, if any, with `overrides`. Raises `UsageError`."""
    given = dict(word.partition("=")[::2] for word in overrides)
    if path is None and not {"problems.path", "problems.hub"} & given.keys():
        raise UsageError(
            "Name the problems: --problems FILE, or --problems human-eval (docs/problem-formats.md has the formats)."
        )
    model = given.get("model.path") or given.get("endpoint.name") or "model"
    problems = given.get("problems.path") or given.get("problems.hub") or "problems"
    name = f"{_plain(model)}-{_plain(problems)}"
    config = load_of(ModelEvaluationConfig, path, overrides, name if path is None else None)
    if config.sampling.greedy and config.sampling.samples > 1:
        raise UsageError(
            f"sampling.greedy gives the same response each time, and sampling.samples={config.sampling.samples}: "
            "ask for --samples 1."
        )
    if config.problems.template is not None:
        raise UsageError("problems.template is of training: an evaluation's prompts are set by prompts.template.")
    if config.model.lora_rank is not None:
        raise UsageError("model.lora_rank is of training: leave it out, --model is measured as it is.")
    if config.endpoint.url is not None and (config.model.path or config.prompts.chat_template):
        raise UsageError("model.path and prompts.chat_template are of --model: an endpoint has its own.")
    return config


def _plain(name: str) -> str:
    """Last part of a path, URI or hub id, as it may stand in a folder's name."""
    last = PurePath(name).name
    for ending in (".gz", ".jsonl", ".parquet", ".gguf"):
        last = last.removesuffix(ending)
    return re.sub(r"[^\w.-]+", "-", last).strip("-.") or "unnamed"
