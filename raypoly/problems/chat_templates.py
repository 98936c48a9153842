"""Prompts of chat messages, by a tokenizer's chat template, before there is an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from raypoly.errors import UsageError

PLAIN = "plain"

Render = Callable[[Sequence[Mapping[str, Any]]], str]
"""The prompt of chat messages, each `{"role": ..., "content": ...}`."""


def load_tokenizer(name: str, key: str) -> Any:
    """The tokenizer in a folder, or of the Hugging Face hub. Raises `UsageError` that names the config key `key`."""
    from transformers import AutoTokenizer  # takes seconds to import

    folder = Path(name).expanduser()
    try:
        return AutoTokenizer.from_pretrained(folder if folder.exists() else name)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{key}={name} is no tokenizer here and could not be had from the Hugging Face hub "
            f"({str(error).partition(chr(10))[0]})."
        ) from error


def chat_renderer(template: str, key: str = "problems.chat_template") -> Render:
    """Renders messages by the chat template of the tokenizer `template`, or with `PLAIN` joins their texts.

    Raises `UsageError` where there is no such tokenizer, or it has no chat template.
    """
    if template == PLAIN:
        return lambda messages: "\n\n".join(message["content"] for message in messages)
    tokenizer = load_tokenizer(template, key)
    if not tokenizer.chat_template:
        raise UsageError(f"{key}={template} is a tokenizer without a chat template: name another, or {PLAIN}.")

    def render(messages: Sequence[Mapping[str, Any]]) -> str:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    return render
