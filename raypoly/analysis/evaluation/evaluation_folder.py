"""An evaluation's folder: identity, lease, and rounds of samples.

    folder = EvaluationFolder.of(config, "4f0c...", candidates)      # touches nothing
    store, lease = folder.open()                                     # makes the folder, takes the lease
    for number, samples in enumerate(plan_rounds(store, 64)): ...

Its identity: the digest of the weights (or the endpoint's model), the content of problems and prompts, and the keys
that affect results. Not the number of samples: more may be added.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raypoly.analysis.evaluation.evaluation_config import ModelEvaluationConfig
from raypoly.core.config_keys import flatten_keys
from raypoly.core.errors import UsageError
from raypoly.data.preparing.candidates import Candidate, contents_hash
from raypoly.data.preparing.preparation_folder import read_first_values
from raypoly.run.run_folder import explain_unusable, open_leased, run_location
from raypoly.run.run_identity import Change, keys_without_effect, storage_options
from raypoly.run.store import Lease, Store, open_store
from raypoly.run.store.location import Location, StorageOptions
from raypoly.run.store.sealed_files import seal

ROUND = 16
"""Samples of a problem that are submitted together."""
# Rounds begin at its multiples: 16 samples and then 48 more are submitted in the same way as 64 at once.
_IDENTITY_KEY = "evaluation.json"
_ROUND_KEY = re.compile(r"^rounds/(\d+)-(\d+)\.json$")
_FREE = keys_without_effect(ModelEvaluationConfig) | {"model.path", "model.sha256", "model.lora_alpha"}
_CONTENT = ("problems.", "prompts.")
# Keys of the engine that hold for an endpoint, too.
_OF_AN_ENDPOINT = ("generator.temperature", "generator.max_tokens")


@dataclass(frozen=True)
class EvaluationFolder:
    location: Location
    identity: Mapping[str, Any]
    _options: StorageOptions

    @classmethod
    def of(cls, config: ModelEvaluationConfig, weights: str | None, problems: Sequence[Candidate]) -> EvaluationFolder:
        """`weights`: digest, None for an endpoint. Raises `UsageError` if the place can't be used."""
        given = config.model_dump(mode="json", exclude_defaults=True)  # a later version's new key changes no name
        identity = influential(config, dict(flatten_keys(given)))
        identity |= {"weights": weights, "problem_set": contents_hash(problems)}
        name = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]
        options = storage_options(config.of_a_run())
        return cls(run_location(config.run, f"evaluate-{config.run.name}-{name}", options), identity, options)

    @property
    def is_begun(self) -> bool:
        return open_store(self.location, self._options, make=False).exists(_IDENTITY_KEY)

    def open(self) -> tuple[Store, Lease]:
        """Raises `LeaseHeld` if another driver lives, `UsageError` if the folder holds something else."""
        with explain_unusable(self.location):  # before the lease: a folder of something else is not touched
            self._check(open_store(self.location, self._options, make=False))
        return open_leased(self.location, self._options, "raypoly evaluate", self._record)

    def _record(self, store: Store, _: Lease) -> None:
        self._check(store)
        if not store.exists(_IDENTITY_KEY):
            store.commit(_IDENTITY_KEY, seal(self.identity))

    def _check(self, store: Store) -> None:
        first = read_first_values(store, _IDENTITY_KEY, "evaluation")
        if first is None:
            return
        keys = sorted(first.keys() | self.identity.keys())
        changes = [Change(key, first.get(key), self.identity.get(key)) for key in keys]
        if different := [str(change) for change in changes if change.old != change.new]:
            raise UsageError(
                f"The evaluation in {store.uri} is another one: {'; '.join(different)}. "
                "Use the old values, another run.dir, or run.fresh=true for a new one."
            )


def influential(config: ModelEvaluationConfig, values: Mapping[str, Any]) -> dict[str, Any]:
    """Of the config's `values` by dotted keys, those that affect results."""

    def counts(key: str) -> bool:
        if key in _FREE or key.startswith(_CONTENT):
            return False
        if config.endpoint.url is None:
            return not key.startswith("endpoint.")
        return not key.startswith(("model.", "generator.")) or key in _OF_AN_ENDPOINT

    return {key: value for key, value in values.items() if counts(key)}


def plan_rounds(store: Store, samples: int) -> list[range]:
    """Ranges of sample numbers for the first `samples` of each problem; missing rounds are committed."""
    rounds = sorted((range(int(m[1]), int(m[2])) for k in store.list("rounds/") if (m := _ROUND_KEY.match(k))), key=min)
    done = rounds[-1].stop if rounds else 0
    while done < samples:
        rounds.append(range(done, min(samples, (done // ROUND + 1) * ROUND)))
        done = rounds[-1].stop
        store.commit(f"rounds/{rounds[-1].start:06d}-{done:06d}.json", seal({}))
    return [each for each in rounds if each.start < samples]
