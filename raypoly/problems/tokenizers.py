"""Tokenizers by name, for prompts before there is an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raypoly.errors import UsageError


def tokenizer_of(name: str, key: str) -> Any:
    """A folder's tokenizer, or the hub's. Raises `UsageError`, which says that the config's `key` named it."""
    from transformers import AutoTokenizer  # seconds, which those without one do not wait for

    folder = Path(name).expanduser()
    try:
        return AutoTokenizer.from_pretrained(folder if folder.exists() else name)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{key}={name} is no tokenizer here and could not be had from the Hugging Face hub "
            f"({str(error).partition(chr(10))[0]})."
        ) from error
