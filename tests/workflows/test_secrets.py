"""The judge's key and that of W&B stay where the user put them: in no file, log, error, dashboard page or process
listing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.support.faulty_server import Server, running
from tests.support.local_driver import ROOT
from workflows.startup.ray_cluster import descendants

KEY = "sk-test-c40d91b7ee25"


def files(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        yield from (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def test_the_key_is_in_no_file_log_error_page_or_process_listing(tmp_path: Path) -> None:
    environment = {**os.environ, "JUDGE_TEST_KEY": KEY, "WANDB_API_KEY": KEY}
    with running(Server(key=KEY, faults=["ok", "echo-key"], forever=True)) as server:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.workflows.secrets_script", server.url, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(tmp_path / "errors.txt").open("w"),
            text=True,
            env=environment,
            cwd=ROOT,
        )
        try:
            assert driver.stdout is not None
            line = driver.stdout.readline()
            assert line, (tmp_path / "errors.txt").read_text()
            told = json.loads(line)
            workers = descendants(told["pid"])
            environments = {pid: _bytes(f"/proc/{pid}/environ") for pid in workers}
            listing = [_bytes(entry) for entry in Path("/proc").glob("[0-9]*/cmdline")]
            kept = {path: _bytes(path) for path in files(tmp_path, Path(told["session"]))}
        finally:
            driver.communicate("")
    assert f"Bearer {KEY}" in server.authorizations, "the judge has it"
    assert told["said"], "an outage was told"
    assert not any(KEY in words for words in told["said"])
    pages = json.loads((tmp_path / "pages.json").read_text())
    assert [page for page, text in pages.items() if not text.startswith("200 ")] == []
    assert "JudgeActor" in pages["/api/v0/actors?detail=1"]
    assert "JudgeActor.label" in pages["/api/v0/tasks?detail=1"]
    assert len(kept) > 20, "Ray's logs are among them"
    assert [path for path, content in kept.items() if KEY.encode() in content] == []
    assert not any(KEY.encode() in line for line in listing)
    assert len(workers) > 3, "Ray's processes"
    assert [pid for pid, content in environments.items() if KEY.encode() in content] == []


def _bytes(path: str | Path) -> bytes:
    with suppress(OSError):
        return Path(path).read_bytes()
    return b""
