"""The transformers engine: the same interface as vLLM's, slower on a GPU, without further packages.

It decodes batches of whole groups, one batch after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from raypoly.core.config import GeneratorConfig
from raypoly.core.errors import WeightsMismatch
from raypoly.core.values import Float32, Int32
from raypoly.learner.weight_hash import weight_hash
from raypoly.rollouts.engines import Asleep, Sample, SampleRequest, Weights, end_tokens
from raypoly.rollouts.engines.batch_decoding import Decoding
from raypoly.rollouts.engines.kv_cache import decode_as_sdpa, growing_cache
from raypoly.rollouts.engines.transfer import RECEIVERS, Parcel, build_receiver


class TransformersEngine:
    """One model that decodes whole groups, up to `generator.max_sequences` responses at once."""

    probe_tokens = 8
    """Tokens of a probe's response: the cache has no blocks, and ends with each call."""

    def __init__(self, model_path: Path, config: GeneratorConfig, dtype: str) -> None:
        torch.set_num_threads(config.threads)
        self._config, self._dtype = config, getattr(torch, dtype)
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = AutoModelForCausalLM.from_pretrained(model_path, dtype=self._dtype)
        decode_as_sdpa(model)
        growing_cache(model, most=1)  # refuses layers that have none
        self._model = model.to(self._device).eval()
        self._receiver = build_receiver(config.transport) if config.transport in RECEIVERS else None
        # Of the parameters that `sleep` dropped, by `id`; empty while the engine is awake.
        self._shapes: dict[int, torch.Size] = {}
        self.decoded = 0
        """Decoding steps so far: shows progress within a long batch."""
        self._stop = torch.tensor(end_tokens(model_path), device=self._device)

    def sample(self, requests: Sequence[SampleRequest]) -> Iterator[tuple[int, list[Sample]]]:
        self._check_awake()
        for batch in self._batches(requests):
            limit = batch[0].limit(self._config.max_tokens)
            yield from Decoding(self._model, batch, self._stop, self._config.temperature, limit).groups(self._beat)

    def update_weights(self, weights: Weights) -> None:
        self._load((name, torch.from_numpy(value)) for name, value in weights.items())

    def connect(self, info: Mapping[str, Any]) -> None:
        assert self._receiver is not None
        self._receiver.connect(info)

    def receive(self, parcel: Parcel) -> None:
        assert self._receiver is not None
        self._load(self._receiver.receive(parcel))

    def sleep(self) -> None:
        """Drop the weights. Buffers are small and stay."""
        for parameter in self._model.parameters():
            self._shapes.setdefault(id(parameter), parameter.shape)
            parameter.data = parameter.data.new_empty(0)
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def weight_hashes(self) -> dict[str, str]:
        self._check_awake()
        return {name: weight_hash(tensor, self._dtype) for name, tensor in self._model.state_dict().items()}

    @torch.no_grad()
    def _load(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copy the weights. A sleeping engine is awake when it has all of them."""
        for parameter in self._model.parameters():
            if id(parameter) in self._shapes and not parameter.numel():
                parameter.data = parameter.data.new_empty(self._shapes[id(parameter)])
        state = self._model.state_dict(keep_vars=True)
        missing = set(self._shapes)
        for name, value in weights:
            state[name].copy_(value)
            missing.discard(id(state[name]))
        if missing:
            names = [name for name, parameter in self._model.named_parameters() if id(parameter) in missing]
            raise WeightsMismatch(f"The engine slept and got no new {', '.join(names)}: nothing to sample with.")
        self._shapes = {}

    def _beat(self) -> None:
        self.decoded += 1

    def _check_awake(self) -> None:
        if self._shapes:
            raise Asleep("transformers")

    @torch.no_grad()
    def prompt_logprobs(self, tokens: Int32) -> Float32:
        self._check_awake()
        ids = torch.from_numpy(tokens.astype(np.int64))[None].to(self._device)
        logp = torch.log_softmax(self._model(ids, use_cache=False).logits[0, :-1].float(), dim=-1)
        out: Float32 = logp.gather(1, ids[0, 1:, None]).squeeze(1).cpu().numpy().astype(np.float32)
        return out

    def _batches(self, requests: Sequence[SampleRequest]) -> Iterator[list[SampleRequest]]:
        batch: list[SampleRequest] = []
        for request in requests:
            size = sum(len(r.seeds) for r in batch) + len(request.seeds)
            if batch and (size > self._config.max_sequences or batch[0].max_tokens != request.max_tokens):
                yield batch
                batch = []
            batch.append(request)
        if batch:
            yield batch
