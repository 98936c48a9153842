"""A run joins the cluster of `RAY_ADDRESS`, or says in one sentence that there is none."""

import socket

import pytest

from raypoly.config import Config
from raypoly.errors import RaypolyError
from workflows.startup.ray_cluster import connect_ray


def test_an_address_where_nothing_listens_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and nobody listens
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{bound.getsockname()[1]}")
        with (
            pytest.raises(RaypolyError, match=r"No Ray cluster answers at RAY_ADDRESS=.*refused.*: start it, correct"),
            connect_ray(Config(), "nowhere"),
        ):
            pass
