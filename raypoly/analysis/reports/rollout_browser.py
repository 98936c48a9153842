"""The page's browser of rollouts: those of a run's last evaluation, and a sample of its training.

    sample = sample_rollouts(run, most=MOST)
    sample.rows[0]["text"]; sample.said              # and how they were taken, in sentences
    body += rollout_browser({run.name: sample})

A sample is of whole groups, and of an evaluation the first rollouts of each problem: its shares are those of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, pairwise
from string import ascii_uppercase
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup
from tokenizers import Tokenizer

from raypoly.analysis.evaluation.planned_strategy import is_followed
from raypoly.analysis.reports.pages import render
from raypoly.analysis.reports.run_table import Rows
from raypoly.core.config import Config
from raypoly.core.errors import CorruptData, StorageError, UsageError
from raypoly.core.text import shortened, visible
from raypoly.core.values import ASSISTANT, ATTEMPT, Draft
from raypoly.rollouts import scaffolds
from raypoly.run.run_files import RunFiles
from raypoly.run.store import Store
from raypoly.run.store.rollout_columns import DRAFT_OF, drafts_alone, drafts_of, rollouts_of

MOST = 6000
"""The most rollouts of evaluations in a page, over all its runs, and of training as well."""
STEPS = 50
"""The most training steps that are read for a page."""
_COLUMNS = (
    *("problem_id", "prompt_tokens", "text", "status", "detail", "strategy", "label", "degenerate", "advantage"),
    *("scaffold", "turns", "finish_reason"),
)
_TOKENIZER = "model/tokenizer.json"
# About the most characters of all texts in a page; where there are more, the longest texts are shortened.
_CHARACTERS = 16_000_000
_LONGEST, _LEAST = 1 << 16, 1 << 10  # characters of one text, at most and after shortening
_NUMBERS = ("advantage", "step", "slot", "place", "parent", "tokens", "p", "reward")
_ACCEPTED = "gate/accepted"  # the column of J
_DRAFT_COLUMNS = (
    *("slot", "rollout", "role", "parent", "seed", "finish_reason", "status", "strategy", "reward"),
    *(DRAFT_OF, _ACCEPTED, "gate/p"),
)
_ANSWERS = {True: "accepted", False: "refused", None: "unknown"}
_FOLLOWED = {True: "yes", False: "no", None: "unknown"}
_NOTHING: Mapping[str, Any] = {
    **dict.fromkeys(("gate", "contract", "solved", "method", "followed"), ""),
    **dict.fromkeys(("p", "reward")),
}
_FACTS = ("role", "slot", "place", "parent", "tokens", "cut", "made", *_NOTHING)


@dataclass(frozen=True)
class RolloutSample:
    rows: Rows
    """`problem, statement, prompt, text, status, detail, strategy, label, advantage, step, source`; None where unknown.
    `label` is the judge's, `source` "training" or the evaluation's split. Steps with drafts have `draft_facts`,
    evaluations by several scaffolds `scaffold`."""
    said: Sequence[str]
    """How they were taken."""


def rollout_browser(samples: Mapping[str, RolloutSample]) -> Markup:
    """HTML, by the runs' names; only what was taken where no run has a rollout."""
    alone = len(samples) == 1
    told = {name: " ".join(sample.said) for name, sample in samples.items()}
    said = [text if alone else f"{name}: {text}" for name, text in told.items() if text]
    rows = [{**row, "run": name} for name, sample in samples.items() for row in sample.rows]
    return render("rollouts.html", said=said, data=_columns(rows) if rows else None)


def _columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    # Texts are numbers of a common list: most occur many times.
    names = list(dict.fromkeys(name for row in rows for name in row))
    texts = {"": 0} | {row[name]: 0 for row in rows for name in row if name not in _NUMBERS}
    places = {text: place for place, text in enumerate(texts)}
    columns = {
        name: [row.get(name) if name in _NUMBERS else places[row.get(name, "")] for row in rows] for name in names
    }
    return {"strings": _shortened([visible(text) for text in texts]), "rows": columns}


def _shortened(texts: Sequence[str]) -> list[str]:
    longest = _LONGEST
    while longest > _LEAST and sum(min(len(text), longest) for text in texts) > _CHARACTERS:
        longest //= 2
    return [shortened(text, longest) for text in texts]


def sample_rollouts(run: RunFiles, most: int) -> RolloutSample:
    """At most `most` rollouts of the last evaluation, and as many of training."""
    said: list[str] = []
    decode = _decoder(run.store, said)
    rows = [*_of_evaluation(run, most, said), *_of_training(run, most, said)]
    named = (_named(row, decode) for row in rows)
    return RolloutSample([{**row, "statement": run.statements.get(row["problem"], "")} for row in named], said)


def _of_evaluation(run: RunFiles, most: int, said: list[str]) -> Iterator[dict[str, Any]]:
    if not run.evaluations:
        said.append("The run has no evaluation yet.")
        return
    last = max(run.evaluations, key=lambda each: (each["step"], each["split"] == "test"))
    step, split = last["step"], last["split"]
    try:
        table = run.samples(step, split)
    except (CorruptData, StorageError, UsageError):
        said.append(f"The rollouts of the last evaluation ({split}, step {step}) can't be read.")
        return
    names = [name for name in ("problem_id", "scaffold") if name in table.column_names]
    asked = [tuple(row.values()) for row in table.select(names).to_pylist()]
    each = max(1, most // max(1, len(set(asked))))
    seen: Counter[tuple[str, ...]] = Counter()
    chosen = []
    for place, group in enumerate(asked):
        seen[group] += 1
        if seen[group] <= each:
            chosen.append(place)
    what = f"rollouts of the last evaluation ({split} split, step {step})"
    if len(chosen) == table.num_rows:
        said.append(f"All {table.num_rows:,} {what}.")
    else:
        said.append(f"{min(most, len(chosen)):,} of the {table.num_rows:,} {what}: the first of each problem.")
    yield from ({**row, "step": step, "source": split} for row in _rows(table.take(chosen[:most])))


def _of_training(run: RunFiles, most: int, said: list[str]) -> Iterator[dict[str, Any]]:
    steps = run.steps
    if not steps:
        said.append("No training rollouts are kept yet.")
        return
    count = min(STEPS, len(steps), most)
    chosen = [steps[round(i * (len(steps) - 1) / max(1, count - 1))] for i in range(count)]
    read, taken, drafted, lost = 0, 0, False, []
    scaffold: scaffolds.Scaffold | None = None
    for step in chosen:
        try:
            table = run.stored(step)
        except (CorruptData, StorageError, UsageError):
            lost.append(str(step))
            continue
        if not drafted and drafts_alone(table).num_rows:
            drafted, scaffold = True, _scaffold(run.config, said)
        facts = draft_facts(table, scaffold, run.config.train.rollouts) or [{}] * table.num_rows
        size = _whole_groups(table["slot"].to_pylist(), most // count)
        read, taken = read + table.num_rows, taken + size
        for row, fact in zip(_rows(table.slice(0, size)), facts, strict=False):
            yield {**row, **fact, "step": step, "source": "training"}
    some = "all steps" if count == len(steps) else f"{count} of {len(steps):,} steps, evenly spaced"
    what = "training rollouts, attempts and drafts," if drafted else "training rollouts"
    if taken == read:
        said.append(f"All {read:,} {what} of {some}.")
    else:
        said.append(f"{taken:,} of the {read:,} {what} of {some}: the first groups of each.")
    said += [f"The rollouts of steps {', '.join(lost)} can't be read."] if lost else []


def _scaffold(config: Config, said: list[str]) -> scaffolds.Scaffold | None:
    try:
        return scaffolds.of_run(config)
    except UsageError as error:  # a file of the user's may be gone
        said.append(f"The methods of plans are not shown, since the run's scaffold can't be built here: {error}")
        return None


def _whole_groups(slots: Sequence[int], most: int) -> int:
    """How many rows the first groups have, as many as fit; of one that does not fit the first rows, its drafts."""
    ends = [place for place, (one, other) in enumerate(pairwise(slots), 1) if one != other] + [len(slots)]
    return max((end for end in ends if end <= most), default=min(most, len(slots)))


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.select([name for name in _COLUMNS if name in table.column_names]).to_pylist()
    return rows


def _named(row: Mapping[str, Any], decode: Callable[[Sequence[int]], str]) -> dict[str, Any]:
    label, draft = row.get("label"), row.get("role", ATTEMPT) != ATTEMPT
    shown = "" if draft else row.get("status") or "not scored"
    return {
        "problem": row.get("problem_id") or "",
        "prompt": decode(row.get("prompt_tokens") or ()),
        "text": _transcript(row["turns"], row["finish_reason"]) if row.get("turns") else str(row.get("text") or ""),
        "status": shown,
        "detail": row.get("detail") or "",
        "strategy": row.get("strategy") or "",
        "label": "" if label is None else "none" if row.get("degenerate") or not label else str(label),
        "advantage": row.get("advantage"),
        "step": row["step"],
        "source": row["source"],
        **{name: row[name] for name in (*_FACTS, "scaffold") if name in row},
    }


_ENDS = {"turns": "its most turns", "length": "its most tokens", "tool_seconds": "its tools' seconds"}


def _transcript(turns: Sequence[Mapping[str, Any]], ended: str) -> str:
    """A conversation as a person reads it."""
    parts = []
    for number, turn in enumerate(turns):
        who = f"policy, turn {number // 2 + 1}" if turn["role"] == ASSISTANT else f"answer ({turn['role']})"
        took = f", {turn['seconds']:.2f} s of tools" if turn["seconds"] else ""
        parts.append(f"----- {who}{took}\n{turn['text'].strip(chr(10))}")
    why = _ENDS.get(ended, "an answer that could not be had" if ended == "unknown" else "")
    return "\n".join([*parts, *([f"----- ended by {why}"] if why else [])])


def _decoder(store: Store, said: list[str]) -> Callable[[Sequence[int]], str]:
    # No text before the run has saved its tokenizer.
    if not store.exists(_TOKENIZER):
        return lambda tokens: ""
    try:
        loaded = Tokenizer.from_file(str(store.fetch(_TOKENIZER)))
    except Exception:  # noqa: BLE001 - tokenizers raises anything for a damaged file
        said.append(f"Prompts are not shown, since {store.place(_TOKENIZER)} can't be read.")
        return lambda tokens: ""
    decode = cache(lambda tokens: str(loaded.decode(list(tokens))))
    return lambda tokens: decode(tuple(tokens))


def draft_facts(table: pa.Table, scaffold: scaffolds.Scaffold | None, attempts: int) -> list[dict[str, Any]]:
    """`_FACTS` of each row of a step with drafts, none for any other step: words, empty where there is nothing to say,
    and numbers or None.

    `place`: number among the group's drafts, or attempts; `parent`: number of the draft that it was made from. Of
    drafts: `gate` (J) and `p`, `contract` (what the scaffold remarks), `solved` (how many attempts behind it passed).
    Of attempts: `reward`, the `method` that they were told, behind its letter, and whether it was `followed`. Without
    the run's scaffold nothing is known of contracts and methods. `attempts`: N, those of a group.
    """
    drafts = drafts_alone(table)
    if not drafts.num_rows:
        return []
    columns = {name: table[name].to_pylist() for name in _DRAFT_COLUMNS if name in table.column_names}
    columns["tokens"] = [rollout.length for rollout in rollouts_of(table)]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    found: list[dict[str, Any]] = []
    for slot, group in groupby(rows, key=lambda row: row["slot"]):
        own = drafts_of(drafts.filter(pc.equal(drafts["slot"], slot)))
        found += _of_group(own, list(group), scaffold, attempts, asked="gate/state" in table.column_names)
    return found


def _of_group(
    drafts: Sequence[Draft], rows: Rows, scaffold: scaffolds.Scaffold | None, attempts: int, asked: bool
) -> list[dict[str, Any]]:
    tried = rows[len(drafts) :]
    methods = scaffold.methods(drafts, attempts) if scaffold and drafts else None
    if methods is None or len(methods) != len(tried):
        methods = None
    letters: dict[int, str] = {}
    found = []
    for number, (draft, row) in enumerate(zip(drafts, rows, strict=False)):
        behind = [place for place, each in enumerate(tried) if each[DRAFT_OF] == number]
        passed = sum(tried[place]["status"] == "passed" for place in behind)
        if methods is not None:
            letters |= dict(zip(behind, ascii_uppercase, strict=False))
        found.append(
            {
                **_of_any(row, row["parent"]),
                "gate": _ANSWERS[row.get(_ACCEPTED)] if asked else "",
                "p": row.get("gate/p"),
                "contract": scaffold.remark(draft) if scaffold else "",
                "solved": f"{passed} of {len(behind)} attempts passed" if behind else "",
            }
        )
    for place, row in enumerate(tried):
        parent = row[DRAFT_OF]
        told = _told_method(methods[place] if methods else None, letters.get(place), row["strategy"])
        found.append({**_of_any(row, parent), **told, "reward": row["reward"]})
    return found


def _of_any(row: Mapping[str, Any], parent: int | None) -> dict[str, Any]:
    return {
        "role": row["role"] or ATTEMPT,
        "slot": row["slot"],
        "place": row["rollout"],
        "parent": parent,
        "tokens": row["tokens"],
        "cut": "cut by its limit" if row["finish_reason"] == "length" else "",
        "made": "" if parent is None else f"from draft {parent}",
        **_NOTHING,
    }


def _told_method(method: str | None, letter: str | None, strategy: str | None) -> dict[str, str]:
    """`letter`: that of the line of its plan from which its method was read, or which is not there."""
    shown = method or ("its plan has no method here" if letter else "")
    return {
        "method": f"{letter}: {shown}" if letter else shown,
        "followed": _FOLLOWED[is_followed(method, strategy)] if method else "",
    }
