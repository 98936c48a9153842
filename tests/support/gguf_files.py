"""Tiny GGUF files: a Llama of one layer with tied head, and a byte-level tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quants

from raypoly.learner.tiny_model import build_tokenizer
from tests.support.random_model import TEXTS

WIDTH, INNER = 64, 96
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"
)


def tiny_tensors(seed: int = 0) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """The tensors by their GGUF names."""
    drawn, words = np.random.default_rng(seed), len(build_tokenizer(TEXTS))
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (words, WIDTH),
        "output_norm.weight": (WIDTH,),
        "blk.0.attn_norm.weight": (WIDTH,),
        "blk.0.ffn_norm.weight": (WIDTH,),
        "blk.0.attn_q.weight": (WIDTH, WIDTH),
        "blk.0.attn_k.weight": (WIDTH // 2, WIDTH),
        "blk.0.attn_v.weight": (WIDTH // 2, WIDTH),
        "blk.0.attn_output.weight": (WIDTH, WIDTH),
        "blk.0.ffn_gate.weight": (INNER, WIDTH),
        "blk.0.ffn_up.weight": (INNER, WIDTH),
        "blk.0.ffn_down.weight": (WIDTH, INNER),
    }
    return {name: drawn.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}


def write_gguf(
    path: Path,
    *,
    kind: str = "F32",
    seed: int = 0,
    architecture: str = "llama",
    template: str | None = TEMPLATE,
    without: str = "",
) -> Path:
    """Write the file. `kind`: of its matrices (`F32`, `Q8_0`, `Q4_0`). `without`: the name of a tensor to leave out."""
    file = GGUFWriter(path, architecture)
    file.add_context_length(256)
    file.add_embedding_length(WIDTH)
    file.add_block_count(1)
    file.add_feed_forward_length(INNER)
    file.add_head_count(4)
    file.add_head_count_kv(2)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_freq_base(10_000.0)
    tokenizer = build_tokenizer(TEXTS)
    words = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    file.add_tokenizer_model("gpt2")
    file.add_token_list(words)
    file.add_token_types([3 if word in tokenizer.all_special_tokens else 1 for word in words])
    file.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    file.add_eos_token_id(tokenizer.eos_token_id)
    file.add_bos_token_id(tokenizer.eos_token_id)
    if template is not None:
        file.add_chat_template(template)
    quantised = GGMLQuantizationType[kind]
    for name, tensor in tiny_tensors(seed).items():
        if name == without:
            continue
        packed = tensor if tensor.ndim == 1 or kind == "F32" else quants.quantize(tensor, quantised)
        file.add_tensor(name, packed, raw_dtype=None if packed is tensor else quantised)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path
