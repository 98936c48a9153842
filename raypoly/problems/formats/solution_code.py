"""From the code in a model's answer to the program that is run. Nothing is parsed: the code is a stranger's."""

from __future__ import annotations

import re
import textwrap

from raypoly.values import Problem


def program_of(problem: Problem, code: str) -> str:
    """The program of a fenced answer: `code`, behind the problem's prefix where it is a function's body alone.

    A body may stand at the margin, as answers have it that were dedented. A problem without prefix, or one whose
    answers are completions (`extract_code` has put the prefix there), takes `code` as it is.
    """
    if not problem.prefix or problem.answer == "completion" or _defines(code, problem.entry_point):
        return code
    prefix = problem.prefix if problem.prefix.endswith("\n") else problem.prefix + "\n"
    first = next((line for line in code.split("\n") if line.strip()), " ")
    return prefix + (code if first[0].isspace() else textwrap.indent(code, "    "))


def _defines(code: str, entry_point: str) -> bool:
    """Whether a line at the margin binds the name that is called."""
    name = re.escape(entry_point.partition(".")[0].removesuffix("()"))
    definition = rf"^(?:(?:async[ \t]+)?def|class)[ \t]+{name}\b|^{name}[ \t]*(?::[^=\n]*)?=(?!=)"
    return re.search(definition, code, re.MULTILINE) is not None
