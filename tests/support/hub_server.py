"""A Hugging Face hub on loopback with data sets of folders, as far as `datasets` and `huggingface_hub` ask one.

    with hub_server({"org/set": folder}) as hub:
        subprocess.run([...], env=os.environ | hub.environment(cache))     # read when the libraries are imported

Each data set has one commit, `COMMIT`, and the tag `v1`.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_REVISIONS = (COMMIT, "v1", "main")


@dataclass
class HubServer:
    """The server's address and what it was asked for."""

    url: str
    sets: Mapping[str, Path]
    requests: list[str] = field(default_factory=list)
    """Method and path."""

    def environment(self, cache: Path) -> dict[str, str]:
        """The variables of a process that uses this hub, with caches of its own."""
        return {"HF_ENDPOINT": self.url, "HF_HOME": str(cache / "hf"), "RAYPOLY_CACHE": str(cache / "raypoly")}


@contextmanager
def hub_server(sets: Mapping[str, Path]) -> Iterator[HubServer]:
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
        hub.requests.append(f"{self.command} {self.path}")
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
