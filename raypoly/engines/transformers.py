"""Sampling with transformers alone: slower than vLLM on a GPU, the same interface, nothing to install.

Each response draws one uniform number a token from a counter-based generator of its own seed, and inverts the
cumulative distribution: what is sampled depends on the seed, not on the rest of the batch (but for rounding).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from raypoly.config import GeneratorConfig
from raypoly.engines import Asleep, Sample, SampleRequest, Weights
from raypoly.engines.endings import end_tokens
from raypoly.engines.transfer import RECEIVERS, Parcel, build_receiver
from raypoly.errors import WeightsMismatch
from raypoly.values import Float32, Int32


class TransformersEngine:
    """One model that decodes whole groups, as many at once as `generator.max_sequences` allows."""

    def __init__(self, model_path: Path, config: GeneratorConfig, dtype: str) -> None:
        torch.set_num_threads(config.threads)
        self._config = config
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = AutoModelForCausalLM.from_pretrained(model_path, dtype=getattr(torch, dtype))
        self._model = model.to(self._device).eval()
        self._receiver = build_receiver(config.transport) if config.transport in RECEIVERS else None
        self._shapes: dict[int, torch.Size] = {}
        """Of parameters that sleep, by their identity; empty while the engine is awake."""
        self.decoded = 0
        """Tokens a sequence so far: a sign of life within a long batch."""
        self._stop = torch.tensor(end_tokens(model_path), device=self._device)

    def sample(self, requests: Sequence[SampleRequest]) -> Iterator[tuple[int, list[Sample]]]:
        self._check_awake()
        for batch in self._batches(requests):
            prompts = [request.prompt_tokens for request in batch for _ in request.seeds]
            seeds = [seed for request in batch for seed in request.seeds]
            greedy = [request.greedy for request in batch for _ in request.seeds]
            samples = self._decode(prompts, seeds, greedy, batch[0].limit(self._config.max_tokens))
            for request in batch:
                yield request.slot, samples[: len(request.seeds)]
                samples = samples[len(request.seeds) :]

    def update_weights(self, weights: Weights) -> None:
        self._load((name, torch.from_numpy(value)) for name, value in weights.items())

    def connect(self, info: Mapping[str, Any]) -> None:
        assert self._receiver is not None
        self._receiver.connect(info)

    def receive(self, parcel: Parcel) -> None:
        assert self._receiver is not None
        self._load(self._receiver.receive(parcel))

    def sleep(self) -> None:
        """Drop the weights; buffers are small and stay."""
        for parameter in self._model.parameters():
            self._shapes.setdefault(id(parameter), parameter.shape)
            parameter.data = parameter.data.new_empty(0)
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    @torch.no_grad()
    def _load(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copy the weights; an engine that slept is awake when it has all of them."""
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

    @torch.no_grad()
    def _decode(
        self, prompts: Sequence[Int32], seeds: Sequence[int], greedy: Sequence[bool], steps: int
    ) -> list[Sample]:
        uniform_BT = torch.from_numpy(
            np.stack([np.random.Generator(np.random.Philox(key=seed)).random(steps) for seed in seeds])
        ).to(self._device)
        ids_BL, mask_BL = _pad_left(prompts, self._device)
        greedy_B1 = torch.tensor(greedy, device=self._device)[:, None]
        cache = DynamicCache()
        position_B1 = mask_BL.sum(1, keepdim=True) - 1
        positions = (mask_BL.cumsum(1) - 1).clamp(min=0)
        alive_B = torch.ones(len(prompts), dtype=torch.bool, device=self._device)
        tokens: list[torch.Tensor] = []
        logprobs: list[torch.Tensor] = []
        fed = ids_BL
        for t in range(steps):
            logits_BV = self._model(
                fed, attention_mask=mask_BL, position_ids=positions, past_key_values=cache, logits_to_keep=1
            ).logits[:, -1]
            logp_BV = torch.log_softmax(logits_BV.float() / self._config.temperature, dim=-1)
            cumulative_BV = logp_BV.double().exp().cumsum(-1)
            point_B1 = uniform_BT[:, t : t + 1] * cumulative_BV[:, -1:]
            token_B1 = torch.searchsorted(cumulative_BV, point_B1, right=True).clamp(max=logp_BV.shape[1] - 1)
            if any(greedy):
                token_B1 = torch.where(greedy_B1, logp_BV.argmax(-1, keepdim=True), token_B1)
            self.decoded += 1
            tokens.append(token_B1[:, 0])
            logprobs.append(logp_BV.gather(1, token_B1)[:, 0])
            alive_B &= ~torch.isin(token_B1[:, 0], self._stop)
            if not bool(alive_B.any()):
                break
            fed, position_B1 = token_B1, position_B1 + 1
            positions = position_B1
            mask_BL = torch.cat([mask_BL, mask_BL.new_ones(len(prompts), 1)], dim=1)
        return self._cut(torch.stack(tokens, 1).cpu(), torch.stack(logprobs, 1).cpu())

    def _cut(self, tokens_BT: torch.Tensor, logprobs_BT: torch.Tensor) -> list[Sample]:
        """Each row up to and with its first end token."""
        ends_BT = torch.isin(tokens_BT, self._stop.cpu())
        samples = []
        for row, ended in enumerate(ends_BT.any(1).tolist()):
            length = int(ends_BT[row].int().argmax()) + 1 if ended else tokens_BT.shape[1]
            tokens = tokens_BT[row, :length].numpy().astype(np.int32)
            logprobs = logprobs_BT[row, :length].numpy().astype(np.float32)
            samples.append(Sample(tokens, logprobs, "stop" if ended else "length"))
        return samples


def _pad_left(prompts: Sequence[Int32], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and mask, int64 [B, L]."""
    width = max(len(prompt) for prompt in prompts)
    ids = torch.zeros(len(prompts), width, dtype=torch.int64)
    mask = torch.zeros(len(prompts), width, dtype=torch.int64)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.from_numpy(prompt.astype(np.int64))
        mask[row, width - len(prompt) :] = 1
    return ids.to(device), mask.to(device)
