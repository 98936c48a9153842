"""The names in `generator.engine_args`, checked by vLLM's source: to import vLLM takes seconds."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from raypoly.core.config import GeneratorConfig
from raypoly.core.errors import UsageError

_OURS = "no key, since raypoly relies on its value"
OWN: Mapping[str, str] = {
    "model": "model.path",
    "dtype": "model.dtype",
    "max_model_len": "generator.max_prompt_tokens and generator.max_tokens",
    "max_num_batched_tokens": "generator.max_prompt_tokens and generator.max_tokens",
    "max_num_seqs": "generator.max_sequences",
    "gpu_memory_utilization": "generator.gpu_memory_fraction",
    "enable_sleep_mode": "generator.placement",
    "weight_transfer_config": "generator.transport",
    **dict.fromkeys(("hf_overrides", "logprobs_mode", "generation_config", "enable_prefix_caching"), _OURS),
    **dict.fromkeys(("block_size", "disable_log_stats", "enforce_eager", "enable_chunked_prefill", "seed"), _OURS),
}
"""The arguments that `VllmEngine` sets, and the keys that decide them."""


def check_engine_args(config: GeneratorConfig) -> None:
    """Raise `UsageError` for an argument that raypoly sets, that vLLM lacks, or that the engine can't get."""
    if config.engine_args and config.engine != "vllm":
        raise UsageError(
            f"generator.engine_args={config.engine_args} are for vLLM, and generator.engine={config.engine}: "
            "leave them out, or set generator.engine=vllm."
        )
    for name in config.engine_args:
        if name in OWN:
            raise UsageError(f"generator.engine_args.{name} can't be given: it is decided by {OWN[name]}.")
        if (known := vllm_arguments()) and name not in known:
            near = get_close_matches(name, known - OWN.keys(), n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else "."
            raise UsageError(f"generator.engine_args.{name} is no argument of the EngineArgs of vLLM{hint}")


@cache
def vllm_arguments() -> frozenset[str]:
    """Fields of EngineArgs in vLLM's source; empty where there is no vLLM."""
    found = importlib.util.find_spec("vllm")
    source = None if found is None or found.origin is None else Path(found.origin).parent / "engine" / "arg_utils.py"
    if source is None or not source.is_file():
        return frozenset()
    classes = [node for node in ast.parse(source.read_text()).body if isinstance(node, ast.ClassDef)]
    fields = [item for node in classes if node.name == "EngineArgs" for item in node.body]
    return frozenset(it.target.id for it in fields if isinstance(it, ast.AnnAssign) and isinstance(it.target, ast.Name))
