"""A model for all engines here."""

from pathlib import Path

import pytest

from tests.support.random_model import random_model


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights. No test writes to it."""
    return random_model(tmp_path_factory.mktemp("model"))
