"""The model of a gate: the probabilities of two words after a plan (arXiv 2605.27000, equation 9).

    model = GateModel(folder, GateQuestion.of(tokenizer))
    model.ask(problem, ["A: Sort it.\\nB: Use a heap."])     # p and mass of each plan

    p = P(pass) / (P(pass) + P(fail))        mass = P(pass) + P(fail)

It is trained by the cross-entropy of the right word alone (scaffold `given`, objective `supervised`). For the word's
first token that is BCE - log(mass): with P(pass) = p mass, -log P(word) = -log p(word) - log(mass). So it learns p, and
to say one of the two words. The loss of the tokens after it depends on no label, and soon is near zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from scipy.special import expit
from transformers import AutoModelForCausalLM, AutoTokenizer

from raypoly.core.values import Problem
from raypoly.recipes.cppo.gate_question import GateAnswers, GateQuestion


class GateModel:
    def __init__(self, folder: Path, question: GateQuestion, on_answer: Callable[[], None] = lambda: None) -> None:
        self._question, self._on_answer = question, on_answer
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self._model = model.to(self._device).eval()
        self._words = torch.tensor(question.first_tokens, device=self._device)

    @classmethod
    def load(
        cls,
        folder: Path,
        words: Sequence[str],
        template: str,
        on_answer: Callable[[], None] = lambda: None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Self:
        """The model of a folder with its own tokenizer. Raises `UsageError` as `GateQuestion.of`."""
        tokenizer = AutoTokenizer.from_pretrained(folder)
        return cls(folder, GateQuestion.of(tokenizer, words, template, f"The gate {folder}", kwargs), on_answer)

    def ask(self, problem: Problem, plans: Sequence[str]) -> GateAnswers:
        """`on_answer` is called after each plan."""
        # one plan at a time, in float32: an answer must not depend on what else is asked
        logp = np.array([self._word_logprobs(problem, plan) for plan in plans], np.float64).reshape(-1, 2)
        return GateAnswers(expit(logp[:, 0] - logp[:, 1]), np.exp(logp).sum(axis=1))

    @torch.inference_mode()
    def _word_logprobs(self, problem: Problem, plan: str) -> list[float]:
        ids = torch.tensor([self._question.tokens(problem, plan)], device=self._device)
        logits = self._model(ids, use_cache=False, logits_to_keep=1).logits[0, -1]
        found: list[float] = logits.double().log_softmax(dim=-1)[self._words].tolist()
        self._on_answer()
        return found
