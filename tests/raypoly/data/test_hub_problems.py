"""Data sets by name: in a folder of the hub's layout, and on a hub on loopback, which is then gone."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from raypoly.core.config import Config, ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.data import ProblemSet, build_problem_set
from raypoly.data.hub import HubSplit
from raypoly.planning.preflight import check_config
from tests.support.hub_folders import hub_folder
from tests.support.preparation_rows import problem_row, write_rows

FIND = """
import json, sys
from raypoly.core.errors import RaypolyError
from raypoly.data.hub import HubSplit
for line in sys.stdin:
    try:
        files, commit = HubSplit(**json.loads(line)).find("problems.path=NAME")
        print(json.dumps([commit, [file.name for file in files]]))
    except RaypolyError as error:
        print(json.dumps([error.exit_code, str(error)]))
"""


def load(folder: Path, **keys: Any) -> ProblemSet:
    words = {"source": "hub", "path": str(folder), "validation": 0, "test": 0, **keys}
    return build_problem_set(ProblemsConfig.model_validate(words))


def ids(problems: ProblemSet, split: str = "train") -> list[str]:
    return [problem.id for name, members in problems.splits.items() if name == split for problem in members]


def find(words: list[dict[str, Any]], environment: dict[str, str]) -> list[Any]:
    """What a process with these variables finds for each request, or its exit code and sentence."""
    asked = "".join(f"{json.dumps(word)}\n" for word in words)
    ours = os.environ | {"HF_HUB_OFFLINE": "0"} | environment
    ended = subprocess.run([sys.executable, "-c", FIND], input=asked, env=ours, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_a_split_of_several_files_is_the_same_problems_as_one_file(tmp_path: Path) -> None:
    found = load(hub_folder(tmp_path / "set"))
    lines = b"".join(file.read_bytes() for file in sorted((tmp_path / "set" / "lines").glob("train-*")))
    (tmp_path / "rows.jsonl").write_bytes(lines)
    plain = ProblemsConfig(source="jsonl", path=str(tmp_path / "rows.jsonl"), validation=0, test=0)
    assert len(ids(found)) == 12
    assert found.hash == build_problem_set(plain).hash
    assert load(tmp_path / "set", subset="columns").hash == found.hash, "Parquet holds the same rows"


def test_splits_of_the_data_set_are_validation_and_test(tmp_path: Path) -> None:
    found = load(hub_folder(tmp_path / "set"), test_split="test", validation=3, test=64)
    assert ids(found, "test") == ["t0", "t1"]
    assert (len(ids(found, "validation")), len(ids(found))) == (3, 9)
    later = load(tmp_path / "set", since="2025-11-01", test_split="test")
    assert (sorted(ids(later)), ids(later, "test")) == (["a10", "a11"], ["t0", "t1"])


def test_without_a_card_the_names_of_files_tell_the_splits(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_rows(tmp_path / f"LeetCodeDataset-{split}.jsonl", [problem_row(f"{split}-1")])
    assert ids(load(tmp_path)) == ["train-1"]
    assert ids(load(tmp_path, split="test")) == ["test-1"]


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"split": "dev"}, r"problems\.path=.*set has no split 'dev': set split to train or test\."),
        ({"subset": "rows"}, r"has no such subset: set subset to lines or columns\."),
        ({"path": "leetcode"}, r"problems\.path=leetcode is neither a folder here nor .* owner/name\."),
        ({"path": "org/set"}, r"problems\.path=org/set is no folder here, and .* needs a revision: give a commit"),
    ],
)
def test_a_wrong_name_is_one_sentence(tmp_path: Path, keys: dict[str, str], sentence: str) -> None:
    words = {"path": str(hub_folder(tmp_path / "set"))} | keys
    with pytest.raises(UsageError, match=sentence) as caught:
        build_problem_set(ProblemsConfig.model_validate({"source": "hub", **words}))
    assert "\n" not in str(caught.value)


def test_files_that_hold_no_rows_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="doesn't contain any data files"):
        load(tmp_path)
    (tmp_path / "train.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match=r"has train\.csv, and raypoly reads JSON lines and Parquet"):
        load(tmp_path)


def test_keys_that_go_with_another_source_are_refused_before_anything_starts(tmp_path: Path) -> None:
    rows = str(write_rows(tmp_path / "rows.jsonl", [problem_row("a")]))
    for keys, sentence in (
        ({"source": "jsonl", "path": rows, "revision": "v1"}, r"problems\.revision is of a data set by name"),
        ({"source": "hub", "path": str(tmp_path), "test_path": rows}, r"give problems\.test_split"),
        ({"source": "hub"}, r"problems\.source=hub needs problems\.path"),
        ({"source": "hub", "path": "org/set"}, r"problems\.path=org/set is no folder here, and .* a revision"),
    ):
        with pytest.raises(UsageError, match=sentence):
            check_config(Config(problems=ProblemsConfig.model_validate(keys)), tmp_path / "run")


def test_a_name_on_the_hub_is_looked_up_once_and_then_needs_no_network(tmp_path: Path) -> None:
    folder, scripted = hub_folder(tmp_path / "set"), tmp_path / "scripted"
    scripted.mkdir()
    (scripted / "scripted.py").write_text("")
    write_rows(scripted / "test6.jsonl", [problem_row("a")])
    here = {"name": "org/set", "split": "train"}
    files = ["train-0.jsonl", "train-1.jsonl"]
    with hub_server({"org/set": folder, "org/scripted": scripted}) as hub:
        variables = hub.environment(tmp_path / "cache")
        found = find(
            [
                {**here, "revision": COMMIT},
                {**here, "revision": "v1", "subset": "columns"},
                {**here, "revision": "v2"},
                {**here, "revision": "v1", "split": "dev"},
                {**here, "revision": "v1", "subset": "rows"},
                {"name": "org/other", "revision": "v1"},
                {"name": "org/scripted", "revision": "v1"},
                {"name": "org/scripted", "revision": "v1", "file": "test6.jsonl"},
                {"name": "org/scripted", "revision": "v1", "file": "test7.jsonl"},
            ],
            variables,
        )
    assert found[:2] == [[COMMIT, files], [COMMIT, ["train-0.parquet", "train-1.parquet"]]]
    for (code, said), sentence in zip(
        found[2:7],
        (
            "Revision 'v2' doesn't exist",
            "has no split 'dev': set split to train or test.",
            "has no such subset: set subset to lines or columns.",
            "Dataset 'org/other' doesn't exist",
            "has a loading script",
        ),
        strict=True,
    ):
        assert code == 2
        assert sentence in said
    assert found[7] == [COMMIT, ["test6.jsonl"]]
    assert found[8] == [2, found[8][1]]
    assert found[8][1].startswith("test7.jsonl of problems.path=NAME is not on the Hugging Face hub (entry not found)")

    again = [{**here, "revision": COMMIT}, {**here, "revision": "v1", "subset": "columns"}, {**here, "revision": "v3"}]
    same, columns, by_decree = find(again, variables | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"})
    assert [same, columns] == found[:2]
    same, server_gone = find([again[0], again[2]], variables)  # tries for a while, and so for one name alone
    assert same == found[0]
    for code, said in (by_decree, server_gone):
        assert code == 1
        assert "the Hugging Face hub can't be reached" in said


def test_a_folder_is_found_by_a_relative_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub_folder(tmp_path / "org" / "set")
    monkeypatch.chdir(tmp_path)
    found = HubSplit("org/set", split="test").find("problems.path=org/set")
    assert found == ((tmp_path / "org" / "set" / "lines" / "test.jsonl",), None)


COMMIT = "0123456789abcdef0123456789abcdef01234567"
_REVISIONS = (COMMIT, "v1", "main")


@dataclass
class HubServer:
    url: str
    sets: Mapping[str, Path]

    def environment(self, cache: Path) -> dict[str, str]:
        """The variables of a process that uses this hub, with caches of its own."""
        return {"HF_ENDPOINT": self.url, "HF_HOME": str(cache / "hf"), "RAYPOLY_CACHE": str(cache / "raypoly")}


@contextmanager
def hub_server(sets: Mapping[str, Path]) -> Iterator[HubServer]:
    """A hub on loopback, as far as `datasets` and `huggingface_hub` ask one; a set has one commit and the tag `v1`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    hub = HubServer(f"http://127.0.0.1:{server.server_address[1]}", sets)
    server.hub = hub  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_POST = do_GET

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self) -> None:
        hub: HubServer = self.server.hub  # type: ignore[attr-defined]
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        if parts[0] == "api":
            parts = parts[1:]
        name = "/".join(parts[1:3])
        if parts[0] != "datasets" or name not in hub.sets:
            return self._refuse("RepoNotFound")
        what, revision = (*parts[3:5], *("revision", "main")[len(parts[3:5]) :])
        path = "/".join(parts[5:])
        if revision not in _REVISIONS:
            return self._refuse("RevisionNotFound")
        folder = hub.sets[name]
        if what == "resolve":
            return self._file(folder / path)
        if what == "revision":
            siblings = [{"rfilename": entry["path"]} for entry in _entries(folder, folder) if entry["type"] == "file"]
            return self._json({"id": name, "sha": COMMIT, "siblings": siblings})
        if what == "tree":
            if not (folder / path).is_dir():
                return self._refuse("EntryNotFound")
            deep = "recursive=true" in self.path.lower()
            return self._json(list(_entries(folder, folder / path, deep)))
        wanted = json.loads(sent)["paths"] if sent.startswith("{") else parse_qs(sent)["paths"]
        return self._json([_entry(folder, folder / one) for one in wanted if (folder / one).exists()])

    def _refuse(self, code: str) -> None:
        self._send(404, b"{}", {"X-Error-Code": code, "X-Error-Message": code})

    def _json(self, content: Any) -> None:
        self._send(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _file(self, path: Path) -> None:
        if not path.is_file():
            return self._refuse("EntryNotFound")
        data = path.read_bytes()
        self._send(200, data, {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": COMMIT})

    def _send(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _entries(root: Path, folder: Path, deep: bool = True) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.iterdir()):
        yield _entry(root, path)
        if path.is_dir() and deep:
            yield from _entries(root, path)


def _entry(root: Path, path: Path) -> dict[str, Any]:
    name = path.relative_to(root).as_posix()
    if path.is_dir():
        return {"type": "directory", "path": name, "oid": hashlib.sha1(name.encode()).hexdigest(), "size": 0}
    data = path.read_bytes()
    return {"type": "file", "path": name, "oid": hashlib.sha1(data).hexdigest(), "size": len(data)}
