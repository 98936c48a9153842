"""Faults between a judge and its server: their names, spoilt answers, and a seeded storm of all faults.

    spoilt(completion, "wrong-indices")          # a chat completion that is wrong in its content
    storm = Storm(seed=1, share=0.3)             # 30 % of the requests begin to go wrong, each fault once a round
    storm.strike(may_spoil=True)                 # "ok", "503", "cut" ...

Faults of content go wrong in what the answer says; the others in how it comes, or in that it does not
(`tests/support/faulty_front.py` commits those).
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

STATUSES = (
    "429", "429-retry-after", "429-long", "400", "400-context", "401", "403", "404", "408", "409", "422", "425", "500",
    "503", "503-retry-after", "quota", "echo-key",
)  # fmt: skip
TRANSPORT = ("hang", "cut", "drip", "drip-headers", "reset", "garbage", "not-json", "refused")
CONTENT = (
    "no-choices", "wrong-indices", "missing", "duplicate", "prose", "refusal", "filter", "length", "no-usage",
)  # fmt: skip
FAULTS = (*STATUSES, *TRANSPORT, *CONTENT)
TLS_FAULTS = ("tls-garbage", "tls-certificate")
"""Faults of https only: a plain HTTP answer to the client's hello, and a certificate that nobody signed."""
ABOUT_THE_REQUEST = ("400", "400-context", "404", "422")
"""Answers that blame the request. They are no outage, and asking again does not help."""
PASSING = tuple(fault for fault in (*FAULTS, *TLS_FAULTS) if fault not in ABOUT_THE_REQUEST)
"""Faults that pass if the client waits and asks again."""
_PROGRAM = re.compile(r"<<<program (\d+) key (\w+)>>>\n(.*?)\n(?=<<<(?:program \d+|end) key \2>>>)", re.DOTALL)


class Storm:
    """An endless seeded sequence of faults. Each round has every fault once, in random order."""

    def __init__(self, seed: int, share: float, faults: Sequence[str] = PASSING, longest: int = 1) -> None:
        """A fault begins at a `share` of the requests, and then holds for 1 to `longest` requests."""
        self._rng, self._share, self._faults, self._longest = random.Random(seed), share, faults, longest
        self._deck: list[str] = []
        self._wave: list[str] = []

    def strike(self, may_spoil: bool) -> str:
        """Draw the next request's fault; `ok` means none. Faults of content only with `may_spoil`."""
        if self._wave:
            fault = self._wave.pop()
            return fault if may_spoil or fault not in CONTENT else "ok"
        if self._rng.random() >= self._share:
            return "ok"
        if not self._deck:
            self._deck = self._rng.sample(self._faults, len(self._faults))
        at = next((i for i, fault in enumerate(self._deck) if may_spoil or fault not in CONTENT), None)
        if at is None:
            return "ok"
        fault = self._deck.pop(at)
        self._wave = [fault] * self._rng.randrange(self._longest)
        return fault


def check_fault_names(faults: Iterable[str]) -> list[str]:
    """Return the faults as a list. Raises `ValueError` if one is unknown."""
    given = list(faults)
    unknown = sorted(set(given) - {*FAULTS, *TLS_FAULTS, "ok"})
    if unknown:
        raise ValueError(f"no such fault: {', '.join(unknown)}; there are {', '.join((*FAULTS, *TLS_FAULTS))}")
    return given


def spoil_completion(completion: Mapping[str, Any], fault: str) -> dict[str, Any]:
    """Put a fault of content into a chat completion. A completion that is no JSON of programs keeps its text."""
    spoiled: dict[str, Any] = json.loads(json.dumps(completion))
    if fault == "no-usage":
        spoiled.pop("usage", None)
    elif fault == "no-choices":
        spoiled["choices"] = []
    elif fault in CONTENT:
        choice = spoiled["choices"][0]
        message = choice["message"]
        if fault == "refusal":
            message |= {"content": None, "refusal": "I can't help with that."}
        else:
            message["content"] = _spoilt_text(message["content"] or "", fault)
        choice["finish_reason"] = {"length": "length", "filter": "content_filter"}.get(fault, choice["finish_reason"])
    return spoiled


def programs_of(body: Mapping[str, Any]) -> list[str]:
    """The programs in a request, in their order."""
    text = next(message["content"] for message in body["messages"] if message["role"] == "user")
    return [program for _, _, program in _PROGRAM.findall(text)]


def error_body(message: str, code: str) -> dict[str, Any]:
    """An error body in OpenAI's form."""
    return {"error": {"message": message, "type": code, "param": None, "code": code}}


def _spoilt_text(text: str, fault: str) -> str:
    if fault == "prose":
        return "They are all much the same."
    if fault == "length":
        return text[: len(text) // 2]
    try:
        entries = json.loads(text, strict=False)["programs"]  # vLLM lets control characters into strings
    except (ValueError, KeyError, TypeError):
        return text
    if fault == "wrong-indices":
        entries = [{**entry, "index": entry["index"] + 1} for entry in entries]
    elif fault == "missing":
        entries = entries[:-1]
    elif fault == "duplicate":
        entries = [*entries[:1], *entries[:-1]]
    return json.dumps({"programs": entries})
