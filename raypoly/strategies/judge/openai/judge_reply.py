"""The judge's answer: a list of {index, strategy, cluster_id}, valid only where it covers every program once.

parse_answer('{"programs": [{"index": 1, "strategy": "heap", "cluster_id": 4}]}', 1)  # [AssignedCluster(4, "heap")]
merge_votes([[1, 1, 2], [7, 7, 7], [3, 3, 5]])                                                         # [1, 1, 2]
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

DEGENERATE = 0
BEST_GRADE = 10
_OTHER_DEGENERATE = 100
_STRATEGY_CHARS = 200
M = TypeVar("M", bound=BaseModel)
_THOUGHTS = re.compile(r"<(/?)(?:seed:)?(?:think(?:ing)?|thoughts?|reasoning|reflection|scratchpad|analysis)>", re.I)
# not strict: the grammars of vLLM's servers let a bare line end or control character into a string
_JSON = json.JSONDecoder(strict=False)


class InvalidAnswer(Exception):
    """The answer labels other programs than asked for, or is no JSON of the right shape."""


@dataclass(frozen=True)
class AssignedCluster:
    cluster: int
    """The judge's number; 0 for degenerate. Of a graded program its grade, 0 to `BEST_GRADE`."""
    strategy: str
    """In words; of a graded program the reason."""


def _no_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is needed")
    return value


Whole = Annotated[int, Field(strict=False), BeforeValidator(_no_boolean)]
"""A whole number, also as models write it without a grammar: 1.0, "1"."""


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True)
    index: Whole
    strategy: str = ""
    cluster_id: Annotated[Whole, Field(ge=0, le=2**31 - 1)]
    degenerate: bool = False


class _GradedEntry(_Entry):
    strategy: Annotated[str, Field(alias="reason")] = ""
    cluster_id: Annotated[Whole, Field(ge=0, le=BEST_GRADE, alias="grade")]


class _Reply(BaseModel):
    model_config = ConfigDict(strict=True)
    programs: list[_Entry]


class _GradedReply(BaseModel):
    model_config = ConfigDict(strict=True)
    programs: list[_GradedEntry]


def answer_schema(count: int, form: str, graded: bool = False) -> dict[str, Any]:
    """JSON schema of an answer about `count` programs, by `judge.answer_schema`; `indexed`: their index and number are
    in the grammar."""
    if form == "map":
        clusters = {str(index): {"type": "integer"} for index in range(1, count + 1)}
        return object_schema(chain_of_thought={"type": "string"}, **clusters)
    if (
        form == "portable"
    ):  # what every server's strict mode takes; the same for all counts, so that prefixes stay cached
        entry = _entry({"type": "integer"}, {"type": "integer"}, {}, graded)
        return object_schema(programs={"type": "array", "items": entry})
    number = {"type": "integer", "enum": list(range((BEST_GRADE if graded else count) + 1))}
    indices = ({"type": "integer", "const": index} for index in range(1, count + 1))
    entries = [_entry(index, number, {"maxLength": 80}, graded) for index in indices]
    return object_schema(
        programs={"type": "array", "prefixItems": entries, "items": False, "minItems": count, "maxItems": count}
    )


def parse_answer(text: str, count: int, graded: bool = False) -> list[AssignedCluster]:
    """The clusters, or grades, of programs 1..count, in order. Raises `InvalidAnswer` with the fault."""
    found = read_reply(text, _GradedReply) if graded else read_reply(text, _Reply)
    entries: Sequence[_Entry] = found.programs
    by_index = {entry.index: entry for entry in entries}
    wanted = set(range(1, count + 1))
    if len(entries) != count or set(by_index) != wanted:
        missing, extra = sorted(wanted - set(by_index)), sorted(set(by_index) - wanted)
        said = f"missing {missing[:10]}, unknown {extra[:10]}"
        raise InvalidAnswer(f"it has {len(entries)} entries for the indices 1 to {count} ({said}), one each is needed")
    return [_assigned(by_index[index], count) for index in sorted(wanted)]


def listed(text: str) -> str:
    """An answer in the form of `map`, `{"chain_of_thought": ..., "1": 4}`, as the list that `parse_answer` reads.

    Raises `InvalidAnswer` with the fault.
    """
    try:
        maps = [{key: value for key, value in each.items() if key.isdecimal()} for each in _outermost_objects(text)]
    except (ValueError, RecursionError) as error:
        raise InvalidAnswer(f"it is not JSON ({error})") from None
    lists = ([{"index": key, "cluster_id": value} for key, value in each.items()] for each in maps if each)
    return "\n".join(json.dumps({"programs": entries}) for entries in lists)


def merge_votes(runs: Sequence[Sequence[int]]) -> list[int]:
    """One clustering of n programs from S runs by co-assignment majority.

    A program is degenerate (0) where more than half of the runs say so. Two others are joined where more than half of
    the runs put them together; clusters are the connected components, numbered from 1 by first occurrence.
    """
    count = len(runs[0])
    ids = [DEGENERATE if 2 * sum(run[i] == DEGENERATE for run in runs) > len(runs) else -1 for i in range(count)]
    following = 1
    for first in range(count):
        if ids[first] != -1:
            continue
        ids[first] = following
        reached = [first]
        while reached:
            here = reached.pop()
            for other in range(count):
                if ids[other] == -1 and 2 * sum(run[here] == run[other] != DEGENERATE for run in runs) > len(runs):
                    ids[other] = following
                    reached.append(other)
        following += 1
    return ids


def read_reply(text: str, kind: type[M]) -> M:
    """The JSON object of an answer, whatever stands around it. Raises `InvalidAnswer` with the fault: two different
    objects are no answer, and neither is one that is cut off."""
    try:
        found = [value for value in _outermost_objects(text) if value.keys() & kind.model_fields.keys()]
        if not found:
            raise InvalidAnswer("it has no JSON object of the form asked for")
        if any(value != found[0] for value in found):
            raise InvalidAnswer("it has two different answers")
        return kind.model_validate(found[0])
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the start"
        raise InvalidAnswer(f"it is not JSON of the form asked for ({first['msg']} at {where})") from None
    except (ValueError, RecursionError) as error:
        raise InvalidAnswer(f"it is not JSON ({error})") from None


def _outermost_objects(text: str) -> list[dict[str, Any]]:
    """Those in no other, without those of thoughts. Raises `ValueError` where the last one is cut off."""
    found: list[dict[str, Any]] = []
    end, thinks = 0, False
    while end < len(text):
        start = text.find("{", end)
        for mark in _THOUGHTS.finditer(text[end : start if start >= 0 else None]):
            thinks = not mark[1]
            if not thinks:
                found = []
        if start < 0:
            break
        try:
            value, end = _JSON.raw_decode(text, start)
        except json.JSONDecodeError as error:
            if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
                raise
            end = start + 1  # a brace of the prose
        else:
            found.append(value)
    return [] if thinks else found


def _assigned(entry: _Entry, count: int) -> AssignedCluster:
    # 100 also means degenerate, except with a hundred programs, where it may be an id.
    degenerate = entry.degenerate or (entry.cluster_id == _OTHER_DEGENERATE and count < _OTHER_DEGENERATE)
    # what no screen or file can show, a lone half of a surrogate pair included, becomes a space
    strategy = "".join(c if c.isprintable() else " " for c in entry.strategy[:_STRATEGY_CHARS])
    return AssignedCluster(DEGENERATE if degenerate else entry.cluster_id, strategy)


def _entry(index: dict[str, Any], number: dict[str, Any], words: dict[str, Any], graded: bool) -> dict[str, Any]:
    said, numbered = ("reason", "grade") if graded else ("strategy", "cluster_id")
    return object_schema(index=index, **{said: {"type": "string", **words}, numbered: number})


def object_schema(**properties: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of an object with these properties alone, as every server's strict mode takes it."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
