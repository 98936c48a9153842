"""The teacher of a distillation: log-probabilities of a student's tokens under a frozen model.

teacher = TeacherModel(folder, spec, on_answer)
teacher.ask([(prompt_tokens, tokens), ...])          # float32 [T] each, at the student's temperature
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from raypoly.core.config import Config, GeneratorConfig
from raypoly.core.errors import UsageError
from raypoly.core.values import Float32, Int32

Pair = tuple[Int32, Int32]
"""A prompt and a response, in tokens."""


def check_tokenizers(student: Any, teacher: Any, name: str) -> None:
    """Raise `UsageError` where a token of the student's tokenizer is another one, or not there, in the teacher's. Sizes
    may differ: rows beyond the last token are padding."""
    own, other = student.get_vocab(), teacher.get_vocab()
    special, theirs = (_special(tokenizer) for tokenizer in (student, teacher))
    apart = [token for token, number in own.items() if other.get(token) != number]
    apart = apart or [token for token in special if token not in theirs]
    if apart:
        token = min(apart, key=lambda each: own.get(each, 0))
        there = f"number {other[token]}" if token in other else "not there"
        there = "no special token" if other.get(token) == own.get(token) else there
        raise UsageError(
            f"distill.teacher={name} has another tokenizer than the student: the student's token {own.get(token)} is "
            f"{token!r}, which is {there} in the teacher's. Take a teacher of the same family."
        )


def _special(tokenizer: Any) -> set[str]:
    return {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}


@dataclass(frozen=True)
class TeacherSpec:
    """How a teacher computes; travels to its actor."""

    bf16: bool
    temperature: float
    token_budget: int
    logits_mib: int
    engine: GeneratorConfig | None = None
    """Of the engine that holds it; None: the learner's code does."""

    @classmethod
    def of(cls, config: Config) -> Self:
        distill, train = config.distill, config.train
        generator = config.generator.model_copy(update={"gpu_memory_fraction": distill.gpu_memory_fraction})
        return cls(
            (distill.dtype or config.model.dtype) == "bfloat16",
            config.generator.temperature,
            train.token_budget,
            train.logits_mib,
            generator if distill.placement == "engine" else None,
        )

    def __call__(self, folder: Path, on_answer: Callable[[], None]) -> Any:
        """The teacher, in the actor."""
        if self.engine is not None:
            return EngineTeacher(folder, self, on_answer)
        return TeacherModel(folder, self, on_answer)


class TeacherModel:
    """By the learner's packed rows."""

    def __init__(self, folder: Path, spec: TeacherSpec, on_answer: Callable[[], None]) -> None:
        import torch

        from raypoly.learner.policy_model import load_model
        from raypoly.learner.ranks import device

        self._spec, self._on_answer = spec, on_answer
        self._model = load_model(folder, torch.device("cpu"), spec.bf16).requires_grad_(False)
        if spec.bf16:  # on the host, since both kinds would not fit; buffers, such as rotary frequencies, stay exact
            for parameter in self._model.parameters():
                parameter.data = parameter.data.to(torch.bfloat16)
        self._model = self._model.to(device())

    def ask(self, pairs: Sequence[Pair]) -> list[Float32]:
        import torch

        from raypoly.learner.packing import RankPartitioner, compute_logprobs
        from raypoly.learner.policy_model import is_packed
        from raypoly.learner.ranks import ONE

        partition = RankPartitioner(self._spec.token_budget, padded=not is_packed(self._model))
        found = compute_logprobs(pairs, partition, ONE, self._logprobs)
        if self._model.device.type == "cuda":
            torch.cuda.empty_cache()  # the learner is next on this device
        return found

    def _logprobs(self, rows: Any) -> Float32:
        import torch

        from raypoly.learner.logit_chunks import chunk_on
        from raypoly.learner.packing import pack
        from raypoly.learner.policy_model import forward

        spec = self._spec
        chunk_mib = chunk_on(self._model.device.type, spec.logits_mib)
        with torch.no_grad():
            logp_T = forward(self._model, pack(rows), spec.temperature, spec.bf16, chunk_mib).logp_T
        self._on_answer()
        out: Float32 = logp_T.cpu().numpy().astype(np.float32)
        return out


class EngineTeacher:
    """By an engine, one sequence after the other, before temperature."""

    def __init__(self, folder: Path, spec: TeacherSpec, on_answer: Callable[[], None]) -> None:
        from raypoly.rollouts.engines import build

        assert spec.engine is not None
        self._on_answer = on_answer
        self._engine = build(folder, spec.engine, "bfloat16" if spec.bf16 else "float32")

    def ask(self, pairs: Sequence[Pair]) -> list[Float32]:
        found = []
        for prompt, tokens in pairs:
            logprobs = self._engine.prompt_logprobs(np.concatenate([prompt, tokens]))
            found.append(logprobs[len(logprobs) - len(tokens) :])
            self._on_answer()
        return found
