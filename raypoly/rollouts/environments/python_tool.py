"""python: a turn's last block of Python runs in the sandbox, and what it prints comes back.

A turn without one ends the conversation; so does the last turn. With `state: kept` the earlier blocks of the
conversation run first, unseen, so that names go on from block to block as in a notebook.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from raypoly.core.values import ASSISTANT, Problem
from raypoly.rollouts.environments.environment import (
    Conversation,
    Done,
    Environment,
    EnvironmentConfig,
    EnvironmentServices,
    Observation,
    ToolResult,
)
from raypoly.verifier.response_text import answered, code_blocks

# The last expression of the last block is shown, as a notebook shows it. Earlier blocks print nowhere, and what they
# raise, whatever it is, was seen when they were the last.
_NOTEBOOK = """
import ast as _ast, contextlib as _contextlib, io as _io
_names = dict(globals())
for _cell in %(earlier)r:
    with _contextlib.redirect_stdout(_io.StringIO()), _contextlib.suppress(BaseException):
        exec(compile(_cell, "<block>", "exec"), _names)
_tree = _ast.parse(%(cell)r, "<block>")
_shown = _tree.body.pop() if _tree.body and isinstance(_tree.body[-1], _ast.Expr) else None
exec(compile(_tree, "<block>", "exec"), _names)
if _shown is not None:
    _value = eval(compile(_ast.Expression(_shown.value), "<block>", "eval"), _names)
    if _value is not None:
        print(repr(_value))
"""

_ENDED = re.compile(r"^\((?:timeout|memory|error: (?:ended with exit|died of|it closed|it printed more))", re.MULTILINE)


class PythonToolConfig(EnvironmentConfig):
    state: Literal["kept", "fresh"] = Field(
        "kept", description="A block sees the names of earlier ones (`kept`: they run again before it), or none."
    )
    block: str = Field("python", pattern=r"^\w+$", description="The word behind the fence of a block that is run.")


class PythonTool(Environment):
    Config = PythonToolConfig
    config: PythonToolConfig
    reads_tool_calls = True

    async def respond(
        self, problem: Problem, conversation: Conversation, services: EnvironmentServices
    ) -> Observation | Done:
        cells = self._cells(conversation)
        cell, role = cells[-1]
        if cell is None:
            return Done()
        if not conversation.turns_left:
            return Observation("")  # it is not read, so nothing needs to run
        earlier = self._earlier(conversation) if self.config.state == "kept" else []
        return Observation(_shown(await services.run(_NOTEBOOK % {"earlier": earlier, "cell": cell})), role)

    def _earlier(self, conversation: Conversation) -> list[str]:
        """The blocks that were run, but for those that ended their process: they would end this one too."""
        answers = [turn.text for turn in conversation.turns if turn.role != ASSISTANT]
        pairs = zip(self._cells(conversation), answers, strict=False)
        return [cell for (cell, _), answer in pairs if cell and not _ENDED.search(answer)]

    def _cells(self, conversation: Conversation) -> list[tuple[str | None, Literal["user", "tool"]]]:
        """What each of the policy's turns runs, and the role of its answer."""
        found: list[tuple[str | None, Literal["user", "tool"]]] = []
        for number, turn in enumerate(conversation.own):
            calls = conversation.tool_calls[number] if conversation.tool_calls else ()
            called = next(filter(None, map(_code_of, calls)), None)
            found.append((called, "tool") if called else (self._block(turn.text), "user"))
        return found

    def _block(self, text: str) -> str | None:
        # Blocks in a thought are no calls.
        fence = re.compile(rf"^[ \t]*```[ \t]*{self.config.block}[ \t]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
        found = fence.findall(answered(text))
        if found:
            return str(found[-1])
        blocks = code_blocks(answered(text)) if self.config.block == "python" and "```" in text else []
        return blocks[-1].code if blocks else None


def _code_of(call: Mapping[str, Any]) -> str | None:
    arguments = call.get("arguments")
    code = arguments.get("code") if isinstance(arguments, Mapping) else None
    return code if isinstance(code, str) and code.strip() else None


def _shown(result: ToolResult) -> str:
    parts = [result.output.rstrip("\n"), "" if result.status == "ok" else f"({result.status}: {result.detail})"]
    return "\n".join(filter(None, parts)) or "(no output)"
