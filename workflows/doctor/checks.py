"""Checks one object of each kind against its checksum.

A check takes the object's key and content, and notes in `RunFacts` what it says. It raises `CorruptData` or
`OtherSchema` if the object can't be trusted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from raypoly.core.errors import CorruptData
from raypoly.run.run_identity import CONFIG_KEY, parse_config, unseal_config
from raypoly.run.sinks import METRICS
from raypoly.run.store.catalogue import Span, decode_segment
from raypoly.run.store.rollout_files import StepsFile, decode_evaluation, read_head
from raypoly.run.store.sealed_files import decode_table, unseal
from raypoly.run.store.step_records import decode
from workflows.doctor.findings import RunFacts

Check = Callable[[RunFacts, re.Match[str], bytes], None]


@dataclass(frozen=True)
class Kind:
    """A kind of object: the key's pattern, and how its content is checked."""

    area: str
    pattern: re.Pattern[str]
    check: Check | None
    """None if the content carries no checksum."""


def kind_of(key: str) -> tuple[Kind, re.Match[str]] | None:
    """The kind of a key; None if raypoly did not put it there."""
    for kind in KINDS:
        if match := kind.pattern.fullmatch(key):
            return kind, match
    return None


def _config(facts: RunFacts, key: re.Match[str], data: bytes) -> None:
    facts.config = parse_config(unseal_config(data, key[0]), key[0])


def _sealed(facts: RunFacts, key: re.Match[str], data: bytes) -> None:
    unseal(data, key[0])


def _journal(facts: RunFacts, key: re.Match[str], data: bytes) -> None:
    step, number = int(key[1]), int(key[2])
    records = decode(step, number, data)
    facts.records.setdefault(step, {})[number] = records


def _step(facts: RunFacts, key: re.Match[str], data: bytes) -> None:
    facts.heads[int(key[1])] = read_head(data, int(key[1]))


def _bundle(facts: RunFacts, key: re.Match[str], data: bytes) -> None:
    facts.heads.update(StepsFile.parse(data, Span(int(key[1]), int(key[2])), key[0]).heads)


def _segment(facts: RunFacts, key: re.Match[str], data: bytes) -> None:
    heads = decode_segment(Span(int(key[1]), int(key[2])), data).heads
    facts.indexed.update({step: (key[0], head) for step, head in heads.items()})


def _evaluation(facts: RunFacts, key: re.Match[str], data: bytes) -> None:
    decode_evaluation(int(key[2]), key[1], data, key[0])


def _table(facts: RunFacts, key: re.Match[str], data: bytes) -> None:
    decode_table(data, key[0])


def _rows(facts: RunFacts, key: re.Match[str], data: bytes) -> None:
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        try:
            if line.endswith(b"\n"):  # the last line may be half-written
                row = json.loads(line)
                facts.rows[int(row["step"])] = row
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptData(f"line {number} is no step's row; the next start writes it anew") from error


KINDS = tuple(
    Kind(area, re.compile(pattern), check)
    for area, pattern, check in (
        ("config", re.escape(CONFIG_KEY), _config),
        ("config", r"starts/epoch-\d+\.json", _sealed),
        ("lease", r"lease\.(?:lock|json)|lease/(?:epoch|beat)-\d+\.json", None),
        ("journal", r"journal/step-(\d{6,9})/(\d{5,9})\.arrow", _journal),
        ("steps", r"rollouts/step-(\d{6,9})\.parquet", _step),
        ("steps", r"rollouts/steps-(\d{6,9})-(\d{6,9})\.parquet", _bundle),
        ("index", r"index/steps-(\d{6,9})-(\d{6,9})\.parquet", _segment),
        ("evaluations", r"rollouts/evaluation-([^/]+)-step-(\d{6,9})\.parquet", _evaluation),
        ("evaluations", r"evaluations/[^/]+\.json", _sealed),
        ("evaluations", r"evaluations/[^/]+\.parquet", _table),
        ("derived", r"(?:summary|judge)\.json", _sealed),
        ("derived", re.escape(METRICS), _rows),
        (
            "derived",
            r"figure\.png|report\.html|(?:model|tensorboard|wandb|stacks)/.+|raypoly-error-[^/]+\.txt|(?:ray|actors)\.log",
            None,
        ),
    )
)
"""Checkpoints are not among them: their manifests list their files."""
