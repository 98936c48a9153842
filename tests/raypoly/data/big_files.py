"""A large file of problems, made line by line, and a process that reads it and says how much memory it took."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ROW_BYTES = 1 << 20
SOLUTION = "import sys\nprint(sum(map(int, sys.stdin.read().split())))"
WORDS = [
    *(
        "array",
        "string",
        "tree",
        "path",
        "smallest",
        "largest",
        "count",
        "pairs",
        "queries",
        "colours",
        "edges",
        "cost",
    ),
    *("rotate", "merge", "erase", "visit", "balance", "distinct", "prefix", "suffix", "weight", "village", "river"),
]
_MEMORY = """
import sys
from pathlib import Path
{setup}
try:
    {work}
finally:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print("peak", status["VmHWM"].split()[0], file=sys.stderr)
"""


def write(path: Path, size: int) -> int:
    """APPS rows of about `ROW_BYTES`, four tests each, until they have `size` bytes; how many there are."""
    draw = random.Random(0)
    rows = 0
    with path.open("w") as file:
        while file.tell() < size:
            row = {
                "problem_id": rows,
                "question": " ".join(draw.choices(WORDS, k=40)),
                "solutions": json.dumps([SOLUTION]),
                "input_output": _tests(draw),
                "difficulty": "interview",
                "url": "",
                "starter_code": "",
            }
            file.write(json.dumps(row) + "\n")
            rows += 1
    return rows


def _tests(draw: random.Random) -> str:
    lines, outputs = [], []
    for _ in range(4):
        numbers = [draw.randrange(1000) for _ in range(100)]
        times = ROW_BYTES // 4 // 400
        lines.append((" ".join(map(str, numbers)) + "\n") * times)
        outputs.append(f"{sum(numbers) * times}\n")
    return json.dumps({"inputs": lines, "outputs": outputs})


def peak_of(work: str, setup: str = "") -> int:
    """Bytes of memory that a process had at most, which did this work; its own, and not those it began with."""
    script = _MEMORY.format(work=work, setup=setup)
    ended = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert ended.returncode == 0, ended.stderr
    (peak,) = [line.split()[1] for line in ended.stderr.splitlines() if line.startswith("peak ")]
    return int(peak) << 10
