"""The work of `raypoly judge label`: cluster the groups of a file, or label a run's groups again and compare."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby, islice, tee
from pathlib import Path
from typing import Any

from rich.console import Console

from raypoly.analysis.metrics.pass_at_k import distinct, drawn_strategies
from raypoly.analysis.run import Run
from raypoly.analysis.statistics.intervals import share_interval
from raypoly.analysis.stored_groups import (
    ChangedNumber,
    StoredGroup,
    StoredWalk,
    compare_values,
    parts_of,
    read_current_problems,
    show_numbers,
)
from raypoly.commands.command_output import NOTES, SHOWN, count_of, note, results_console, say, say_where
from raypoly.commands.row_writer import Row, open_rows, refuse_overwriting
from raypoly.commands.section_config import JudgeChoice, choose_run_judge, lasting_keys
from raypoly.core.caches import file_sha256
from raypoly.core.config import JudgeConfig
from raypoly.core.errors import JudgeUnavailable, SandboxError, UsageError
from raypoly.core.progress_display import track
from raypoly.core.tables import ReportTable
from raypoly.core.values import Problem
from raypoly.strategies.judge import Judge, build_judge
from raypoly.strategies.judge.ask_judge import TROUBLE, Answer, ask_all, describe_spending
from raypoly.strategies.judge.label_agreement import LOWEST_ARI, adjusted_rand
from raypoly.strategies.judge.program_groups import ObservedGroup, ProgramGroup, observing, read_groups


def label_file(path: Path, out: str | None, choice: JudgeChoice, show: bool = False) -> None:
    """Print each group's clusters, write a row for each; go on after the rows of an interrupted start.

    Raises `UsageError` for bad input before anything is asked, `JudgeUnavailable` in an outage (the rows so far are
    kept), `SandboxError` at the end where the sandbox could not run a group's programs.
    """
    refuse_overwriting(out, path)
    groups = read_groups(path)
    judge = build_judge(choice.judge)
    console = results_console(out)
    failed = 0
    scorer = lasting_keys(choice.scorer)
    identity = {"groups": file_sha256(path), **_identity(judge, choice.judge), "scorer": scorer}
    with ExitStack() as stack:
        rows = stack.enter_context(open_rows(out, identity))

        def label_rest(kept: int) -> Iterator[Row]:
            left = groups[kept:]
            if not left:
                return
            observe = stack.enter_context(observing(choice.scorer, sum(len(group.programs) for group in left)))
            quiet = console.is_terminal  # it shows the clusters themselves
            for seen, answer in _asking(judge, observe(left), len(left), out, quiet):
                if show:
                    say(console, show_to_judge(judge, seen))
                yield label_row(seen, answer)

        for row, group in zip(rows.resume(label_rest), groups, strict=True):
            say(console, describe_clusters(row, group.programs))
            failed += str(row.get("reason", "")).startswith(TROUBLE)
        rows.finish()
    _say_end(judge, "labels", out, NOTES)
    if failed:
        what = f"{failed} of {len(groups)} groups have no labels"
        raise SandboxError(f"{what}: the sandbox could not run their programs.")


def label_row(seen: ObservedGroup, answer: Answer) -> dict[str, Any]:
    """`{id, labels, judge, strategies?}`; labels are null with a reason."""
    if answer.labels is None:
        return {"id": seen.group.id, "labels": None, "judge": None, "reason": answer.reason}
    row: dict[str, Any] = {"id": seen.group.id, "labels": answer.ids, "judge": answer.labels.judge}
    if answer.strategies:
        row["strategies"] = {str(name): text for name, text in sorted(answer.strategies.items())}
    return row


def describe_clusters(row: Row, programs: Sequence[str]) -> str:
    """A group's clusters, one a line: strategy, name, programs by their place from 0."""
    labels = row["labels"]
    if labels is None:
        return f"{row['id']}: no labels: {row['reason']}"
    count = len(set(labels) - {0})
    lines = [f"{row['id']}: {count} {'strategy' if count == 1 else 'strategies'} of {len(programs)} programs"]
    for strategy in sorted(set(labels), key=lambda name: (name == 0, name)):
        places = " ".join(str(place) for place, label in enumerate(labels) if label == strategy)
        name = "degenerate" if strategy == 0 else row.get("strategies", {}).get(str(strategy), "")
        lines.append(f"  {strategy or '-'}  programs {places}" + (f"  {name}" if name else ""))
    return "\n".join(lines)


def show_to_judge(judge: Judge, seen: ObservedGroup) -> str:
    """The messages that the judge would send, else each program in canonical form."""
    preview: Callable[..., list[dict[str, str]]] | None = getattr(judge, "preview", None)
    if preview is not None:
        messages = preview(seen.group.problem, seen.rollouts, seen.verdicts)
        return "\n".join(f"--- {message['role']}\n{message['content']}" for message in messages)
    texts = []
    for place, (program, verdict) in enumerate(zip(seen.group.programs, seen.verdicts, strict=True)):
        evidence = verdict.evidence
        canonical = "" if evidence is None else evidence.canonical.strip()
        form = "canonical" if canonical else "as it was written"
        features = "" if evidence is None or not evidence.features else f"; {', '.join(evidence.features)}"
        texts.append(f"--- program {place}, {form}{features}\n{canonical or program.rstrip()}")
    return "\n".join(texts)


def relabel(place: str, out: str | None, name: str | None, overrides: Sequence[str]) -> None:
    """Ask a judge about a run's stored groups again, print what differs, write a row for each group to `out`.

    These are the groups that the run's judge was asked about; all sound groups where it never was. The judge is the
    run's own, or the one that `name` gives. It reads programs and the evidence of stored verdicts: nothing is executed.
    Raises `UsageError` before anything is asked, `JudgeUnavailable` in an outage (the rows so far are kept).
    """
    run = Run(place)
    config = choose_run_judge(run.config, name, overrides)
    today, source = read_current_problems(run, None, note)
    judge = build_judge(config)
    found = [(_is_sound(group), group.asked) for group in _trained_groups(run)]
    total, asked = sum(sound for sound, _ in found), sum(asked for _, asked in found)
    if not total:
        raise UsageError(f"{run.uri} holds no rollouts of training yet: there is nothing to label.")
    if not asked:
        note(f"the run's judge was never asked: all {total:,} groups are labelled, and there is no then.")
    groups = (group for group in _trained_groups(run) if (group.asked if asked else _is_sound(group)))
    # a run may have grown between two starts
    identity = {"run": run.uri, "problems": source, **_identity(judge, config)}
    diff, numbers = LabelDiff(), list[ChangedNumber]()

    def label_rest(kept: int) -> Iterator[Row]:
        if kept:
            say(NOTES, f"{kept:,} groups are labelled already.")
        left, shown = tee(islice(groups, kept, None))
        answers = _asking(judge, (_observed(group, today) for group in shown), (asked or total) - kept, out)
        for group, (_, answer) in zip(left, answers, strict=True):
            yield relabelled_row(group, answer)

    reported = {row["step"]: row for row in run.rows}
    with open_rows(out, identity) as rows:
        for step, own in groupby(rows.resume(label_rest), lambda row: int(row["step"])):
            pairs = []
            for row in own:
                diff.add(row)
                pairs.append((_diversity(row["then"], row["passed"]), _diversity(row["now"], row["passed"])))
            both = [pair for pair in pairs if all(pair)] or pairs
            numbers += compare_values(f"step {step}", both, reported.get(step, {}))
        rows.finish()
    console = results_console(out)
    diff.show(console)
    show_numbers(console, numbers, SHOWN)
    _say_end(judge, "rows", out, console)


def relabelled_row(group: StoredGroup, answer: Answer) -> dict[str, Any]:
    """`{step, slot, problem_id, then, now, passed}`: strategies by rollout, 0 degenerate, null where unknown."""
    row = {
        "step": group.part.step,
        "slot": group.slot,
        "problem_id": group.problem_id,
        "then": group.labels,
        "now": answer.ids,
        "passed": [verdict.passed for verdict in group.verdicts],
        "judge": None if answer.labels is None else answer.labels.judge,
    }
    return row if answer.labels is not None else row | {"reason": answer.reason}


def _trained_groups(run: Run) -> Iterator[StoredGroup]:
    return StoredWalk(run, [part for part in parts_of(run) if part.training]).groups


def _is_sound(group: StoredGroup) -> bool:
    """Whether all verdicts are known: no other group ever reaches a judge."""
    return bool(group.verdicts) and group.then.sound


def _observed(group: StoredGroup, problems: Mapping[str, Problem]) -> ObservedGroup:
    """Raises `UsageError` where its problem is gone."""
    problem, step = problems.get(group.problem_id), group.part.step
    if problem is None:
        raise UsageError(
            f"Problem {group.problem_id!r} of step {step} is not in the run's problem set any more, and a "
            "judge is shown its statement: bring the set back that the run was trained on."
        )
    texts = tuple(rollout.text for rollout in group.rollouts)
    return ObservedGroup(ProgramGroup(f"{step}/{group.slot}", problem, texts), group.verdicts)


def _identity(judge: Judge, config: JudgeConfig) -> dict[str, Any]:
    # a file of instructions may change under its name
    return {"prompt": str(getattr(judge, "version", "")), "judge": lasting_keys(config)}


def _asking(
    judge: Judge, groups: Iterable[ObservedGroup], total: int, out: str | None, quiet: bool = False
) -> Iterator[tuple[ObservedGroup, Answer]]:
    """Each group with its answer, and progress unless `quiet`. An outage's error says how to go on."""
    answers = ask_all(judge, groups)
    try:
        yield from answers if quiet else track(answers, total, "groups", NOTES)
    except JudgeUnavailable as error:
        kept = "give it again" if out is None else "the rows so far are kept, and the same command goes on"
        raise JudgeUnavailable(f"The judge is away: {str(error).rstrip('.')}; {kept}.") from error


def _say_end(judge: Judge, what: str, out: str | None, console: Console) -> None:
    if spent := describe_spending(judge):
        say(NOTES, spent)
    say_where(console, what, out)


@dataclass
class LabelDiff:
    """The labels of all groups then and now."""

    counts: Counter[str] = field(default_factory=Counter)
    """Groups, and those with labels `then` and `now`."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Why groups have no labels now."""
    agreements: list[tuple[str, float]] = field(default_factory=list)
    """(problem, adjusted Rand index) of groups that have both."""
    changed: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    """(index, programs that one alone calls degenerate) of groups that differ, by problem."""

    def add(self, row: Row) -> None:
        then, now = row["then"], row["now"]
        self.counts.update(groups=1, then=then is not None, now=now is not None)
        if now is None:
            self.reasons[row["reason"]] += 1
        if then is None or now is None:
            return
        ari = adjusted_rand(then, now)
        self.agreements.append((row["problem_id"], ari))
        # a degenerate program is alone in its cluster, and so may be one that is none: the index can't tell them apart
        degenerate = sum((one == 0) != (two == 0) for one, two in zip(then, now, strict=True))
        if ari != 1.0 or degenerate:
            self.changed[row["problem_id"]].append((ari, degenerate))

    def show(self, console: Console) -> None:
        counts, known = self.counts, len(self.agreements)
        say(
            console,
            f"{count_of(counts['groups'], 'group')}: {counts['then']:,} had labels, {counts['now']:,} have some now",
        )
        for reason, count in self.reasons.most_common(3):
            say(console, f"  {count:,} without labels now: {reason}")
        if known:
            problems, aris = zip(*self.agreements, strict=True)
            interval = share_interval(aris, problems, lowest=LOWEST_ARI)
            changed = sum(map(len, self.changed.values()))
            differ = f"{changed:,} of {known:,} partitions differ" if changed else "no partition differs"
            around = f"{interval.low:.3f} to {interval.high:.3f}"
            say(console, f"{differ}; adjusted Rand index {interval.mean:.3f} (95 % over problems: {around})")
        rows = [
            (name, f"{len(own):,}", f"{min(own)[0]:.3f}", f"{sum(degenerate for _, degenerate in own):,}")
            for name, own in sorted(self.changed.items(), key=lambda item: (-len(item[1]), item[0]))
        ]
        if rows:
            head = ("problem", "groups that differ", "least ARI", "degenerate in one alone")
            console.print(ReportTable(head, rows[:SHOWN]))


def _diversity(ids: Sequence[int] | None, passed: Sequence[bool]) -> dict[str, float]:
    """Distinct strategies, and those among the correct programs in 8 draws or all N."""
    if ids is None:
        return {}
    right = [str(name) for name, correct in zip(ids, passed, strict=True) if correct and name]
    return {"strategies": float(distinct(ids)), "correct strategies": drawn_strategies(len(ids), right)}
