"""How different the K methods of a plan are, or K programs where there is no plan: as texts, by meaning.

    surface_diversity(["sort and sweep", "use a hash map"])     # 1.0: no four words in common
    has_duplicate(["Use DP.", "use dp"])                        # True

Equations 14 and 15 of arXiv 2605.27000. Means over problems are the caller's; a method that is missing is left out.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations
from typing import Any, Self

import numpy as np

from raypoly.core.errors import UsageError
from raypoly.core.values import Float64

_LONGEST = 4


def bleu_4(candidate: str, reference: str) -> float:
    """BLEU with n-grams up to 4 of one text against one other, in 0 to 1 (Papineni et al. 2002).

    Words are what white space divides. Not smoothed: without a match of some length it is 0, and so it is for fewer
    than four words, unless both are the same words.
    """
    words, others = candidate.split(), reference.split()
    if words == others:
        return 1.0
    logs = 0.0
    for grams, known in zip(_grams(candidate), _grams(reference), strict=True):
        matches = (grams & known).total()
        if not matches:
            return 0.0
        logs += math.log(matches / grams.total()) / _LONGEST
    return math.exp(min(0.0, 1 - len(others) / len(words)) + logs)


@lru_cache(maxsize=256)
def _grams(text: str) -> list[Counter[tuple[str, ...]]]:
    """How often each n-gram is in a text, by n - 1. A text is compared with many others."""
    words = text.split()
    return [
        Counter(zip(*(words[start:] for start in range(length)), strict=False)) for length in range(1, _LONGEST + 1)
    ]


def surface_diversity(texts: Sequence[str]) -> float | None:
    """D_surf: 1 minus the mean `bleu_4` over ordered pairs of the texts; None below two. 0: all are the same."""
    pairs = list(permutations(texts, 2))
    return 1 - math.fsum(bleu_4(one, other) for one, other in pairs) / len(pairs) if pairs else None


def semantic_diversity(vectors: Float64) -> float | None:
    """D_sem: the mean cosine distance over pairs of texts, from the vector of each, [K, width]; None below two.

    Raises `ValueError` for a vector of zeros, which has no direction.
    """
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    if not np.all(lengths > 0):
        raise ValueError("a text's vector has no direction: it must not be zero, nor NaN")
    if (texts := len(vectors)) < 2:
        return None
    cosines = (vectors / lengths) @ (vectors / lengths).T
    return 1 - float(cosines[~np.eye(texts, dtype=bool)].mean())


def wording(text: str) -> str:
    """The text without case, punctuation, symbols and white space: equal for methods that are literally the same."""
    return "".join(letter for letter in text.casefold() if unicodedata.category(letter)[0] in "LMN")


def has_duplicate(methods: Sequence[str]) -> bool:
    """Whether two are the same but for case, punctuation and white space. The mean over plans is the duplicate rate.

    In programs punctuation matters: compare their canonical forms instead.
    """
    return len(set(map(wording, methods))) < len(methods)


ENCODER = "sentence-transformers/all-mpnet-base-v2"
_MOST_TOKENS = 384  # the encoder was tuned for so many; the rest of a text is left out
_AT_ONCE = 32


class SentenceEncoder:
    """Mean pooling over a Hugging Face encoder, on the CPU: texts as vectors by their meaning, for D_sem."""

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
