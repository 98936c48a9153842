"""What short runs share; and no test leaves a driver or a shared judge behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from raypoly.run.store import Lease, Store, acquire_lease, open_store
from tests.support.driver_process import Driver
from tests.support.local_driver import SMALL, LocalDriver
from tests.support.ray_machines import Machines


@pytest.fixture(autouse=True)
def _no_driver_is_left_running(request: pytest.FixtureRequest) -> Iterator[None]:
    machines = request.getfixturevalue("machines") if "machines" in request.fixturenames else None
    yield
    for left in list(Driver.alive):
        left.kill()
    while machines is not None and machines.kill_actor("judge"):
        pass  # one that jobs share stays for a quarter of an hour, and the next test may wait for its end


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "run")


@pytest.fixture
def lease(store: Store) -> Lease:
    return acquire_lease(store, "test")


@pytest.fixture(scope="package")
def machines() -> Iterator[Machines]:
    """A Ray cluster for many drivers: one that is started for each costs more than the runs. Tests elsewhere, some of
    which kill all that is below their process, never meet it."""
    with Machines(partitions=False) as running:
        yield running


@pytest.fixture
def joined(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process trains, it trains on that cluster."""
    monkeypatch.setenv("RAY_ADDRESS", machines.address)


@pytest.fixture(scope="session")
def small_run(warm_model: Path) -> list[str]:
    """A short run's overrides."""
    return [*SMALL, f"model.path={warm_model}", "generator.engine=transformers"]


@pytest.fixture(scope="package")
def reference(machines: Machines, small_run: list[str], tmp_path_factory: pytest.TempPathFactory) -> LocalDriver:
    """The short run, finished and undisturbed: leave it as it is."""
    run = LocalDriver(tmp_path_factory.mktemp("reference") / "run", small_run, {"RAY_ADDRESS": machines.address})
    assert run.finish() == 0, run.log()
    assert len(set(run.digests())) == 5, "training must change the weights, or there is nothing to compare"
    return run
