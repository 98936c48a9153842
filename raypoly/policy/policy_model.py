"""The policy's model as the learner trains it: float32 weights, packed rows, no dropout.

    model = load_model(path, device, bf16=True)
    logp_T, entropy_T = response_logprobs(model, batch, temperature=1.0, bf16=True, chunk_mib=512)
    logp_T, entropy_T, prompt_hidden_SH = forward(model, batch, 1.0, bf16=True, prompts=True)

Loading refuses a model that would be computed wrongly this way.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module, ModuleList
from transformers import AttentionInterface, AutoModelForCausalLM, PreTrainedModel

from raypoly.errors import UsageError
from raypoly.policy.attention import PACKED, attend
from raypoly.policy.logprobs import CHUNK_MIB, token_logprobs
from raypoly.policy.loss_heads import prompt_means
from raypoly.policy.packing import MicroBatch, pack
from raypoly.policy.training_rows import TrainingRow

TOLERANCE = {False: 1e-3, True: 0.5}
"""The most `logprob_distance` of two ways to compute the same, without and with bf16. The check without is the strict
one; a mistake that bf16 alone brings out moves every token by more than this."""

AttentionInterface.register(PACKED, attend)


class ModelOutputs(NamedTuple):
    """The results of one pass over packed rows."""

    logp_T: Tensor
    entropy_T: Tensor
    prompt_hidden_SH: Tensor | None
    """[B, H]: mean of the last hidden states of each row's prompt; None without `prompts`."""


def load_model(path: Path, device: torch.device, bf16: bool = False) -> PreTrainedModel:
    """A causal language model with float32 weights, checked for training in float32 and, with `bf16`, in bf16.

    Raises `UsageError` if its packed, chunked log-probabilities differ from its own.
    """
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation=PACKED).to(device)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0  # the gradient must be of the sampling policy
    for precision in sorted({False, bf16}):
        check_model(model, precision)
    return model.train()


def response_logprobs(
    model: PreTrainedModel, batch: MicroBatch, temperature: float, bf16: bool, chunk_mib: int = CHUNK_MIB
) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy of the response tokens, float32 [T] each (float64 for a float64 model).

    With `bf16` matrices are multiplied in bfloat16; weights, their gradients and all that is summed stay float32.
    """
    logp_T, entropy_T, _ = forward(model, batch, temperature, bf16, chunk_mib)
    return logp_T, entropy_T


def forward(
    model: PreTrainedModel,
    batch: MicroBatch,
    temperature: float,
    bf16: bool,
    chunk_mib: int = CHUNK_MIB,
    prompts: bool = False,
) -> ModelOutputs:
    """`response_logprobs`, and with `prompts` the mean hidden state of each row's prompt."""
    device = model.device
    # Each weight is used once: a cache of rounded weights would only cost memory.
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16, cache_enabled=False):
        hidden_1SH = model.base_model(
            batch.input_ids.to(device),
            position_ids=batch.positions.to(device),
            segments=batch.segments.to(device),
            use_cache=False,
        ).last_hidden_state
        hidden_TH = hidden_1SH[0].index_select(0, batch.predicts.to(device))
        head_VH = model.get_output_embeddings().weight
        logp_T, entropy_T = token_logprobs(hidden_TH, head_VH, batch.targets.to(device), temperature, chunk_mib)
    return ModelOutputs(logp_T, entropy_T, prompt_means(hidden_1SH[0], batch.segments) if prompts else None)


def pretrained_config(model: PreTrainedModel) -> dict[str, bytes]:
    """The files that a Hugging Face folder needs beside this model's weights in float32 (no tokenizer)."""
    config = copy.deepcopy(model.config)
    config.architectures, config.dtype = [type(model).__name__.removeprefix("FSDP")], torch.float32
    files = {"config.json": config.to_json_string().encode()}
    if model.can_generate():
        files["generation_config.json"] = model.generation_config.to_json_string().encode()
    return files


def pretrained_files(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> dict[str, bytes]:
    """The files of a Hugging Face folder with this model and these weights (no tokenizer)."""
    state = dict(weights)
    for name, tied_to in (model.all_tied_weights_keys or {}).items():  # so that it is saved once
        state[name] = state[tied_to]
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, state_dict=state)
        return {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir())}


def layers_of(model: Module) -> list[Module]:
    """The decoder's layers, in order: the longest list of modules in the model."""
    lists = [list(module) for module in model.modules() if isinstance(module, ModuleList)]
    return max(lists, key=len, default=[])


def logprob_distance(one_T: Tensor, other_T: Tensor, bf16: bool) -> float:
    """Largest |difference| of a log-probability; with bf16, whose rounding moves single ones by 0.5, the mean."""
    apart_T = (one_T - other_T).abs()
    return float(apart_T.mean() if bf16 else apart_T.max())


def check_model(model: PreTrainedModel, bf16: bool) -> None:
    """Compare packed short rows with the model's own attention and logits in float32.

    This detects a bias or a soft cap on logits, attention with a cap or sinks, and layers in which packed rows see each
    other. Raises `UsageError`.
    """
    model.eval()
    tokens = np.arange(5, dtype=np.int32)
    rows = [TrainingRow(tokens[:cut], tokens[cut:], np.zeros(5 - cut, np.float32), 0.0, 0) for cut in (1, 3, 3)]
    with torch.no_grad():
        got, _ = response_logprobs(model, pack(rows), 1.0, bf16)
        model.set_attn_implementation("eager")
        logits_LV = model(torch.from_numpy(tokens.astype(np.int64))[None].to(model.device)).logits[0, :-1]
        model.set_attn_implementation(PACKED)
    own = logits_LV.log_softmax(-1).gather(1, torch.arange(1, 5, device=model.device)[:, None]).squeeze(1)
    off = logprob_distance(got, torch.cat([own, own[2:], own[2:]]), bf16)
    if not off <= TOLERANCE[bf16]:
        raise UsageError(
            f"The learner does not compute this model ({type(model).__name__}) as transformers does: "
            f"log-probabilities are off by {off:.2g}; Qwen2, Qwen3 and Llama models are known to agree."
        )
