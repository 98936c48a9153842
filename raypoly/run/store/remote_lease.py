"""The lease on remote storage. The first to create `lease/epoch-000007.json` owns epoch 7 and rewrites a heartbeat.

    lease/epoch-000007.json   the owner, written once, by a write that only creates
    lease/beat-000007.json    the heartbeat, rewritten every few seconds by a thread; says `released` in the end

A newcomer takes over at once after a release, or if the owner is a dead process of this machine. Otherwise it takes
over when it has seen the same beat for `ttl` seconds of its own clock. A beat that changes meanwhile proves that the
owner lives: `LeaseHeld`.
"""

# Why nobody writes after a take-over, even a process that was paused or cut off: a renewal first rewrites the beat,
# then looks for a newer epoch. It allows writes until `ttl - timeout` seconds after its *start*, and every request ends
# within `timeout`. A newcomer creates its epoch and then reads the old beat once more. If that beat has changed, the
# old owner may have looked before the new epoch was there, so the newcomer waits until that owner's time is over. No
# two clocks are compared; only seconds are counted.

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from raypoly.core.errors import StaleEpoch, StorageError
from raypoly.core.text import duration
from raypoly.run.store.lease import Lease, LeaseOwner, LeaseState, lease_held, lease_overtaken, lease_released
from raypoly.run.store.store import NO_CONDITION, USE_OTHER, Store

logger = logging.getLogger(__name__)

_EPOCH = re.compile(r"^(?:lease|starts)/epoch-(\d+)\.json$")
_BEATS = 12  # heartbeats in `ttl` seconds
_LOOKS = 60  # how often a newcomer reads the beat in `ttl` seconds


@dataclass(frozen=True)
class _Claim:
    epoch: int
    ttl: float
    """Seconds without a beat after which the owner writes nothing more."""
    owner: LeaseOwner | None
    """None if the object is damaged."""

    @property
    def description(self) -> str:
        return self.owner.description if self.owner else f"another driver (epoch {self.epoch})"


class RemoteLease(Lease):
    """A heartbeat. `check` may be called from any thread."""

    def __init__(self, store: Store, epoch: int, description: str) -> None:
        self.epoch = epoch
        self._store = store
        # Its own requests must end, and be repeated, well within the time that a beat allows.
        timeout = store.options.timeout
        self._lease_store = store.with_options(replace(store.options, timeout=timeout / 3, patience=timeout))
        self._ttl = 2 * timeout
        self._owner = LeaseOwner.this_process(description)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._beats = 0
        self._valid_until = -1.0
        self._overtaken: StaleEpoch | None = None
        os.register_at_fork(after_in_child=self._closed.set)  # a forked child has no thread that beats

    @classmethod
    def acquire(cls, store: Store, description: str) -> RemoteLease:
        newest = newest_remote_epoch(store)
        before = _read_claim(store, newest, 2 * store.options.timeout) if newest else None
        lives, seen = _watch(store, before, before.ttl) if before else (False, b"")
        if before and lives:
            raise lease_held(store.uri, before.description)
        lease = cls(store, newest + 1, description)
        lease._claim_epoch()
        lease._renew()
        threading.Thread(target=lease._keep_beating, name="lease", daemon=True).start()
        if before and lives is None:
            _wait_out_old_owner(store, before, seen)
        store.fence = lease.check
        store.clean()
        return lease

    def check(self) -> None:
        # A request is sent only if the heartbeat is late, and is then waited for as any other.
        until = _clock() + self._store.options.patience
        while True:
            if self._closed.is_set():
                raise lease_released(self._store.uri)
            if self._overtaken is not None:
                raise self._overtaken
            if _clock() < self._valid_until:
                return
            try:
                with self._lock:
                    if _clock() >= self._valid_until:
                        self._renew()
            except StorageError:
                if _clock() > until:
                    raise

    def release(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        with self._lock:  # a beat under way would overwrite the mark
            try:
                self._beat(released=True)
            except StorageError as error:
                logger.warning("the lease could not be given back, it ends by itself in %.0f s: %s", self._ttl, error)

    def _claim_epoch(self) -> None:
        """Create the epoch's object, or raise `LeaseHeld`."""
        key = _epoch_key(self.epoch)
        if not self._lease_store.create(key, self._content()):
            raise lease_held(self._store.uri, _read_claim(self._store, self.epoch, self._ttl).description)
        if self._lease_store.create(key, self._content()):
            raise StorageError(f"{self._store.uri} can't be written safely ({NO_CONDITION}); {USE_OTHER}.")

    def _content(self) -> bytes:
        # The token makes each try different: a storage that ignores the condition can't hide that it replaced one.
        fields = {"epoch": self.epoch, "ttl": self._ttl, "token": uuid.uuid4().hex, **asdict(self._owner)}
        return json.dumps(fields, indent=2).encode()

    def _renew(self) -> None:
        # First the beat, then the look: of two drivers that do so at once, at least one sees the other. The time counts
        # from before the beat, since a newcomer may have read it the moment that it was written.
        started = _clock()
        self._beat()
        if self._lease_store.exists(_epoch_key(self.epoch + 1)):
            newer = _read_claim(self._store, self.epoch + 1, self._ttl)
            self._overtaken = lease_overtaken(self._store.uri, newer.description, newer.epoch, self.epoch)
            raise self._overtaken
        self._valid_until = started + self._ttl - self._store.options.timeout

    def _beat(self, released: bool = False) -> None:
        self._beats += 1
        now = datetime.now(UTC).isoformat(timespec="seconds")
        content = {"beat": self._beats, "at": now, "released": released}
        self._lease_store.put_mutable(_beat_key(self.epoch), json.dumps(content).encode())

    def _keep_beating(self) -> None:
        while not self._closed.wait(self._ttl / _BEATS):
            try:
                with self._lock:
                    if not self._closed.is_set():
                        self._renew()
            except StorageError as error:
                logger.warning("the lease could not be renewed, trying again: %s", error)
            except StaleEpoch:
                return


def newest_remote_epoch(store: Store) -> int:
    """The newest epoch ever owned, 0 for none."""
    # The starts count too, in case the lease's own objects were deleted.
    keys = (*store.list("lease/"), *store.list("starts/"))
    return max((int(found[1]) for key in keys if (found := _EPOCH.match(key))), default=0)


def _watch(store: Store, claim: _Claim, seconds: float) -> tuple[bool | None, bytes]:
    """Whether an owner lives (None: its beat stood still for `seconds`), and its last beat."""
    seen, since = _read_beat(store, claim.epoch), _clock()
    while not _is_released(seen) and not (claim.owner is not None and claim.owner.is_gone):
        if _clock() - since > seconds:
            return None, seen
        time.sleep(claim.ttl / _LOOKS)
        now = _read_beat(store, claim.epoch)
        if now != seen and not _is_released(now):
            return True, now
        seen = now
    return False, seen


def _wait_out_old_owner(store: Store, claim: _Claim, seen: bytes) -> None:
    # An owner that came back between the newcomer's last look and its epoch may write for `ttl` seconds at most.
    since, now = _clock(), _read_beat(store, claim.epoch)
    while now != seen and not _is_released(now) and _clock() - since < claim.ttl:
        time.sleep(claim.ttl / _LOOKS)
        now = _read_beat(store, claim.epoch)


def _read_claim(store: Store, epoch: int, ttl: float) -> _Claim:
    """An epoch's object; without an owner, and with the given `ttl`, if it is damaged or gone."""
    try:
        fields: Mapping[str, Any] = json.loads(store.read(_epoch_key(epoch)))
        known = {name: fields[name] for name in ("host", "pid", "command", "since", "machine", "started")}
        return _Claim(epoch, float(fields["ttl"]), LeaseOwner(**known))
    except (ValueError, TypeError, KeyError):
        return _Claim(epoch, ttl, None)
    except StorageError:
        if store.exists(_epoch_key(epoch)):
            raise
        return _Claim(epoch, ttl, None)


def _read_beat(store: Store, epoch: int) -> bytes:
    key = _beat_key(epoch)
    return store.read(key) if store.exists(key) else b""


def _is_released(beat: bytes) -> bool:
    try:
        return bool(json.loads(beat)["released"])
    except (ValueError, TypeError, KeyError):
        return False


def probe_remote_lease(store: Store) -> LeaseState | None:
    epoch = newest_remote_epoch(store)
    if not epoch:
        return None
    claim = _read_claim(store, epoch, 2 * store.options.timeout)
    if claim.owner is None and not _read_beat(store, epoch):
        return LeaseState(epoch, None, f"last held in epoch {epoch}, of which the lease's objects are gone or damaged")
    lives, seen = _watch(store, claim, claim.ttl / 4)
    if lives:
        return LeaseState(epoch, True, f"held by {claim.description}")
    if lives is None:
        still = f"whose heartbeat stood still for {duration(claim.ttl / 4)}"
        return LeaseState(epoch, None, f"perhaps held by {claim.description}, {still}")
    if _is_released(seen):
        return LeaseState(epoch, False, f"free; given back by {claim.description}")
    return LeaseState(epoch, False, f"free; last held by {claim.description}, which has ended")


def _epoch_key(epoch: int) -> str:
    return f"lease/epoch-{epoch:06d}.json"


def _beat_key(epoch: int) -> str:
    return f"lease/beat-{epoch:06d}.json"


def _clock() -> float:
    # Unlike `monotonic`, this counts the time in which the machine slept: others took over meanwhile.
    return time.clock_gettime(time.CLOCK_BOOTTIME)
