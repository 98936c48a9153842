"""The policy's model as the learner trains it, the frozen reference model, and a loss's head.

    model = load_model(path, device, bf16=True)
    logp_T, entropy_T = response_logprobs(model, batch, temperature=1.0, bf16=True, chunk_mib=512)
    logp_T, entropy_T, prompt_hidden_SH = forward(model, batch, 1.0, bf16=True, prompts=True)
    head_S = run_head(make_head(loss, hidden_size, seed), prompt_hidden_SH)      # a number a response

Rows are packed, a prompt that neighbours share once, where every layer can (full attention, sliding windows). Else, as
with linear or recurrent layers, each row is padded on the right to one length and goes through the model's own
attention: a causal layer shows no token what comes after it, so this needs no mask.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import Module, ModuleList
from transformers import AttentionInterface, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from raypoly.algorithms.losses.loss import Loss
from raypoly.core.errors import UsageError
from raypoly.learner.attention import PACKED, ScoresChanged, attend
from raypoly.learner.logit_chunks import CHUNK_MIB
from raypoly.learner.logprobs import token_logprobs
from raypoly.learner.packing import MicroBatch, Segments, pack
from raypoly.learner.training_rows import TrainingRow
from raypoly.learner.weight_hash import weight_digest
from raypoly.run.store.shards import INDEX, WEIGHTS

TOLERANCE = {False: 1e-3, True: 0.5}
"""Largest `logprob_distance` of two ways to compute the same, without and with bf16."""
# Tokens of the longest row of a check: more than a chunk of linear attention (64), up to 2048 to see past a window.
_LEAST, _MOST = 70, 2048

HEAD_PREFIX = "loss_head."
AttentionInterface.register(PACKED, attend)


class ModelOutputs(NamedTuple):
    """The results of one pass over a micro-batch."""

    logp_T: Tensor
    entropy_T: Tensor
    prompt_hidden_SH: Tensor | None
    """[B, H]: mean of the last hidden states of each row's prompt; None without `prompts`."""


def load_model(path: Path, device: torch.device, bf16: bool = False) -> PreTrainedModel:
    """A causal language model with float32 weights and without dropout, checked by `check_model`.

    Its rows are packed if that gives its own log-probabilities, else padded. Raises `UsageError` if both ways differ
    from its own, or for a mixture of experts.
    """
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).to(device)
    if any(name.rpartition(".")[2] == "experts" for name, _ in model.named_modules()):
        raise UsageError(
            f"This model ({type(model).__name__}) is a mixture of experts, whose routing and balancing loss the "
            "learner does not train: set model.path to a dense model."
        )
    for module in model.modules():  # the gradient must be of the sampling policy
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)
    _choose_attention(model, bf16)
    return model.train()


def is_packed(model: PreTrainedModel) -> bool:
    """Whether the model's rows are packed, with shared prompts; else they are padded."""
    return bool(model.config._attn_implementation == PACKED)


def describe_rows(model: PreTrainedModel) -> str:
    name, window = type(model).__name__.removeprefix("FSDP"), _window(model.config.get_text_config())
    if not is_packed(model):
        return f"{name}: rows padded to one length, prompt computed for each response"
    unchecked = f" (nothing was checked beyond a window of {window:,} tokens)" if _LEAST + window > _MOST else ""
    return f"{name}: rows packed, prompts shared{unchecked}"


def _choose_attention(model: PreTrainedModel, bf16: bool) -> None:
    """Set the first attention that agrees with the model's own."""
    # Packed; else padded rows with PyTorch's attention, then eager. Scores with a cap or sinks leave eager alone. The
    # check in float32 is the strict one; a mistake that bf16 alone brings out moves every token beyond its bound too.
    ways = [PACKED, str(model.config._attn_implementation), "eager"]
    while ways:
        try:
            model.set_attn_implementation(ways.pop(0))
            for precision in sorted({False, bf16}):
                check_model(model, precision)
            return
        except ScoresChanged:
            ways = ["eager"]
        except (UsageError, TypeError, ValueError):  # a model that takes no segments raises the latter two
            if not ways:
                raise


def response_logprobs(
    model: PreTrainedModel, batch: MicroBatch, temperature: float, bf16: bool, chunk_mib: int = CHUNK_MIB
) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy of the response tokens, float32 [T] each (float64 for a float64 model).

    With `bf16` matrices are multiplied in bfloat16; weights, gradients and sums stay float32.
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
        hidden_SH = _hidden_packed(model, batch) if is_packed(model) else _hidden_padded(model, batch)
        hidden_TH = hidden_SH.index_select(0, batch.predicts.to(device))
        head_VH, config = model.get_output_embeddings().weight, model.config.get_text_config()
        divisor, cap = temperature * _logit_divisor(config), getattr(config, "final_logit_softcapping", None)
        logp_T, entropy_T = token_logprobs(hidden_TH, head_VH, batch.targets.to(device), divisor, chunk_mib, cap)
    return ModelOutputs(logp_T, entropy_T, prompt_means(hidden_SH, batch.segments) if prompts else None)


def _window(config: PreTrainedConfig) -> int:
    return getattr(config, "sliding_window", None) or 0


def _logit_divisor(config: PreTrainedConfig) -> float:
    # Granite divides its logits, Cohere multiplies them.
    divided, multiplied = getattr(config, "logits_scaling", None), getattr(config, "logit_scale", None)
    return float(divided or 1.0) / float(multiplied or 1.0)


def _hidden_packed(model: PreTrainedModel, batch: MicroBatch) -> Tensor:
    """[S, H]."""
    device = model.device
    hidden_1SH: Tensor = model.base_model(
        batch.input_ids.to(device),
        position_ids=batch.positions.to(device),
        segments=batch.segments.to(device),
        use_cache=False,
    ).last_hidden_state
    return hidden_1SH[0]


def _hidden_padded(model: PreTrainedModel, batch: MicroBatch) -> Tensor:
    """[S, H]. A shared prompt is computed in each of its rows; its last copy is taken."""
    index_BL, place_S = batch.segments.padded()
    ids_BL = batch.input_ids[0][index_BL].to(model.device)
    hidden_BLH: Tensor = model.base_model(ids_BL, use_cache=False).last_hidden_state
    return hidden_BLH.flatten(0, 1).index_select(0, place_S.to(model.device))


def pretrained_config(model: PreTrainedModel, dtype: torch.dtype = torch.float32) -> dict[str, bytes]:
    """Files of a Hugging Face folder beside the weights (no tokenizer)."""
    config = copy.deepcopy(model.config)
    config.architectures, config.dtype = [type(model).__name__.removeprefix("FSDP")], dtype
    files = {"config.json": config.to_json_string().encode()}
    if model.can_generate():
        files["generation_config.json"] = model.generation_config.to_json_string().encode()
    return files


def pretrained_names(model: PreTrainedModel, names: Iterable[str]) -> dict[str, str]:
    """The model's own name of each weight by its name in a Hugging Face folder, in the model's order; of tied ones
    the first alone."""
    # Only transformers knows names of old that it has changed on loading. So it saves a number in place of each weight.
    order, tied = list(names), model.all_tied_weights_keys or {}
    state = {name: torch.tensor([float(place)]) for place, name in enumerate(order)}
    state |= {name: state[tied_to] for name, tied_to in tied.items()}  # one tensor object is saved once
    try:
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder, state_dict=state)
            found = load_file(Path(folder) / WEIGHTS)
        places = {int(number.item()): name for name, number in found.items()}
    except ValueError:  # of the starting model's generation_config.json: transformers saves no wrong sampling keys
        return {name: name for name in order if name not in tied}  # which transformers opens, too
    return {places[place]: order[place] for place in sorted(places)}


def weight_files(likes: Mapping[str, Tensor], most: int) -> tuple[Mapping[str, Sequence[str]], dict[str, bytes]]:
    """(The weights' names by file, of `most` bytes at most; with several files, their index)."""
    split = split_torch_state_dict_into_shards(
        dict(likes), filename_pattern="model{suffix}.safetensors", max_shard_size=most
    )
    if not split.is_sharded:
        return split.filename_to_tensors, {}
    count = sum(like.numel() for like in likes.values())
    index = {"metadata": {"total_parameters": count, **split.metadata}, "weight_map": split.tensor_to_filename}
    return split.filename_to_tensors, {INDEX: f"{json.dumps(index, indent=2, sort_keys=True)}\n".encode()}


def layers_of(model: Module) -> list[Module]:
    """The decoder's layers: the longest list of modules in the model."""
    lists = [list(module) for module in model.modules() if isinstance(module, ModuleList)]
    return max(lists, key=len, default=[])


def logprob_distance(one_T: Tensor, other_T: Tensor, bf16: bool) -> float:
    """Largest |difference| of a log-probability; the mean with bf16, whose rounding moves single ones by 0.5."""
    apart_T = (one_T - other_T).abs()
    return float(apart_T.mean() if bf16 else apart_T.max())


def check_model(model: PreTrainedModel, bf16: bool) -> None:
    """Compare rows of unequal lengths, some with a shared prompt, with the model's own logits in float32.

    This detects a bias on logits, attention with a cap or sinks, layers in which packed rows see each other, and
    dropout. Raises `UsageError`.
    """
    way, config = model.config._attn_implementation, model.config.get_text_config()
    window = _window(config)
    length = _LEAST + (window if _LEAST + window <= _MOST else 0)
    length = min(length, getattr(config, "max_position_embeddings", None) or length)
    tokens = np.arange(length, dtype=np.int32) % config.vocab_size
    # All rows are cut from one sequence, so one pass of the model alone gives the log-probabilities of them all.
    spans = [(1, length), (length // 2, length), (length // 2, length), (length // 2, length - length // 4)]
    rows = [TrainingRow(tokens[:cut], tokens[cut:end], np.zeros(end - cut, np.float32), 0.0, 0) for cut, end in spans]
    with torch.no_grad():
        got, _ = response_logprobs(model.train(), pack(rows), 1.0, bf16)
        model.eval().set_attn_implementation("eager")
        ids_1L = torch.from_numpy(tokens.astype(np.int64))[None].to(model.device)
        logits_LV = model(ids_1L, use_cache=False).logits[0, :-1]
        model.set_attn_implementation(way)
    own = logits_LV.log_softmax(-1).gather(1, ids_1L[0, 1:, None]).squeeze(1)
    off = logprob_distance(got, torch.cat([own[cut - 1 : end - 1] for cut, end in spans]), bf16)
    if not off <= TOLERANCE[bf16]:
        raise UsageError(
            f"The learner does not compute this model ({type(model).__name__}) as transformers does: "
            f"log-probabilities are off by {off:.2g}; Qwen, Llama, Mistral and Gemma models are known to agree."
        )


class ReferenceModel:
    """The frozen weights that the run started with, in float32. A checkpoint holds their digest alone."""

    def __init__(self, model: PreTrainedModel) -> None:
        """`model` has whole weights; it may be sharded afterwards."""
        self.model = model.eval().requires_grad_(False)
        self.digest = weight_digest(model.state_dict())

    def check(self, known: str | None) -> None:
        """Raise `UsageError` if a checkpoint's digest is another model's."""
        if known is not None and known != self.digest:
            raise UsageError(
                "The model at model.path is not the reference model that this run started with: put that model back, "
                "or use run.fresh=true."
            )


def make_head(loss: Loss, hidden_size: int, seed: int) -> Module | None:
    """The loss's head on the host; None for a loss without one. The same seed draws the same weights on every device.

    Raises `UsageError` if the loss's `needs` lacks `prompt_hidden`.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = loss.head(hidden_size)
    if head is None:
        return None
    if "prompt_hidden" not in loss.needs:
        raise UsageError(
            f"The loss {type(loss).__name__} has a head, which reads `prompt_hidden`: its `needs` must name it."
        )
    return head.eval()  # no dropout: a step must be repeatable


def named_weights(head: Module | None) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Parameters by their names in a checkpoint; none without a head."""
    if head is not None:
        yield from ((f"{HEAD_PREFIX}{name}", parameter) for name, parameter in head.named_parameters())


def run_head(head: Module, prompt_hidden_SH: Tensor) -> Tensor:
    """[S], one number a response."""
    output: Tensor = head(prompt_hidden_SH)
    return output.clone()  # FSDP puts hooks on its output, which a view can't have


def prompt_means(hidden_SH: Tensor, segments: Segments) -> Tensor:
    """Mean over each response's prompt, [responses, H], with gradient."""
    starts = list(accumulate(segments.lengths, initial=0))
    prompts = [i for i, prompt in enumerate(segments.prompts) if prompt is None]
    exact = torch.promote_types(hidden_SH.dtype, torch.float32)
    mean_PH = torch.stack([hidden_SH[starts[i] : starts[i + 1]].mean(0, dtype=exact) for i in prompts])
    place = {segment: i for i, segment in enumerate(prompts)}
    read_by = [place[prompt] for prompt in segments.prompts if prompt is not None]
    return mean_PH.index_select(0, torch.tensor(read_by, device=mean_PH.device))
