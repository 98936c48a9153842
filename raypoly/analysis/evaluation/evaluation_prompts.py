"""Prompts of an evaluation, by a template or the problems' own, and the room that they need.

    asked = ask_problems(config, template_name(config, problems), problems)      # with their prompts
    config = with_room(config, asked)

A prompt for an endpoint that renders messages itself is their JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from raypoly.analysis.evaluation.evaluation_config import ModelEvaluationConfig
from raypoly.core.errors import UsageError
from raypoly.core.gguf_models import GgufModel
from raypoly.data.preparing.candidates import Candidate
from raypoly.data.templates import load_template, load_tokenizer, prompt_maker
from raypoly.run.run_identity import is_model_config

NONE = "none"
_KEY, _CHAT_KEY = "prompts.template", "prompts.chat_template"
_WEIGHTS = (".safetensors", ".bin")
_OTHERS = (".json", ".txt", ".model", ".jinja")  # files of tokenizer and config


def weights_digest(folder: Path) -> str:
    """SHA-256, hex, over weights, config and tokenizer of a model's folder. Raises `UsageError` if it is none."""
    try:
        values = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"--model {folder} is no model's folder: it has no config.json that can be read.") from error
    if not is_model_config(values):
        what = "a run's folder: --run takes it, and --model takes its folder model" if "train" in values else "no model"
        raise UsageError(f"--model {folder} is {what}.")
    files = [file for file in sorted(folder.iterdir()) if file.suffix in (*_WEIGHTS, *_OTHERS) and file.is_file()]
    if not any(file.suffix in _WEIGHTS for file in files):
        raise UsageError(f"--model {folder} has a config and no weights (*.safetensors or *.bin).")
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as content:
            digest.update(f"{file.name} {hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def template_name(config: ModelEvaluationConfig, problems: Sequence[Candidate]) -> str:
    """`prompts.template`; for `auto` the one that fits problems and model (see its description)."""
    name = config.prompts.template
    if name != "auto":
        return name
    if any(it.problem.answer == "completion" for it in problems):
        return NONE
    chat = "message" if all(it.problem.tests.kind == "answer" for it in problems) else "chat"
    if config.endpoint.url is not None or config.prompts.chat_template is not None:
        return chat
    return chat if load_tokenizer(str(config.model.path), "model.path").chat_template else NONE


def is_plain(template: str) -> bool:
    """Whether prompts are text to be continued, not messages. Raises `UsageError` if there is no such template."""
    return template == NONE or not load_template(template, _KEY).is_chat


def ask_problems(config: ModelEvaluationConfig, template: str, problems: Sequence[Candidate]) -> list[Candidate]:
    """The problems with their prompts. Raises `UsageError` if the template can't be used."""
    if template == NONE:
        return list(problems)
    chat = config.prompts.chat_template or config.model.path
    render = _as_json if config.endpoint.url is not None else None
    make = prompt_maker(template, chat, _KEY, _CHAT_KEY, render)
    return [replace(it, make_prompt=make) for it in problems]


def messages_of(prompt: str) -> list[Mapping[str, str]]:
    """Messages of an endpoint's prompt."""
    found: list[Mapping[str, str]] = json.loads(prompt)
    return found


def with_room(config: ModelEvaluationConfig, asked: Sequence[Candidate]) -> ModelEvaluationConfig:
    """The config with `generator.max_prompt_tokens` for the longest prompt, unless given.

    Raises `UsageError` for a prompt that is longer, or leaves no room for a response.
    """
    name = str(config.model.path)
    tokenizer = load_tokenizer(name, "model.path")
    prompts = [it.problem.prompt for it in asked]
    counts = [len(ids) for ids in tokenizer(prompts, add_special_tokens=False, verbose=False)["input_ids"]]
    longest = max(counts)
    generator = config.generator
    given = generator.max_prompt_tokens if "max_prompt_tokens" in generator.model_fields_set else longest
    where = f"The prompt of {asked[counts.index(longest)].id} has {longest} tokens"
    if longest > given:
        raise UsageError(f"{where}, and generator.max_prompt_tokens={given}: leave that key out, or raise it.")
    context = _context(name)
    if context is not None and given + generator.max_tokens > context:
        if longest + generator.max_tokens <= context:
            raise UsageError(
                f"generator.max_prompt_tokens={given} and generator.max_tokens={generator.max_tokens} are more than "
                f"the {context} tokens that the model reads: leave generator.max_prompt_tokens out."
            )
        room = context - longest
        advice = f"generator.max_tokens={room} or less" if room > 0 else "another model, or shorter problems"
        raise UsageError(
            f"{where}, generator.max_tokens={generator.max_tokens}, and the model reads {context} in all: "
            f"give {advice}."
        )
    return config.model_copy(update={"generator": generator.model_copy(update={"max_prompt_tokens": given})})


def _context(name: str) -> int | None:
    """Most tokens that the model reads; None if its config does not say."""
    gguf = GgufModel.find(name)
    if gguf is not None:
        values: Mapping[str, Any] = gguf.config()
    else:
        from transformers import AutoConfig  # takes seconds to import

        folder = Path(name).expanduser()
        values = AutoConfig.from_pretrained(folder if folder.exists() else name).to_dict()
    found = values.get("max_position_embeddings")
    return found if isinstance(found, int) else None


def _as_json(messages: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps(list(messages), ensure_ascii=False)
