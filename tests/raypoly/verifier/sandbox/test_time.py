"""Sleep is charged however it is hidden, waiting for a core never is, and answers cost their reader little."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.values import Problem, TestSuite
from raypoly.verifier.sandbox import Sandbox
from raypoly.verifier.sandbox.channel import Child
from tests.support.small_problems import calls, check

LIMIT = 1.0
ONE = calls(([1], 1))

DRIBBLED_RESULT = """
import os, sys, threading, time
def f(n):
    channel = sys._getframe(1).f_locals["report"].__closure__[0].cell_contents
    os.write(channel, (60_000).to_bytes(4, "big"))
    for _ in range(60):
        os.write(channel, b"0")
        time.sleep(0.06)
    return n
"""
ENDED_MAIN_THREAD = """
import ctypes, threading, time
def f(n):
    threading.Thread(target=time.sleep, args=(300,)).start()
    ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[__import__("platform").machine()], 0)
"""
WAITING_THREADS = """
import threading, time
def f(n):
    def work():
        while True:
            until = time.monotonic() + 0.002
            while time.monotonic() < until:
                pass
            time.sleep(0.3)
    for _ in range(16):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(300)
"""
SHORT_THREADS = """
import threading, time
def f(n):
    for _ in range(200):
        thread = threading.Thread(target=time.sleep, args=(0.03,))
        thread.start()
        thread.join()
    return n
"""
WRITES_WHEN_AWAKE = """
import os, sys, time
def f(n):
    channel = sys._getframe(1).f_locals["report"].__closure__[0].cell_contents
    os.write(channel, (60_000).to_bytes(4, "big"))
    for _ in range(300):
        os.write(channel, b"0")
        until = time.monotonic() + 0.005
        while time.monotonic() < until:
            pass
        time.sleep(0.055)
    return n
"""
SLEEPS = {
    "one sleep": "import time\ndef f(n):\n    time.sleep(300)\n    return n",
    "a pause": "import signal\ndef f(n):\n    signal.pause()\n    return n",
    "short sleeps": "import time\ndef f(n):\n    for _ in range(200): time.sleep(0.03)\n    return n",
    "a lock": "import threading\ndef f(n):\n    lock = threading.Lock()\n    lock.acquire()\n    lock.acquire()",
    "a pipe": "import os\ndef f(n):\n    return os.read(os.pipe()[0], 1)",
    "a full pipe": "import os\ndef f(n):\n    a, b = os.pipe()\n    while True: os.write(b, bytes(4096))",
    "a result by the byte": DRIBBLED_RESULT,
    "a result by the byte, by a thread that works": WRITES_WHEN_AWAKE,
    "an ended main thread": ENDED_MAIN_THREAD,
    "sixteen threads": WAITING_THREADS,
    "short threads": SHORT_THREADS,
}
THREAD_WORKS = """
import threading, time
def f(n):
    found = []
    def work():
        until = time.thread_time() + 0.6
        while time.thread_time() < until:
            pass
        found.append(n)
    threading.stack_size(1 << 26)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found[0]
"""
THREADS_TAKE_TURNS = """
import threading, time
def f(n):
    def work():
        until = time.thread_time() + 0.15
        while time.thread_time() < until:
            pass
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return n
"""
THREADS_BEGIN_AND_END = """
import threading, time
def f(n):
    def work():
        until = time.thread_time() + 0.003
        while time.thread_time() < until:
            pass
    for _ in range(150):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    return n
"""
WORKS = {
    "the main thread": "import time\ndef f(n):\n    while time.process_time() < 0.6: pass\n    return n",
    "one thread": THREAD_WORKS,
    "threads that take turns": THREADS_TAKE_TURNS,
    "threads that begin and end": THREADS_BEGIN_AND_END,
}


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Each in a session of its own: Linux shares the cores between sessions, and the sandbox has its own too."""
    command = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(command, start_new_session=True) for _ in range(number)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(ScorerConfig(cpu_seconds_per_test=LIMIT, cpu_seconds_per_program=3.0)) as sandbox:
        yield sandbox


@pytest.mark.parametrize("code", SLEEPS.values(), ids=SLEEPS.keys())
def test_every_way_of_sleeping_ends_in_time(sandbox: Sandbox, code: str) -> None:
    began = time.monotonic()
    assert not sandbox.score(ONE, code).passed
    assert time.monotonic() - began < 4 * LIMIT


def test_a_script_that_prints_while_it_sleeps_ends_in_time(sandbox: Sandbox) -> None:
    tests = json.dumps([{"input": "", "output": "1"}])
    code = "import time\nfor _ in range(300):\n    print(' ', end='', flush=True)\n    time.sleep(0.02)\nprint(1)"
    began = time.monotonic()
    verdict = sandbox.score(Problem("p", "", "", TestSuite("stdin", tests)), code)
    assert verdict.status == "timeout"
    assert not verdict.repeatable
    assert time.monotonic() - began < 4 * LIMIT


def test_a_program_that_sleeps_within_its_limit_passes(sandbox: Sandbox) -> None:
    assert sandbox.score(ONE, "import time\ndef f(n):\n    time.sleep(0.4)\n    return n").passed


ENDLESS = "def f(n):\n    while True: pass"
ON_A_BUSY_MACHINE = {
    "sixteen threads": WAITING_THREADS,
    "writes when awake": WRITES_WHEN_AWAKE,
    "an endless loop": ENDLESS,
}


def test_on_a_busy_machine_waiting_for_a_core_is_no_sleep_and_sleep_is_charged(sandbox: Sandbox) -> None:
    with busy_processes(6):
        worked = {name: sandbox.score(ONE, code) for name, code in WORKS.items()}
        slept = {name: sandbox.score(ONE, code) for name, code in ON_A_BUSY_MACHINE.items()}
    assert [name for name, verdict in worked.items() if not verdict.passed] == [], worked
    assert [name for name, verdict in slept.items() if verdict.status != "timeout"] == [], slept


def test_the_time_for_which_this_process_is_late_is_no_sleep(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program answers while this process waits for a core itself: here, by a pause after it looked for an answer."""
    code = "import time\ndef f(n):\n    while time.process_time() < 0.3: pass\n    return n"
    read, paused = Child._read, []

    def late(child: Child, *how: int) -> int:
        arrived = read(child, *how)
        if arrived == 0 and child.spent() > 0.15 and not paused:
            paused.append(time.sleep(1.5))
        return arrived

    monkeypatch.setattr(Child, "_read", late)
    verdict = sandbox.score(ONE, code)
    assert paused
    assert verdict.passed, verdict


@pytest.mark.parametrize("answer", ["[0] * 1_000_000", "[[]] * 900_000", "[str(i) for i in range(400_000)]"])
def test_a_huge_answer_is_not_read(answer: str) -> None:
    tests = calls(*[([n], [n]) for n in range(6)])
    check_tests = check("def check(candidate):\n    for n in range(6):\n        assert candidate(n) == [n], n")
    code = f"def f(n):\n    return {answer}"
    # a busy machine takes a second to write such an answer
    with Sandbox(ScorerConfig(cpu_seconds_per_test=5.0, cpu_seconds_per_program=20.0)) as sandbox:
        assert "gave an answer of" in sandbox.score(tests, code).detail
        assert "its results have more than 4 MiB" in sandbox.score(check_tests, code).detail


def test_a_right_answer_may_be_large(sandbox: Sandbox) -> None:
    code = "def f(n):\n    return [float(i) for i in range(400_000)]"
    assert sandbox.score(calls(([1], list(range(400_000)))), code).passed


LOOKS_AHEAD = """
import gc, os, sys
def f(word):
    found = [it for it in gc.get_objects() if type(it) in (list, tuple)]
    for held in list(found):
        found += [it for it in gc.get_referents(held) if type(it) is bytes]
    frame = sys._getframe()
    while frame:
        found += [it for it in frame.f_locals.values() if type(it) is bytes]
        frame = frame.f_back
    for number in range(3, 64):
        try:
            os.set_blocking(number, False)
            found.append(os.read(number, 1 << 16))
        except OSError:
            pass
        finally:
            try:
                os.set_blocking(number, True)
            except OSError:
                pass
    text = repr([it for it in found if type(it) is bytes])
    return [f"{word[:-1]}{n}" for n in range(int(word[-1]) + 1, 9) if f"{word[:-1]}{n}" in text]
"""


def test_a_program_finds_no_input_before_its_turn(sandbox: Sandbox) -> None:
    """Else it does a hard test's work in advance, on the time of those before it."""
    verdict = sandbox.score(calls(*(([f"the input {n}"], []) for n in range(4))), LOOKS_AHEAD)
    assert verdict.passed, verdict
