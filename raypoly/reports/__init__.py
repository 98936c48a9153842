"""What a run shows at its end: a table, a figure, and one self-contained HTML page."""

from raypoly.reports.run_figure import figure
from raypoly.reports.run_page import write_report
from raypoly.reports.run_table import end_table

__all__ = ["end_table", "figure", "write_report"]
