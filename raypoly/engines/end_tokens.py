"""Where a response ends."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoConfig, AutoTokenizer, GenerationConfig


def end_tokens(model_path: Path) -> list[int]:
    """Every token id that ends a response, by generation config, model config or tokenizer."""
    found: set[int] = set()
    sources = [
        AutoConfig.from_pretrained(model_path).eos_token_id,
        AutoTokenizer.from_pretrained(model_path).eos_token_id,
    ]
    if (Path(model_path) / "generation_config.json").exists():
        sources.append(GenerationConfig.from_pretrained(model_path).eos_token_id)
    for ids in sources:
        found.update([ids] if isinstance(ids, int) else ids or [])
    return sorted(found)
