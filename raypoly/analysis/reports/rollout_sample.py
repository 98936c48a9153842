"""The rollouts that a page embeds: a run's last evaluation, and a sample of its training.

    sample = sample_rollouts(run, most=6000)
    sample.rows[0]["text"]; sample.said              # and how they were taken, in sentences

The same run gives the same sample.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer

from raypoly.analysis.reports.plan_facts import ACCEPTED, PLAN_FACTS, PlanReader, plan_facts
from raypoly.core.errors import CorruptData, StorageError, UsageError
from raypoly.core.seeds import derive
from raypoly.core.values import ATTEMPT
from raypoly.run.run_files import RunFiles
from raypoly.run.store import Store
from raypoly.run.store.rollout_columns import DRAFT_OF

STEPS = 50
"""The most training steps that are read for a page."""
_COLUMNS = (
    *("problem_id", "prompt_tokens", "text", "status", "detail", "strategy", "label", "degenerate", "advantage"),
    "scaffold",
)
_KINDS = ("status", "strategy", "role", "scaffold", ACCEPTED)  # what rows are drawn from by turns
_OF_DRAFTS = ("role", "slot", "place", "parent", "tokens", "cut", "made", *PLAN_FACTS)
_DRAFT_COLUMNS = ("slot", "rollout", "role", "parent", "seed", "finish_reason")
_TOKENIZER = "model/tokenizer.json"
_NO_SHARES = "So rare ones are more frequent here than in the run: the tables have the shares, not this list."


@dataclass(frozen=True)
class RolloutSample:
    rows: Sequence[Mapping[str, Any]]
    """`problem, prompt, text, status, detail, strategy, label, advantage, step, source`; None where unknown. `label` is
    the judge's, `source` "training" or the evaluation's split. Steps with drafts have `draft_facts` and `plan_facts`,
    evaluations by several scaffolds `scaffold`."""
    said: Sequence[str]
    """How they were taken."""


def sample_rollouts(run: RunFiles, most: int) -> RolloutSample:
    """At most `most` rollouts of the last evaluation, and as many of training."""
    said: list[str] = []
    decode = _decoder(run.store, said)
    rows = [*_of_evaluation(run, most, said), *_of_training(run, most, said)]
    if _NO_SHARES in said:
        said = [*(each for each in said if each != _NO_SHARES), _NO_SHARES]
    return RolloutSample([_named(row, decode) for row in rows], said)


def stratified(
    strata: Sequence[Hashable], most: int, seed: int, needed: Sequence[Sequence[int]] | None = None
) -> list[int]:
    """Places of at most `most` items, ascending, drawn by turns from each stratum. Each brings its `needed` ones, which
    count too; what does not fit with them is left out."""
    if len(strata) <= most:
        return list(range(len(strata)))
    # an item's turn is its rank within its stratum: by ascending turns, each stratum gives one before any gives two
    drawn, places = random.Random(seed), list(range(len(strata)))
    drawn.shuffle(places)
    turns: dict[Hashable, int] = {}
    keyed: list[tuple[int, int, int]] = []
    for place in places:
        turns[strata[place]] = turn = turns.get(strata[place], -1) + 1
        keyed.append((turn, len(keyed), place))
    taken: set[int] = set()
    for _, _, place in sorted(keyed):
        new = {place, *(needed[place] if needed else ())} - taken
        if len(taken) + len(new) <= most:
            taken |= new
    return sorted(taken)


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
    chosen = _draw(table, most, derive(0, "report", split, step), ("problem_id", *_KINDS))
    what = f"rollouts of the last evaluation ({split} split, step {step})"
    if len(chosen) == table.num_rows:
        said.append(f"All {table.num_rows:,} {what}.")
    else:
        drawn = f"{len(chosen):,} of the {table.num_rows:,} {what}"
        said += [f"{drawn}, drawn by turns from each problem, verdict and strategy.", _NO_SHARES]
    yield from ({**row, "step": step, "source": split} for row in chosen)


def _of_training(run: RunFiles, most: int, said: list[str]) -> Iterator[dict[str, Any]]:
    steps = run.steps
    if not steps:
        said.append("No training rollouts are kept yet.")
        return
    count = min(STEPS, len(steps), most)
    chosen = [steps[round(i * (len(steps) - 1) / max(1, count - 1))] for i in range(count)]
    read, taken, drafted, lost = 0, 0, 0, []
    reader: PlanReader | None = None
    for step in chosen:
        try:
            table = run.stored(step)
        except (CorruptData, StorageError, UsageError):
            lost.append(str(step))
            continue
        facts = draft_facts(table)
        if facts:
            reader = reader if drafted else _reader(run, said)
            facts = [{**fact, **more} for fact, more in zip(facts, plan_facts(table, reader), strict=True)]
        part = _draw(table, most // count, derive(0, "report", step), _KINDS, facts)
        read, taken, drafted = read + table.num_rows, taken + len(part), drafted + bool(facts)
        yield from ({**row, "step": step, "source": "training"} for row in part)
    some = "all steps" if count == len(steps) else f"{count} of {len(steps):,} steps, evenly spaced"
    what = "training rollouts, attempts and drafts," if drafted else "training rollouts"
    if taken == read:
        said.append(f"All {read:,} {what} of {some}.")
    else:
        whole = ", and bring the drafts that they were made from, with all attempts behind these" if drafted else ""
        drawn = f"{taken:,} of the {read:,} {what} of {some}"
        said += [f"{drawn}; a step's are drawn by turns from each verdict and strategy{whole}.", _NO_SHARES]
    said += [f"The rollouts of steps {', '.join(lost)} can't be read."] if lost else []


def _reader(run: RunFiles, said: list[str]) -> PlanReader | None:
    try:
        return PlanReader.of(run.config)
    except UsageError as error:
        said.append(f"The methods of plans are not shown, since the run's scaffold can't be built here: {error}")
        return None


def _draw(
    table: pa.Table, most: int, seed: int, keys: Sequence[str], facts: Sequence[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """Rows of the table, drawn by turns from each value of `keys`; with their `facts`, where the step has drafts."""
    strata = list(zip(*(_values(table, name) for name in keys), strict=True))
    # whole families, where one fits; else at least the drafts that each was made from
    places = stratified(strata, most, seed, families(facts)) or stratified(strata, most, seed, ancestors(facts))
    chosen = table.select([name for name in _COLUMNS if name in table.column_names]).take(places).to_pylist()
    return [{**row, **(facts[place] if facts else {})} for row, place in zip(chosen, places, strict=True)]


def _values(table: pa.Table, name: str) -> list[Any]:
    return table.column(name).to_pylist() if name in table.column_names else [None] * table.num_rows


def _named(row: Mapping[str, Any], decode: Callable[[Sequence[int]], str]) -> dict[str, Any]:
    label, draft = row.get("label"), row.get("role", ATTEMPT) != ATTEMPT
    verdict = row.get("status")
    shown = (verdict and f"public tests: {verdict}") or "" if draft else verdict or "not scored"
    return {
        "problem": row.get("problem_id") or "",
        "prompt": decode(row.get("prompt_tokens") or ()),
        "text": str(row.get("text") or ""),
        "status": shown,
        "detail": row.get("detail") or "",
        "strategy": row.get("strategy") or "",
        "label": "" if label is None else "none" if row.get("degenerate") or not label else str(label),
        "advantage": row.get("advantage"),
        "step": row["step"],
        "source": row["source"],
        **{name: row[name] for name in (*_OF_DRAFTS, "scaffold") if name in row},
    }


def _decoder(store: Store, said: list[str]) -> Callable[[Sequence[int]], str]:
    # No text before the run has saved its tokenizer.
    if not store.exists(_TOKENIZER):
        return lambda tokens: ""
    try:
        loaded = Tokenizer.from_file(str(store.fetch(_TOKENIZER)))
    except Exception:  # noqa: BLE001 - tokenizers raises anything for a damaged file
        said.append(f"Prompts are not shown, since {store.place(_TOKENIZER)} can't be read.")
        return lambda tokens: ""
    known: dict[tuple[int, ...], str] = {}

    def decode(tokens: Sequence[int]) -> str:
        key = tuple(tokens)
        if key not in known:
            known[key] = str(loaded.decode(tokens))
        return known[key]

    return decode


def draft_facts(table: pa.Table) -> list[dict[str, Any]]:
    """Of each row of a step with drafts: `role, slot, place, parent, tokens, cut, made`; none for any other step.

    `place`: number among the group's drafts, or attempts; `parent`: number of the draft that it was made from, or None.
    """
    roles = [role or ATTEMPT for role in table.column("role").to_pylist()] if "role" in table.column_names else []
    if all(role == ATTEMPT for role in roles):
        return []
    columns = {name: table.column(name).to_pylist() for name in _DRAFT_COLUMNS} | {"role": roles}
    columns["tokens"] = pc.list_value_length(table.column("tokens")).to_pylist()
    columns[DRAFT_OF] = table.column(DRAFT_OF).to_pylist()
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    seeds = {(row["slot"], row["rollout"]): row["seed"] for row in rows if row["role"] != ATTEMPT}
    return [_facts(row, seeds) for row in rows]


def _facts(row: Mapping[str, Any], seeds: Mapping[tuple[int, int], int]) -> dict[str, Any]:
    attempt = row["role"] == ATTEMPT
    parent = row[DRAFT_OF] if attempt else row["parent"]
    same = attempt and parent is not None and seeds[row["slot"], parent] == row["seed"]
    return {
        "role": row["role"],
        "slot": row["slot"],
        "place": row["rollout"],
        "parent": parent,
        "tokens": row["tokens"],
        "cut": "cut by its limit" if row["finish_reason"] == "length" else "",
        "made": "" if parent is None else f"is draft {parent}" if same else f"from draft {parent}",
    }


def ancestors(facts: Sequence[Mapping[str, Any]]) -> list[tuple[int, ...]]:
    """The rows of the drafts that each row was made from, the nearest first."""
    at = {(fact["slot"], fact["place"]): row for row, fact in enumerate(facts) if fact["role"] != ATTEMPT}
    found: list[tuple[int, ...]] = []
    for fact in facts:
        above: list[int] = []
        while fact["parent"] is not None:
            above.append(at[fact["slot"], fact["parent"]])
            fact = facts[above[-1]]
        found.append(tuple(above))
    return found


def families(facts: Sequence[Mapping[str, Any]]) -> list[tuple[int, ...]]:
    """The rows that each row is best shown with: its `ancestors`, and the attempts from its draft, or from it."""
    drafts = [fact["parent"] if fact["role"] == ATTEMPT else fact["place"] for fact in facts]
    behind: dict[tuple[int, int], list[int]] = {}
    for row, fact in enumerate(facts):
        if fact["role"] == ATTEMPT and fact["parent"] is not None:
            behind.setdefault((fact["slot"], fact["parent"]), []).append(row)
    return [
        (*above, *behind.get((fact["slot"], draft), ()))
        for fact, draft, above in zip(facts, drafts, ancestors(facts), strict=True)
    ]
