"""Peak memory of log-probabilities and their gradient with a real vocabulary, measured in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

VOCABULARY = 151_936
"""Qwen's."""

MEASURE = """
import json, sys
import torch
from pathlib import Path
from transformers import Qwen2Config, Qwen2ForCausalLM
from raypoly.learner.logprobs import token_logprobs

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

def step(tokens, chunk_mib):
    ids = torch.arange(tokens)[None]
    hidden_TH = model.model(ids, use_cache=False).last_hidden_state[0]
    logp_T, entropy_T = token_logprobs(hidden_TH, model.lm_head.weight, ids[0], 1.0, chunk_mib)
    (logp_T.sum() + entropy_T.sum()).backward()
    peaks.append(peak())

torch.set_num_threads(1)
sizes = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1)
model = Qwen2ForCausalLM(Qwen2Config(vocab_size=int(sys.argv[1]), tie_word_embeddings=False, **sizes))
peaks = []
step(8, 16)
step(128, 16)
step(512, 16)
step(512, 96)
print(json.dumps(peaks))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc to measure peak memory")
def test_peak_memory_grows_with_the_chunk_and_not_with_the_tokens() -> None:
    returned = {"MALLOC_MMAP_THRESHOLD_": str(2**20)}  # every freed array goes back to the system at once
    command = [sys.executable, "-c", MEASURE, str(VOCABULARY)]
    done = subprocess.run(command, env={**os.environ, **returned}, capture_output=True, text=True, check=True)
    _, few, many, larger_chunk = json.loads(done.stdout.splitlines()[-1])
    full_logits = (512 - 128) * VOCABULARY * 4 / 2**20  # MiB, of one array
    assert many - few < 0.25 * full_logits
    assert 80 < larger_chunk - many < 6 * 80
