"""Chooses problems: drops duplicates, makes prompts by templates and drops or cuts those that are too long, keeps those
in the band, assigns splits."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from raypoly.core.errors import UsageError
from raypoly.core.seeds import derive
from raypoly.core.values import TestSuite
from raypoly.data.long_prompts import Encode, count_tokens, cut_statements
from raypoly.data.preparing.candidates import Candidate, PromptMaker
from raypoly.data.preparing.decision_log import Decision
from raypoly.data.preparing.prepare_config import BandConfig, PrepareConfig, PromptsConfig, SourceConfig, SplitConfig
from raypoly.data.similar import DuplicatePair, find_duplicates, find_overlaps
from raypoly.data.templates import ChatTemplate, encode_prompts, load_template, load_tokenizer, prompt_maker


def decide_duplicates(candidates: Sequence[Candidate], evaluation: Iterable[Candidate]) -> list[Decision]:
    """One for each problem that is a duplicate, or in an evaluation set."""
    leaked = find_overlaps((it.problem for it in candidates), (it.problem for it in evaluation))
    names = {pair.dropped.id for pair in leaked}
    twice = find_duplicates(it.problem for it in candidates if it.id not in names)
    return [
        *(_same(pair, f"is in {pair.kept.source} as well") for pair in leaked),
        *(_same(pair, "is there a second time") for pair in twice),
    ]


def _same(pair: DuplicatePair, what: str) -> Decision:
    similarity = None if pair.similarity is None else round(pair.similarity, 4)
    facts = {"same_as": pair.kept.id, "source": pair.kept.source, "because": pair.reason, "similarity": similarity}
    return Decision(pair.dropped.id, "same", f"{what}: {pair.kept.id} ({pair.reason})", facts)


@dataclass(frozen=True)
class ChunkOutcome:
    problem_id: str
    size: int
    passes: int | None
    """None if the tests could not be run."""
    detail: str = ""
    """Why not; or how a single program failed."""


def decide_band(outcomes: Iterable[ChunkOutcome], band: BandConfig) -> list[Decision]:
    """One for each problem, by the base model's samples of it."""
    decided = []
    for it in outcomes:
        solved = f"the base model solves it in {it.passes} of {it.size} samples"
        reason = ""
        if it.passes is None:
            reason = f"the samples could not be judged: {it.detail}"
        elif it.passes < band.low:
            reason = f"{solved}, and band.low is {band.low}"
        elif it.passes > band.high:
            reason = f"{solved}, and band.high is {band.high}"
        decided.append(Decision(it.problem_id, "sampling", reason, {"samples": it.size, "passes": it.passes}))
    return decided


def decide_splits(candidates: Sequence[Candidate], config: SplitConfig) -> list[Decision]:
    """One for each candidate, in order; `facts["split"]` is its split.

    Splits are drawn by seed; or the newest problems go to `test`, then `validation`, and one without a date is oldest.
    The order of files and rows does not matter. Raises `UsageError` if no problem is left for training.
    """
    held_out = config.test + config.validation
    if held_out >= len(candidates):
        raise UsageError(
            f"split.validation + split.test = {held_out} leaves none of the {len(candidates)} problems that are kept "
            f"to be {config.rest}: lower them, or widen the band (for the same run.dir nothing is sampled again)."
        )
    ordered = sorted(candidates, key=lambda it: it.id)
    if config.by == "seed":
        random.Random(derive(config.seed, "prepare split")).shuffle(ordered)
    else:
        ordered.sort(key=lambda it: it.facts.date or "", reverse=True)
    names = ["test"] * config.test + ["validation"] * config.validation
    names += [config.rest] * (len(ordered) - held_out)
    where = {it.id: name for it, name in zip(ordered, names, strict=True)}
    return [Decision(it.id, "split", "", {"split": where[it.id]}) for it in candidates]


def template_digests(config: PrepareConfig) -> dict[str, str]:
    """SHA-256, hex, by the key that names the template. Raises `UsageError`."""
    texts = {key: load_template(name, key).texts for key, name in _named(config).items()}
    return {key: hashlib.sha256(json.dumps(text).encode()).hexdigest() for key, text in texts.items()}


def prompt_makers(config: PrepareConfig) -> dict[str, PromptMaker | None]:
    """By source, from its own template or else the config's; None keeps its prompts. Raises `UsageError`."""
    chat = ChatTemplate.of(config.prompts, "prompts.chat_template")
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

    async def encode(texts: Sequence[str]) -> list[list[int]]:
        return await asyncio.to_thread(encode_prompts, tokenizer, texts)

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
