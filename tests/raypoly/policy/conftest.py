"""What other tests of the same process may have left behind."""

import pytest


@pytest.fixture(autouse=True)
def compilation_is_not_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an engine of vLLM's does for its own process, which on a CPU is this one."""
    monkeypatch.delenv("TORCHDYNAMO_DISABLE", raising=False)
