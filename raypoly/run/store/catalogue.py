"""The names of a run's rollout and index files, and the steps that a listing of them holds.

    catalogue = Catalogue.of(store.list("rollouts/"))
    catalogue.files[12]             # the file that holds step 12: its own, or a bundle
    completed_steps(store)          # without reading anything

Steps count from 0. Nothing is checked here: content is checked when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from raypoly.run.store.store import Store

PREFIX = "rollouts/"
INDEX = "index/"
_STEP = re.compile(r"^rollouts/step-(\d{6,9})\.parquet$")
_BUNDLE = re.compile(r"^rollouts/steps-(\d{6,9})-(\d{6,9})\.parquet$")
_EVALUATION = re.compile(r"^rollouts/evaluation-([^/]+)-step-(\d{6,9})\.parquet$")
_SEGMENT = re.compile(r"^index/steps-(\d{6,9})-(\d{6,9})\.parquet$")


@dataclass(frozen=True, order=True)
class Span:
    """Consecutive steps, `first` and `last` included."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    def covers(self, other: Span) -> bool:
        return self.first <= other.first and other.last <= self.last

    @property
    def steps(self) -> range:
        return range(self.first, self.last + 1)


def step_key(step: int) -> str:
    return f"{PREFIX}step-{step:06d}.parquet"


def evaluation_key(step: int, split: str) -> str:
    return f"{PREFIX}evaluation-{split}-step-{step:06d}.parquet"


def bundle_key(span: Span) -> str:
    return f"{PREFIX}steps-{span.first:06d}-{span.last:06d}.parquet"


def segment_key(span: Span) -> str:
    return f"{INDEX}steps-{span.first:06d}-{span.last:06d}.parquet"


@dataclass(frozen=True)
class Catalogue:
    """The files in `rollouts/`."""

    singles: Mapping[int, str]
    """Keys of the steps that have a file of their own."""
    bundles: Mapping[Span, str]
    """Keys of the bundles."""
    evaluations: Mapping[tuple[int, str], str]
    """Keys by (step, split)."""
    strangers: tuple[str, ...]
    """Files that raypoly did not put there."""

    @classmethod
    def of(cls, keys: Iterable[str]) -> Catalogue:
        singles: dict[int, str] = {}
        bundles: dict[Span, str] = {}
        evaluations: dict[tuple[int, str], str] = {}
        strangers: list[str] = []
        for key in keys:
            if match := _STEP.match(key):
                singles[int(match[1])] = key
            elif match := _BUNDLE.match(key):
                bundles[Span(int(match[1]), int(match[2]))] = key
            elif match := _EVALUATION.match(key):
                evaluations[int(match[2]), match[1]] = key
            else:
                strangers.append(key)
        return cls(singles, bundles, evaluations, tuple(strangers))

    @property
    def files(self) -> dict[int, str]:
        """The file of each step, ascending. A step's own file comes before a bundle."""
        bundled = {step: key for span, key in self.bundles.items() for step in span.steps}
        return dict(sorted({**bundled, **self.singles}.items()))


def parse_segments(keys: Iterable[str]) -> tuple[dict[Span, str], tuple[str, ...]]:
    """The index's segments by their spans, and the files in `index/` that are no segments."""
    found: dict[Span, str] = {}
    strangers: list[str] = []
    for key in keys:
        match = _SEGMENT.match(key)
        if match:
            found[Span(int(match[1]), int(match[2]))] = key
        else:
            strangers.append(key)
    return found, tuple(strangers)


def completed_steps(store: Store) -> tuple[int, ...]:
    """The steps whose rollouts are kept, ascending."""
    return tuple(Catalogue.of(store.list(f"{PREFIX}step")).files)
