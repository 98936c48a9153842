"""One browser for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.chromium import Chromium


@pytest.fixture(scope="module")
def opened() -> Iterator[Chromium]:
    with Chromium() as browser:
        yield browser
