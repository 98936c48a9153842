"""The learner on one rank: gradients of a loss over packed responses, AdamW in fp32.

    learner.begin(step, Normalisers(prompts=20, rollouts=8, t_max=56))
    learner.accumulate(rows)          # as often as groups are ready, in prompt order
    stats = learner.apply()           # clip, step; the version goes up by one

It knows no objective: rows are tokens, an advantage, and the sampler's log-probabilities.
"""

from __future__ import annotations

import copy
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load as load_safetensors
from transformers import PreTrainedModel

from raypoly.config import ModelConfig, TrainConfig
from raypoly.errors import CorruptData
from raypoly.losses.aggregation import Normalisers, final_factor, response_weight
from raypoly.losses.base import Loss
from raypoly.losses.measures import Sums
from raypoly.losses.tokens import Tokens
from raypoly.policy.adapters import add_adapters, merged_weights, trained_weights
from raypoly.policy.mismatch import check_mismatch
from raypoly.policy.models import load_model, response_logprobs
from raypoly.policy.recomputing import recompute
from raypoly.policy.reference import Reference
from raypoly.policy.rows import MicroBatch, Packer, Row, pack
from raypoly.policy.snapshots import ADAPTERS, META, OPTIMIZER, Snapshot, host_copy, weight_digest
from raypoly.policy.stats import UpdateStats
from raypoly.seeds import derive
from raypoly.store.shards import WEIGHTS
from raypoly.values import Float32, Int32

_MODEL = ModelConfig.model_validate({})


@dataclass
class _Running:
    """Sums over the micro-batches of the step in progress."""

    normalisers: Normalisers
    packer: Packer
    loss: float = 0.0
    entropy: float = 0.0
    sums: Sums = field(default_factory=Sums)
    rows: int = 0
    tokens: int = 0
    all_tokens: int = 0
    sampled_by: set[int] = field(default_factory=set)
    """Versions of the weights that the rows were sampled under, by their own word."""


class PolicyLearner:
    """Owns the fp32 master weights and the optimizer. One thread uses it."""

    def __init__(
        self, model_path: Path, config: TrainConfig, loss: Loss, temperature: float, model: ModelConfig = _MODEL
    ) -> None:
        torch.set_num_threads(config.threads)
        self._config, self._loss, self._temperature = config, loss, temperature
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.use_deterministic_algorithms(self.exact)
        self._bf16 = model.dtype == "bfloat16"
        self._model = load_model(model_path, self._device, self._bf16)
        self._adapters = model.lora_rank is not None
        if model.lora_rank is not None:
            add_adapters(self._model, model.lora_rank, model.lora_alpha, derive(config.seed, "adapters"))
        recompute(self._model, config.activation_checkpointing)
        self._reference: Reference | None = None
        if "reference" in loss.needs:
            self._reference = Reference(load_model(model_path, self._device, self._bf16))
        self._optimizer = torch.optim.AdamW(
            [parameter for parameter in self._model.parameters() if parameter.requires_grad],
            lr=config.lr,
            betas=config.betas,
            weight_decay=config.weight_decay,
            foreach=self._device.type == "cpu",
            fused=self._device.type == "cuda",  # foreach would hold another copy of all weights for a moment
        )
        self.version = 0
        self._running: _Running | None = None

    @property
    def exact(self) -> bool:
        """Whether the same rows surely give the same bits: on a CPU, not through GPU kernels."""
        return self._device.type == "cpu"

    @property
    def reference_digest(self) -> str | None:
        """Of the frozen weights that the loss compares with; None where it needs none."""
        return None if self._reference is None else self._reference.digest

    def begin(self, step: int, normalisers: Normalisers) -> None:
        """Forget what an interrupted step accumulated and start this one. `step` must be the current version."""
        if step != self.version:
            raise ValueError(f"step {step} needs weights of version {step}, the learner has {self.version}")
        self._optimizer.zero_grad(set_to_none=True)
        self._running = _Running(normalisers, Packer(self._config.token_budget))

    def accumulate(self, rows: Sequence[Row]) -> None:
        """Add the gradients of these rows; rows come in prompt and rollout order, in pieces of any size."""
        running = self._started()
        running.all_tokens += sum(len(row.tokens) for row in rows)
        running.sampled_by.update(row.weight_version for row in rows)
        wanted = [row for row in rows if row.advantage != 0.0 or self._loss.zero_advantage_matters]
        for batch in running.packer.add([row for row in wanted if len(row.tokens)]):
            self._backward(batch)

    def apply(self) -> UpdateStats:
        """Clip, step, and count the version up."""
        running = self._started()
        for batch in running.packer.flush():
            self._backward(batch)
        measured = running.sums.measured()
        if running.tokens:
            check_mismatch(measured, self._config.max_mismatch, self.version, running.sampled_by)
        factor = final_factor(self._loss.config.aggregation, running.all_tokens)
        parameters = [p for p in self._model.parameters() if p.requires_grad]
        for parameter in parameters:
            if parameter.grad is None:  # AdamW would skip it; a step without gradient still decays its moments
                parameter.grad = torch.zeros_like(parameter)
            elif factor != 1.0:
                parameter.grad.mul_(factor)
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, self._config.max_grad_norm))
        if not math.isfinite(norm):
            raise FloatingPointError(f"step {self.version}: the gradient norm is {norm}; lower train.lr")
        self._optimizer.step()
        self.version += 1
        self._running = None
        tokens = running.tokens
        return UpdateStats(
            version=self.version,
            weight_digest=self.digest(),
            loss=running.loss * factor,
            grad_norm=norm,
            clipped=norm > self._config.max_grad_norm,
            entropy=running.entropy / tokens if tokens else math.nan,
            rows=running.rows,
            tokens=tokens,
            measured=measured,
        )

    def logprobs(self, prompt_tokens: Int32, tokens: Int32, temperature: float) -> Float32:
        """Log-probabilities, float32 [T], of `tokens` after `prompt_tokens` under the current weights."""
        row = Row(prompt_tokens, tokens, np.zeros(len(tokens), np.float32), 0.0, self.version)
        with torch.no_grad():
            logp_T, _ = self._forward(self._model, pack([row]), temperature)
        out: Float32 = logp_T.cpu().numpy().astype(np.float32)
        return out

    def export(self) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
        """The current weights by their transformers names, adapters merged, float32 on the host."""
        return {name: tensor.cpu().numpy().copy() for name, tensor in merged_weights(self._model).items()}

    def digest(self) -> str:
        """Of all weights, or of the adapters where they alone are trained: equal iff they are bit-identical."""
        return weight_digest(self._state())

    def save_pretrained(self) -> dict[str, bytes]:
        """The files of an ordinary Hugging Face folder with these weights (no tokenizer)."""
        with tempfile.TemporaryDirectory() as folder:
            merged = merged_weights(self._model) if self._adapters else None
            self._model.save_pretrained(folder, state_dict=merged)
            return {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir())}

    def pretrained_config(self) -> dict[str, bytes]:
        """What makes a folder with these weights, in float32, a Hugging Face one (no tokenizer)."""
        config = copy.deepcopy(self._model.config)
        config.architectures, config.dtype = [type(self._model).__name__], torch.float32
        files = {"config.json": config.to_json_string().encode()}
        if self._model.can_generate():
            files["generation_config.json"] = self._model.generation_config.to_json_string().encode()
        return files

    def snapshot(self) -> Snapshot:
        """A copy on the host of all that a checkpoint needs; later updates don't reach it."""
        names = list(trained_weights(self._model))
        state = self._optimizer.state_dict()["state"]
        moments = {
            f"{names[index]}|{key}": host_copy(value) for index, entry in state.items() for key, value in entry.items()
        }
        weights = {name: host_copy(tensor) for name, tensor in self._state().items()}
        part = ADAPTERS if self._adapters else WEIGHTS
        return Snapshot(self.version, weights, part, moments, self.reference_digest)

    def save(self) -> dict[str, bytes]:
        """The parts of a checkpoint, as `load` takes them."""
        return dict(self.snapshot().parts())

    def load(self, files: Mapping[str, bytes]) -> None:
        """Take up what `save` gave. Raises `CorruptData` where the weights are not what they were, and `UsageError`
        where the reference is not what it was."""
        meta = json.loads(files[META])
        if self._reference is not None:
            self._reference.check(meta.get("reference_digest"))
        weights = load_safetensors(files[ADAPTERS if self._adapters else WEIGHTS])
        self._model.load_state_dict(weights, strict=not self._adapters)
        index = {name: i for i, name in enumerate(trained_weights(self._model))}
        state: dict[int, dict[str, torch.Tensor]] = {}
        for key, value in load_safetensors(files[OPTIMIZER]).items():
            name, _, field = key.rpartition("|")
            state.setdefault(index[name], {})[field] = value
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": state, "param_groups": groups})
        self.version, self._running = int(meta["version"]), None
        if self.digest() != meta["weight_digest"]:
            raise CorruptData(f"the checkpoint of version {self.version} does not give back the weights it was made of")

    def _state(self) -> Mapping[str, torch.Tensor]:
        """What a checkpoint holds of the weights."""
        state: dict[str, torch.Tensor] = trained_weights(self._model) if self._adapters else self._model.state_dict()
        return state

    def _started(self) -> _Running:
        if self._running is None:
            raise RuntimeError("begin() comes before accumulate() and apply()")
        return self._running

    def _forward(
        self, model: PreTrainedModel, batch: MicroBatch, temperature: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability and entropy of the response tokens, float32 [T] each."""
        return response_logprobs(model, batch, temperature, self._bf16, self._config.logits_mib)

    def _tokens(self, batch: MicroBatch) -> Tokens:
        """What the loss sees of these rows."""
        reference_logp_T = None
        if self._reference is not None:  # first, while nothing is held for the backward pass
            with torch.no_grad():
                reference_logp_T, _ = self._forward(self._reference.model, batch, self._temperature)
        logp_T, entropy_T = self._forward(self._model, batch, self._temperature)
        device, response_T = logp_T.device, batch.row_of.to(logp_T.device)
        return Tokens(
            logp_T=logp_T,
            sampler_logp_T=batch.sampler_logprobs.to(device),
            advantage_T=batch.advantages.to(device)[response_T],
            response_T=response_T,
            length_S=torch.tensor(batch.lengths, device=device),
            entropy_T=entropy_T if "entropy" in self._loss.needs else entropy_T.detach(),
            reference_logp_T=reference_logp_T,
        )

    def _backward(self, batch: MicroBatch) -> None:
        running = self._started()
        tokens = self._tokens(batch)
        weights = [
            response_weight(self._loss.config.aggregation, length, running.normalisers) for length in batch.lengths
        ]
        weight_T = torch.tensor(weights, dtype=torch.float32, device=tokens.logp_T.device)[tokens.response_T]
        loss = (self._loss.total(tokens) * weight_T).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        running.loss += float(loss.detach())
        running.entropy += float(tokens.entropy_T.detach().sum())
        running.sums.add(tokens, self._loss)
        running.rows += len(batch.lengths)
        running.tokens += len(batch.targets)
