"""An engine of a user's own for a local judge, which answers by a file beside its model's folder.

Programs are in the cluster that their text names (`strategy_2`). It refuses to work while it sleeps, and notes what
it does in the file beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoTokenizer

from raypoly.core.config import GeneratorConfig
from raypoly.core.values import Float32, Int32
from raypoly.rollouts.engines import Asleep, More, Sample, SampleRequest, Weights


class CannedEngine:
    takes_more = True

    def __init__(self, model_path: Path, config: GeneratorConfig, dtype: str) -> None:
        self._tokenizer: Any = AutoTokenizer.from_pretrained(model_path)
        self._folder = model_path.parent
        self._asleep, self.decoded = False, 0
        self._note(f"built {dtype} {config.max_sequences}")

    def sample(self, requests: Sequence[SampleRequest], more: More | None = None) -> Iterator[tuple[int, list[Sample]]]:
        if self._asleep:
            raise Asleep("canned")
        come: Sequence[SampleRequest] | None = requests
        while come is not None:
            self._note(f"batch {len(come)}")
            for request in come:
                yield request.slot, [self._sample(request)]
            come = more(True) if more is not None else None

    def sleep(self, keep: bool = False) -> None:
        assert (keep, self._asleep) == (True, False)
        self._asleep = True
        self._note("sleep")

    def wake(self) -> None:
        assert self._asleep
        self._asleep = False
        self._note("wake")

    def update_weights(self, weights: Weights) -> None:
        raise AssertionError("a judge's weights are its own")

    def prompt_logprobs(self, tokens: Int32) -> Float32:
        raise AssertionError("nobody asks a judge for these")

    def _sample(self, request: SampleRequest) -> Sample:
        self.decoded += 1
        canned = self._folder / "answers.json"
        answers = json.loads(canned.read_text()) if canned.is_file() else []
        text = answers.pop(0) if answers else None
        canned.write_text(json.dumps(answers))
        if text == "broken":
            raise FloatingPointError("the engine is broken")
        if text is None:
            text = honest(self._tokenizer.decode(request.prompt_tokens))
        tokens = np.array(self._tokenizer(text, add_special_tokens=False).input_ids, np.int32)
        cut = len(tokens) > (request.max_tokens or len(tokens))
        tokens = tokens[: request.max_tokens]
        return Sample(tokens, np.zeros(len(tokens), np.float32), "length" if cut else "stop")

    def _note(self, what: str) -> None:
        with (self._folder / "log").open("a") as log:
            log.write(f"{what}\n")


def honest(question: str) -> str:
    """The reply with each program in the cluster that it names."""
    shown = question.rpartition("<<<problem key")[2]  # after the instructions' example
    programs = re.findall(r"<<<program \d+ key \w+>>>(.*?)(?=<<<)", shown, re.DOTALL)
    numbers = [(re.findall(r"strategy_(\d+)", program) or ["1"])[0] for program in programs]
    entries = [{"index": i, "strategy": "canned", "cluster_id": int(n)} for i, n in enumerate(numbers, 1)]
    return json.dumps({"programs": entries})


def judge_folder(policy: Path, folder: Path) -> Path:
    """A model for the engine, below `folder`: the policy's tokenizer with a chat template."""
    made = folder / "judge"
    tokenizer: Any = AutoTokenizer.from_pretrained(policy)
    tokenizer.chat_template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"
    tokenizer.save_pretrained(made)
    for name in ("config.json", "model.safetensors"):
        (made / name).write_bytes((policy / name).read_bytes())
    return made


def canned(folder: Path, *answers: str | None) -> Callable[[], list[str]]:
    """Set the first answers, None for an honest one; returns what reads the log."""
    (folder / "answers.json").write_text(json.dumps(answers))
    return lambda: (folder / "log").read_text().split("\n")[:-1] if (folder / "log").is_file() else []
