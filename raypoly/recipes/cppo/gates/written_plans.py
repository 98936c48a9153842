"""Plans that planners wrote in training, by problem: what a further gate is trained on, once they are labelled.

plans = written_plans(["out/joint-s0"], methods=4)      # {"p3": ["A: ...\\nB: ...", ...]}, the newest last
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from raypoly.core.errors import CorruptData, StorageError, UsageError
from raypoly.rollouts.scaffolds.plan_contract import read_plan

_COLUMNS = ("problem_id", "text", "finish_reason")


def written_plans(runs: Sequence[str], methods: int) -> Mapping[str, Sequence[str]]:
    """The different plans in the steps of these runs, by problem id, the newest last. Those that breach the contract of
    K = `methods` methods are left out: no gate is asked about them. `runs`: folders or URIs.

    Raises `UsageError` for one that is no run, that can't be read, or that has no plans.
    """
    found: dict[str, dict[str, None]] = {}
    for place in runs:
        tables = list(_plans_by_step(place))
        if not tables:
            raise UsageError(f"{place} has no plans: name a run that has trained a planner (scaffold.name=tuple).")
        for table in tables:
            for problem, text, end in zip(*(table[name].to_pylist() for name in _COLUMNS), strict=True):
                if read_plan(text, methods, cut=end == "length").keeps:
                    known = found.setdefault(problem, {})
                    known.pop(text, None)  # a plan is as new as its last repetition
                    known[text] = None
    return {problem: list(plans) for problem, plans in found.items()}


def _plans_by_step(place: str) -> Iterator[pa.Table]:
    from raypoly.run.run_files import RunFiles  # which knows all programs, of which one knows this module

    run = RunFiles(place)
    try:
        for step in run.steps:
            drafts = run.drafts(step)
            if drafts.num_rows and (plans := drafts.filter(pc.equal(drafts["role"], "plan"))).num_rows:
                yield plans.select(_COLUMNS)
    except (CorruptData, StorageError) as error:
        raise UsageError(f"The plans of {place} can't be read: {error}") from error
