"""Metric sinks (loggers): metrics.jsonl always, TensorBoard and Weights & Biases where the config asks for them.

    sinks = open_sinks(config, run_dir)
    sinks.log(row); sinks.log_evaluation(results); sinks.close()

A step that is replayed after a crash is not written twice, but for one that was cut off between two sinks. Evaluations
go to the boards (TensorBoard, Weights & Biases) alone.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import logging
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from raypoly.core.config import Config
from raypoly.core.errors import RaypolyError, StorageError, UsageError
from raypoly.core.settings import dump
from raypoly.run.store.store import Store

logger = logging.getLogger(__name__)

METRICS = "metrics.jsonl"
TENSORBOARD = "tensorboard/"
MEASURES = "objective/"
"""Prefix of an objective's own measures in rows."""
WANDB_SECRETS = ("WANDB_API_KEY",)
_EVERY = 15.0
_SHARE = 20  # copying takes at most 1/20 of the time
_STRATEGIES = ("strategies_correct", "strategies_correct_judge", "strategies_correct_structural")
_EVALUATED = (*_STRATEGIES, "behaviours", "truncated", "no_code")


class Sink(Protocol):
    """Takes the row of each step, in order."""

    def log(self, row: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...


class Sinks:
    """Several sinks as one."""

    def __init__(self, sinks: Sequence[Sink], boards: Sequence[Sink] = (), last_step: int = -1) -> None:
        """`boards` take evaluations, too, but nothing up to `last_step`, which an earlier start has logged."""
        self._sinks, self._boards, self._last_step = sinks, boards, last_step

    def log(self, row: Mapping[str, Any]) -> None:
        self._log_to_boards(row)  # first: a kill between two repeats a board's row, and loses none
        for sink in self._sinks:
            sink.log(row)

    def log_evaluation(self, results: Mapping[str, Any]) -> None:
        """Log results under their split's name: `test/pass@8`. Comes before the row of the same step."""
        self._log_to_boards({"step": results["step"], results["split"]: evaluation_numbers(results)})

    def _log_to_boards(self, row: Mapping[str, Any]) -> None:
        if int(row["step"]) > self._last_step:
            for board in self._boards:
                board.log(row)

    def close(self) -> None:
        with ExitStack() as stack:
            for sink in (*reversed(self._sinks), *reversed(self._boards)):
                stack.callback(sink.close)


def open_sinks(config: Config, run_dir: Path, more: Sequence[Sink] = (), run_id: str | None = None) -> Sinks:
    """The sinks that the config asks for, then `more`.

    `run_dir`: a folder of this machine, named like the run. `run_id`: W&B's id; default: the folder's name. Raises
    `UsageError` where a package is missing or W&B can't be used.
    """
    check_packages(config)
    metrics = MetricsFile(run_dir / METRICS)
    boards: list[Sink] = []
    if config.run.tensorboard:
        boards.append(TensorBoard(run_dir / TENSORBOARD))
    if config.run.wandb_project is not None:
        boards.append(WeightsAndBiases(config, run_dir, run_id or run_dir.name))
    return Sinks([metrics, *more], boards, metrics.last_step)


def check_packages(config: Config) -> None:
    """Raise `UsageError` where a sink is asked for whose package is not installed."""
    wanted = {"run.tensorboard": ("tensorboardX", config.run.tensorboard)}
    wanted["run.wandb_project"] = ("wandb", config.run.wandb_project is not None)
    for key, (package, asked) in wanted.items():
        if asked and importlib.util.find_spec(package) is None:
            raise UsageError(f"{key} needs the package {package}, which is not installed: pip install {package}.")


def evaluation_numbers(results: Mapping[str, Any]) -> dict[str, float]:
    """Numbers of an evaluation (`pass@8`, `strategies_correct`), without those that it did not measure."""
    curve = {f"pass@{k}": value for k, value in results["pass_at_k"].items()}
    return flatten({**curve, **{name: results.get(name) for name in _EVALUATED}})


def flatten(row: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The finite numbers of a row, nested ones as `seconds/generate`."""
    flat: dict[str, float] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}/"))
        elif isinstance(value, int | float) and math.isfinite(value):
            flat[prefix + key] = float(value)
    return flat


class MetricsFile:
    """Sink of one JSON line a step.

    A start logs every completed step again. Equal lines stay; at the first one that differs, or is torn or damaged, the
    file is cut off, and the logged rows are appended.
    """

    def __init__(self, path: Path) -> None:
        try:
            content = path.read_bytes() if path.exists() else b""
            self._lines = _sound_lines(content)
            self._file = path.open("ab", buffering=0)  # a failed write must not be repeated by close()
            self._file.truncate(sum(map(len, self._lines.values())))
        except OSError as error:
            raise StorageError(f"{path} can't be written: {error}.") from error
        self.last_step = max(self._lines, default=-1)

    def log(self, row: Mapping[str, Any]) -> None:
        step, line = int(row["step"]), _line(row)
        if self._lines.get(step) == line:
            return
        try:
            if step <= self.last_step:
                self._lines = {known: text for known, text in self._lines.items() if known < step}
                self._file.truncate(sum(map(len, self._lines.values())))
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise StorageError(
                f"{self._file.name} could not be written ({error.strerror}); free some space and run the same command "
                "again."
            ) from error
        self._lines[step] = line
        self.last_step = step

    def close(self) -> None:
        self._file.close()


def _sound_lines(content: bytes) -> dict[int, bytes]:
    """The lines, by step, up to the first that is torn, no row, or out of order."""
    lines: dict[int, bytes] = {}
    last = -1
    for line in content.splitlines(keepends=True):
        try:
            step = int(json.loads(line)["step"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return lines
        if not line.endswith(b"\n") or step <= last:
            return lines
        lines[step] = line
        last = step
    return lines


def _line(row: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(row, allow_nan=False)
    except (TypeError, ValueError):  # the row has a value that JSON can't hold
        text = json.dumps(_plain(row))
    return text.encode() + b"\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


class TensorBoard:
    """Scalars under the names of `flatten`."""

    def __init__(self, folder: Path) -> None:
        from tensorboardX.event_file_writer import EventsWriter  # a `FileWriter` keeps rows in memory for 120 s

        self._folder = folder
        with self._in_one_sentence():
            folder.mkdir(parents=True, exist_ok=True)
            # The file's own name counts whole seconds: a quick second start would write over the first's.
            self._writer = EventsWriter(str(folder / "events"), f".{time.time_ns()}")

    def log(self, row: Mapping[str, Any]) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary  # its `add_scalar` would turn pass@8 into pass_8

        values = [Summary.Value(tag=name, simple_value=value) for name, value in flatten(row).items()]
        with self._in_one_sentence():
            self._writer.write_event(Event(wall_time=time.time(), step=int(row["step"]), summary=Summary(value=values)))
            self._writer.flush()

    def close(self) -> None:
        with self._in_one_sentence():
            self._writer.close()

    @contextmanager
    def _in_one_sentence(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(f"{self._folder} can't be written: {error}.") from error


class WeightsAndBiases:
    """One W&B run for all starts of a run, under the names of `flatten`."""

    def __init__(self, config: Config, run_dir: Path, run_id: str) -> None:
        import wandb

        try:
            self._run = wandb.init(
                project=config.run.wandb_project,
                id=run_id,
                name=run_dir.name,
                resume="allow",
                dir=str(run_dir),
                config={"yaml": dump(config), **config.model_dump(mode="json")},
            )
        except wandb.errors.Error as error:
            why = " ".join(str(error).split()).rstrip(".")
            raise UsageError(
                f"run.wandb_project={config.run.wandb_project}: W&B can't be used ({why}): log in by `wandb login`, "
                "set the variable WANDB_MODE=offline, or leave the key out."
            ) from error
        # W&B's own step must rise with each line, and an evaluation has the step of the row behind it.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def log(self, row: Mapping[str, Any]) -> None:
        self._run.log(flatten(row))

    def close(self) -> None:
        self._run.finish()


class Mirror:
    """Sink that copies files that grow (metrics.jsonl, TensorBoard's) to remote storage, some seconds behind."""

    def __init__(self, store: Store, file: str, folder: str) -> None:
        """Fetches `file` from the store, to append to it. Of `folder` (ends in a slash) only new files are copied."""
        self._store, self._file, self._folder = store, file, folder
        self._copied: dict[Path, tuple[int, int]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mirror")
        self._running: Future[None] | None = None
        self._next = time.monotonic() + _EVERY
        store.workspace.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(store.workspace / folder, ignore_errors=True)
        target = store.workspace / file
        target.unlink(missing_ok=True)
        if store.exists(file):
            target.write_bytes(store.read(file))
            self._copied[target] = _state(target)

    def log(self, row: Mapping[str, Any]) -> None:
        if time.monotonic() >= self._next and (self._running is None or self._running.done()):
            self._running = self._thread.submit(self._copy)

    def close(self) -> None:
        """Copy the rest. A failure is only logged, since the results are committed."""
        self._thread.submit(self._copy).result()
        self._thread.shutdown()

    def _copy(self) -> None:
        started = time.monotonic()
        try:
            for path in self._files():
                state = _state(path)
                if self._copied.get(path) != state:
                    self._store.put_mutable(path.relative_to(self._store.workspace).as_posix(), path.read_bytes())
                    self._copied[path] = state
        except (RaypolyError, OSError) as error:
            logger.warning("%s could not be copied to %s: %s", self._file, self._store.uri, error)
        took = time.monotonic() - started
        self._next = time.monotonic() + max(_EVERY, _SHARE * took)

    def _files(self) -> Iterator[Path]:
        candidates = (self._store.workspace / self._file, *(self._store.workspace / self._folder).rglob("*"))
        return (path for path in candidates if path.is_file())


def _state(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size
