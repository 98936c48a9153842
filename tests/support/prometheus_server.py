"""A Prometheus of the test's own (`apt install prometheus`), which asks one address for metrics.

with prometheus(folder, place, every=15) as server:
    server.values('ray_raypoly_paused{run=~".*"}', begin, end)     # at each scrape, by time
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.ports import free_port


@dataclass(frozen=True)
class PrometheusServer:
    """A running server."""

    url: str
    every: int
    """Seconds between scrapes."""

    def values(self, query: str, begin: float, end: float) -> dict[float, list[float]]:
        """What a panel with this query shows for each scrape from `begin` to `end`: the values of all its series."""
        times = [begin + self.every * n for n in range(int((end - begin) / self.every) + 1)]
        asked = {"query": query, "start": begin, "end": end, "step": self.every}
        with urllib.request.urlopen(f"{self.url}/api/v1/query_range?{urllib.parse.urlencode(asked)}") as answer:
            series = json.load(answer)["data"]["result"]
        found: dict[float, list[float]] = {at: [] for at in times}
        for each in series:
            for at, value in each["values"]:
                found[min(times, key=lambda one: abs(one - at))].append(float(value))
        return found


@contextmanager
def prometheus(folder: Path, place: str, every: int) -> Iterator[PrometheusServer]:
    """Runs while the `with` block does. A point counts for its own scrape alone, so that a gap is seen."""
    program, port = shutil.which("prometheus"), free_port()
    assert program is not None
    file = folder / "prometheus.yml"
    job = {"job_name": "ray", "scrape_interval": f"{every}s", "static_configs": [{"targets": [place]}]}
    file.write_text(json.dumps({"scrape_configs": [job]}))
    command = [
        program, f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", f"--query.lookback-delta={every + every // 2}s",
    ]  # fmt: skip
    with (folder / "prometheus.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            time.sleep(2 * every)
            yield PrometheusServer(f"http://127.0.0.1:{port}", every)
        finally:
            server.terminate()
