"""Reads back what a node serves to Prometheus.

points = served_points("10.0.0.1:8080")
"""

from __future__ import annotations

import urllib.request
from collections.abc import Sequence

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

_SECONDS = 5.0


def served_points(place: str) -> Sequence[Sample]:
    """The points that `host:port` serves now, each with `name`, `labels` and `value`. Raises `OSError`."""
    with urllib.request.urlopen(f"http://{place}/metrics", timeout=_SECONDS) as answer:
        text = answer.read().decode()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]
