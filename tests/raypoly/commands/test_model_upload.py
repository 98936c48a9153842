"""The finished model on the Hugging Face hub: with a card of the run's numbers, and never at the run's cost."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from raypoly import Run
from raypoly.commands.train_command import upload_model
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from tests.support.finished_run import write_finished_run
from tests.support.ports import free_port

TOKEN = "hf_test_7a1c93e0b5"
FILES = {"config.json": b"{}", "model.safetensors": bytes(range(256)) * 300, "tokenizer.json": b"[]"}
AGAIN = "python -m raypoly.train run.dir=mine"


class Hub:
    """A hub on loopback that takes a commit's files in one request."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.created: dict[str, Any] = {}
        self.tokens: set[str] = set()
        self.refusal: int | None = None
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self.server.hub = self  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        hub: Hub = self.server.hub  # type: ignore[attr-defined]
        length = self.headers.get("Content-Length")
        sent = self.rfile.read(int(length)) if length else b"".join(self._chunks())
        hub.tokens.add(self.headers.get("Authorization", ""))
        if hub.refusal is not None:
            return self._json({"error": f"no: {self.headers['Authorization']}"}, hub.refusal)
        if self.path == "/api/repos/create":
            hub.created = json.loads(sent)
            return self._json({"url": f"{hub.url}/me/mine", "name": "me/mine"})
        if "/preupload/" in self.path:
            asked = [file["path"] for file in json.loads(sent)["files"]]
            modes = [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in asked]
            return self._json({"files": modes})
        if "/commit/" in self.path:
            for line in map(json.loads, sent.splitlines()):
                if line["key"] == "file":
                    hub.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                elif line["key"] == "deletedFile":
                    del hub.files[line["value"]["path"]]
            return self._json({"commitUrl": f"{hub.url}/me/mine/commit/1", "commitOid": "1" * 40})
        return self._json({"errors": [], "warnings": []})

    def do_GET(self) -> None:
        hub: Hub = self.server.hub  # type: ignore[attr-defined]
        if hub.refusal is None and "/tree/main" in self.path:
            about = {"type": "file", "oid": "1" * 40, "size": 1}
            return self._json([{**about, "path": path} for path in hub.files])
        return self._json({"error": "nothing here"}, 404)

    do_HEAD = do_GET

    def log_message(self, *_: Any) -> None:
        pass

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _json(self, content: Any, status: int = 200) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    made = Hub()
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", made.url)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    folder = write_finished_run(tmp_path / "mine", "poly_epo", True, "train.seed=5")
    (folder / "model").mkdir()
    for name, content in FILES.items():
        (folder / "model" / name).write_bytes(content)
    return Run(folder)


def test_every_file_and_a_card_of_the_runs_numbers_are_uploaded_to_a_private_repository(hub: Hub, run: Run) -> None:
    assert upload_model(run, "me/mine", AGAIN) == f"model: {hub.url}/me/mine"
    card = hub.files.pop("README.md").decode()
    assert hub.files == FILES
    assert hub.created["name"] == "mine"
    assert hub.created["organization"] == "me"
    assert (hub.created.get("private"), hub.created.get("visibility")) in [(True, None), (None, "private")]
    assert hub.tokens == {f"Bearer {TOKEN}"}
    assert "12 steps of `poly_epo`" in card
    assert "| train.seed | 5 |" in card
    last = max(run.summary["evaluations"], key=lambda each: (each["split"] == "test", each["step"]))
    k = max(map(int, last["pass_at_k"]))
    assert f"| pass@{k} |" in card
    assert f"{last['pass_at_k'][str(k)]:.3f}" in card
    assert run.uri.removesuffix("/mine") not in card, "folders of this machine are nobody's business"


def test_an_earlier_models_files_go_in_the_same_commit_and_nothing_else_does(hub: Hub, run: Run) -> None:
    shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    stale = [*shards, "model.safetensors.index.json", "generation_config.json", "chat_template.jinja"]
    own = ["LICENSE", ".gitattributes", "results.json", "my_config.json", "older/model.safetensors"]
    hub.files = dict.fromkeys([*stale, *own, "config.json"], b"of before")
    assert upload_model(run, "me/mine", AGAIN) == f"model: {hub.url}/me/mine"
    assert hub.files.keys() == {*FILES, *own, "README.md"}
    assert hub.files["config.json"] == FILES["config.json"]


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_hub_that_refuses_costs_a_sentence_that_says_how_to_try_again(hub: Hub, run: Run, status: int) -> None:
    hub.refusal = status
    told = upload_model(run, "me/mine", AGAIN)
    assert told.startswith("The run is done, and its model was not uploaded to me/mine (")
    assert told.endswith(f"this tries again: {AGAIN}")
    assert "\n" not in told
    assert TOKEN not in told
    hub.refusal = None
    assert upload_model(run, "me/mine", AGAIN).startswith("model: ")
    assert hub.files.keys() == {*FILES, "README.md"}


def test_a_hub_that_is_away_and_a_model_that_is_gone_cost_a_sentence(
    hub: Hub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{free_port()}")
    assert "was not uploaded" in upload_model(run, "me/mine", AGAIN)
    for name in FILES:
        (Path(run.uri) / "model" / name).unlink()
    (Path(run.uri) / "model").rmdir()
    assert "it is missing" in upload_model(run, "me/mine", AGAIN)


@pytest.mark.parametrize("name", ["mine", "me/mine/more", "https://hub/me/mine"])
def test_what_names_no_repository_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(UsageError, match="owner/name"):
        load(None, [f"run.push_to_hub={name}"], lambda note: None)
