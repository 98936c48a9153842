"""The shell command that does once more what this process does: "Resume with", "to compare"."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from workflows.liveness.ray_internals import job_runtime_env

_VARIABLES = ("PYTHONPATH", "RAYPOLY_RUNS")


def shell_command(arguments: Sequence[str]) -> str:
    """The command of this Python with `arguments`, and the variables of this start that decide which modules it finds
    and which folder it names. In a Ray job it submits another job, from the first one's folder."""
    job = job_runtime_env()
    if job is not None:
        folder = ["--working-dir", "."] if "working_dir" in job else []
        return shlex.join(["ray", "job", "submit", *folder, "--", "python", *arguments])
    inside = os.path.relpath(sys.executable)  # .venv/bin/python, where it lies below the working directory
    given = (f"{name}={shlex.quote(value)} " for name in _VARIABLES if (value := os.environ.get(name)))
    return "".join(given) + shlex.join([sys.executable if inside.startswith("..") else inside, *arguments])
