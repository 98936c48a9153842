"""The transformers engine: the same interface as vLLM's, slower on a GPU, without further packages.

It decodes batches of whole groups, one batch after the other, with one prefill for each group. Ended rows leave
a batch.

Each response draws one uniform number for each token from a counter-based generator with its own seed, and inverts the
cumulative distribution. So a sample depends on its seed, not on the rest of the batch (except by rounding). The same
requests make the same batches at every token, so rounding is repeatable too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from raypoly.core.config import GeneratorConfig
from raypoly.core.errors import WeightsMismatch
from raypoly.core.values import FinishReason, Float32, Int32
from raypoly.learner.weight_hash import weight_hash
from raypoly.rollouts.engines import Asleep, More, Sample, SampleRequest, Weights, end_tokens
from raypoly.rollouts.engines.gloo_transfer import GlooReceiver
from raypoly.rollouts.engines.kv_cache import decode_as_sdpa, growing_cache
from raypoly.rollouts.engines.transfer import Parcel

_THIN_OUT = 0.75  # of a batch: with fewer rows alive the ended ones are dropped


class TransformersEngine:
    """One model that decodes whole groups, up to `generator.max_sequences` responses at once."""

    takes_more = True

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
        self._receiver = GlooReceiver() if config.transport == "gloo" else None
        # Of the parameters that `sleep` dropped, by `id`; empty while the engine is awake.
        self._shapes: dict[int, torch.Size] = {}
        self.decoded = 0
        """Decoding steps so far: shows progress within a long batch."""
        self._stop = torch.tensor(end_tokens(model_path), device=self._device)

    def sample(self, requests: Sequence[SampleRequest], more: More | None = None) -> Iterator[tuple[int, list[Sample]]]:
        self._check_awake()
        come: Sequence[SampleRequest] | None = requests
        waiting: list[SampleRequest] = []
        while come is not None or waiting:
            waiting += come or ()
            batch, waiting = self._next_batch(waiting)
            if batch:
                yield from Decoding(self._model, batch, self._stop, self._config).groups(self._beat)
            if come is not None:
                come = more(not waiting) if more is not None else None

    def update_weights(self, weights: Weights) -> None:
        self._load((name, torch.from_numpy(value)) for name, value in weights.items())

    def connect(self, info: Mapping[str, Any]) -> None:
        assert self._receiver is not None
        self._receiver.connect(info)

    def receive(self, parcel: Parcel) -> None:
        assert self._receiver is not None
        self._load(self._receiver.receive(parcel))

    def sleep(self, keep: bool = False) -> None:
        """Drop the weights, or move them to the host. Buffers are small and stay."""
        for parameter in self._model.parameters():
            self._shapes.setdefault(id(parameter), parameter.shape)
            parameter.data = parameter.data.cpu() if keep else parameter.data.new_empty(0)
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def wake(self) -> None:
        self._model.to(self._device)
        self._shapes = {}

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

    def _next_batch(self, waiting: list[SampleRequest]) -> tuple[list[SampleRequest], list[SampleRequest]]:
        """The next batch, and what waits after it."""
        count, size = 0, 0
        for request in waiting:
            size += len(request.seeds)
            if count and size > self._config.max_sequences:
                break
            count += 1
        return waiting[:count], waiting[count:]


class Decoding:
    """One batch. Axes: G requests, R responses, B those in the batch, L and T tokens, V words."""

    def __init__(
        self,
        model: PreTrainedModel,
        requests: Sequence[SampleRequest],
        ends: torch.Tensor,
        config: GeneratorConfig,
    ) -> None:
        self._model, self._requests, self._ends, self._temperature = model, requests, ends, config.temperature
        device = ends.device
        limits = [request.limit(config.max_tokens) for request in requests for _ in request.seeds]
        most_tokens = max(limits)
        self._limit_R = torch.tensor(limits, device=device)
        seeds = [seed for request in requests for seed in request.seeds]
        draws = [np.random.Generator(np.random.Philox(key=seed)).random(most_tokens) for seed in seeds]
        self._uniform_RT = torch.from_numpy(np.stack(draws)).to(device)
        self._greedy_R = torch.tensor([r.greedy for r in requests for _ in r.seeds], device=device)
        self._request_R = [g for g, request in enumerate(requests) for _ in request.seeds]
        self._tokens_RT = torch.zeros(len(seeds), most_tokens, dtype=torch.int64, device=device)
        self._logprobs_RT = torch.zeros(len(seeds), most_tokens, device=device)
        self._length_R = limits
        self._ended_R = [False] * len(seeds)
        self._left_G = [len(request.seeds) for request in requests]
        self._row_B = torch.arange(len(seeds), device=device)
        self._alive_B = torch.ones(len(seeds), dtype=torch.bool, device=device)
        longest = max(len(request.prompt_tokens) for request in requests)
        self._cache = growing_cache(model, longest + most_tokens)

    @torch.no_grad()
    def groups(self, beat: Callable[[], None]) -> Iterator[tuple[int, list[Sample]]]:
        """(slot, samples in the order of the seeds) of each group as it ends. `beat` is called for each token."""
        logp_BV = self._read_prompts()
        for t in range(self._tokens_RT.shape[1]):
            token_B1 = self._draw(logp_BV, t)
            beat()
            self._tokens_RT[self._row_B, t] = token_B1[:, 0]
            self._logprobs_RT[self._row_B, t] = logp_BV.gather(1, token_B1)[:, 0]
            stopped_B = torch.isin(token_B1[:, 0], self._ends)
            yield from self._end(self._alive_B & (stopped_B | (self._limit_R[self._row_B] == t + 1)), stopped_B, t)
            if not bool(self._alive_B.any()):
                return
            if t + 1 < self._tokens_RT.shape[1]:
                logp_BV = self._feed(self._drop_ended(token_B1))

    def _read_prompts(self) -> torch.Tensor:
        """Log-probabilities of the first tokens, float32 [R, V], by one prefill for each group."""
        ids_GL, mask_GL = _pad_left([request.prompt_tokens for request in self._requests], self._ends.device)
        positions_GL = (mask_GL.cumsum(1) - 1).clamp(min=0)
        logp_GV = self._forward(ids_GL, mask_GL, positions_GL)
        of_R = torch.tensor(self._request_R, device=self._ends.device)
        self._cache.batch_select_indices(of_R)
        self._mask_BL, self._position_B1 = mask_GL[of_R], mask_GL.sum(1, keepdim=True)[of_R] - 1
        return logp_GV[of_R]

    def _draw(self, logp_BV: torch.Tensor, t: int) -> torch.Tensor:
        # the inverse of the cumulative distribution at the row's own number: no other row has a part in it
        cumulative_BV = logp_BV.double().exp().cumsum(-1)
        point_B1 = self._uniform_RT[self._row_B, t : t + 1] * cumulative_BV[:, -1:]
        token_B1 = torch.searchsorted(cumulative_BV, point_B1, right=True).clamp(max=logp_BV.shape[1] - 1)
        if any(request.greedy for request in self._requests):
            greedy_B1 = self._greedy_R[self._row_B, None]
            token_B1 = torch.where(greedy_B1, logp_BV.argmax(-1, keepdim=True), token_B1)
        return token_B1

    def _end(self, ended_B: torch.Tensor, stopped_B: torch.Tensor, t: int) -> Iterator[tuple[int, list[Sample]]]:
        """Groups that are complete when these rows end with token t, by an end token (`stopped_B`) or their limit."""
        self._alive_B &= ~ended_B
        for row, stopped in zip(self._row_B[ended_B].tolist(), stopped_B[ended_B].tolist(), strict=True):
            self._length_R[row], self._ended_R[row] = t + 1, stopped
            g = self._request_R[row]
            self._left_G[g] -= 1
            if not self._left_G[g]:
                yield self._group(g)

    def _drop_ended(self, token_B1: torch.Tensor) -> torch.Tensor:
        """The next input tokens, without those of ended rows if that is worth a copy."""
        kept_B = self._alive_B.nonzero()[:, 0]
        if len(kept_B) > _THIN_OUT * len(self._alive_B):  # a copy of the cache costs more than a few idle rows
            return token_B1
        self._cache.batch_select_indices(kept_B)
        self._row_B, self._alive_B = self._row_B[kept_B], self._alive_B[kept_B]
        self._mask_BL, self._position_B1 = self._mask_BL[kept_B], self._position_B1[kept_B]
        return token_B1[kept_B]

    def _feed(self, token_B1: torch.Tensor) -> torch.Tensor:
        self._position_B1 = self._position_B1 + 1
        self._mask_BL = torch.cat([self._mask_BL, self._mask_BL.new_ones(len(token_B1), 1)], dim=1)
        return self._forward(token_B1, self._mask_BL, self._position_B1)

    def _forward(self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of the next token after temperature, float32 [rows, V]."""
        logits = self._model(
            ids, attention_mask=mask, position_ids=positions, past_key_values=self._cache, logits_to_keep=1
        ).logits[:, -1]
        return torch.log_softmax(logits.float() / self._temperature, dim=-1)

    def _group(self, g: int) -> tuple[int, list[Sample]]:
        first = self._request_R.index(g)
        return self._requests[g].slot, [self._sample(first + i) for i in range(len(self._requests[g].seeds))]

    def _sample(self, row: int) -> Sample:
        tokens_T, logprobs_T = (all_[row, : self._length_R[row]].cpu() for all_ in (self._tokens_RT, self._logprobs_RT))
        reason: FinishReason = "stop" if self._ended_R[row] else "length"
        return Sample(tokens_T.numpy().astype(np.int32), logprobs_T.numpy().astype(np.float32), reason)


def _pad_left(prompts: Sequence[Int32], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and mask, int64 [G, L]."""
    width = max(len(prompt) for prompt in prompts)
    ids = torch.zeros(len(prompts), width, dtype=torch.int64)
    mask = torch.zeros(len(prompts), width, dtype=torch.int64)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.from_numpy(prompt.astype(np.int64))
        mask[row, width - len(prompt) :] = 1
    return ids.to(device), mask.to(device)
