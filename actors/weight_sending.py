"""The learner actor's part in sending weights; `actors.weight_delivery` says who asks for it, and when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ray

from raypoly.config import Config
from raypoly.engines.transfer import Parcel, Sender, build_sender

if TYPE_CHECKING:
    from raypoly.policy.policy_learner import PolicyLearner


class WeightSending:
    """For an actor that has a `PolicyLearner` as `_learner` and a `Config` as `_config`. `peer` names an engine."""

    _learner: PolicyLearner
    _config: Config

    def listen(self, transport: str, peer: str) -> Mapping[str, Any]:
        """A sender for the engine, in place of any that there was; what the engine's `connect` needs."""
        sender = self._senders[peer] = build_sender(transport, self._config.model.dtype)
        return sender.listen(ray.util.get_node_ip_address())

    def connect(self, peer: str) -> None:
        self._senders[peer].connect()

    def offer(self, transport: str, peer: str) -> Parcel:
        """The parcel of the current weights; empty where this actor has not met the engine."""
        version = self._learner.version
        if transport == "objects":
            return Parcel(version, weights=self._learner.export())
        sender = self._senders.get(peer)
        return Parcel(version) if sender is None else sender.offer(self._learner.weights(), version)

    def send(self, peer: str) -> None:
        self._senders[peer].send()

    def withdraw(self, peer: str) -> None:
        if peer in self._senders:
            self._senders[peer].withdraw()

    def release(self) -> None:
        self._learner.release()

    @property
    def _senders(self) -> dict[str, Sender]:
        senders: dict[str, Sender] = self.__dict__.setdefault("_by_peer", {})
        return senders
