"""Requests to an OpenAI-compatible server that wait while it is away.

    probe = lambda endpoint: endpoint.respond(PROBE, PROBE_TOKENS)
    server = WaitingEndpoint(endpoint, config, "endpoint.max_pause", probe, note=print)
    await server.ask(lambda endpoint: endpoint.respond(messages, 512))

Requests go out from threads of this process, which alone holds the key. While the server is away all wait, and one of
them probes. A request that keeps failing while probes are answered is no outage: it is given up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from raypoly.core.endpoint_config import EndpointConfig
from raypoly.core.errors import Away, JudgeRefused, PausedTooLong
from raypoly.core.text import duration
from raypoly.strategies.judge.openai.completion_request import Completion, RequestFault
from raypoly.strategies.judge.openai.endpoint import Endpoint

FIRST_WAIT = 1.0
"""Seconds before the first probe of a server that is away."""
_LONGEST_WAIT = 60.0
_MOST_FAILURES = 3  # failures of one request, each followed by an answered probe, after which it is given up
Ask = Callable[[Endpoint], Completion]


class WaitingEndpoint:
    """The server: requests in threads, and the pause while it is away."""

    def __init__(
        self,
        endpoint: Endpoint,
        config: EndpointConfig,
        pause_key: str,
        probe: Ask,
        note: Callable[[str], None],
        first_wait: float = FIRST_WAIT,
    ) -> None:
        """`pause_key`: key of `config.max_pause`, for messages. `probe`: a small request."""
        self._endpoint, self._config, self._pause_key, self._probe = endpoint, config, pause_key, probe
        self._note, self._first_wait = note, first_wait
        self._threads = ThreadPoolExecutor(config.concurrency, thread_name_prefix="endpoint")
        self._back = asyncio.Event()
        self._back.set()

    async def ask(self, call: Ask) -> Completion:
        """The answer, after any outage. Raises `JudgeRefused` where none will come, and `PausedTooLong`."""
        failures = 0
        while True:
            await self._back.wait()
            try:
                return await self.once(call)
            except Away as error:
                if self._back.is_set():
                    await self._pause(error)
                await self._back.wait()
                fault = _fault_of(error)
                failures += fault is not None
                if fault is not None and failures == _MOST_FAILURES:
                    raise JudgeRefused(f"{self._endpoint.name} {fault.reason}, though it answers others.") from None

    async def once(self, call: Ask) -> Completion:
        """The answer to one try. Raises `Away` and `JudgeRefused`."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, self._endpoint)

    def close(self) -> None:
        self._endpoint.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _pause(self, error: Away) -> None:
        """Probe until the server answers. Raises `PausedTooLong`."""
        self._back.clear()
        self._note(f"paused: {error}")
        limit = self._config.max_pause
        since, wait = time.monotonic(), self._first_wait
        while True:
            paused = time.monotonic() - since
            if limit is not None and paused >= limit:
                raise PausedTooLong(
                    f"{error} It stayed away for {self._pause_key}={limit:g} s; everything is committed, resume with "
                    "the same command."
                )
            await asyncio.sleep(wait if limit is None else min(wait, limit - paused))
            wait = min(2 * wait, _LONGEST_WAIT)
            try:
                await self.once(self._probe)
            except Away as still:
                error = still
                continue
            except JudgeRefused:
                pass  # it answers
            break
        self._note(f"the endpoint answers again after {duration(time.monotonic() - since)}")
        self._back.set()


def _fault_of(error: Away) -> RequestFault | None:
    """The fault of the request itself, if any."""
    # None: it was not sent, as another had found the server away; or a limit or key, which time or a person mends.
    fault = error.__context__
    return fault if isinstance(fault, RequestFault) and fault.kind == "transient" else None
