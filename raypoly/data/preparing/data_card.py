"""The values of the data card (`card.json`): problems read, left out and kept."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from raypoly.core import __version__
from raypoly.data.preparing.candidates import Candidate
from raypoly.data.preparing.decision_log import STAGES, Decision, StageName
from raypoly.data.preparing.preparation_folder import influential
from raypoly.data.preparing.prepare_config import PrepareConfig, SourceConfig
from raypoly.data.preparing.sources import LoadedSources

# Difficulty, ascending; other words come last.
_LEVELS = ("introductory", "easy", "medium", "interview", "medium_hard", "hard", "competition", "very_hard")
_FEWEST_TOKENS = 16

Decisions = Mapping[StageName, Sequence[Decision]]


def card_values(
    config: PrepareConfig,
    loaded: LoadedSources,
    against: LoadedSources | None,
    decisions: Decisions,
    splits: Mapping[str, Sequence[Candidate]],
) -> dict[str, Any]:
    """A function of problems and config, without machine or time. `splits`: those that are not empty, in the order
    train, validation, test."""
    kept = [it for part in splits.values() for it in part]
    days = [it.facts.date for it in kept if it.facts.date]
    return {
        "name": config.run.name,
        "raypoly": __version__,
        "stages": stage_counts(decisions, _skipped(config, decisions)),
        "sources": _sources(loaded, config.sources),
        "against": {} if against is None else _sources(against, config.against),
        "pairs": [{"problem": d.problem_id, **d.facts} for d in decisions["same"] if d.reason],
        "reasons": _reasons(decisions),
        "samples": config.sampling.samples,
        "band": [config.band.low, config.band.high],
        "passes": _passes(decisions["sampling"]),
        "prompt_tokens": _tokens(decisions["prompts"], kept, config.generator.max_prompt_tokens),
        "splits": {name: len(part) for name, part in splits.items()},
        "levels": sorted({_level(it) for it in kept}, key=lambda level: ((*_LEVELS, level).index(level), level)),
        "difficulty": {name: _counted(map(_level, part)) for name, part in splits.items()},
        "tags": _counted(tag for it in kept for tag in set(it.facts.tags)),
        "licences": _counted(it.facts.licence or "unknown" for it in kept),
        "dates": [min(days), max(days)] if days else None,
        "solutions": sum(it.has_solution for it in kept),
        "config": influential(config),
    }


def stage_counts(decisions: Decisions, skipped: Collection[StageName] = ()) -> list[dict[str, Any]]:
    """Problems that came, were dropped (None for a skipped stage) and went on, by stage."""
    rows, left = [], len(decisions["load"])
    for name in STAGES:
        dropped = sum(bool(decision.reason) for decision in decisions[name])
        told = None if name in skipped else dropped
        rows.append({"stage": name, "came": left, "dropped": told, "went_on": left - dropped})
        left -= dropped
    return rows


def _skipped(config: PrepareConfig, decisions: Decisions) -> set[StageName]:
    asked: dict[StageName, bool] = {
        "choose": any(source.chooses for source in config.sources.values()),
        "solutions": config.solutions.check or config.solutions.require,
        "prompts": any("tokens" in decision.facts for decision in decisions["prompts"]),
        "sampling": config.sampling.samples > 0,
    }
    return {name for name, is_asked in asked.items() if not is_asked}


def encode_card(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def _sources(loaded: LoadedSources, configs: Mapping[str, SourceConfig]) -> dict[str, Any]:
    used = Counter(decision.facts["source"] for decision in loaded.decisions if not decision.reason)
    used.subtract(decision.facts["source"] for decision in loaded.choices)
    return {
        file.name: {
            "hub": configs[file.name].hub,
            "file": configs[file.name].file or ", ".join(path.name for path in file.paths),
            "revision": file.revision,
            "licence": configs[file.name].licence,
            "sha256": file.sha256,
            "rows": loaded.rows.get(file.name, 0),
            "used": used[file.name],
        }
        for file in loaded.files
    }


def _reasons(decisions: Decisions) -> list[dict[str, Any]]:
    # By stage, the most common first.
    found = Counter((name, _kind(d.reason)) for name in STAGES for d in decisions[name] if d.reason)
    order = sorted(found.items(), key=lambda item: (STAGES.index(item[0][0]), -item[1], item[0][1]))
    return [{"stage": stage, "reason": reason, "problems": count} for (stage, reason), count in order]


def _kind(reason: str) -> str:
    """A reason without numbers, ids, and the text after a colon."""
    words = reason.partition(":")[0].partition(" (")[0].split()
    return " ".join("N" if any(c.isdigit() for c in word) else word for word in words)


def _passes(decisions: Iterable[Decision]) -> dict[str, int]:
    # Problems by their passes, ascending; unknown ones last.
    found = Counter(decision.facts["passes"] for decision in decisions if "passes" in decision.facts)
    known = {str(passes): found[passes] for passes in sorted(passes for passes in found if passes is not None)}
    return known | ({"unknown": found[None]} if found[None] else {})


def _tokens(decisions: Iterable[Decision], kept: Iterable[Candidate], limit: int) -> dict[str, Any]:
    """`histogram`: by the upper end of each bin, a power of two."""
    facts = [decision.facts for decision in decisions if decision.facts.get("tokens") is not None]
    bins = Counter(max(_FEWEST_TOKENS, 1 << (it["tokens"] - 1).bit_length()) for it in facts)
    ordered = sorted(it.prompt_tokens for it in kept if it.prompt_tokens is not None)
    return {
        "limit": limit,
        "counted": len(facts),
        "over_long": sum(it["tokens"] > limit for it in facts),
        "cut": sum("tokens_now" in it for it in facts),
        "kept": [ordered[0], ordered[len(ordered) // 2], ordered[-1]] if ordered else None,
        "histogram": {str(end): bins[end] for end in sorted(bins)},
    }


def _level(it: Candidate) -> str:
    return it.facts.difficulty or "unknown"


def _counted(values: Iterable[str]) -> dict[str, int]:
    # The most common first, then by name.
    return dict(sorted(Counter(values).items(), key=lambda item: (-item[1], item[0])))
