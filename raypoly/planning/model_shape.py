"""Sizes of a model, from its own `config.json`: numbers of weights, bytes of cache, layout of training rows.

    shape = shape_of("Qwen/Qwen3-4B-Base")      # a local folder, what the hub's cache holds, or a published model
    shape.parameters                            # 4_022_468_096

Known architectures are Qwen2 (and 2.5), Qwen3, Llama and Mistral.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError, safe_open

from raypoly.core.errors import UsageError
from raypoly.core.gguf_models import GgufModel, teacher_place

_SIZES = {
    "vocabulary": "vocab_size",
    "hidden": "hidden_size",
    "intermediate": "intermediate_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
}
_ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder with a gated MLP."""

    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    key_value_heads: int
    head_size: int
    tied: bool
    """Whether the head is the embedding."""
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    head_norm: bool = False
    """Whether queries and keys are normalised (Qwen3)."""

    @property
    def queries(self) -> int:
        """Width of all queries together."""
        return self.heads * self.head_size

    @property
    def keys(self) -> int:
        """Width of all keys together; values are as wide."""
        return self.key_value_heads * self.head_size

    @property
    def head(self) -> int:
        """Weights of the output projection, V H."""
        return self.vocabulary * self.hidden

    @property
    def layer_matrices(self) -> int:
        """Weights of one layer's seven matrices: H (2 queries + 2 keys + 3 I)."""
        return self.hidden * (2 * self.queries + 2 * self.keys + 3 * self.intermediate)

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer, with biases and norms."""
        qkv = self.qkv_bias * (self.queries + 2 * self.keys)
        mlp = self.mlp_bias * (2 * self.intermediate + self.hidden)
        norms = 2 * self.hidden + self.head_norm * 2 * self.head_size
        return self.layer_matrices + qkv + self.out_bias * self.hidden + mlp + norms

    @property
    def parameters(self) -> int:
        """All weights; a tied head is counted once, as it is held once."""
        return self.head * (1 if self.tied else 2) + self.layers * self.layer_parameters + self.hidden

    def adapters(self, rank: int) -> int:
        """Weights of LoRA on every linear layer but the head, rank x (inputs + outputs) of each (arXiv 2106.09685)."""
        attention = 2 * (self.hidden + self.queries) + 2 * (self.hidden + self.keys)
        return self.layers * rank * (attention + 3 * (self.hidden + self.intermediate))

    def cache_bytes(self, width: int) -> int:
        """KV cache of one token, keys and values of every layer, at `width` bytes a number."""
        return 2 * self.layers * self.keys * width


def from_config(values: Mapping[str, Any]) -> ModelShape | None:
    """The shape in a `config.json`; None for another architecture, or if it lacks a size."""
    kind = values.get("model_type")
    if kind not in _ARCHITECTURES or not all(isinstance(values.get(name), int) for name in _SIZES.values()):
        return None
    sizes = {ours: values[theirs] for ours, theirs in _SIZES.items()}
    head_size = values.get("head_dim") or (128 if kind == "qwen3" else sizes["hidden"] // sizes["heads"])
    bias = bool(values.get("attention_bias", False))
    return ModelShape(
        **sizes,
        key_value_heads=values.get("num_key_value_heads") or sizes["heads"],
        head_size=head_size,
        tied=bool(values.get("tie_word_embeddings", False)),
        qkv_bias=kind == "qwen2" or bias,
        out_bias=kind != "qwen2" and bias,
        mlp_bias=kind == "llama" and bool(values.get("mlp_bias", False)),
        head_norm=kind == "qwen3",
    )


def _qwen3(hidden: int, intermediate: int, layers: int, heads: int, tied: bool = False) -> ModelShape:
    return ModelShape(151_936, hidden, intermediate, layers, heads, 8, 128, tied, head_norm=True)


def _qwen2(
    hidden: int, intermediate: int, layers: int, heads: int, keys: int, words: int, size: int = 128
) -> ModelShape:
    return ModelShape(words, hidden, intermediate, layers, heads, keys, size, words == 151_936, qkv_bias=True)


TINY = ModelShape(480, 96, 256, 3, 4, 2, 32, tied=False, head_norm=True)
"""The tiny model of `warm_start` (`raypoly.learner.tiny_model`)."""
TINY_CONTEXT = 1024
"""The most tokens that it reads."""
PUBLISHED: Mapping[str, ModelShape] = {
    "Qwen/Qwen3-0.6B": _qwen3(1024, 3072, 28, 16, tied=True),
    "Qwen/Qwen3-1.7B": _qwen3(2048, 6144, 28, 16, tied=True),
    "Qwen/Qwen3-4B": _qwen3(2560, 9728, 36, 32, tied=True),
    "Qwen/Qwen3-8B": _qwen3(4096, 12288, 36, 32),
    "Qwen/Qwen3-14B": _qwen3(5120, 17408, 40, 40),
    "Qwen/Qwen3-32B": _qwen3(5120, 25600, 64, 64),
    "Qwen/Qwen2.5-0.5B": _qwen2(896, 4864, 24, 14, 2, 151_936, size=64),
    "Qwen/Qwen2.5-1.5B": _qwen2(1536, 8960, 28, 12, 2, 151_936),
    "Qwen/Qwen2.5-3B": _qwen2(2048, 11008, 36, 16, 2, 151_936),
    "Qwen/Qwen2.5-7B": _qwen2(3584, 18944, 28, 28, 4, 152_064),
    "Qwen/Qwen2.5-14B": _qwen2(5120, 13824, 48, 40, 8, 152_064),
    "Qwen/Qwen2.5-32B": _qwen2(5120, 27648, 64, 40, 8, 152_064),
    "HuggingFaceTB/SmolLM2-135M": ModelShape(49_152, 576, 1536, 30, 9, 3, 64, tied=True),
    "meta-llama/Llama-3.2-1B": ModelShape(128_256, 2048, 8192, 16, 32, 8, 64, tied=True),
    "meta-llama/Llama-3.2-3B": ModelShape(128_256, 3072, 8192, 28, 24, 8, 128, tied=True),
    "meta-llama/Llama-3.1-8B": ModelShape(128_256, 4096, 14336, 32, 32, 8, 128, tied=False),
}
"""By their names on the hub, without the words of `_VARIANTS`."""
_VARIANTS = ("-Base", "-Instruct", "-Coder", "-Math", "-2507", "-Thinking")


def shape_of(path: str | None) -> ModelShape | None:
    """The shape of `model.path`; None where folder, hub's cache and `PUBLISHED` don't know it."""
    if path is None:
        return TINY
    found = config_of(path)
    if found is not None:
        return from_config(found)
    name = path
    for word in _VARIANTS:
        name = name.replace(word, "")
    return PUBLISHED.get(name)


def context_of(path: str | None) -> int | None:
    """Most tokens that `model.path` reads; None where no config here says."""
    if path is None:
        return TINY_CONTEXT
    values = config_of(path) or {}
    found = (values.get("text_config") or values).get("max_position_embeddings")
    return found if isinstance(found, int) else None


def config_of(path: str) -> dict[str, Any] | None:
    """`config.json` of a folder here, of a GGUF file, or of the hub's cache; None where there is none."""
    gguf = GgufModel.find(path)
    if gguf is not None:
        return gguf.config()
    folder = Path(path).expanduser()
    file: object = folder / "config.json"
    if not folder.is_dir():
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        try:
            file = try_to_load_from_cache(path, "config.json")
        except HFValidationError:
            return None
    if not isinstance(file, str | Path) or not Path(file).is_file():
        return None
    try:
        values = json.loads(Path(file).read_text())
    except (OSError, ValueError):
        return None
    return values if isinstance(values, dict) else None


def require_whole(folder: Path, said: str) -> None:
    """Raise `UsageError` for a Hugging Face folder whose weights are missing or cut, or whose tokenizer is damaged or
    another model's. `said`: the folder, as the user named it."""
    index, weights = folder / "model.safetensors.index.json", sorted(folder.glob("*.safetensors"))
    parts = _json(index, said).get("weight_map", {}).values() if index.is_file() else ()
    lost = [name for name in sorted({*parts}) if not (folder / name).is_file()]
    if lost or not (weights or any(folder.glob("*.bin"))):
        raise UsageError(f"{said} has no {lost[0] if lost else '*.safetensors or *.bin'}: copy its weights again.")
    for file in weights:
        try:
            with safe_open(file, framework="numpy"):  # reads the header, and whether the file is as long as it says
                pass
        except (SafetensorError, OSError) as error:
            raise UsageError(f"{said}: {file.name} is cut or damaged ({error}): copy it again.") from error
    tokenizer = folder / "tokenizer.json"
    model = _json(tokenizer, said).get("model", {}) if tokenizer.is_file() else {}
    tokens, rows = len(model.get("vocab") or ()), _text_config(str(folder)).get("vocab_size")
    if isinstance(rows, int) and tokens > rows:
        raise UsageError(
            f"{said}: its tokenizer has {tokens:,} tokens and its config.json {rows:,} (vocab_size), so it is another "
            "model's: copy both from one model."
        )


def teacher_folder(teacher: str) -> Path | None:
    """The folder of `teacher_place` where it is here; None for a name on the hub.

    Raises `UsageError` for a folder without a model.
    """
    place = teacher_place(teacher)
    if not place.is_dir():
        return None
    if not (place / "tokenizer_config.json").is_file():
        raise UsageError(
            f"distill.teacher={teacher} holds neither a model with its tokenizer nor a finished run's (model/): name a "
            "Hugging Face folder, or a run that ended."
        )
    require_whole(place, f"distill.teacher={teacher}")
    return place


def _json(file: Path, said: str) -> dict[str, Any]:
    try:
        values = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{said}: {file.name} is no JSON ({error}): copy the model again.") from error
    return values if isinstance(values, dict) else {}


def no_hub_model(name: str, error: Exception, where: str = " here", key: str = "model.path") -> UsageError:
    """`where`: the machine on which the hub does not give it."""
    return UsageError(
        f"{key}={name} is no folder{where} and could not be had from the Hugging Face hub "
        f"({str(error).partition(chr(10))[0]}): give a folder with a model, or a model's name there."
    )


RowLayout = Literal["packed", "padded"]
_PACKED = {"full_attention", "sliding_attention"}  # kinds of layers (`layer_types`) that packed attention computes


def is_mixture(path: str) -> bool:
    """Whether a model's config tells of a mixture of experts."""
    values = _text_config(path)
    return any(name.endswith("_experts") and isinstance(count, int) and count > 1 for name, count in values.items())


def row_layout(path: str | None) -> RowLayout | None:
    """Layout of a model's training rows by its config; None if unknown before the learner loads and tries the model."""
    values = _text_config(path) if path is not None else {}
    if values.get("attn_logit_softcapping") is not None:
        return "padded"
    kinds = values.get("layer_types")
    if kinds is not None:
        return "packed" if set(kinds) <= _PACKED else "padded"
    return None if shape_of(path) is None else "packed"


def _text_config(path: str) -> dict[str, Any]:
    found = config_of(path) or {}
    return {**found, **(found.get("text_config") or {})}
