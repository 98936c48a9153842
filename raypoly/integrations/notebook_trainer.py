"""Training from a notebook: the command `raypoly train`, with parts and problems of the notebook itself.

    run = Trainer("tiny", reward=my_reward, objective=MyObjective, train={"steps": 20}).train()
    run.summary["evaluations"]

Run the same cell again, and a run that was stopped or killed goes on; a finished one is only read.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from threading import Thread
from typing import IO, Any

from raypoly.algorithms.objectives import KNOWN as OBJECTIVES
from raypoly.algorithms.objectives import Objective
from raypoly.analysis.run import Run
from raypoly.core.config_keys import flatten_keys
from raypoly.core.errors import RaypolyError, UsageError
from raypoly.core.plugins import made_folder
from raypoly.core.values import Problem
from raypoly.core.whole_files import write_output
from raypoly.data import KNOWN as SOURCES
from raypoly.data.formats.long_integers import dumps
from raypoly.data.formats.raypoly_rows import row_of
from raypoly.integrations.by_value import module_of
from raypoly.integrations.in_process import problems_of
from raypoly.planning.run_config import load_run_config
from raypoly.run.run_identity import resolve_run, storage_options

# The kernel kills it where this process dies: nothing committed is lost, and the cell can be run again at once.
_CHILD = """
import ctypes, runpy, signal
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
runpy.run_module("raypoly.cli", run_name="__main__", alter_sys=True)
"""


class Trainer:
    """One run. It trains in a process of its own, which ends with this one; Ctrl-C stops it after its commit."""

    def __init__(
        self,
        model: str | Path | Mapping[str, Any] = "tiny",
        problems: str | Path | Iterable[Problem | Mapping[str, Any]] | Mapping[str, Any] | None = None,
        reward: str | Callable[..., float] | Mapping[str, Any] | None = None,
        objective: str | type[Objective] | Objective | Mapping[str, Any] | None = None,
        config: str | Path = "tiny",
        **overrides: Any,
    ) -> None:
        """`model`: `tiny`, or as `model.path`. `problems`: rows, a file or a folder, or a source such as `tasks`.

        `config`: what the rest is taken from, a file or one of raypoly's by name; `overrides`: its sections, such as
        `train={"steps": 20}`; the first four may be sections too. `reward`, `objective` and the values of sections may
        be functions and classes of the notebook. Raises `UsageError`, with nothing started.
        """
        named = {"model": _model_keys, "reward": _reward_keys, "objective": _objective_keys, "problems": _problem_keys}
        values: dict[str, Any] = {"model": model, "reward": reward, "objective": objective, "problems": problems}
        given = dict[str, Any]()
        for section, value in values.items():
            whole = isinstance(value, Mapping)
            given |= flatten_keys(value, f"{section}.") if whole else named[section](value)
        given |= flatten_keys(overrides)
        self.overrides = [f"{key}={_value(key, value)}" for key, value in given.items()]
        """As on the command line."""
        self._config = str(config)
        self._directory = resolve_run(load_run_config(self._config, self.overrides))

    @property
    def command(self) -> str:
        """What does the same in a shell of this machine."""
        return shlex.join(["raypoly", *self._arguments])

    @property
    def _arguments(self) -> list[str]:
        return ["train", "--config", self._config, *self.overrides]

    def train(self) -> Run:
        """Train to the end, or go on, and print what the command prints. Raises `UsageError` and `RaypolyError`."""
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", _CHILD, *self._arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # an interrupt of the notebook's whole group reaches it through this process alone
        )
        said, interrupted = list[str](), False
        assert process.stdout is not None
        assert process.stderr is not None
        reader = Thread(target=_relay, args=(process.stderr, said, sys.stderr), daemon=True)
        reader.start()
        with process:
            while True:
                try:
                    _relay(process.stdout, [], sys.stdout)
                    process.wait()
                    break
                except KeyboardInterrupt:  # the first commits what is done, a second one ends it at once
                    interrupted = True
                    process.send_signal(signal.SIGINT)
            reader.join()
        if interrupted:
            raise KeyboardInterrupt("The run was stopped. Run the cell again, and it goes on.")
        if process.returncode:
            kind = UsageError if process.returncode == UsageError.exit_code else RaypolyError
            raise kind("".join(said[-5:]).strip() or f"{self.command} ended with {process.returncode}.")
        return Run(self._directory.location, storage_options(self._directory.config))


def _relay(lines: IO[str], kept: list[str], out: Any) -> None:
    for line in lines:
        kept.append(line)
        print(line, end="", file=out, flush=True)


def _model_keys(model: Any) -> dict[str, Any]:
    return {} if str(model) == "tiny" else {"model.path": str(model)}


def _reward_keys(reward: Any) -> dict[str, Any]:
    return {} if reward is None else {"reward.name": reward}


def _problem_keys(problems: Any) -> dict[str, Any]:
    if problems is None:
        return {}
    if isinstance(problems, str) and problems in SOURCES and not Path(problems).exists():
        return {"problems.source": problems}
    if not isinstance(problems, str | Path):
        problems = _file_of(problems)
    return {"problems.source": "jsonl", "problems.path": str(problems)}


def _file_of(problems: Iterable[Problem | Mapping[str, Any]]) -> Path:
    """Rows in a file whose name is their hash."""
    content = "".join(f"{dumps(row_of(problem))}\n" for problem in problems_of(problems)).encode()
    place = made_folder() / f"problems-{hashlib.sha256(content).hexdigest()[:16]}.jsonl"
    if not place.exists():
        write_output(place, content)
    return place


def _objective_keys(objective: Any) -> dict[str, Any]:
    if not isinstance(objective, Objective):
        return {} if objective is None else {"objective.name": objective}
    kind = type(objective)
    shipped = {place: name for name, place in OBJECTIVES.items()}
    parameters = objective.config.model_dump(exclude_unset=True)
    name = shipped.get(f"{kind.__module__}:{kind.__qualname__}", kind)
    return {"objective.name": name} | {f"objective.{key}": value for key, value in parameters.items()}


def _value(key: str, value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(key, item) for item in value)}]"
    part = module_of(value, key.partition(".")[0]) if callable(value) else value
    return json.dumps(str(part) if isinstance(part, Path) else part)
