"""vLLM's own OpenAI server on a CPU, with a tiny random model of a long context.

    with serving(build(folder)) as url:                      # up in half a minute; ended with all its processes
        OpenAIJudge(JudgeConfig(name="openai", base_url=url, model=MODEL, answer_schema="indexed"))

Its labels mean nothing and are the same each time: what it shows is how a real server speaks.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import Qwen3ForCausalLM

from raypoly.learner.tiny_model import build_model, build_tokenizer, save_folder
from raypoly.strategies.judge.gold import read_gold_groups
from raypoly.strategies.judge.openai.judge_prompt import INSTRUCTIONS
from tests.support.ports import free_port

MODEL = "random"
CONTEXT = 16_384
"""Positions. With some two characters a token a judge's prompt has 5,000 tokens."""
_UP_SECONDS = 300
_TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>\n{{ m['content'] }}\n{% endfor %}<assistant>\n"
_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine is one process and not two
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "TORCHDYNAMO_DISABLE": "1",
}
_OPTIONS = (
    "--dtype=float32",
    "--block-size=32",
    "--enforce-eager",
    "--distributed-executor-backend=uni",
    "--max-num-seqs=8",
    f"--max-model-len={CONTEXT}",
    f"--served-model-name={MODEL}",
    "--enable-prompt-tokens-details",
    # a random model would fill its answer with white space, and the grammar lets it unless told not to
    f"--structured-outputs-config={json.dumps({'backend': 'xgrammar', 'disable_any_whitespace': True})}",
)


def build(folder: Path, seed: int = 1) -> Path:
    """A Hugging Face folder with random weights of `seed`, a chat template, and room for a judge's prompt."""
    tokenizer = build_tokenizer(
        [INSTRUCTIONS, *(program for group in read_gold_groups() for program in group.programs)]
    )
    tokenizer.chat_template = _TEMPLATE
    tokenizer.model_max_length = CONTEXT
    model: Qwen3ForCausalLM = build_model(len(tokenizer), seed)
    model.config.max_position_embeddings = CONTEXT
    _excite(model)
    save_folder(model, tokenizer, folder)
    return folder


def _excite(model: Qwen3ForCausalLM) -> None:
    """Sharp attention: else the answer hangs on its last tokens alone, and all programs get one label."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lm_head" in name:
                weight.mul_(10)
            elif "q_norm" in name or "k_norm" in name:
                weight.mul_(2)
            elif "v_proj" in name or "o_proj" in name:
                weight.mul_(20)


@contextmanager
def serving(model: Path) -> Iterator[str]:
    """Serve; yield the address. The log lies beside the model. Raises `RuntimeError` if the server does not come up."""
    port = free_port()
    log = model.with_suffix(".log")
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", f"--model={model}", f"--port={port}"]
    command += ["--host=127.0.0.1", *_OPTIONS]
    with log.open("w") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env=os.environ | _ENVIRONMENT, start_new_session=True
        )
    try:
        _wait_until_up(process, f"http://127.0.0.1:{port}/health", log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its engine is a process of its own in the same group
        process.wait()


def _wait_until_up(process: subprocess.Popen[bytes], health: str, log: Path) -> None:
    until = time.monotonic() + _UP_SECONDS
    while process.poll() is None and time.monotonic() < until:
        try:
            urllib.request.urlopen(health, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError(f"vLLM's server did not come up:\n{log.read_text()[-4000:]}")
