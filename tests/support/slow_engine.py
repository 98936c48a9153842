"""vLLM with a pause before each of its steps, so that weights come while it samples."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from raypoly.rollouts.engines import More, Sample, SampleRequest
from raypoly.rollouts.engines.vllm_engine import VllmEngine


class SlowEngine(VllmEngine):
    def sample(self, requests: Sequence[SampleRequest], more: More | None = None) -> Iterator[tuple[int, list[Sample]]]:
        def slowly(wait: bool) -> Sequence[SampleRequest] | None:
            time.sleep(0.1)
            if more is not None:
                return more(wait)
            return None if wait else ()

        return super().sample(requests, slowly)
