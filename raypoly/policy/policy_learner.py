"""The learner: gradients of a loss over packed responses, AdamW in fp32.

    learner.begin(step, Normalisers(prompts=20, rollouts=8, t_max=56))
    learner.accumulate(rows)          # as often as groups are ready, in prompt order
    learner.update()                  # clip, step; only between mini-batches of a step
    stats = learner.apply()           # the step's last update; the version goes up by one

It knows no objective: rows are tokens, an advantage, and the sampler's log-probabilities. A loss may bring a head,
which is trained and kept beside the model. Where several ranks are one learner, each is such an object, is called with
the same rows, and gives the same answers (`raypoly.policy.ranks`).
"""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from raypoly.config import ModelConfig, TrainConfig
from raypoly.losses.aggregation import Normalisers, final_factor, response_weight
from raypoly.losses.loss import Loss
from raypoly.losses.loss_tokens import Tokens
from raypoly.policy.activation_checkpointing import recompute
from raypoly.policy.adapters import add_adapters, merging
from raypoly.policy.checkpoint_state import CheckpointState
from raypoly.policy.compiled_layers import compile_layers
from raypoly.policy.cross_logprobs import crossed
from raypoly.policy.loss_heads import answer, make_head
from raypoly.policy.packing import MicroBatch, pack
from raypoly.policy.policy_model import ModelOutputs, forward, load_model
from raypoly.policy.rank_partition import RankPartitioner
from raypoly.policy.ranks import ONE, Ranks, device
from raypoly.policy.reference_model import Reference
from raypoly.policy.sampler_mismatch import check_mismatch
from raypoly.policy.snapshots import Snapshot
from raypoly.policy.totals import Totals
from raypoly.policy.training_rows import TrainingRow
from raypoly.policy.update_stats import UpdateStats
from raypoly.seeds import derive
from raypoly.values import Float32, Int32

_MODEL = ModelConfig.model_validate({})
_BLANK = TrainingRow(np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.float32), 0.0, 0)
"""What a rank without rows computes, so that the others' weights become whole; it counts for nothing."""


@dataclass(frozen=True)
class _Update:
    """One optimizer step that was taken."""

    totals: Totals
    """Of all ranks."""
    loss: float
    norm: float
    """Of the gradient, before clipping."""


@dataclass
class _Running:
    """The step in progress."""

    normalisers: Normalisers
    dealer: RankPartitioner
    totals: Totals = field(default_factory=Totals)
    """Of this rank, since the last update."""
    all_tokens: int = 0
    """Since the last update."""
    sampled_by: set[int] = field(default_factory=set)
    """Versions of the weights that the rows were sampled under, by their own word."""
    updates: list[_Update] = field(default_factory=list)


class PolicyLearner:
    """Owns the fp32 master weights and the optimizer. One thread uses it."""

    def __init__(
        self,
        model_path: Path,
        config: TrainConfig,
        loss: Loss,
        temperature: float,
        model: ModelConfig = _MODEL,
        ranks: Ranks = ONE,
    ) -> None:
        torch.set_num_threads(config.threads)
        self._config, self._loss, self._temperature, self._ranks = config, loss, temperature, ranks
        self._device = device()
        torch.use_deterministic_algorithms(self.exact)
        self._bf16 = model.dtype == "bfloat16"
        self._model = load_model(model_path, self._device, self._bf16)
        self._adapters = model.lora_rank is not None
        if model.lora_rank is not None:
            add_adapters(self._model, model.lora_rank, model.lora_alpha, derive(config.seed, "adapters"))
        if config.compile:
            compile_layers(self._model, self._bf16, config.activation_checkpointing)
        else:
            recompute(self._model, config.activation_checkpointing)
        hidden_size = self._model.get_output_embeddings().weight.shape[1]
        self._head = make_head(loss, hidden_size, derive(config.seed, "loss head"))
        ranks.shard(self._model, self._bf16)
        if self._head is not None:
            ranks.shard(self._head.to(self._device), bf16=False)
        self._reference: Reference | None = None
        if "reference" in loss.needs:
            self._reference = Reference(load_model(model_path, self._device, self._bf16))
            ranks.shard(self._reference.model, self._bf16)
        self._optimizer = torch.optim.AdamW(
            self._groups(),
            lr=config.lr,
            betas=config.betas,
            weight_decay=config.weight_decay,
            foreach=self._device.type == "cpu",
            fused=self._device.type == "cuda",  # foreach would hold another copy of all weights for a moment
        )
        self.version = 0
        self._running: _Running | None = None
        self._keeper = CheckpointState(self._model, self._optimizer, ranks, self._adapters, self._head)

    @property
    def exact(self) -> bool:
        """Whether the same rows surely give the same bits: on a CPU, not through GPU kernels."""
        return self._device.type == "cpu"

    @property
    def midway(self) -> bool:
        """Whether the weights are of no version: a step's first update was made, its last one was not."""
        return self._running is not None and bool(self._running.updates)

    @property
    def reference_digest(self) -> str | None:
        """Of the frozen weights that the loss compares with; None where it needs none."""
        return None if self._reference is None else self._reference.digest

    def begin(self, step: int, normalisers: Normalisers) -> None:
        """Forget what an interrupted step accumulated and start this one. `step` must be the current version."""
        if step != self.version:
            raise ValueError(f"step {step} needs weights of version {step}, the learner has {self.version}")
        self._check_whole()
        self._optimizer.zero_grad(set_to_none=True)
        self._running = _Running(
            normalisers, RankPartitioner(self._config.token_budget, self._ranks.rank, self._ranks.size)
        )

    def accumulate(self, rows: Sequence[TrainingRow]) -> None:
        """Add the gradients of these rows; rows come in prompt and rollout order, in pieces of any size."""
        running = self._started()
        running.all_tokens += sum(len(row.tokens) for row in rows)
        running.sampled_by.update(row.weight_version for row in rows)
        wanted = [row for row in rows if row.advantage != 0.0 or self._loss.zero_advantage_matters]
        for mine in running.dealer.add([row for row in wanted if len(row.tokens)]):
            self._backward(mine)

    def update(self) -> None:
        """Clip and step with what was accumulated since the last update; the step goes on under the new weights."""
        running = self._started()
        for mine in running.dealer.flush():
            self._backward(mine)
        totals, *others = self._ranks.gather(running.totals)
        for other in others:
            totals.merge(other)
        if totals.tokens and not running.updates:  # later ones are off-policy by intent
            check_mismatch(totals.sums.measured(), self._config.max_mismatch, self.version, running.sampled_by)
        factor = final_factor(self._loss.config.aggregation, running.all_tokens)
        parameters = [p for group in self._optimizer.param_groups for p in group["params"]]
        for parameter in parameters:
            if parameter.grad is None:  # AdamW would skip it; a step without gradient still decays its moments
                parameter.grad = torch.zeros_like(parameter)
            elif factor != 1.0:
                parameter.grad.mul_(factor)
        norm = self._clip(parameters)
        if not math.isfinite(norm):
            raise FloatingPointError(f"step {self.version}: the gradient norm is {norm}; lower train.lr")
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._keeper.changed()
        running.updates.append(_Update(totals, totals.loss * factor, norm))
        running.totals, running.all_tokens = Totals(), 0

    def apply(self) -> UpdateStats:
        """The step's last update; the version is counted up. What is told is of all its updates: sums over tokens, and
        means of loss and norm."""
        self.update()
        updates, self._running = self._started().updates, None
        self.version += 1
        totals = updates[0].totals
        for update in updates[1:]:
            totals.merge(update.totals)
        tokens = totals.tokens
        return UpdateStats(
            version=self.version,
            weight_digest=self.digest(),
            loss=sum(update.loss for update in updates) / len(updates),
            grad_norm=sum(update.norm for update in updates) / len(updates),
            clipped=any(update.norm > self._config.max_grad_norm for update in updates),
            entropy=totals.entropy / tokens if tokens else math.nan,
            rows=totals.rows,
            tokens=tokens,
            measured=totals.sums.measured(),
        )

    def logprobs(self, prompt_tokens: Int32, tokens: Int32, temperature: float) -> Float32:
        """Log-probabilities, float32 [T], of `tokens` after `prompt_tokens` under the current weights."""
        row = TrainingRow(prompt_tokens, tokens, np.zeros(len(tokens), np.float32), 0.0, self.version)
        with torch.no_grad():
            logp_T = self._forward(self._model, pack([row]), temperature).logp_T
        out: Float32 = logp_T.cpu().numpy().astype(np.float32)
        return out

    def cross_logprobs(self, prompts: Sequence[Int32], responses: Sequence[Int32]) -> tuple[Float32, ...]:
        """Log-probabilities of each response behind each prompt, float32 [P, T], under the current weights and the
        temperature of training; none on other ranks than the first."""

        def forward(rows: Sequence[TrainingRow]) -> Float32:
            with torch.no_grad():
                logp_T = self._forward(self._model, pack(rows or [_BLANK]), self._temperature).logp_T
            out: Float32 = logp_T[: sum(len(row.tokens) for row in rows)].cpu().numpy().astype(np.float32)
            return out

        dealer = RankPartitioner(self._config.token_budget, self._ranks.rank, self._ranks.size)
        return crossed(prompts, responses, dealer, self._ranks, forward)

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The current weights by their transformers names, adapters merged, whole, float32, one at a time: not to be
        written to, and other ones after the next update."""
        return merging(self._model, self._ranks.whole)

    def release(self) -> None:
        """Give back what the next step does not need of the last one: gradients, and memory that is kept at hand."""
        if self._running is None:
            self._optimizer.zero_grad(set_to_none=True)
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def export(self) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
        """The current weights by their transformers names, adapters merged, float32 on the host; empty on other ranks
        than the first."""
        return {name: tensor.cpu().numpy().copy() for name, tensor in self.weights() if self._ranks.rank == 0}

    def digest(self) -> str:
        """Of all weights, or of the adapters where they alone are trained: equal iff they are bit-identical."""
        return self._keeper.digest()

    def save_pretrained(self) -> dict[str, bytes]:
        """The files of an ordinary Hugging Face folder with these weights (no tokenizer); none on other ranks than the
        first."""
        first = self._ranks.rank == 0
        weights = {name: tensor.cpu() for name, tensor in self.weights() if first}
        if not first:
            return {}
        for name, tied_to in (self._model.all_tied_weights_keys or {}).items():  # so that it is saved once
            weights[name] = weights[tied_to]
        with tempfile.TemporaryDirectory() as folder:
            self._model.save_pretrained(folder, state_dict=weights)
            return {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir())}

    def pretrained_config(self) -> dict[str, bytes]:
        """What makes a folder with these weights, in float32, a Hugging Face one (no tokenizer)."""
        config = copy.deepcopy(self._model.config)
        config.architectures, config.dtype = [type(self._model).__name__.removeprefix("FSDP")], torch.float32
        files = {"config.json": config.to_json_string().encode()}
        if self._model.can_generate():
            files["generation_config.json"] = self._model.generation_config.to_json_string().encode()
        return files

    def snapshot(self) -> Snapshot:
        """A copy on the host of this rank's part of a checkpoint: some tensors, whole; later updates don't reach it."""
        self._check_whole()
        return self._keeper.snapshot(self.version, self.reference_digest)

    def save(self) -> dict[str, bytes]:
        """This rank's part of a checkpoint, as `load` takes it."""
        return dict(self.snapshot().parts())

    def load(self, *parts: Mapping[str, bytes]) -> None:
        """Take up what `save` gave on each of any number of ranks; a part goes to one of the ranks that load.

        Raises `CorruptData` where the weights are not what they were, `UsageError` where model or reference are others.
        """
        self.version = self._keeper.load(parts, self._check_reference)
        self._running = None

    def _check_reference(self, known: str | None) -> None:
        if self._reference is not None:
            self._reference.check(known)

    def _check_whole(self) -> None:
        if self.midway:
            raise RuntimeError(f"step {self.version} is midway between its updates, and can only go on")

    def _started(self) -> _Running:
        if self._running is None:
            raise RuntimeError("begin() comes before accumulate() and apply()")
        return self._running

    def _groups(self) -> list[dict[str, Any]]:
        """What the optimizer trains: the model's parameters, and the head's with their own learning rate."""
        modules = [self._model] if self._head is None else [self._model, self._head]
        groups: list[dict[str, Any]] = [{"params": [p for p in m.parameters() if p.requires_grad]} for m in modules]
        if self._head is not None:
            groups[1]["lr"] = self._loss.head_lr or self._config.lr
        return groups

    def _forward(
        self, model: PreTrainedModel, batch: MicroBatch, temperature: float, prompts: bool = False
    ) -> ModelOutputs:
        """Log-probability and entropy of the response tokens, float32 [T] each; with `prompts` what came of those."""
        return self._ranks.run(model, forward, batch, temperature, self._bf16, self._config.logits_mib, prompts)

    def _tokens(self, batch: MicroBatch) -> Tokens:
        """What the loss sees of these rows."""
        reference_logp_T = None
        if self._reference is not None:  # first, while nothing is held for the backward pass
            with torch.no_grad():
                reference_logp_T = self._forward(self._reference.model, batch, self._temperature).logp_T
        needs = self._loss.needs
        logp_T, entropy_T, prompt_SH = self._forward(self._model, batch, self._temperature, "prompt_hidden" in needs)
        device, response_T = logp_T.device, batch.row_of.to(logp_T.device)
        return Tokens(
            logp_T=logp_T,
            sampler_logp_T=batch.sampler_logprobs.to(device),
            advantage_T=batch.advantages.to(device)[response_T],
            response_T=response_T,
            length_S=torch.tensor(batch.lengths, device=device),
            entropy_T=entropy_T if "entropy" in needs else entropy_T.detach(),
            reference_logp_T=reference_logp_T,
            prompt_hidden_SH=prompt_SH,
            head_S=None if prompt_SH is None or self._head is None else self._ranks.run(self._head, answer, prompt_SH),
        )

    def _backward(self, rows: Sequence[TrainingRow]) -> None:
        """Add the gradient of a micro-batch, and what is told of it. Without rows it is a pass that adds nothing."""
        running = self._started()
        if not rows:
            blank = self._tokens(pack([_BLANK]))
            nothing = 0.0 * blank.logp_T.sum()
            if blank.head_S is not None:
                nothing = nothing + 0.0 * blank.head_S.sum()
            nothing.backward()  # type: ignore[no-untyped-call]
            return
        batch = pack(rows)
        tokens = self._tokens(batch)
        weights = [
            response_weight(self._loss.config.aggregation, length, running.normalisers) for length in batch.lengths
        ]
        weight_T = torch.tensor(weights, dtype=tokens.logp_T.dtype, device=tokens.logp_T.device)[tokens.response_T]
        loss = (self._loss.total(tokens) * weight_T).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        running.totals.add(tokens, self._loss, float(loss.detach()))

    def _clip(self, parameters: Sequence[torch.nn.Parameter]) -> float:
        """Scale the gradients down to `max_grad_norm` where they are longer; their norm before."""
        found = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        norm = self._ranks.whole(found)
        torch.nn.utils.clip_grads_with_norm_(parameters, self._config.max_grad_norm, norm)
        return float(norm)
