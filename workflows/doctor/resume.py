"""Works out where the same command would resume, as `Journal.replayable` and `LearnerSession` do it."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from raypoly.core.config import Config
from raypoly.core.config_keys import dotted_values
from raypoly.core.settings import load
from raypoly.run.plateau import has_ended
from raypoly.run.store.catalogue import step_key
from raypoly.run.store.step_records import StepRecords, assemble
from workflows.doctor.findings import ResumePoint, RunFacts

_ONE_START = ("run.dir", "run.fresh")


def find_resume_point(
    uri: str, facts: RunFacts, config: Config | None, blocking: str, rows: Sequence[Mapping[str, Any]] = ()
) -> ResumePoint:
    """`config`: of the last start; None if it can't be read. `blocking`: a folder in a file's place, or "". `rows`: of
    metrics.jsonl."""
    checkpoint = max(facts.checkpoints, default=None)
    base = checkpoint or 0
    step = base
    while step in facts.heads:
        step += 1
    later = [known for known in facts.heads if known > step]
    refused = ""
    if config is None:
        refused = "its config.json is damaged"
    elif blocking:
        refused = f"{blocking} is a folder"
    elif later:
        refused = (
            f"{step_key(step)} is damaged or missing, steps up to {max(later)} are there, and no checkpoint between"
        )
    pieces = facts.records.get(step, {})
    found = assemble(step, [record for number in sorted(pieces) for record in pieces[number]])
    return ResumePoint(
        checkpoint=checkpoint,
        replayed=step - base,
        step=step,
        groups=_stages(found),
        of=max(config.train.prompts_per_step, len(found.groups)) if config else None,
        finished=config is not None and has_ended(config, step, lambda: rows),
        refused=refused,
        command=_command(uri, config) if config else "",
    )


def _stages(found: StepRecords) -> Mapping[str, int]:
    counts = Counter({"generated": 0, "scored": 0, "judged": 0})
    for group in found.groups.values():
        judged = group.labels is not None or group.unjudged
        counts["judged" if judged else "generated" if group.verdicts is None else "scored"] += 1
    if drafted := len(found.drafts.keys() - found.groups.keys()):
        counts["drafted"] = drafted
    return dict(counts)


def _command(uri: str, config: Config) -> str:
    """A command that means this run without its config file."""
    overrides = [f"{key}={_text(value)}" for key, value in _differences(config)]
    command = ["python", "-m", "raypoly.train", f"run.dir={uri}", *overrides]
    return shlex.join(command)


def _differences(config: Config) -> Iterator[tuple[str, Any]]:
    """Keys with values other than those of the embedded default."""
    chosen = {"objective.name": config.objective.name, "loss.name": config.loss.name}
    plain = dotted_values(load(None, (), _silent))
    named = [f"{key}={name}" for key, name in chosen.items() if plain[key] != name]
    default = dotted_values(load(None, named, _silent))  # without the other objective's parameters
    for key, value in dotted_values(config).items():
        if key not in _ONE_START and (plain if key in chosen else default).get(key, ...) != value:
            yield key, value


def _silent(text: str) -> None:
    """Ignores what `load` drops, since it is not in the config either."""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
