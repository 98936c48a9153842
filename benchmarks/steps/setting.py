"""The setting that all arms of `benchmarks.step` share.

setting_of(None)                # the tiny model and puzzles
setting_of("smollm2-q4")        # a language model and the plain tasks
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.core.gguf_models import GgufModel

_PUZZLES = ProblemsConfig.model_validate({"budgets": False})


@dataclass(frozen=True)
class Setting:
    """Of a step: the sizes and rates of configs/tiny.yaml."""

    model: Path
    problems: ProblemsConfig = _PUZZLES
    prompts: int = 20
    rollouts: int = 8
    max_tokens: int = 56
    max_prompt_tokens: int = 136
    temperature: float = 1.0
    lr: float = 3e-4
    workers: int = 2
    """Sandboxes."""
    dtype: str = "float32"
    """raypoly's `model.dtype`."""
    threads: int = 1
    """Compute threads of raypoly's engine and of its learner, in processes of their own. Each side's update has so many
    too."""
    trl_threads: int = 1
    """Compute threads of TRL's one process in a step."""
    trl_dtype: str = "float32"
    """A name of `benchmarks.steps.trl.DTYPES`."""
    token_budget: int = 2048
    """`train.token_budget`: tokens in one of raypoly's micro-batches."""
    cache_gib: float = 1.0
    """`generator.memory_gib`, of raypoly's engine."""
    trl_rows: int = 160
    """Rows in one of TRL's micro-batches."""
    trl_graders: tuple[str, ...] = ("sandboxes", "forks")
    rounds: int = 7
    warm_up: int = 2
    step_target: float = 2.0
    """How many times as fast as TRL's a step is asked to be."""
    update_target: float = 1.5

    @property
    def sequences(self) -> int:
        return self.prompts * self.rollouts


def setting_of(model: str | None) -> Setting:
    """The setting of the tiny model (None, or its folder), or of a language model: one with a chat template, given as a
    folder, a GGUF file or a packaged file's name. Raises `UsageError` where it is none of these."""
    from transformers import AutoTokenizer

    from tests.support.warm_model import cached_warm_model

    if model is None:
        return Setting(cached_warm_model())
    gguf = GgufModel.find(model, "--model")
    folder = Path(model) if gguf is None else gguf.folder(lambda text: print(text, file=sys.stderr))
    if not folder.is_dir():
        raise UsageError(f"--model={model} is no folder: give a Hugging Face folder, a .gguf file or smollm2-q4.")
    if AutoTokenizer.from_pretrained(folder).chat_template is None:
        return Setting(folder)
    return Setting(
        folder,
        ProblemsConfig.model_validate({"source": "tasks", "template": "chat", "chat_template": str(folder)}),
        prompts=8,
        max_tokens=160,
        max_prompt_tokens=384,
        temperature=0.8,
        lr=1e-5,
        dtype="bfloat16",
        threads=2,
        trl_threads=2,
        trl_dtype="bfloat16",
        token_budget=1024,  # some 0.9 GiB less for 3 % of the time
        cache_gib=0.5,  # the 64 responses have 0.4 at most
        trl_rows=8,
        trl_graders=("sandboxes",),
        rounds=3,
        warm_up=1,
        step_target=1.5,
        update_target=2.0,
    )
