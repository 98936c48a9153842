"""Debian's Chromium without a window, told what to do through its DevTools pipe: no package, no port, no network.

with Chromium() as browser:
    browser.open(page, width=390)
    browser.run("document.title")
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest

_PROGRAM = shutil.which("chromium")
_SECONDS = 60.0

needs_chromium = pytest.mark.skipif(
    _PROGRAM is None, reason="Chromium is not installed: apt-get install --no-install-recommends chromium"
)


class Chromium:
    """One browser with one page."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        """The address of every request of the page that is open, its own file left out."""
        self.errors: list[str] = []
        """What its console said of errors."""

    def __enter__(self) -> Self:
        assert _PROGRAM is not None
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--disable-background-networking", "--remote-debugging-pipe",
                 f"--user-data-dir={self._home.name}"]  # fmt: skip
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "bash", _PROGRAM, *flags],
            pass_fds=(commands, answers),
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._number, self._buffer, self._session = 0, b"", None
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._ask(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._commands)
        os.close(self._answers)
        self._home.cleanup()

    def open(self, page: Path | str, width: int = 1280, dark: bool = False, printed: bool = False) -> None:
        """Open the file or address in a window of this width, and wait until it is loaded and its scripts have run."""
        phone = width < 600
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", media="print" if printed else "", features=[scheme])
        self.asked, self.errors = [], []
        self._ask("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while not self.run("document.readyState === 'complete' && location.protocol !== 'about:'"):
            time.sleep(0.01)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def pick(self, control: str, words: str) -> None:
        """Choose the option of these words in the page's list `control`."""
        self.run(
            f"""(() => {{ const box = document.getElementById({control!r});
            box.value = [...box.options].find((each) => each.textContent === {words!r}).value;
            box.dispatchEvent(new Event("change")); }})()"""
        )

    def search(self, words: str) -> None:
        """Type into the page's search."""
        self.run(
            f"""(() => {{ const box = document.getElementById("search"); box.value = {words!r};
            box.dispatchEvent(new Event("input")); }})()"""
        )

    def press(self, key: str) -> None:
        """Press and release a key."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        code = {"Tab": 9, "Enter": 13, " ": 32}[key]
        for kind in ("keyDown", "keyUp"):
            self._ask("Input.dispatchKeyEvent", type=kind, key=key, text=text, windowsVirtualKeyCode=code)

    def mouse(self, kind: str, x: float, y: float, clicks: int = 1) -> None:
        """Do one thing with the left button in the window: `moved`, `pressed` or `released`."""
        held = {"button": "left", "buttons": 1, "clickCount": clicks} if kind != "moved" else {}
        self._ask("Input.dispatchMouseEvent", type=f"mouse{kind.title()}", x=x, y=y, **held)

    def touch(self, kind: str, x: float = 0, y: float = 0) -> None:
        """Do one thing with a finger: `Start`, `Move` or `End`."""
        self._ask(
            "Input.dispatchTouchEvent", type=f"touch{kind}", touchPoints=[] if kind == "End" else [{"x": x, "y": y}]
        )

    def picture(self, to: Path, whole: bool = True) -> None:
        """A PNG of the page."""
        shot = self._ask("Page.captureScreenshot", captureBeyondViewport=whole)
        to.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self._ask("Page.printToPDF")["data"])

    def _ask(self, method: str, **parameters: Any) -> Mapping[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            found = self._read()
            if found.get("id") == self._number:
                assert "error" not in found, found
                result: Mapping[str, Any] = found["result"]
                return result
            self._note(found)
        raise TimeoutError(method)

    def _note(self, event: Mapping[str, Any]) -> None:
        if event.get("method") == "Network.requestWillBeSent":
            address = event["params"]["request"]["url"]
            self.asked += [] if address.startswith(("file:", "data:")) else [address]
        elif event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(event["params"]["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            self.errors.append(str(event["params"]["entry"]["text"]))

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._answers, 1 << 20)
            assert part, "Chromium has ended"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found
