"""The vLLM engine, in this process. Only the `vllm_*.py` files touch vLLM's internals."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from transformers import AutoConfig

from raypoly.core.config import GeneratorConfig
from raypoly.core.values import Float32, Int32
from raypoly.rollouts.engines import (
    CPU_BLOCK,
    Asleep,
    More,
    Sample,
    SampleRequest,
    Weights,
    cpu_cache_bytes,
    end_tokens,
)
from raypoly.rollouts.engines.transfer import Parcel
from raypoly.rollouts.engines.vllm_transfer import backend, checked_vllm, update_info
from raypoly.rollouts.engines.vllm_weights import LOAD_FORMAT, LoadedWeights, keep_head_in_float32, register_loader


# Facts about vLLM 0.32 that it relies on:
#
# - A GPU takes Model Runner V2, a CPU V1; docs/gpu.md says what differs.
# - On a CPU a tied head silently keeps its old weights, so the engine is given an untied one (`vllm_weights.py`).
# - The prefix cache survives a reload and must be reset.
# - On AMX processors bf16 kernels crash unless the process has requested the tile state.
# - `processed_logprobs` are log-probabilities after temperature.
# - In sleep level 2 a GPU keeps neither weights nor cache: wake the weights, fill them, then wake the cache. A CPU
#   engine keeps its memory while it sleeps.
class VllmEngine:
    """One in-process vLLM engine."""

    takes_more = True
    _sampling = False

    def __init__(self, model_path: Path, config: GeneratorConfig, dtype: str) -> None:
        cuda = torch.cuda.is_available()
        _prepare_process(config, dtype, cuda)
        vllm = checked_vllm()  # after the environment is set: vLLM reads it at import
        model = AutoConfig.from_pretrained(model_path)
        tied = not cuda and model.tie_word_embeddings
        if tied:
            register_loader()
        cache = {} if cuda else {"kv_cache_memory_bytes": cpu_cache_bytes(config, _token_bytes(model, dtype))}
        self._config = config
        self._stop = end_tokens(model_path)
        self._vllm = vllm
        self._asleep = False
        self._engine: Any = vllm.LLMEngine.from_engine_args(
            vllm.EngineArgs(
                model=str(model_path),
                dtype=dtype,
                # logits as the learner has them: sums in float32, not rounded
                hf_overrides={"head_dtype": "float32", **({"tie_word_embeddings": False} if tied else {})},
                max_model_len=config.longest_row,
                max_num_seqs=config.max_sequences,
                logprobs_mode="processed_logprobs",
                generation_config="vllm",
                enable_prefix_caching=True,
                block_size=CPU_BLOCK if not cuda else None,
                gpu_memory_utilization=config.gpu_memory_fraction,
                enable_sleep_mode=cuda and config.placement == "colocated",
                weight_transfer_config=backend(config.transport),
                disable_log_stats=True,
                # A CPU engine compiles nothing (it would need a C++ compiler and half a minute), and never cuts a
                # prompt in two: seeded sampling behind a partial prefill needs a generator offset, which CPUs lack.
                # Runner V2 has no generators: its noise is a hash of seed, position and token.
                enforce_eager=not cuda,
                enable_chunked_prefill=cuda,
                max_num_batched_tokens=max(8192, config.longest_row),
                seed=0,
                **cache | ({"load_format": LOAD_FORMAT} if tied else {}) | config.engine_args,
            )
        )
        (self._loaded,) = self._engine.apply_model(partial(LoadedWeights, dtype=getattr(torch, dtype)))
        if not cuda:
            self._engine.apply_model(keep_head_in_float32)
            self._engine.apply_model(fuse_norms)
            skip_ranks()
        self.set_weight_version(0)
        self._submitted = 0
        self.decoded = 0
        """Engine steps so far: shows progress within a long group."""

    def sample(self, requests: Sequence[SampleRequest], more: More | None = None) -> Iterator[tuple[int, list[Sample]]]:
        self._check_awake()
        self._forget_prefixes()
        self._sampling = True
        try:
            yield from self._groups(requests, more)
        finally:
            self._sampling = False

    def _groups(self, requests: Sequence[SampleRequest], more: More | None) -> Iterator[tuple[int, list[Sample]]]:
        place: dict[str, tuple[int, int]] = {}
        groups: dict[int, list[Sample | None]] = {}
        come: Sequence[SampleRequest] | None = requests
        while True:
            for request in come or ():
                groups[request.slot] = [None] * len(request.seeds)
                for index, name in enumerate(self._add(request)):
                    place[name] = (request.slot, index)
            idle = not self._engine.has_unfinished_requests()
            if more is not None and come is not None:
                come = more(idle)
                if idle:
                    continue
            elif idle:
                return
            else:
                come = None
            self.decoded += 1
            for output in self._engine.step():
                if not output.finished:
                    continue
                slot, index = place.pop(output.request_id)
                groups[slot][index] = _sample(output.outputs[0])
                done = [sample for sample in groups[slot] if sample is not None]
                if len(done) == len(groups[slot]):
                    yield slot, done

    def _add(self, request: SampleRequest) -> Iterator[str]:
        """Its names in the engine, one a response."""
        prompt = {"prompt_token_ids": request.prompt_tokens.tolist()}
        limit = request.limit(self._config.max_tokens)
        for seed in request.seeds:
            self._submitted += 1
            name = str(self._submitted)
            own: dict[str, Any] = {"temperature": 0.0} if request.greedy else {"seed": seed}
            if request.schema is not None:
                own["structured_outputs"] = self._vllm.sampling_params.StructuredOutputsParams(json=request.schema)
            self._engine.add_request(name, prompt, self._params(max_tokens=limit, **own))
            yield name

    def update_weights(self, weights: Weights) -> None:
        tensors = [(name, torch.from_numpy(np.ascontiguousarray(value))) for name, value in weights.items()]
        with self._renewed():
            self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": tensors})

    def set_weight_version(self, version: int) -> None:
        self._engine.set_weight_version(str(version))

    def connect(self, info: Mapping[str, Any]) -> None:
        self._engine.collective_rpc("init_weight_transfer_engine", kwargs={"init_info": dict(info)})

    def receive(self, parcel: Parcel) -> None:
        info = update_info(self._config.transport, parcel)
        with self._renewed():
            self._engine.collective_rpc("start_weight_update")
            self._engine.collective_rpc("update_weights", kwargs={"update_info": info})
            self._engine.collective_rpc("finish_weight_update")

    def weight_hashes(self) -> dict[str, str]:
        """As `LoadedWeights.hashes`, which says what they prove on a CPU."""
        self._check_awake()
        hashes: dict[str, str] = self._loaded.hashes()
        return hashes

    def sleep(self, keep: bool = False) -> None:
        self._asleep = True
        self._engine.sleep(level=1 if keep else 2)

    def wake(self) -> None:
        self._engine.wake_up()
        self._asleep = False

    @contextmanager
    def _renewed(self) -> Iterator[None]:
        """Inside, replace the weights. Afterwards the engine is awake and keeps nothing of the old ones, but for keys
        and values until the submission that is under way ends."""
        if self._asleep:
            self._engine.wake_up(tags=["weights"])
        yield
        if self._asleep:
            self._engine.wake_up(tags=["kv_cache"])
            self._asleep = False
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # the next batch may be another thread's, on another stream
        if not self._sampling:
            self._forget_prefixes()

    def _forget_prefixes(self) -> None:
        # A block of old weights would be wrong. And a prompt that begins with a kept block takes fewer tokens of a
        # batch, which moves the batch's border and so rounds others otherwise: a submission has to give the same bits
        # in a process that went on and in one that began with it.
        if not self._engine.reset_prefix_cache():
            raise RuntimeError("vLLM kept its prefix cache: requests are still running")

    def _check_awake(self) -> None:
        if self._asleep:
            raise Asleep("vllm")

    def prompt_logprobs(self, tokens: Int32) -> Float32:
        self._check_awake()
        self._submitted += 1
        params = self._params(max_tokens=1, prompt_logprobs=0)
        self._engine.add_request(str(self._submitted), {"prompt_token_ids": tokens.tolist()}, params)
        found = None
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                found = output.prompt_logprobs if output.finished else None
        assert found is not None
        ids = tokens.tolist()
        return np.array([found[i][ids[i]].logprob for i in range(1, len(ids))], dtype=np.float32)

    def _params(self, **changes: Any) -> Any:
        chosen: dict[str, Any] = {
            "temperature": self._config.temperature,
            "max_tokens": self._config.max_tokens,
            "stop_token_ids": self._stop,
            "logprobs": 0,
            "detokenize": False,
            # a step makes no outputs for requests that go on: nobody reads them
            "output_kind": self._vllm.sampling_params.RequestOutputKind.FINAL_ONLY,
        }
        return self._vllm.SamplingParams(**(chosen | changes))


def _prepare_process(config: GeneratorConfig, dtype: str, cuda: bool) -> None:
    """Set vLLM's environment variables and the process state that its CPU kernels need."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if cuda:
        return
    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # vLLM's log-prob ranks are compiled even in eager mode
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    os.environ["OMP_NUM_THREADS"] = str(config.threads)
    torch.set_num_threads(config.threads)
    if dtype == "bfloat16" and hasattr(torch.cpu, "_init_amx"):
        torch.cpu._init_amx()


def _token_bytes(model: Any, dtype: str) -> int:
    # keys and values of one token in all layers, by transformers' config
    shape = model.get_text_config()
    head = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    keys = getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads
    return int(2 * shape.num_hidden_layers * keys * head * getattr(torch, dtype).itemsize)


def _sample(output: Any) -> Sample:
    tokens = np.array(output.token_ids, dtype=np.int32)
    logprobs = [position[token].logprob for token, position in zip(tokens.tolist(), output.logprobs, strict=True)]
    ended = output.finish_reason == "stop"
    spans: list[Any] = output.weight_versions or []
    return Sample(
        tokens,
        np.array(logprobs, dtype=np.float32),
        "stop" if ended else "length",
        weight_version=int(spans[0].version) if spans else None,
        newer_from=spans[1].start if len(spans) > 1 else None,
    )


def fuse_norms(model: Module) -> None:
    """Let the bfloat16 norms of `model` use vLLM's kernels for a CPU. Weights are read at each call."""
    norm: Any = import_module("vllm.model_executor.layers.layernorm").RMSNorm
    for module in model.modules():
        plain = type(module) is norm and module.has_weight and module.variance_size_override is None
        if plain and module.weight.dtype == torch.bfloat16:
            module.forward = _fused(module)


def skip_ranks() -> None:
    """Let vLLM's sampler in this process report rank 0 for every token, uncounted."""
    sampler: Any = import_module("vllm.v1.sample.sampler")
    sampler.batched_count_greater_than = _no_ranks


def _fused(norm: Any) -> Callable[..., Any]:
    kernels = torch.ops._C

    def forward(x: Tensor, residual: Tensor | None = None) -> Any:
        x = x.contiguous()  # the kernels take no strides
        if residual is None:
            normed = torch.empty_like(x)
            kernels.rms_norm(normed, x, norm.weight.data, norm.variance_epsilon)
            return normed
        residual = residual.contiguous()
        kernels.fused_add_rms_norm(x, residual, norm.weight.data, norm.variance_epsilon)  # changes both
        return x, residual

    return forward


def _no_ranks(logprobs: Tensor, chosen: Tensor) -> Tensor:
    return torch.zeros(len(logprobs), dtype=torch.int64)
