"""Hosts that misbehave, and what a run on them does: `python -m benchmarks.hosts`."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from raypoly.run.store.lease import is_alive

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_REGION": "us-east-1"}
"""Of the S3 that a benchmark has, as environment variables."""
_PLACE, _PREFIX = Path("/var/tmp"), "raypoly-hosts-"  # each host has its own /tmp


@contextlib.contextmanager
def hosts_folder() -> Iterator[str]:
    """A folder that all hosts see. Those of killed harnesses go."""
    for old in _PLACE.glob(f"{_PREFIX}*"):
        pid = old.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and not is_alive(int(pid)):
            shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", dir=_PLACE) as folder:
        yield folder
