"""A run joins the cluster of `RAY_ADDRESS`, or says in one sentence that there is none."""

import socket
from pathlib import Path
from typing import Any

import pytest
import ray

from raypoly.core.config import Config
from raypoly.core.errors import RaypolyError
from workflows.startup.ray_cluster import connect_ray, local_ray, user_modules


def test_an_address_where_nothing_listens_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and nobody listens
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{bound.getsockname()[1]}")
        with (
            pytest.raises(RaypolyError, match=r"No Ray cluster answers at RAY_ADDRESS=.*refused.*: start it, correct"),
            connect_ray(Config(), "nowhere"),
        ):
            pass


def test_modules_of_an_ensembles_judges_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_members.py").write_text("class Mine: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    judge = {"name": "ensemble", "members": ["structural", "own_members:Mine"]}
    assert user_modules(Config.model_validate({"judge": judge})) == [str(tmp_path / "own_members.py")]


def test_a_dashboards_address_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:8265")
    with (
        pytest.raises(
            RaypolyError, match=r"^RAY_ADDRESS=http\S+ is a dashboard's.*: put `ray job submit .*HOST:6379\)\.$"
        ),
        connect_ray(Config(), "nowhere"),
    ):
        pass


@pytest.mark.parametrize(
    ("failure", "tried"),
    [
        ("The last 20 lines of /tmp/x/logs/dashboard.log (it contains the error): ", [True, False]),
        ("GCS process failed to start", [True, True, True]),
    ],
)
def test_ray_starts_without_a_dashboard_that_fails(
    failure: str, tried: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def init(include_dashboard: bool, **_: Any) -> None:
        seen.append(include_dashboard)
        if include_dashboard:
            raise Exception(failure)  # Ray raises a bare one

    monkeypatch.setattr(ray, "init", init)
    if tried[-1]:
        with (
            pytest.raises(RaypolyError, match="Ray did not start on this machine: GCS"),
            local_ray(include_dashboard=True),
        ):
            pass
    else:
        with local_ray(include_dashboard=True):
            pass
    assert seen == tried
