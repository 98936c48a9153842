"""Makes prompts by templates, counts their tokens, and drops or cuts those that are too long.

candidates = use_templates(candidates, prompt_makers(config))
texts = prompts_of(candidates)
encode = encoder("Qwen/Qwen3-4B-Base")
decisions = await decide_lengths(candidates, texts, config.prompts, limit=1024, encode=encode)
candidates = apply_decisions(candidates, decisions)
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from raypoly.core.values import TestSuite
from raypoly.data.long_prompts import Encode, count_tokens, cut_statements
from raypoly.data.preparing.candidates import Candidate, PromptMaker
from raypoly.data.preparing.decision_log import Decision
from raypoly.data.preparing.prepare_config import PrepareConfig, PromptsConfig, SourceConfig
from raypoly.data.templates import load_template, load_tokenizer, prompt_maker


def template_digests(config: PrepareConfig) -> dict[str, str]:
    """SHA-256, hex, by the key that names the template. Raises `UsageError`."""
    texts = {key: load_template(name, key).texts for key, name in _named(config).items()}
    return {key: hashlib.sha256(json.dumps(text).encode()).hexdigest() for key, text in texts.items()}


def prompt_makers(config: PrepareConfig) -> dict[str, PromptMaker | None]:
    """By source, from its own template or else the config's; None keeps its prompts. Raises `UsageError`."""
    chat = config.prompts.chat_template
    made = {key: prompt_maker(name, chat, key, "prompts.chat_template") for key, name in _named(config).items()}
    return {name: made.get(_key(name, source)) for name, source in config.sources.items()}


def _named(config: PrepareConfig) -> dict[str, str]:
    """Templates in use, by their keys."""
    named = {_key(name, it): it.template or config.prompts.template for name, it in config.sources.items()}
    return {key: template for key, template in sorted(named.items()) if template != "none"}


def _key(name: str, source: SourceConfig) -> str:
    return "prompts.template" if source.template is None else f"sources.{name}.template"


def use_templates(candidates: Sequence[Candidate], makers: Mapping[str, PromptMaker | None]) -> list[Candidate]:
    return [replace(it, make_prompt=makers[it.facts.source]) for it in candidates]


def prompts_of(candidates: Iterable[Candidate]) -> list[str]:
    """Raises `UsageError` if a template can't make one."""
    return [it.problem.prompt for it in candidates]


def encoder(name: str) -> Encode:
    """`name`: a tokenizer's folder or hub id. Raises `UsageError`."""
    tokenizer = load_tokenizer(name, "prompts.tokenizer")

    def encoded(texts: list[str]) -> list[list[int]]:
        found: list[list[int]] = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        return found

    async def encode(texts: Sequence[str]) -> list[list[int]]:
        return await asyncio.to_thread(encoded, list(texts))

    return encode


async def decide_lengths(
    candidates: Sequence[Candidate], texts: Sequence[str], config: PromptsConfig, limit: int, encode: Encode | None
) -> list[Decision]:
    """One for each problem, by the tokens of its prompt in `texts`. Facts of a cut prompt hold the new one.

    Without `encode` nothing is counted.
    """
    if encode is None:
        return [Decision(it.id, "prompts") for it in candidates]
    counts = await count_tokens(texts, encode)
    shorter: dict[str, str] = {}
    if config.over_long == "cut":
        # all at once, and so without their tests
        long = [
            replace(it.problem, tests=TestSuite("none", ""), public_tests=None)
            for it, tokens in zip(candidates, counts, strict=True)
            if tokens > limit
        ]
        shorter = {
            problem.id: problem.prompt for problem in await cut_statements(long, limit, encode) if problem is not None
        }
    now = dict(zip(shorter, await count_tokens(list(shorter.values()), encode), strict=True))
    decisions = []
    for it, tokens in zip(candidates, counts, strict=True):
        facts: dict[str, Any] = {"tokens": tokens}
        reason = f"its prompt has {tokens} tokens, generator.max_prompt_tokens is {limit}"
        if it.id in shorter:
            facts |= {"prompt": shorter[it.id], "tokens_now": now[it.id]}
        kept = tokens <= limit or it.id in shorter
        decisions.append(Decision(it.id, "prompts", "" if kept else reason, facts))
    return decisions
