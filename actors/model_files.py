"""The starting model for actors on any node of a cluster.

model = ModelFiles(folder).with_copy()        # in the driver, on whose machine the folder lies
folder = model.here()                         # in an actor: the folder on the actor's node
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import ray

from raypoly.core.caches import FolderCache, cache_root
from raypoly.core.errors import UsageError
from raypoly.core.text import as_utf8, shortened
from raypoly.core.values import Int32
from raypoly.data.templates import encode_prompts, encode_texts
from raypoly.planning.model_shape import no_hub_model
from raypoly.rollouts.engines import end_tokens

SENT_BYTES = 1 << 30
"""The largest folder that goes through the object store, in the driver's memory."""


@dataclass(frozen=True)
class ModelFiles:
    """A model's folder on the driver's machine, and the way of other nodes to it."""

    path: Path
    hub: str | None = None
    """Name on the Hugging Face hub, if the folder came from there."""
    title: str | None = None
    """Name of a model whose folder is in raypoly's cache."""
    sent: Any = None
    """Ray's reference to a small folder's files, by name."""
    digest: str = ""

    @property
    def name(self) -> str:
        return self.hub or self.title or self.path.name

    def with_copy(self) -> ModelFiles:
        """With a copy for nodes that lack the folder, if it is small."""
        files = [file for file in sorted(self.path.rglob("*")) if file.is_file()]
        if self.hub is not None or sum(file.stat().st_size for file in files) > SENT_BYTES:
            return self
        contents = {str(file.relative_to(self.path)): file.read_bytes() for file in files}
        digest = hashlib.sha256()
        for name, content in contents.items():
            digest.update(f"{len(name)} {len(content)} {name}".encode() + content)
        return replace(self, sent=ray.put(contents), digest=digest.hexdigest())

    def here(self) -> Path:
        """The folder on this node. Raises `UsageError` if it can't be had here."""
        if (self.path / "config.json").is_file():
            return self.path
        if self.hub is not None:
            return download_model(self.hub, f" on node {ray.util.get_node_ip_address()}", self.path.name)
        if self.sent is not None:
            return FolderCache(cache_root() / "models").ensure(self.digest, self._write)
        raise UsageError(
            f"The model's folder {self.path} is not on node {ray.util.get_node_ip_address()}, and with more than "
            f"{SENT_BYTES >> 30} GiB it is too large to be sent there: put it where all nodes see it at the same "
            "path, or name a model of the Hugging Face hub (model.path)."
        )

    def _write(self, folder: Path) -> None:
        files: Mapping[str, bytes] = ray.get(self.sent)
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


def download_model(name: str, where: str = " here", revision: str | None = None, key: str = "model.path") -> Path:
    """The folder of a hub's model, downloaded or cached. `where`: this machine, and `key`: the config's, for the
    `UsageError`."""
    from huggingface_hub import snapshot_download  # half a second, which a folder does not need

    try:
        return Path(snapshot_download(name, revision=revision))
    except (OSError, ValueError) as error:  # no such model, no way there, or no name of one
        raise no_hub_model(name, error, where, key) from error


@dataclass(frozen=True)
class Observed:
    """An observation that follows what the policy wrote."""

    text: str
    before: str
    after: str
    """Its template (`raypoly.rollouts.environments.observation_template`)."""
    last: int
    """The last token before it: where the policy ended its turn, the template's own end is not added."""
    limit: int
    """The most tokens, with the template."""
    prompt: str = ""
    """A prompt that the template repeats, whose tokens are not counted."""


@dataclass(frozen=True)
class Continuation:
    tokens: Int32
    text: str
    """As the policy reads it, without the template."""
    cut: bool


class ModelTokenizer:
    """A model's tokenizer. It takes seconds to load."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self._folder = folder
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)

    def encode(self, texts: Sequence[str]) -> list[Int32]:
        """Tokens of prompts, int32 [P], with what the tokenizer adds in front (`encode_prompts`)."""
        return [np.array(ids, np.int32) for ids in encode_prompts(self._tokenizer, texts)]

    def encode_responses(self, texts: Sequence[str]) -> list[Int32]:
        """Tokens of whole responses, int32 [T], with the token of the end of a sequence."""
        return [np.array([*ids, self._end], np.int32) for ids in encode_texts(self._tokenizer, texts)]

    def tool_calls(self, pairs: Sequence[tuple[Int32, Int32]]) -> list[list[Mapping[str, Any]]]:
        """Tool calls of responses, each after its prompt, by the tokenizer's template of responses; none without one,
        and none where a response does not follow it."""
        return [self._calls(*pair) for pair in pairs]

    def _calls(self, prompt: Int32, response: Int32) -> list[Mapping[str, Any]]:
        if getattr(self._tokenizer, "response_template", None) is None:
            return []
        try:
            message = self._tokenizer.parse_response(response.tolist(), prefix=prompt.tolist())
        except (ValueError, TypeError, KeyError, AttributeError):
            return []
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        found = [call.get("function", call) for call in calls or [] if isinstance(call, dict)]
        return [call for call in found if isinstance(call, dict)]

    def continuation(self, it: Observed) -> Continuation:
        """An observation as tokens, in its template. Raises `UsageError` where not even an empty one fits."""
        text = self._without_marks(it.text, it.before + it.after)
        limit = it.limit + len(encode_texts(self._tokenizer, [it.prompt])[0])
        kept = len(text)
        while True:
            shown = shortened(text, kept) if kept else ""
            (ids,) = encode_texts(self._tokenizer, [f"{it.before}{shown}{it.after}"])
            ids = ids[1:] if ids[:1] == [it.last] else ids
            if len(ids) <= limit:
                return Continuation(np.array(ids, np.int32), shown, kept < len(text))
            if not kept:
                raise UsageError(
                    f"An observation's template has {len(ids)} tokens, and environment.max_observation_tokens="
                    f"{it.limit}: raise it."
                )
            kept = min(kept - 1, int(kept * limit / len(ids)))

    def _without_marks(self, text: str, template: str) -> str:
        """What a tool printed can't end the message that it stands in, and is UTF-8."""
        text = as_utf8(text)
        for mark, special in self._marks.items():
            if special or mark in template:  # the tokens of DeepSeek's roles are not special
                text = text.replace(mark, f"{mark[0]} {mark[1:]}")
        return text

    @cached_property
    def _marks(self) -> dict[str, bool]:
        """Tokens that no text is made of, the longest first, and whether they are special."""
        added = {str(it): it.special for it in self._tokenizer.added_tokens_decoder.values() if str(it).strip()}
        found = added | dict.fromkeys(self._tokenizer.all_special_tokens, True)
        return {mark: found[mark] for mark in sorted(found, key=len, reverse=True)}

    def decode(self, tokens: Int32) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))

    def files(self) -> dict[str, bytes]:
        with tempfile.TemporaryDirectory() as folder:
            self._tokenizer.save_pretrained(folder)
            return {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir())}

    @cached_property
    def _end(self) -> int:
        own = self._tokenizer.eos_token_id
        known = end_tokens(self._folder) if own is None else [own]
        if not known:
            raise UsageError(
                f"The model in {self._folder} names no token for the end of a sequence, which given responses end "
                "with: set eos_token_id in its generation_config.json."
            )
        return int(known[0])
