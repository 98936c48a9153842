from collections.abc import Iterator

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.verifier.sandbox import Sandbox


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(ScorerConfig(cpu_seconds_per_test=1.0, memory_mib=128), StrategyEvidence()) as sandbox:
        yield sandbox
