"""How many labels can one algorithm get, dressed in coats that change no answer? And do honest ones stay apart?

    python -m benchmarks.dressing [--json FILE] [--verbose] [--limit N]

Twelve algorithms and six puzzles, each in a hundred coats and more; a line for each kind of coat, then 200 pairs of
different right programs for one problem. Exit code 1 where a kind gives an algorithm more than 2 labels, or more than
1.1 in the mean, where more than 5 % are unknown, fewer than 2,000 pass, or fewer than 190 pairs stay apart. Puzzles
that two constructs share evenly are held to no bound. Where two whole algorithms run, nothing says which of them the
program is: "or the second's" counts both labels as one.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.dressing.coats import UNDRESSED, Dressed, dressed_programs
from benchmarks.dressing.dressing_texts import HonestPair, honest_pairs
from benchmarks.dressing.puzzle_coats import HALVES, TWICE, dressed_puzzles
from raypoly.core.config import ScorerConfig
from raypoly.core.progress_display import show_progress
from raypoly.core.values import Evidence, Problem, Verdict
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.strategies.judge.structural import approach_of, signature
from raypoly.verifier import LocalPool

MOST_LABELS, MOST_MEAN, MOST_UNKNOWN, LEAST_PROGRAMS, LEAST_APART = 2, 1.1, 0.05, 2000, 0.95
UNBOUNDED = (HALVES, TWICE)
EITHER, ALL = "  or the second's", "all that are held to bounds"
Program = tuple[Problem, str]


@dataclass(frozen=True)
class KindRow:
    """What one kind of coat did to all algorithms together."""

    kind: str
    programs: int
    passed: int
    most: int
    """Labels of the algorithm that has most."""
    mean: float
    unknown: float
    """Share of those that pass."""

    @property
    def is_bounded(self) -> bool:
        return self.kind not in (*UNBOUNDED, EITHER, ALL)

    @property
    def is_met(self) -> bool:
        """Whether it keeps the bounds, if it is held to them."""
        bounds = self.most <= MOST_LABELS and self.mean <= MOST_MEAN and self.unknown <= MOST_UNKNOWN
        return bounds or not self.is_bounded


@dataclass(frozen=True)
class Judged:
    """A dressed program with its verdict."""

    dressed: Dressed
    failure: str
    """Why it does not pass; empty if it does."""
    label: str | None
    second: str | None
    """The label of the second algorithm alone."""

    @property
    def passed(self) -> bool:
        return not self.failure


def label_of(evidence: Evidence | None) -> str | None:
    """The judge's strategy of one program, in words; None if it is unknown."""
    if evidence is None or evidence.unknown:
        return None
    if evidence.features:
        return approach_of(frozenset(evidence.features))
    return " + ".join(sorted(signature(evidence)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write the counts")
    parser.add_argument("--verbose", action="store_true", help="print programs: one a label, and those that fail")
    parser.add_argument("--limit", type=int, help="take about so many dressed programs and pairs, evenly: a quick look")
    options = parser.parse_args()
    dressed = _thinned([*dressed_programs(), *dressed_puzzles()], options.limit)
    pairs = honest_pairs()
    pairs = pairs[:: max(1, -(-len(pairs) // options.limit))] if options.limit else pairs
    verdicts = _score([(one.problem, one.code) for one in dressed])
    judged = _judged(dressed, verdicts)
    rows = kind_rows(judged)
    _print_rows(rows)
    joined = _joined(pairs, _score([side for pair in pairs for side in pair.sides]))
    apart = len(pairs) - len(joined)
    print(f"\nhonest pairs that stay apart: {apart} of {len(pairs)} (at least {LEAST_APART:.0%})")
    for pair, why in joined:
        print(f"  {pair.name}: {why}")
        if options.verbose:
            print(*(f"--- {side[1]}" for side in pair.sides), sep="\n")
    if options.verbose:
        _print_programs(judged)
    if options.json is not None:
        report = {
            "kinds": [vars(row) for row in rows],
            "programs": [_row_of(one) for one in judged],
            "pairs": len(pairs),
            "joined": [f"{pair.name}: {why}" for pair, why in joined],
        }
        options.json.write_text(json.dumps(report, indent=1))
    few = options.limit is None and rows[-1].passed < LEAST_PROGRAMS
    if few or not all(row.is_met for row in rows) or apart < LEAST_APART * len(pairs):
        raise SystemExit(1)


def _thinned(dressed: Sequence[Dressed], limit: int | None) -> Sequence[Dressed]:
    """About `limit` programs, evenly taken, and every undressed one."""
    every = max(1, -(-len(dressed) // limit)) if limit else 1
    return [one for place, one in enumerate(dressed) if place % every == 0 or one.kind == UNDRESSED]


def _score(programs: Sequence[Program]) -> list[Verdict]:
    with (
        LocalPool(ScorerConfig(workers=2), StrategyEvidence()) as pool,
        show_progress("programs", len(programs), lambda: (pool.done, pool.passed), Console(stderr=True)),
    ):
        return list(pool.score(programs))


def _judged(dressed: Sequence[Dressed], verdicts: Sequence[Verdict]) -> list[Judged]:
    seconds = {one.second: one.problem for one in dressed if one.second}
    found = _score([(problem, code) for code, problem in seconds.items()])
    labels = {code: label_of(verdict.evidence) for code, verdict in zip(seconds, found, strict=True)}
    return [
        Judged(one, "" if verdict.passed else verdict.detail, label_of(verdict.evidence), labels.get(one.second))
        for one, verdict in zip(dressed, verdicts, strict=True)
    ]


def kind_rows(judged: Sequence[Judged]) -> list[KindRow]:
    """A row for each kind, in order of first use, and one for all that are held to bounds."""
    bases = {one.dressed.algorithm: one.label for one in judged if one.dressed.kind == UNDRESSED}
    rows = []
    for kind in dict.fromkeys(one.dressed.kind for one in judged if one.dressed.kind != UNDRESSED):
        found = [one for one in judged if one.dressed.kind == kind]
        rows.append(_row(kind, found, bases))
        if any(one.second for one in found):
            rows.append(_row(EITHER, [one for one in found if one.label != one.second], bases, of=found))
    return [*rows, _row(ALL, [one for one in judged if one.dressed.kind not in UNBOUNDED], bases)]


def _row(
    kind: str, judged: Sequence[Judged], bases: Mapping[str, str | None], of: Sequence[Judged] | None = None
) -> KindRow:
    """The labels of `judged`, among the programs `of` (default: themselves)."""
    counted = judged if of is None else of
    labels = {one.dressed.algorithm: {bases[one.dressed.algorithm]} for one in counted if one.passed}
    for one in judged:
        if one.passed:
            labels[one.dressed.algorithm].add(one.label)
    counts = [len(found - {None}) for found in labels.values()]
    passed = [one for one in counted if one.passed]
    unknown = sum(one.label is None for one in passed) / max(1, len(passed))
    mean = sum(counts) / max(1, len(counts))
    return KindRow(kind, len(counted), len(passed), max(counts, default=0), mean, unknown)


def _print_rows(rows: Sequence[KindRow]) -> None:
    print(f"{'kind of coat':30}{'programs':>10}{'pass':>7}{'most labels':>13}{'mean':>7}{'unknown':>9}")
    for row in rows:
        note = "" if row.is_met else "  too many"
        note = note if row.is_bounded else "  (no bound)"
        shares = f"{row.programs:>10,}{row.passed:>7,}{row.most:>13}{row.mean:>7.2f}{row.unknown:>9.1%}"
        print(f"{row.kind:30}{shares}{note}")
    print(f"\nbounds of each kind: {MOST_LABELS} labels, {MOST_MEAN} in the mean, {MOST_UNKNOWN:.0%} unknown")


def _joined(pairs: Sequence[HonestPair], verdicts: Sequence[Verdict]) -> list[tuple[HonestPair, str]]:
    """Pairs that do not stay apart, and why; two verdicts are a pair's."""
    found = []
    for pair, both in zip(pairs, zip(verdicts[::2], verdicts[1::2], strict=True), strict=True):
        one, two = (label_of(verdict.evidence) for verdict in both)
        if wrong := [verdict.detail for verdict in both if not verdict.passed]:
            found.append((pair, f"does not pass: {wrong[0]}"))
        elif one is None or two is None:
            found.append((pair, f"unknown: {one or 'unknown'}, {two or 'unknown'}"))
        elif one == two:
            found.append((pair, f"both {one}"))
    return found


def _row_of(one: Judged) -> dict[str, str | None]:
    dressed = one.dressed
    named = {"algorithm": dressed.algorithm, "kind": dressed.kind, "coat": dressed.coat, "code": dressed.code}
    return {**named, "label": one.label, "failure": one.failure}


def _print_programs(judged: Sequence[Judged]) -> None:
    """The first program of each label of each algorithm, and every one that does not pass."""
    by_label: dict[str, dict[str | None, list[Judged]]] = defaultdict(lambda: defaultdict(list))
    for one in judged:
        if one.passed:
            by_label[one.dressed.algorithm][one.label].append(one)
        else:
            print(f"\n=== {one.dressed.algorithm}, {one.dressed.kind}, {one.dressed.coat} fails: {one.failure}")
            print(one.dressed.code)
    for algorithm, labels in by_label.items():
        for label, found in labels.items():
            first = found[0].dressed
            print(f"\n=== {algorithm}: {label or 'unknown'} ({len(found)}), as in {first.kind}, {first.coat}")
            print(first.code)


if __name__ == "__main__":
    main()
