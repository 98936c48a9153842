"""What several packages' tests share."""

import signal
from pathlib import Path

import pytest

from tests.raypoly.tiny_model import warm_model as build_warm_model

# A shell that runs the tests in its background ignores Ctrl-C, and so would every command that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def warm_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder whose samples have mixed rewards and several strategies, so that training changes it."""
    return build_warm_model(tmp_path_factory.mktemp("warm") / "model")
