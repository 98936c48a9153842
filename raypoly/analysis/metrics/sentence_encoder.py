"""Texts as vectors by their meaning, for D_sem: only where the encoder is on this machine, nothing is downloaded.

    try:
        vectors = SentenceEncoder.open().encode(["sort and sweep", "use a hash map"])     # float64 [2, 768]
        distance = semantic_diversity(vectors)
    except UsageError as why:
        ...                                                                               # say it, leave D_sem out

`sentence-transformers/all-mpnet-base-v2` is mean pooling over a model that transformers has, so no further package is
needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from raypoly.core.errors import UsageError
from raypoly.core.values import Float64

ENCODER = "sentence-transformers/all-mpnet-base-v2"
_MOST_TOKENS = 384
"""Of a text: what the encoder was tuned for. The rest is left out."""
_AT_ONCE = 32


class SentenceEncoder:
    """A Hugging Face encoder whose vectors of tokens are averaged, on the CPU."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model, self._tokenizer = model.eval(), tokenizer

    @classmethod
    def open(cls, name: str = ENCODER) -> Self:
        """From the local cache of Hugging Face models, or a folder. Raises `UsageError` where it is not there."""
        try:
            from transformers import AutoModel, AutoTokenizer  # takes seconds to import

            tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=True)
            return cls(AutoModel.from_pretrained(name, local_files_only=True), tokenizer)
        except (ImportError, OSError, ValueError) as error:
            raise UsageError(
                f"D_sem is left out: {name} can't be opened on this machine, and nothing is downloaded for it; "
                f"hf download {name} puts it into the cache."
            ) from error

    def encode(self, texts: Sequence[str]) -> Float64:
        """The unit vector of each text, float64 [K, width]."""
        parts = [self._encode(texts[start : start + _AT_ONCE]) for start in range(0, len(texts), _AT_ONCE)]
        return np.concatenate(parts) if parts else np.zeros((0, self._model.config.hidden_size))

    def _encode(self, texts: Sequence[str]) -> Float64:
        import torch

        inputs = self._tokenizer(
            list(texts), padding=True, truncation=True, max_length=_MOST_TOKENS, return_tensors="pt"
        )
        with torch.inference_mode():
            hidden_BTd = self._model(**inputs).last_hidden_state.double()
        mask_BT1 = inputs["attention_mask"].unsqueeze(-1)
        mean_Bd = (hidden_BTd * mask_BT1).sum(1) / mask_BT1.sum(1)
        unit: Float64 = torch.nn.functional.normalize(mean_Bd, dim=-1).numpy()
        return unit
