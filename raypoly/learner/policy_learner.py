"""Learner (trainer of the policy model): gradients of a loss over packed responses, AdamW in fp32.

    learner.begin(step, Normalisers(prompts=20, rollouts=8, t_max=56))
    learner.accumulate(rows)          # as often as groups are ready, in prompt order
    learner.update()                  # only between mini-batches of a step
    stats = learner.apply()           # the step's last update; the weight version goes up by one

It does not know the objective. With several ranks each has such an object, gets the same calls with the same rows, and
returns the same results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from raypoly.algorithms.losses.aggregation import Normalisers, final_factor, response_weight
from raypoly.algorithms.losses.loss import Loss
from raypoly.algorithms.losses.loss_tokens import Tokens
from raypoly.core.config import ModelConfig, TrainConfig
from raypoly.core.errors import UsageError
from raypoly.core.seeds import derive
from raypoly.core.values import Float32, Int32
from raypoly.learner.adapters import add_adapters, merged_weights
from raypoly.learner.checkpoint_state import CheckpointState, Snapshot, tensor_file
from raypoly.learner.compiled_layers import prepare_layers
from raypoly.learner.learning_rate import learning_rate
from raypoly.learner.logit_chunks import chunk_on
from raypoly.learner.loss_sums import LossSums, check_mismatch
from raypoly.learner.offload import Offload
from raypoly.learner.packing import MicroBatch, RankPartitioner, compute_cross_logprobs, compute_logprobs, pack
from raypoly.learner.policy_model import (
    ModelOutputs,
    ReferenceModel,
    describe_rows,
    forward,
    is_packed,
    load_model,
    make_head,
    pretrained_config,
    pretrained_names,
    run_head,
    weight_files,
)
from raypoly.learner.ranks import ONE, Ranks, device
from raypoly.learner.training_rows import TrainingRow
from raypoly.learner.update_stats import UpdateStats
from raypoly.learner.weight_hash import weight_hash
from raypoly.run.store.store import Pieces

_MODEL = ModelConfig.model_validate({})
_FILE_BYTES = 50 * 10**9  # as transformers cuts them
# The row of a rank without rows.
_BLANK = TrainingRow(np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.float32), 0.0, 0)


@dataclass(frozen=True)
class _Update:
    sums: LossSums
    loss: float
    norm: float
    """Of the gradient, before clipping."""
    moved: float
    """The norm of the weights' change."""


@dataclass
class _StepInProgress:
    normalisers: Normalisers
    partition: RankPartitioner
    sums: LossSums = field(default_factory=LossSums)
    """Of this rank, since the last update."""
    all_tokens: int = 0
    """Of all ranks, since the last update."""
    sampled_by: set[int] = field(default_factory=set)
    """Weight versions of the rows."""
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
        # Filling takes a twentieth of an update.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        self._bf16 = model.dtype == "bfloat16"
        self._model = load_model(model_path, self._device, self._bf16)
        self._adapters = model.lora_rank is not None
        if model.lora_rank is not None:
            add_adapters(self._model, model.lora_rank, model.lora_alpha, derive(config.seed, "adapters"))
        layers = prepare_layers(self._model, self._bf16, config.activation_checkpointing, config.compile)
        self.rows = "; ".join(filter(None, [describe_rows(self._model), layers]))
        """A sentence on how rows go through the model."""
        hidden_size = self._model.get_output_embeddings().weight.shape[1]
        self._head = make_head(loss, hidden_size, derive(config.seed, "loss head"))
        ranks.shard(self._model, self._bf16)
        if self._head is not None:
            ranks.shard(self._head.to(self._device), bf16=False)
        self._reference: ReferenceModel | None = None
        if "reference" in loss.needs or loss.config.kl_in_reward:
            self._reference = ReferenceModel(load_model(model_path, self._device, self._bf16))
            ranks.shard(self._reference.model, self._bf16)
        self.offload = Offload(config.offload, self._device)
        held = (self._model, self._head, self._reference and self._reference.model)
        for module in filter(None, held):
            self.offload.hold(module)
        self._optimizer = torch.optim.AdamW(
            self._groups(),
            lr=config.lr,
            betas=config.betas,
            weight_decay=config.weight_decay,
            fused=True,  # the other ways hold another copy of all weights, and take four times as long on a CPU
        )
        self._peaks = [group["lr"] for group in self._optimizer.param_groups]
        self.version = 0
        self._step: _StepInProgress | None = None
        hashed = self._device.type != "cpu"
        self._state = CheckpointState(
            self._model, self._optimizer, ranks, self.offload, self._adapters, self._head, hashed
        )

    @property
    def exact(self) -> bool:
        """Whether the same rows always give the same bits: on a CPU."""
        return self._device.type == "cpu"

    @property
    def midway(self) -> bool:
        """Whether it is between two updates of a step, when the weights have no version."""
        return self._step is not None and bool(self._step.updates)

    @property
    def reference_digest(self) -> str | None:
        return None if self._reference is None else self._reference.digest

    def begin(self, step: int, normalisers: Normalisers) -> None:
        """Start this step, which must be the current version, and drop an interrupted one's gradients."""
        if step != self.version:
            raise ValueError(f"step {step} needs weights of version {step}, the learner has {self.version}")
        self._check_between_steps()
        self.offload.home()  # while the first groups are waited for
        self._optimizer.zero_grad(set_to_none=True)
        train, warmup = self._config, self._config.warmup_steps
        for group, peak in zip(self._optimizer.param_groups, self._peaks, strict=True):
            group["lr"] = learning_rate(step, peak, train.schedule, warmup, begin=warmup, end=train.horizon)
        self._step = _StepInProgress(normalisers, self._partition())

    def accumulate(self, rows: Sequence[TrainingRow]) -> None:
        """Add the gradients of these rows, in prompt and rollout order, in pieces of any size.

        Raises `UsageError` for a given response under a loss that reads the sampler's log-probabilities.
        """
        step = self._started()
        if self._loss.needs_sampler and any(row.given for row in rows):
            raise UsageError(
                f"Step {self.version} has responses that were given, not sampled, and the loss "
                f"{type(self._loss).__name__} weighs tokens by the ratio to their sampler: set "
                "loss.name=policy_gradient loss.importance_cap=null, without loss.mask_low and loss.mask_high."
            )
        step.all_tokens += sum(row.trained for row in rows)
        step.sampled_by.update(row.weight_version for row in rows)
        wanted = [row for row in rows if row.has_advantage or self._loss.zero_advantage_matters]
        for mine in step.partition.add([row for row in wanted if len(row.tokens)]):
            self._backward(mine)

    def update(self) -> None:
        """Clip the gradient since the last update and make an optimizer step.

        Raises `WeightsMismatch` as `check_mismatch` does, `FloatingPointError` for a gradient that is not finite.
        """
        step = self._started()
        self.offload.home()
        for mine in step.partition.flush():
            self._backward(mine)
        # Gradients are summed over ranks in each backward pass (`ShardedRanks.shard`); only statistics are gathered.
        sums, *others = self._ranks.gather(step.sums)
        for other in others:
            sums.merge(other)
        if sums.sampled and not step.updates:  # later updates are off-policy on purpose
            check_mismatch(sums.measured(), self._config.max_mismatch, self.version, step.sampled_by)
        # A mean over all tokens is divided here: their number is not known while micro-batches come in.
        factor = final_factor(self._loss.config.aggregation, step.all_tokens)
        parameters = self._parameters()
        for parameter in parameters:
            if parameter.grad is None:  # AdamW would skip it; a step without gradient still decays its moments
                parameter.grad = torch.zeros_like(parameter)
            elif factor != 1.0:
                parameter.grad.mul_(factor)
        norm = self._clip(parameters)
        if not math.isfinite(norm):
            raise FloatingPointError(f"step {self.version}: the gradient norm is {norm}; lower train.lr")
        moved = self._optimize(parameters)
        self._state.mark_changed()
        step.updates.append(_Update(sums, sums.loss * factor, norm, moved))
        step.sums, step.all_tokens = LossSums(), 0

    def apply(self) -> UpdateStats:
        """Make the step's last update and increase the version. The stats cover all its updates."""
        self.update()
        updates, self._step = self._started().updates, None
        self.version += 1
        sums = updates[0].sums
        for update in updates[1:]:
            sums.merge(update.sums)
        return UpdateStats(
            version=self.version,
            weight_digest=self.digest(),
            loss=sum(update.loss for update in updates) / len(updates),
            grad_norm=sum(update.norm for update in updates) / len(updates),
            clipped=any(update.norm > self._config.max_grad_norm for update in updates),
            entropy=sums.entropy / sums.tokens if sums.tokens else math.nan,
            rows=sums.rows,
            tokens=sums.tokens,
            measured=sums.measured(),
            lr=self._optimizer.param_groups[0]["lr"],
            update_norm=sum(update.moved for update in updates) / len(updates),
        )

    def logprobs(self, prompt_tokens: Int32, tokens: Int32, temperature: float) -> Float32:
        """Log-probabilities, float32 [T], of `tokens` after `prompt_tokens` under the current weights."""
        row = TrainingRow(prompt_tokens, tokens, np.zeros(len(tokens), np.float32), 0.0, self.version)
        with torch.no_grad():
            logp_T = self._forward(self._model, pack([row]), temperature).logp_T
        out: Float32 = logp_T.cpu().numpy().astype(np.float32)
        return out

    def cross_logprobs(self, prompts: Sequence[Int32], responses: Sequence[Int32]) -> tuple[Float32, ...]:
        """Log-probabilities of each response after each prompt, [P, T], at the training temperature. Ranks other
        than 0 return ()."""

        return compute_cross_logprobs(prompts, responses, self._partition(), self._ranks, self._scoring(self._model))

    def reference_logprobs(self, pairs: Sequence[tuple[Int32, Int32]]) -> list[Float32]:
        """Log-probabilities, float32 [T], of responses after their prompts under the frozen starting model, at the
        training temperature. Ranks other than 0 return []."""
        if self._reference is None:
            raise RuntimeError("the loss keeps no reference model")
        return compute_logprobs(pairs, self._partition(), self._ranks, self._scoring(self._reference.model))

    def _scoring(self, model: PreTrainedModel) -> Callable[[Sequence[TrainingRow]], Float32]:
        def forward(rows: Sequence[TrainingRow]) -> Float32:
            with torch.no_grad():
                logp_T = self._forward(model, pack(rows or [_BLANK]), self._temperature).logp_T
            out: Float32 = logp_T[: sum(len(row.tokens) for row in rows)].cpu().numpy().astype(np.float32)
            return out

        return forward

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Whole weights by transformers name, adapters merged, float32, one at a time. They are no copies."""
        return ((name, weight.make()) for name, weight in merged_weights(self._model, self._whole).items())

    def whole_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """`weights`, in `model.dtype` where they are copies until an engine has them: with several ranks, or away."""
        copied = self._ranks.size > 1 or self.offload.kind == "all"
        dtype = torch.bfloat16 if self._bf16 and copied else torch.float32
        return ((name, tensor.to(dtype)) for name, tensor in self.weights())

    def release(self) -> None:
        """Free the last step's gradients and the memory that CUDA's allocator keeps. With `train.offload=all` the
        weights leave, until something is computed with them."""
        if self._step is None:
            self._optimizer.zero_grad(set_to_none=True)
        self.offload.leave(self._parameters())
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def export(self) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
        """Copies of `weights` on the host; empty on ranks other than 0."""
        return {name: array.copy() for name, array in self.host_weights().items()}

    def host_weights(self) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
        """`weights` on the host, not copied where they are there; empty on ranks other than 0."""
        # Tied weights become one array, so that they are sent once. All ranks iterate: gathering needs them.
        hosts = {name: tensor.cpu() for name, tensor in self.weights() if self._ranks.rank == 0}
        arrays = {(host.data_ptr(), host.shape): host.numpy() for host in hosts.values()}
        return {name: arrays[host.data_ptr(), host.shape] for name, host in hosts.items()}

    def weight_hashes(self) -> dict[str, str]:
        """`weight_hash` of each of `weights` in `model.dtype`; empty on ranks other than 0."""
        dtype = torch.bfloat16 if self._bf16 else torch.float32
        return {name: weight_hash(tensor, dtype) for name, tensor in self.weights() if self._ranks.rank == 0}

    def digest(self) -> str:
        """`weight_digest` of the trained weights (all, or the adapters); on a GPU of their hashes."""
        return self._state.digest()

    def write_pretrained(
        self,
        write: Callable[[str, Pieces], None],
        dtype: str = "float32",
        most: int = _FILE_BYTES,
        beat: Callable[[], None] = lambda: None,
    ) -> dict[str, bytes]:
        """Give `write`, on rank 0, each file of a Hugging Face folder's weights, of `most` bytes at most. One whole
        weight is in memory at a time, and `beat` called for each on every rank. Returns the folder's other files (no
        tokenizer), on rank 0."""
        kind: torch.dtype = getattr(torch, dtype)
        weights, small = merged_weights(self._model, self._whole), pretrained_config(self._model, kind)

        def work(make: Callable[[str], torch.Tensor]) -> None:
            own = pretrained_names(self._model, weights)
            plain = {name: weights[of].like for name, of in own.items()}
            likes = {name: like.to(kind) if like.is_floating_point() else like for name, like in plain.items()}
            files, index = weight_files(likes, most)
            small.update(index)
            for file, names in files.items():
                write(file, tensor_file({name: likes[name] for name in names}, lambda name: make(own[name])))

        def whole(name: str) -> torch.Tensor:
            beat()  # on every rank: all wait for storage
            return weights[name].make()

        self._ranks.lead(whole, work)
        return {} if self._ranks.rank else small

    def pretrained_config(self) -> dict[str, bytes]:
        """Files of a Hugging Face folder beside the weights in float32 (no tokenizer)."""
        return pretrained_config(self._model)

    def snapshot(self) -> Snapshot:
        self._check_between_steps()
        return self._state.snapshot(self.version, self.reference_digest)

    def save(self) -> dict[str, bytes]:
        """This rank's part of a checkpoint, for `load`."""
        return dict(self.snapshot().parts())

    def load(self, *parts: Mapping[str, bytes]) -> None:
        """Load what `save` returned on any number of ranks. Each part goes to one of the loading ranks.

        Raises `CorruptData` if the weights differ from the saved ones, `UsageError` if the model or the reference
        model is another one.
        """
        self.offload.home()
        self.version = self._state.load(parts, self._check_reference)
        self._step = None

    def _check_reference(self, known: str | None) -> None:
        if self._reference is not None:
            self._reference.check(known)

    def _check_between_steps(self) -> None:
        if self.midway:
            raise RuntimeError(f"step {self.version} is midway between its updates, and can only go on")

    def _whole(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._ranks.whole(self.offload.present(tensor))

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [p for group in self._optimizer.param_groups for p in group["params"]]

    def _started(self) -> _StepInProgress:
        if self._step is None:
            raise RuntimeError("begin() comes before accumulate() and apply()")
        return self._step

    def _partition(self) -> RankPartitioner:
        padded = not is_packed(self._model)
        return RankPartitioner(self._config.token_budget, self._ranks.rank, self._ranks.size, padded)

    def _groups(self) -> list[dict[str, Any]]:
        modules = [self._model] if self._head is None else [self._model, self._head]
        groups: list[dict[str, Any]] = [{"params": [p for p in m.parameters() if p.requires_grad]} for m in modules]
        if self._head is not None:
            groups[1]["lr"] = self._loss.head_lr or self._config.lr
        return groups

    def _forward(
        self, model: PreTrainedModel, batch: MicroBatch, temperature: float, prompts: bool = False
    ) -> ModelOutputs:
        self.offload.home()
        chunk_mib = chunk_on(self._device.type, self._config.logits_mib)
        return self._ranks.run(model, forward, batch, temperature, self._bf16, chunk_mib, prompts)

    def _tokens(self, batch: MicroBatch) -> Tokens:
        reference_logp_T = None
        if self._reference is not None:  # first, before activations are kept for the backward pass
            with torch.no_grad():
                reference_logp_T = self._forward(self._reference.model, batch, self._temperature).logp_T
        needs = self._loss.needs
        logp_T, entropy_T, prompt_SH = self._forward(self._model, batch, self._temperature, "prompt_hidden" in needs)
        head_S = None
        if self._head is not None and prompt_SH is not None:
            head_S = self._ranks.run(self._head, run_head, prompt_SH)
        device, response_T = logp_T.device, batch.row_of.to(logp_T.device)
        return Tokens(
            logp_T=logp_T,
            sampler_logp_T=batch.sampler_logprobs.to(device),
            advantage_T=batch.advantages.to(device),
            response_T=response_T,
            length_S=torch.tensor(batch.lengths, device=device),
            entropy_T=entropy_T if "entropy" in needs else entropy_T.detach(),
            reference_logp_T=reference_logp_T,
            prompt_hidden_SH=prompt_SH,
            head_S=head_S,
        )

    def _backward(self, rows: Sequence[TrainingRow]) -> None:
        """Add a micro-batch's gradient and sums."""
        step = self._started()
        if not rows:  # take part, so that other ranks get whole weights, with a gradient of zero
            blank = self._tokens(pack([_BLANK]))
            nothing = 0.0 * blank.logp_T.sum()
            if blank.head_S is not None:
                nothing = nothing + 0.0 * blank.head_S.sum()
            nothing.backward()  # type: ignore[no-untyped-call]
            return
        batch = pack(rows)
        tokens, aggregation = self._tokens(batch), self._loss.config.aggregation
        weights = [response_weight(aggregation, length, step.normalisers) for length in batch.lengths]
        weight_T = torch.tensor(weights, dtype=tokens.logp_T.dtype, device=tokens.logp_T.device)[tokens.response_T]
        loss = (self._loss.total(tokens) * weight_T).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        step.sums.add(tokens, self._loss, float(loss.detach()))

    def _optimize(self, parameters: Sequence[torch.nn.Parameter]) -> float:
        """An optimizer step, by buckets of parameters. Returns the norm of the weights' change."""
        gradients, optimizer = {p: p.grad for p in parameters}, self._optimizer
        taken = {id(group): self._taken(group) + 1 for group in optimizer.param_groups}
        optimizer.zero_grad(set_to_none=True)
        norms = list[torch.Tensor]()
        for group, bucket in self.offload.buckets(optimizer):
            for parameter in bucket:
                parameter.grad = gradients.pop(parameter)
            optimizer.step()  # of those that have a gradient
            optimizer.zero_grad(set_to_none=True)
            norms += self._moved(group, bucket, taken[id(group)])
        return float(self._ranks.whole(torch.linalg.vector_norm(torch.stack(norms))))

    def _taken(self, group: Mapping[str, Any]) -> float:
        # asked once an update: a number of the GPU's waits for all that was asked of it
        state = self._optimizer.state.get(group["params"][0])
        return float(state["step"]) if state else 0.0

    @torch.no_grad()
    def _moved(
        self, group: Mapping[str, Any], parameters: Sequence[torch.Tensor], taken: float
    ) -> Iterator[torch.Tensor]:
        """|theta' - theta| of AdamW's last step, from its moments: a copy of the weights would cost as much as they."""
        (mean, square), lr = group["betas"], group["lr"]
        shrunk = lr * group["weight_decay"] / (1 - lr * group["weight_decay"])  # of the weights as they are now
        for parameter in parameters:
            state = self._optimizer.state[parameter]
            moved = (state["exp_avg_sq"] / (1 - square**taken)).sqrt_().add_(group["eps"]).reciprocal_()
            moved.mul_(state["exp_avg"]).mul_(lr / (1 - mean**taken))
            if shrunk:
                moved.mul_(1 + shrunk).add_(parameter, alpha=shrunk)
            yield torch.linalg.vector_norm(moved)

    def _clip(self, parameters: Sequence[torch.nn.Parameter]) -> float:
        found = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        norm = self._ranks.whole(found)
        torch.nn.utils.clip_grads_with_norm_(parameters, self._config.max_grad_norm, norm)
        return float(norm)
