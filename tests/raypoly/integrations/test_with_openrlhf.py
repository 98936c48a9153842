"""OpenRLHF's reward function: loaded from its file as OpenRLHF does, and by it where it is installed (0.11.2)."""

import asyncio
import importlib
import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import raypoly.integrations
from raypoly.core.errors import Unknown, UsageError
from tests.raypoly.integrations.test_in_process import BROKEN, DOUBLE, RIGHT

torch = pytest.importorskip("torch", reason="needs torch")
FILE = Path(raypoly.integrations.__path__[0]) / "with_openrlhf.py"
PROMPT = "<|im_start|>user\n```python\ndef f(n): return 0\n```<|im_end|>\n<|im_start|>assistant\n"


def test_a_response_is_what_comes_after_its_prompt() -> None:
    reward_func, row = runpy.run_path(str(FILE))["reward_func"], json.dumps(DOUBLE)
    responses = [RIGHT + "<|im_end|>", "no<|im_end|>", "def f(n): return 2 * n<|im_end|>\n<|endoftext|>"]
    found = reward_func([PROMPT + it for it in responses], [PROMPT] * 3, [row] * 3)
    assert found["rewards"].tolist() == found["scores"].tolist() == [1.0, 0.0, 1.0]
    with pytest.raises(Unknown):
        reward_func([PROMPT + RIGHT], [PROMPT], [json.dumps(BROKEN)])
    with pytest.raises(UsageError, match="doesn't begin with its prompt"):
        reward_func([RIGHT], [PROMPT], [row])


class Characters:
    def __call__(self, text: str, **_: Any) -> Any:
        return {"input_ids": torch.tensor([[ord(it) for it in text]])}

    def decode(self, tokens: list[int], **_: Any) -> str:
        return "".join(map(chr, tokens))


class Engine:
    async def generate(self, tokens: list[int], params: Any, **_: Any) -> Any:
        said = SimpleNamespace(token_ids=[ord(it) for it in RIGHT], finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[said])


def test_openrlhf_itself_has_a_reward_or_none_and_never_0_for_unknown() -> None:
    pytest.importorskip("openrlhf", reason="needs openrlhf (uv pip install --no-deps openrlhf==0.11.2)")
    executor = importlib.import_module("openrlhf.utils.agent").SingleTurnAgentExecutor([str(FILE)])
    params = SimpleNamespace(max_tokens=200, logprobs=None)
    good, unknown = (
        asyncio.run(executor.execute(PROMPT, json.dumps(row), params, 1000, Characters(), Engine()))["reward"]
        for row in (DOUBLE, BROKEN)
    )
    assert (good.tolist(), unknown) == ([1.0], None)  # the trainer refuses to go on without a reward
