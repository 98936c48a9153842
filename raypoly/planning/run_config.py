"""The config of a run, with splits and steps that its problems are enough for.

    config = load_run_config("my.yaml", ["problems.source=jsonl", "problems.path=twelve.jsonl"], note=print)

Where the defaults ask for more problems than there are, the keys that the user did not set scale down: validation and
test have a sixth each, at least one of four problems or more, and a step takes at most all that is left to train on.
The scaled values are the run's own, as if they were given: its identity, its `config.json` and its plan have them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Console

from raypoly.core import settings
from raypoly.core.config import Config
from raypoly.core.errors import RaypolyError
from raypoly.core.progress_display import waiting
from raypoly.core.values import Split

if TYPE_CHECKING:
    from raypoly.data import ProblemSet

MADE = ("puzzles", "tasks")  # sources whose problems are made, and never few
_HELD_OUT: tuple[Split, ...] = ("validation", "test")
_STEP = "train.prompts_per_step"
_Read: TypeAlias = "tuple[ProblemSet, ProblemSet]"  # problems of `problems.source`, and the run's


def load_run_config(
    path: str | None,
    overrides: Sequence[str] = (),
    note: Callable[[str], None] = lambda text: None,
    reader: ProblemReader | None = None,
) -> Config:
    """`settings.load`, with smaller splits and steps where there are too few problems, which `note` reports.

    Keys on the command line, and in a config that is not one of raypoly's own, stay as they are. Problems that can't be
    used are no error here, but of `usable_problems`. `reader`: one for calls whose problems may be the same.

    Raises `UsageError`.
    """
    config = settings.load(path, overrides, note)
    if config.problems.source in MADE:
        return config
    set_here = {text.partition("=")[0].strip() for text in overrides}
    if path is not None and Path(path).exists() and not Path(path).resolve().is_relative_to(settings.CONFIGS):
        set_here |= {f"problems.{name}" for name in config.problems.model_fields_set}
        set_here |= {f"train.{name}" for name in config.train.model_fields_set}
    logging.disable(logging.WARNING)  # what is left out of the problems is logged where the run reads them
    try:
        with waiting("Reading the problems", Console(stderr=True)):
            free = {*(f"problems.{name}" for name in _HELD_OUT), _STEP} - set_here
            return _scaled(config, free, note, reader or ProblemReader())
    finally:
        logging.disable(logging.NOTSET)


def usable_problems(config: Config, resumes: bool, trains: Config | None = None) -> _Read:
    """(problems of `problems.source`, the run's). `trains`: the config whose steps must have enough of them.

    Raises `UsageError` where they can't be read, or the run can't do with them.
    """
    read = _read(config)
    check_problems(read, config, trains, resumes)
    return read


def _read(config: Config) -> _Read:
    # Here and below: a misspelt key is told before pyarrow is imported.
    from raypoly.data import build_problem_set
    from raypoly.rollouts.scaffolds.run_scaffolds import fit_problems

    source = build_problem_set(config.problems)
    return source, fit_problems(source, config)


def check_problems(read: _Read, config: Config, trains: Config | None, resumes: bool) -> None:
    """Raise `UsageError` where the run can't do with what was read: `usable_problems`."""
    from raypoly.data.long_prompts import require_readable
    from raypoly.data.problem_order import require_enough
    from raypoly.planning.canned_rewards import try_rewards
    from raypoly.planning.preflight import require_tests
    from raypoly.rollouts.scaffolds.run_scaffolds import check_first_asks

    source, fitted = read
    check_first_asks(fitted, config)
    require_tests(fitted, config)
    if trains is not None:
        require_enough(fitted.splits["train"], trains)
        try_rewards(config, fitted.splits["train"])
    require_readable(source, fitted, config, resumes)


class ProblemReader:
    """Reads a config's problems, which it keeps until it reads others."""

    def __init__(self) -> None:
        self._last: tuple[str, _Read] | None = None

    def read(self, config: Config) -> _Read:
        """Raises `UsageError`."""
        from raypoly.rollouts.scaffolds import name_of_run

        # what `_read` goes by: the objective may bring the scaffold
        asking = (config.problems, config.scaffold, config.environment)
        given = [section.model_dump_json() for section in asking]
        given.append(config.evaluate.model_dump_json(include={"scaffolds"}))
        key = json.dumps([*given, name_of_run(config)])
        if self._last is None or self._last[0] != key:
            self._last = (key, _read(config))
        return self._last[1]

    def sizes(self, config: Config) -> Mapping[str, int] | None:
        """Problems of each split; None where they can't be read."""
        try:
            splits = self.read(config)[1].splits
        except RaypolyError:
            return None
        return {name: len(splits.get(name, ())) for name in ("train", *_HELD_OUT)}


def _scaled(config: Config, free: Collection[str], note: Callable[[str], None], reader: ProblemReader) -> Config:
    train, found, whole = config.train, reader.sizes(config), None
    if free and (found is None or found["train"] < train.prompts_per_step + train.refill):
        whole = reader.sizes(_with(config, validation=0, test=0))
    if whole is None:
        return config
    count = whole["train"]
    if found is None or found["train"] < count:  # else the source has splits of its own
        found = reader.sizes(config := _with(config, **_held_out(config, count, free)))
        if found is None:
            return config
    step = min(train.prompts_per_step, max(1, found["train"] - train.refill))
    step -= step % min(step, train.mini_batch_prompts or 1)
    told = f"{sum(found.values())} problems: " + ", ".join(f"{size} {name}" for name, size in found.items())
    if step == train.prompts_per_step:
        note(f"{told}.")
    elif _STEP in free:  # else the run is refused
        config = config.model_copy(update={"train": train.model_copy(update={"prompts_per_step": step})})
        note(f"{told}; {step} prompts a step instead of {train.prompts_per_step}.")
    return config


def _held_out(config: Config, count: int, free: Collection[str]) -> dict[str, int]:
    """The sizes of the splits that are `free`, from `count` problems without those that the user's splits have."""
    own = [name for name in _HELD_OUT if f"problems.{name}" in free]
    left = count - sum(getattr(config.problems, name) for name in _HELD_OUT if name not in own)
    share = max(1, left // 6) if left >= 4 else 0
    return {name: min(getattr(config.problems, name), share) for name in own}


def _with(config: Config, **sizes: int) -> Config:
    return config.model_copy(update={"problems": config.problems.model_copy(update=sizes)})
