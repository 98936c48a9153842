"""What several packages' tests share."""

import asyncio
import inspect
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.immediate_exit import exit_now

# A shell that runs the tests in its background ignores Ctrl-C, and so would every command that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine may be busy: nothing is measured by its clock.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


BESIDE_RAY = (
    *("test_journal_crashes", "test_shards", "test_storage_requests"),
    *("test_ray_job", "test_shutdown"),
)
"""Long tests of workflows that need no Ray, or start one of their own in another process, so that they can run beside
those that share one."""
STARTS = ("cppo", "doctor", "observers", "prepare", "startup")
"""Folders of workflows whose tests share one Ray; the others share another, and take as long."""
RAY_GROUPS = ("actors", "workflows", "runs")
GROUP = re.compile(r"@\w+$")


@pytest.fixture(scope="session")
def warm_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder whose samples have mixed rewards and several strategies, so that training changes it.

    It takes a minute: xdist's workers make one together.
    """
    from filelock import FileLock

    from tests.support.warm_model import warm_model as build_warm_model  # brings torch, which few tests need

    own = tmp_path_factory.getbasetemp()
    model = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "warm-model"
    with FileLock(f"{model}.lock"):
        if not model.is_dir():
            build_warm_model(model.with_suffix(".part")).rename(model)
    return model


@pytest.fixture(autouse=True)
def _no_recursion_limit_is_left_to_the_next() -> Iterator[None]:
    """Preludes and compilers raise it; a program that never ends would then overflow this process's stack."""
    before = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(before)


@pytest.hookimpl(tryfirst=True)  # before xdist looks at groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `-n`, tests that share a Ray stay in one process, as do those of a file, whose fixtures are made once.

    The groups with a Ray are long: they come first, and those of files fill up what they leave idle.
    """
    groups = {item: _group_of(item.path) for item in items}
    items.sort(key=lambda item: groups[item] not in RAY_GROUPS)
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))


def _group_of(path: Path) -> str:
    package, *folders = path.relative_to(Path(__file__).parent).parts
    if package not in ("actors", "workflows") or path.stem in BESIDE_RAY:
        return path.stem
    return package if package == "actors" or folders[0] in STARTS else "runs"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in arguments}))
    return True


_ended, _crashed = pytest.StashKey[int](), pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)  # before the cache notes what failed
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test is named without its group, which xdist appends: or no test of a group is found for its second try."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        report.nodeid = GROUP.sub("", report.nodeid)


@pytest.hookimpl(optionalhook=True)  # xdist's
def pytest_testnodedown(node: Any, error: Any) -> None:
    if error:
        node.config.stash[_crashed] = True


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if session.config.stash.get(_crashed, False):  # not all tests ran: no second try of those that failed may pass
        session.exitstatus = exitstatus = pytest.ExitCode.INTERRUPTED
    session.config.stash[_ended] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave with the tests' own result: a thread of Ray's may outlive its shutdown and crash a dying interpreter."""
    if "ray" in sys.modules and _ended in config.stash:
        sys.stdout.flush()
        sys.stderr.flush()
        exit_now(config.stash[_ended])


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server of the test's own, so that no late request of another's reaches it; its credentials are set."""
    from tests.support.s3_server import s3_server  # a second of imports that few tests need

    with s3_server() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server
