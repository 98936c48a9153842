"""Models in GGUF files, which transformers dequantises once, into the user's cache.

model = GgufModel.find("smollm2-q4")      # or a path that ends in .gguf; None for a folder and a hub id
model.sha256                              # of the file: names the cached folder, and is part of run identity
folder = model.folder()                   # a Hugging Face folder: float32 weights, tokenizer, chat template
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from raypoly.core.caches import FolderCache, cache_root, file_sha256, find_damage, folder_fingerprint
from raypoly.core.config import DistillConfig, JudgeConfig, ModelConfig
from raypoly.core.errors import RaypolyError, UsageError
from raypoly.core.plugins import PACKAGED_MODELS

_LINK = "model.gguf"
_TOKENIZER = "tokenizer_config.json"
_WEIGHTS = (".safetensors",)  # endings of files that are too large to be checked at each look
_READERS = ("gguf", "accelerate")  # packages that transformers needs for it
# What readers raise for a bad file.
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, NotImplementedError, RuntimeError, struct.error)


@dataclass(frozen=True)
class GgufModel:
    name: str
    """A name of `PACKAGED_MODELS`, or a path."""
    file: Path
    key: str
    """The config's, for messages."""

    @classmethod
    def find(cls, name: str, key: str = "model.path") -> GgufModel | None:
        """None if `name` stands for something else. Raises `UsageError` if the file or its readers are missing."""
        packaged, path = PACKAGED_MODELS.get(name), Path(name).expanduser().absolute()
        if packaged is not None:
            path = packaged.find(f"{key}={name}")
        elif path.suffix != ".gguf" or path.is_dir():
            return None
        elif not path.is_file():
            raise UsageError(f"{key}={name} is not a file.")
        missing = [package for package in _READERS if importlib.util.find_spec(package) is None]
        if missing:
            raise UsageError(f"{key}={name} needs the package {missing[0]}: pip install 'raypoly[gguf]'.")
        return cls(name, path, key)

    @property
    def sha256(self) -> str:
        """Of the content, hex."""
        state = self.file.stat()
        return _sha256(self.file, state.st_size, state.st_mtime_ns)

    def config(self) -> dict[str, Any]:
        """Its folder's `config.json`.

        Raises `UsageError` if the file is cut short, or of an unknown architecture or quantisation.
        """
        cached = self._cached
        if cached is None:
            return _read_config(self, self.sha256)
        values: dict[str, Any] = json.loads((cached / "config.json").read_text())
        return values

    def tokenizer(self) -> Any:
        """With the file's chat template, if any. Raises `UsageError`."""
        cached = self._cached
        if cached is not None:
            from transformers import AutoTokenizer  # takes seconds to import

            return AutoTokenizer.from_pretrained(cached)
        return _read_tokenizer(self, self.sha256)

    def folder(self, say: Callable[[str], None] = print) -> Path:
        """The cached folder, made if there is none. Raises `UsageError` if the file can't be read."""

        def make(folder: Path) -> None:
            size = self.file.stat().st_size / 1e6
            say(f"{self.key}={self.name}: dequantising {self.file.name} ({size:,.0f} MB); the result is cached")
            _run_apart(self, folder)

        return self._cache(say).ensure(self._cache_key, make)

    @property
    def _cached(self) -> Path | None:
        """None if there is none, or if it is damaged (but for its weights)."""
        folder = self._cache().place(self._cache_key)
        return folder if find_damage(folder, unread=_WEIGHTS) is None else None

    @property
    def _cache_key(self) -> str:
        """SHA-256, hex, over the file and the code that makes its folder."""
        made_by = [version("transformers"), version("gguf"), inspect.getsource(_dequantise)]
        return hashlib.sha256(json.dumps([self.sha256, *made_by]).encode()).hexdigest()

    def _cache(self, say: Callable[[str], None] = print) -> FolderCache:
        return FolderCache(cache_root() / "gguf", say)

    @contextmanager
    def reading(self, part: str) -> Iterator[Path]:
        """An empty folder with a link to the file: transformers would read other files beside it. What a reader raises
        becomes a `UsageError` that names the `part`."""
        with tempfile.TemporaryDirectory(prefix="raypoly-gguf-") as folder:
            (Path(folder) / _LINK).symlink_to(self.file)
            try:
                yield Path(folder)
            except _UNREADABLE as error:
                said = " ".join(f"{type(error).__name__}: {error}".split())[:300].rstrip(".")
                raise UsageError(
                    f"{self.key}={self.name}: transformers {version('transformers')} can't read {part} of the GGUF "
                    f"file ({said}): give another file, or a Hugging Face folder."
                ) from error


def with_sha256(model: ModelConfig) -> ModelConfig:
    """The config with `sha256` of the GGUF file at its path, if it names one.

    Raises `UsageError` if it has another, or as `GgufModel.find`.
    """
    gguf = None if model.path is None else GgufModel.find(model.path)
    found = None if gguf is None else gguf.sha256
    if model.sha256 not in (None, found):
        raise UsageError(
            f"model.sha256={model.sha256}, but model.path={model.path} "
            + ("is no GGUF file: leave model.sha256 out." if found is None else f"has {found}: it is another file.")
        )
    return model.model_copy(update={"sha256": found})


def teacher_place(teacher: str) -> Path:
    """The path that `distill.teacher` or `judge.model` names, of a run's folder its model's. Nothing need be there."""
    folder = Path(teacher).expanduser()
    of_run = folder / "model"
    return of_run if (of_run / _TOKENIZER).is_file() and not (folder / _TOKENIZER).is_file() else folder


def with_teacher(distill: DistillConfig) -> DistillConfig:
    """The config with `sha256` of a teacher's file or folder here. Raises `UsageError` as `with_sha256`."""
    if distill.teacher is None or distill.server:
        return distill
    return distill.model_copy(update={"sha256": _hash_here("distill.teacher", distill.teacher, distill.sha256)})


def with_judge_model(judge: JudgeConfig) -> JudgeConfig:
    """The same of a judge that is a model here."""
    if judge.name != "local":
        return judge
    return judge.model_copy(update={"sha256": _hash_here("judge.model", judge.model, judge.sha256)})


def _hash_here(key: str, name: str, given: str | None) -> str | None:
    """Of a model's file or folder; `given` where it is on the hub, or gone since the run ended."""
    folder = teacher_place(name)
    if not folder.exists() and name not in PACKAGED_MODELS:
        return given
    gguf = GgufModel.find(name, key)
    try:
        found = gguf.sha256 if gguf else folder_fingerprint(folder)
    except OSError as error:
        raise UsageError(f"{key}={name} could not be read ({error.strerror or error}).") from error
    if given not in (None, found):
        section = key.partition(".")[0]
        raise UsageError(f"{section}.sha256={given}, but {key}={name} has {found}: it is another model.")
    return found


@cache
def _sha256(file: Path, size: int, modified: int) -> str:
    return file_sha256(file)


@cache
def _read_config(model: GgufModel, sha256: str) -> dict[str, Any]:
    from gguf import GGUFReader
    from transformers import AutoConfig

    try:
        GGUFReader(model.file)  # maps every tensor
    except (ValueError, LookupError) as error:
        raise UsageError(
            f"{model.key}={model.name}: {model.file} is cut short, damaged, no GGUF file, or of a quantisation that "
            f"gguf {version('gguf')} does not know: get it again, or give another."
        ) from error
    with model.reading("the config") as folder:
        values: dict[str, Any] = AutoConfig.from_pretrained(folder, gguf_file=_LINK).to_dict()
        return values


@cache
def _read_tokenizer(model: GgufModel, sha256: str) -> Any:
    from transformers import AutoTokenizer

    _read_config(model, sha256)  # whose error says that a file is cut short
    with model.reading("the tokenizer") as folder:
        return AutoTokenizer.from_pretrained(folder, gguf_file=_LINK)


def _run_apart(model: GgufModel, folder: Path) -> None:
    """`_dequantise`, or `RaypolyError` if its process dies."""
    # in a process of its own, whose memory is free again afterwards
    fields = [str(value) for value in asdict(model).values()]
    package = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "raypoly.core.gguf_models", *fields, str(folder)],
        env={**os.environ, "PYTHONPATH": paths, "TQDM_DISABLE": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode == UsageError.exit_code:
        raise UsageError(done.stdout.strip())
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2].rstrip(".") or f"signal {-done.returncode}"
        raise RaypolyError(
            f"{model.key}={model.name}: dequantising {model.file} failed ({last}); it needs memory for twice the "
            f"model's weights in float32, and room for them in {folder.parent}."
        )


def _dequantise(model: GgufModel, folder: Path) -> None:
    """Write the Hugging Face folder. Raises `UsageError` if the file can't be read."""
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig
    from transformers.utils import logging

    logging.set_verbosity_error()
    with model.reading("the weights") as alone:
        whole = GgufConfig(gguf_file=_LINK, dequantize=True)
        read, report = AutoModelForCausalLM.from_pretrained(
            alone, gguf_file=_LINK, quantization_config=whole, dtype=torch.float32, output_loading_info=True
        )
        if report["missing_keys"]:
            raise ValueError(f"there is no {min(report['missing_keys'])}")
    tokenizer = model.tokenizer()
    if read.generation_config.eos_token_id is None:
        read.generation_config.eos_token_id = tokenizer.eos_token_id
    read.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _main(name: str, file: str, key: str, folder: str) -> None:
    try:
        _dequantise(GgufModel(name, Path(file), key), Path(folder))
    except UsageError as error:
        print(error)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    _main(*sys.argv[1:])
