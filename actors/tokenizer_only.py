"""The generator of a run that samples nothing: a tokenizer in the driver, and no engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from actors.engine_actor import Sampled
from actors.generator import Generator
from actors.model_files import ModelFiles
from actors.model_tokenizer import ModelTokenizer
from actors.weight_delivery import WeightSource
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.values import Int32
from raypoly.rollouts.engines import SampleRequest


class TokenizerOnly(Generator):
    """Encodes as engines do. It has no actors, no weights, and is never waited for."""

    samples = False

    def __init__(self, config: Config, model: ModelFiles) -> None:
        super().__init__(config, model, lambda index: {})
        self._engines.clear()
        self._model = model

    async def start(self) -> None:
        folder = await asyncio.to_thread(self._model.here)
        self._tokenizer = await asyncio.to_thread(ModelTokenizer, folder)

    async def update_weights(self, source: WeightSource, version: int) -> None:
        """Nobody needs them."""

    async def tokenizer_files(self) -> dict[str, bytes]:
        return await asyncio.to_thread(self._tokenizer.files)

    async def encode(self, texts: Sequence[str]) -> list[Int32]:
        return await asyncio.to_thread(self._tokenizer.encode, texts)

    async def encode_responses(self, texts: Sequence[str]) -> list[Int32]:
        return await asyncio.to_thread(self._tokenizer.encode_responses, texts)

    async def sample(self, requests: Sequence[SampleRequest]) -> AsyncIterator[Sampled]:
        raise UsageError(
            "The program says that it samples nothing, and asks for a response without a text: set its `samples`."
        )
        yield
