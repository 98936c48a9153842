"""A model for all tests here, and what other tests of the same process may have left behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.support.random_model import random_model
from tests.support.rank_processes import RankProcesses


@pytest.fixture(autouse=True)
def compilation_is_not_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an engine of vLLM's does for its own process, which on a CPU is this one."""
    monkeypatch.delenv("TORCHDYNAMO_DISABLE", raising=False)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As a learner has: threads that wait for each other on a busy machine take a hundred times a tiny model's time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights. No test writes to it."""
    return random_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="package")
def together() -> Iterator[RankProcesses]:
    with RankProcesses() as running:
        yield running
