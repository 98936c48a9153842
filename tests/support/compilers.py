"""What the learner needs beside PyTorch and may lack: a compiler for `torch.compile` on a CPU, and peft."""

import importlib.util
import shutil

import pytest

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "c++", "clang++"))), reason="needs a C++ compiler: apt install g++"
)
PEFT_INSTALLED = importlib.util.find_spec("peft") is not None
needs_peft = pytest.mark.skipif(not PEFT_INSTALLED, reason="needs peft: pip install 'raypoly[lora]'")
