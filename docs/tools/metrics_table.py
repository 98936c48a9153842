"""The table of docs/cluster.md, written from the list of metrics.

python -m docs.tools.metrics_table docs/cluster.md      (make docs)
"""

from __future__ import annotations

import sys
from pathlib import Path

from raypoly.analysis.reports.pages import fill_place
from raypoly.core.tables import ReportTable
from raypoly.run.run_metrics import RUN_METRICS


def fill_metrics(page: str) -> str:
    """The page with the table as it is now."""
    rows = [(f"`{each.served}`", ", ".join(f"`{label}`" for label in each.labels), each.text) for each in RUN_METRICS]
    table = ReportTable(("in Prometheus", "for each", "what it is"), rows).markdown()
    return fill_place(page, "table", "metrics", table, "The page")


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(fill_metrics(file.read_text()))
