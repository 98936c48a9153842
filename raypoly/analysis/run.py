"""A finished or running run, for notebooks.

from raypoly import Run
run = Run("~/raypoly-runs/tiny-poly_epo-s0-1a2b3c4d")      # or "s3://bucket/runs/mine"
run.summary["steps"]; run.metrics().to_pandas(); run.rollouts(12).column("text")
"""

from __future__ import annotations

import pyarrow as pa

from raypoly.run.run_files import RunFiles


class Run(RunFiles):
    """`RunFiles` with the metrics as a table and a page for notebooks."""

    def metrics(self) -> pa.Table:
        """One row for each step, null where a step has no such metric; `seconds` and `statuses` are structs."""
        rows = self.rows
        names = dict.fromkeys(name for row in rows for name in row)
        return pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows])

    def __repr__(self) -> str:
        train, objective = self.config.train, self.config.objective.name
        done = f"{self.steps_done} of {train.steps} steps"
        return f"Run({self.name!r}: {objective}, seed {train.seed}, {done})"

    def _repr_html_(self) -> str:
        from raypoly.analysis.reports.run_page import notebook_html

        return notebook_html(self)
