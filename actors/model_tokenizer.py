"""A model's tokenizer, as an engine's actor has it, or the driver itself where no engine runs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from raypoly.core.errors import UsageError
from raypoly.core.values import Int32
from raypoly.rollouts.engines import end_tokens


class ModelTokenizer:
    """The tokenizer in a model's Hugging Face folder. It takes seconds to load."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self._folder = folder
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)

    def encode(self, texts: Sequence[str]) -> list[Int32]:
        """Each text's tokens, int32 [P], without special tokens."""
        return [np.array(ids, np.int32) for ids in self._tokenizer(list(texts), add_special_tokens=False)["input_ids"]]

    def encode_responses(self, texts: Sequence[str]) -> list[Int32]:
        """The same for whole responses, int32 [T]: each ends with the token of the end of a sequence."""
        return [np.append(tokens, np.int32(self._end)) for tokens in self.encode(texts)]

    def decode(self, tokens: Int32) -> str:
        """The text without special tokens."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))

    def files(self) -> dict[str, bytes]:
        """The files of the tokenizer's Hugging Face folder, by name."""
        with tempfile.TemporaryDirectory() as folder:
            self._tokenizer.save_pretrained(folder)
            return {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir())}

    @cached_property
    def _end(self) -> int:
        """The tokenizer's own end of a sequence, or else the first of those at which an engine stops."""
        own = self._tokenizer.eos_token_id
        known = end_tokens(self._folder) if own is None else [own]
        if not known:
            raise UsageError(
                f"The model in {self._folder} names no token for the end of a sequence, which given responses end "
                "with: set eos_token_id in its generation_config.json."
            )
        return int(known[0])
