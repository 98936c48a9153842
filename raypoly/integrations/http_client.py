"""A client of `raypoly serve`. Needs nothing but Python 3.8: copy this file into any trainer.

    client = VerdictClient("http://127.0.0.1:8300", token="")
    client.verdicts([{"problem_id": "two-sum", "response": text}])      ->  [{"status": "passed", "passed": True, ...}]
    client.rewards([...])                                                ->  [1.0, 0.0, None]

It waits while the server is full or away, for `patience` seconds in all, and asks again for what was not answered.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from typing import Any

_AGAIN = (429, 502, 503, 504)


class VerdictClient:
    def __init__(self, url: str, token: str = "", patience: float = 600.0, rows_at_once: int = 64) -> None:
        self.url, self.token = url.rstrip("/"), token
        self.patience, self.rows_at_once = patience, rows_at_once

    def verdicts(self, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """A verdict (a dict) for each row, in order; a `status` of "infra" is unknown. Raises `RuntimeError`."""
        given = list(rows)
        found: list[dict[str, Any]] = []
        while len(found) < len(given):
            part = given[len(found) : len(found) + self.rows_at_once]
            found += self._ask({"rows": part})["verdicts"]
        return found

    def rewards(self, rows: Iterable[dict[str, Any]]) -> list[float | None]:
        """1.0 for each row that passed, 0.0 for one that did not, None where that is unknown."""
        return [None if it["status"] == "infra" else float(it["passed"]) for it in self.verdicts(rows)]

    def _ask(self, content: dict[str, Any]) -> Any:
        body = json.dumps(content).encode()
        headers = {"Content-Type": "application/json", "Authorization": "Bearer " + self.token}
        until, pause = time.monotonic() + self.patience, 0.5
        while True:
            request = urllib.request.Request(self.url + "/v1/verdicts", body, headers)
            try:
                with urllib.request.urlopen(request, timeout=self.patience) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                told, wait = error.read().decode(errors="replace"), error.headers.get("Retry-After")
                if error.code not in _AGAIN:
                    raise RuntimeError(f"{self.url} answered {error.code}: {told}") from error
            except (OSError, ValueError) as error:  # away, or cut off within an answer
                told, wait = str(error), None
            pause = float(wait) if wait else min(2 * pause, 10.0)
            if time.monotonic() + pause > until:
                raise RuntimeError(f"{self.url} gave no verdicts within {self.patience:g} s: {told}")
            time.sleep(pause)
