"""A verdict that stays unknown is asked for again at once."""

import pytest

from raypoly.integrations import one_response


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_response, "PAUSE_SECONDS", 0)
    monkeypatch.delenv("RAYPOLY_SERVE_URL", raising=False)
