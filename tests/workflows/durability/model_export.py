"""The end of a run, without its steps: a learner's model goes into the run's folder.

    python -m tests.workflows.durability.model_export FOLDER MIB

makes a random model of so many MiB, lets a learner's actor write it, and prints what that took: bytes by which the most
memory of driver and actor grew, of which the driver may take 1 GiB, and seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import ray

from actors.calls import CallContext
from actors.learner import LearnerGroup
from actors.model_files import ModelFiles
from raypoly.core.settings import load
from raypoly.run.store import acquire_lease, open_store
from tests.support.process_costs import largest_resident_bytes
from workflows.durability.checkpoint_writer import CheckpointWriter
from workflows.durability.checkpoints import Checkpoints
from workflows.step.run_durability import RunDurability

TOKENIZER = {"tokenizer.json": b"{}", "tokenizer_config.json": b"{}"}
_HEAP = 1 << 30
_MAKE = """
import sys
from transformers import Qwen3Config, Qwen3ForCausalLM
folder, mib = sys.argv[1], int(sys.argv[2])
width, words = (1024, 32768) if mib > 1000 else (512, 8192)
layers = ((mib << 18) - words * width) // (29 * width * width // 2)
sizes = {"hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": layers}
heads = {"num_attention_heads": width // 64, "num_key_value_heads": width // 256, "head_dim": 64}
Qwen3ForCausalLM(Qwen3Config(vocab_size=words, tie_word_embeddings=True, **sizes, **heads)).save_pretrained(folder)
"""


class LearnerAtItsEnd:
    """A learner that has nothing to save but its model. `ask` gives a rank's answer to a question."""

    version = 0

    def __init__(self, ask: Callable[..., Any]) -> None:
        self.ask = ask


async def export_model(place: str | Path, ask: Callable[..., Any]) -> None:
    """As a driver does that has the run's lease."""

    async def unheard(step: int) -> None:
        """No checkpoint is written."""

    store = open_store(place)
    lease = acquire_lease(store, "test")
    try:
        writer, nothing = CheckpointWriter(Checkpoints(store, lease), unheard, print), cast(Any, None)
        learner = cast(Any, LearnerAtItsEnd(ask))
        ending = RunDurability(store, nothing, writer, nothing, learner, CallContext(), TOKENIZER)
        await ending.export()
    finally:
        lease.release()


async def measure(folder: Path, model: Path) -> dict[str, float]:
    config = load(None, [f"model.path={model}", "train.threads=2"], lambda note: None)
    learners = LearnerGroup(config, ModelFiles(model), lambda rank: {"num_cpus": 0}, CallContext(), 1.0)
    await learners.start(None)
    pulse = ray.get(next(iter(learners.actors.values())).pulse.remote())
    both = (os.getpid(), pulse.pid)
    for pid in both:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the largest size begins at today's
    before = [largest_resident_bytes(pid) for pid in both]
    heap = int(Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (heap + _HEAP, resource.RLIM_INFINITY))
    began = time.perf_counter()
    await export_model(folder / "run", learners.ask)
    seconds = time.perf_counter() - began
    driver, actor = (largest_resident_bytes(pid) - was for pid, was in zip(both, before, strict=True))
    learners.stop()
    size = (folder / "run/model/model.safetensors").stat().st_size
    return {"driver": driver, "actor": actor, "model": size, "seconds": seconds}


def main() -> None:
    folder = Path(sys.argv[1])
    subprocess.run([sys.executable, "-c", _MAKE, str(folder / "start"), sys.argv[2]], check=True)
    with tempfile.TemporaryDirectory(prefix="export-") as short:  # sockets' paths have a limit
        ray.init(num_cpus=1, include_dashboard=False, _temp_dir=short, log_to_driver=False)
        print(json.dumps(asyncio.run(measure(folder, folder / "start"))), flush=True)
        ray.shutdown()


if __name__ == "__main__":
    main()
