"""An engine that hangs, in Python or in C code that holds the interpreter. Its model folder says how often."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from raypoly.core.config import GeneratorConfig
from raypoly.core.values import Float32, Int32
from raypoly.rollouts.engines import Sample, SampleRequest, Weights

HANGS, IN_C = "hangs", "hangs-in-c"


def hang(folder: Path, times: int, in_c: bool = False) -> None:
    """Make the engine of this model hang `times` times, after its first group."""
    (folder / HANGS).write_text(str(times))
    if in_c:
        (folder / IN_C).touch()


class HangingEngine:
    def __init__(self, model_path: Path, config: GeneratorConfig, dtype: str) -> None:
        self._folder = model_path

    def sample(self, requests: Sequence[SampleRequest]) -> Iterator[tuple[int, list[Sample]]]:
        for request in requests:
            yield request.slot, [_sample() for _ in request.seeds]
            left = int((self._folder / HANGS).read_text())
            if left:
                (self._folder / HANGS).write_text(str(left - 1))
                if (self._folder / IN_C).exists():
                    time.sleep(2)  # long enough for a pulse to be felt
                    while True:
                        ctypes.PyDLL(None).sleep(3600)
                time.sleep(3600)

    def update_weights(self, weights: Weights) -> None:
        pass

    def prompt_logprobs(self, tokens: Int32) -> Float32:
        return np.zeros(len(tokens) - 1, np.float32)


def _sample() -> Sample:
    return Sample(np.array([1, 2], np.int32), np.zeros(2, np.float32), "stop")
