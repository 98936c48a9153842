"""The lease on remote storage: who creates `lease/epoch-000007.json` first holds epoch 7 and rewrites a heartbeat.

    lease/epoch-000007.json   the holder, written once, by a write that only creates
    lease/beat-000007.json    rewritten every few seconds by a thread; says `released` in the end

A newcomer takes over at once after a release or where the holder is a dead process of this machine; else when it has
seen the same beat for `ttl` seconds of its own clock. A beat that changes meanwhile proves life: `LeaseHeld`.

Nobody writes after a take-over, whatever was paused or cut off. A renewal first rewrites the beat and then looks for a
newer epoch; what it allows ends `ttl - timeout` seconds after its *start*, and every request ends within `timeout`. A
newcomer creates its epoch and then looks at the old beat once more: had it changed, the old holder could have looked
before the new epoch was there, and the newcomer waits until that holder's time is over. Clocks are not compared, only
seconds counted.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from raypoly.errors import LeaseHeld, StaleEpoch, StorageError
from raypoly.store.lease import Lease
from raypoly.store.lease_owner import LeaseOwner
from raypoly.store.remote_store import RemoteStore

logger = logging.getLogger(__name__)

_EPOCH = re.compile(r"^(?:lease|starts)/epoch-(\d+)\.json$")
_BEATS = 12
"""Heartbeats in `ttl` seconds."""
_LOOKS = 60
"""Looks of a newcomer in `ttl` seconds."""
_GAP = 4.0
"""Seconds from look to write in which a storage without conditional writes must take an epoch."""


@dataclass(frozen=True)
class _Claim:
    """What an epoch's object says."""

    epoch: int
    ttl: float
    """Seconds without a beat after which the holder writes nothing more."""
    holder: LeaseOwner | None
    """None where the object is damaged."""

    @property
    def named(self) -> str:
        return self.holder.named if self.holder else f"another driver (epoch {self.epoch})"


class RemoteLease(Lease):
    """A heartbeat; `check` may be called from any thread."""

    def __init__(self, store: RemoteStore, epoch: int, description: str) -> None:
        self.epoch = epoch
        self._store = store
        self._lane = store.hurried()
        self._ttl = 2 * store.options.timeout
        self._holder = LeaseOwner.this_process(description)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._beats = 0
        self._valid_until = -1.0
        self._overtaken: StaleEpoch | None = None
        os.register_at_fork(after_in_child=self._closed.set)  # a forked child has no thread that beats

    @classmethod
    def take(cls, store: RemoteStore, description: str) -> RemoteLease:
        """As `Lease.acquire`."""
        newest = newest_epoch(store)
        before = read_claim(store, newest, 2 * store.options.timeout) if newest else None
        seen = _wait_until_free(store, before) if before else None
        lease = cls(store, newest + 1, description)
        lease._claim_epoch()
        lease._renew()
        threading.Thread(target=lease._keep_beating, name="lease", daemon=True).start()
        if before is not None and seen is not None:
            _outwait(store, before, seen)
        store.fence = lease.check
        store.clean()
        return lease

    def check(self) -> None:
        """Costs a request only where the heartbeat is late; then it is waited for as for any request."""
        until = _clock() + self._store.options.patience
        while True:
            if self._closed.is_set():
                raise StaleEpoch(f"The lease on {self._store.uri} was given back: nothing more may be written.")
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
        with self._lock:  # a beat that is under way would come after the mark
            try:
                self._beat(released=True)
            except StorageError as error:
                logger.warning("the lease could not be given back, it ends by itself in %.0f s: %s", self._ttl, error)

    def _claim_epoch(self) -> None:
        """Create the epoch's object, or raise `LeaseHeld`."""
        key, started = _epoch_key(self.epoch), _clock()
        content = self._content()
        if not self._lane.create(key, content):
            raise _held(self._store, read_claim(self._store, self.epoch, self._ttl))
        if self._lane.conditional:
            other = self._content()
            if not self._lane.create(key, other):
                return
            logger.warning("%s takes conditional writes and ignores the condition", self._store.uri)
            content = other
        self._store.forget_conditions()
        self._lane.forget_conditions()
        if _clock() - started > _GAP:
            raise StorageError(f"{self._store.uri} is too slow to decide who holds it; start again.")
        time.sleep(_GAP + 1.0)
        if self._lane.read(key) != content:
            raise _held(self._store, read_claim(self._store, self.epoch, self._ttl))

    def _content(self) -> bytes:
        """The epoch's object; no two are the same."""
        fields = {"epoch": self.epoch, "ttl": self._ttl, "token": uuid.uuid4().hex, **asdict(self._holder)}
        return json.dumps(fields, indent=2).encode()

    def _renew(self) -> None:
        """First the beat, then the look: one of two drivers that do so at once sees the other."""
        started = _clock()
        self._beat()
        if self._lane.exists(_epoch_key(self.epoch + 1)):
            newer = read_claim(self._store, self.epoch + 1, self._ttl)
            self._overtaken = StaleEpoch(
                f"{self._store.uri} was taken over by {newer.named} (epoch {newer.epoch}, this one is {self.epoch}): "
                "this driver stops and writes nothing more."
            )
            raise self._overtaken
        self._valid_until = started + self._ttl - self._store.options.timeout

    def _beat(self, released: bool = False) -> None:
        self._beats += 1
        now = datetime.now(UTC).isoformat(timespec="seconds")
        content = {"beat": self._beats, "at": now, "released": released}
        self._lane.put_mutable(_beat_key(self.epoch), json.dumps(content).encode())

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


def newest_epoch(store: RemoteStore) -> int:
    """Of all that ever held it; what a start recorded counts too, in case the lease's own objects were deleted."""
    keys = (*store.list("lease/"), *store.list("starts/"))
    return max((int(found[1]) for key in keys if (found := _EPOCH.match(key))), default=0)


def _wait_until_free(store: RemoteStore, claim: _Claim) -> bytes | None:
    """Return when its holder may be followed: None where it surely writes no more, else the beat that stood still."""
    seen, since = read_beat(store, claim.epoch), _clock()
    while True:
        if is_released(seen) or (claim.holder is not None and claim.holder.is_gone):
            return None
        if _clock() - since > claim.ttl:
            return seen
        time.sleep(claim.ttl / _LOOKS)
        now = read_beat(store, claim.epoch)
        if now != seen and not is_released(now):
            raise _held(store, claim)
        seen = now


def _outwait(store: RemoteStore, claim: _Claim, seen: bytes) -> None:
    """A holder that came back between the newcomer's last look and its epoch has `ttl` seconds at most."""
    since, now = _clock(), read_beat(store, claim.epoch)
    while now != seen and not is_released(now) and _clock() - since < claim.ttl:
        time.sleep(claim.ttl / _LOOKS)
        now = read_beat(store, claim.epoch)


def read_claim(store: RemoteStore, epoch: int, ttl: float) -> _Claim:
    """What is known of an epoch's holder; `ttl` is taken where its object is damaged or gone."""
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


def _held(store: RemoteStore, claim: _Claim) -> LeaseHeld:
    return LeaseHeld(f"{store.uri} is held by {claim.named}: wait for it or stop it.")


def read_beat(store: RemoteStore, epoch: int) -> bytes:
    """The heartbeat as it is; empty where there is none yet."""
    key = _beat_key(epoch)
    return store.read(key) if store.exists(key) else b""


def is_released(beat: bytes) -> bool:
    try:
        return bool(json.loads(beat)["released"])
    except (ValueError, TypeError, KeyError):
        return False


def _epoch_key(epoch: int) -> str:
    return f"lease/epoch-{epoch:06d}.json"


def _beat_key(epoch: int) -> str:
    return f"lease/beat-{epoch:06d}.json"


def _clock() -> float:
    """Seconds, those included in which the machine slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
