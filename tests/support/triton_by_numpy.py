"""Runs Triton kernels by numpy, one program after the other, where there is no Triton: vLLM's own sampling kernels on a
CPU. Only the operations of `Language`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch


def run_kernels_by_numpy(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Until the test ends, the modules' functions named `*_kernel` run here. vLLM must have found no Triton."""
    for module in modules:
        language = Language()
        monkeypatch.setattr(module, "tl", language)
        monkeypatch.setattr(module, "triton", Launching)
        for name, function in list(vars(module).items()):
            if name.endswith("_kernel") and function.__module__ == module.__name__:
                monkeypatch.setattr(module, name, Kernel(function, language))


class Block(np.ndarray[Any, Any]):
    """A tensor of Triton's: scalars stay arrays, and `x += y` changes no other name's array."""

    def to(self, dtype: Any) -> Block:
        return block(self.astype(dtype))

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Block:
        return block(array)

    def __iadd__(self, other: Any) -> Any:  # type: ignore[misc]
        return self + other

    def __imul__(self, other: Any) -> Any:  # type: ignore[misc]
        return self * other

    def __ixor__(self, other: Any) -> Any:  # type: ignore[misc]
        return self ^ other


def block(values: Any) -> Block:
    return np.asarray(values).view(Block)


@dataclass(frozen=True)
class Pointer:
    """Places in a tensor's storage, counted in elements."""

    storage: np.ndarray[Any, Any]
    at: Any = 0

    def __add__(self, elements: Any) -> Pointer:
        return Pointer(self.storage, self.at + elements)

    def __sub__(self, elements: Any) -> Pointer:
        return Pointer(self.storage, self.at - elements)


class Language:
    """`triton.language`."""

    int32, int64, uint32, uint64 = np.int32, np.int64, np.uint32, np.uint64
    float32, float64 = np.float32, np.float64

    def __init__(self) -> None:
        self.program: tuple[int, ...] = ()

    def program_id(self, axis: int) -> Block:
        return block(np.int32(self.program[axis]))

    def arange(self, start: int, end: int) -> Block:
        return block(np.arange(start, end, dtype=np.int32))

    def load(self, pointer: Pointer, mask: Any = True, other: Any = 0) -> Block:
        at = np.where(mask, pointer.at, 0)
        return block(np.where(mask, pointer.storage[at], np.asarray(other).astype(pointer.storage.dtype)))

    def store(self, pointer: Pointer, values: Any, mask: Any = True) -> None:
        at, values, mask = np.broadcast_arrays(pointer.at, values, mask)
        pointer.storage[at[mask]] = values[mask]

    def max(self, values: Any, axis: int | None = None, return_indices: bool = False) -> Any:
        found = block(np.max(values, axis=axis))
        return (found, block(np.argmax(values, axis=axis))) if return_indices else found

    def sum(self, values: Any) -> Block:
        return block(np.sum(values))

    def where(self, condition: Any, one: Any, other: Any) -> Block:
        return block(np.where(condition, one, other))

    def maximum(self, one: Any, other: Any) -> Block:
        return block(np.maximum(one, other))

    def log(self, values: Any) -> Block:
        return block(np.log(values))

    def exp(self, values: Any) -> Block:
        return block(np.exp(values))


class Launching:
    """What a kernel's caller uses of `triton`."""

    @staticmethod
    def cdiv(one: int, other: int) -> int:
        return -(-one // other)

    @staticmethod
    def next_power_of_2(number: int) -> int:
        return 1 << (number - 1).bit_length()


class Kernel:
    """`kernel[grid](...)`."""

    def __init__(self, function: Callable[..., None], language: Language) -> None:
        self._function, self._language = function, language

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*arguments: Any, **constants: Any) -> None:
            pointers = [_pointer(each) if isinstance(each, torch.Tensor) else each for each in arguments]
            for self._language.program in itertools.product(*map(range, grid)):
                with np.errstate(over="ignore", divide="ignore"):
                    self._function(*pointers, **constants)

        return launch


def _pointer(tensor: torch.Tensor) -> Pointer:
    length = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    return Pointer(torch.as_strided(tensor, (length,), (1,)).numpy())
