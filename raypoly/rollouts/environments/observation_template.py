"""How an observation is put to the policy: the texts before and after it, from the end of what the policy wrote.

    template = ObservationTemplate.of_section(config.environment, ChatTemplate.of(config.problems))
    template.around(problem, "user")                      # ("<|im_end|>\\n<|im_start|>user\\n", "<|im_end|>\\n ...")

By a chat template it is what that writes behind an answer of the assistant's and around the message that follows. What
the policy wrote stays as it was sampled, where a template would drop some of it (earlier thoughts, in Qwen3's).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from raypoly.core.config import EnvironmentSection
from raypoly.core.errors import UsageError
from raypoly.core.values import Problem
from raypoly.data.templates import PLAIN, ChatTemplate, Render

_ASKED, _ANSWER, _OBSERVED = "raypolyasked", "raypolyanswer", 'raypoly\n"observed"'
_PARAGRAPH, _COMPLETION = "\n\n{observation}\n\n", "\n{observation}\n{prompt}"


@dataclass(frozen=True)
class ObservationTemplate:
    text: str | None
    """`environment.observation_template`."""
    renderer: Callable[[], Render] | None
    """Of the chat template, where there is one."""

    @classmethod
    def of_section(cls, environment: EnvironmentSection, chat: ChatTemplate | None) -> ObservationTemplate:
        """Raises `UsageError` for a text without `{observation}`."""
        text = environment.observation_template
        if text is not None and "{observation}" not in text:
            raise UsageError(
                f"environment.observation_template={text!r} has no {{observation}}: write it where that belongs."
            )
        with_chat = text is None and chat is not None and chat.name != PLAIN
        return cls(text, chat.renderer if with_chat and chat is not None else None)

    def around(self, problem: Problem, role: str) -> tuple[str, str]:
        """The texts before and after an observation of this role."""
        if self.renderer is not None:
            return self._of_chat.get(role, self._of_chat["user"])
        before, _, after = self._plain(problem).partition("{observation}")
        return before.replace("{prompt}", problem.prompt), after.replace("{prompt}", problem.prompt)

    def repeats(self, problem: Problem) -> bool:
        """Whether the problem's prompt is in it."""
        return self.renderer is None and "{prompt}" in self._plain(problem)

    def _plain(self, problem: Problem) -> str:
        return self.text or (_COMPLETION if problem.answer == "completion" else _PARAGRAPH)

    @cached_property
    def _of_chat(self) -> dict[str, tuple[str, str]]:
        assert self.renderer is not None
        render = self.renderer()
        found = {role: around(render, role) for role in ("user", "tool")}
        if found["user"] is None:
            raise UsageError(
                "The chat template leaves out a message after an answer: set another problems.chat_template."
            )
        return {role: pair for role, pair in found.items() if pair is not None}


def around(render: Render, role: str) -> tuple[str, str] | None:
    """What a chat template writes before and after a message of this role that follows an answer; None where it knows
    no such role, or writes its text in another form (Llama 3.1's has a tool's as JSON)."""
    messages = [("user", _ASKED), ("assistant", _ANSWER), (role, _OBSERVED)]
    try:
        text = render([{"role": name, "content": content} for name, content in messages])
    except Exception as error:  # templates raise what they like for a role that they don't know
        if role == "user":
            raise UsageError(f"The chat template can't put a message after an answer: {error}") from error
        return None
    answer, observed = text.rfind(_ANSWER), text.rfind(_OBSERVED)
    if not 0 <= answer < observed:
        return None
    return text[answer + len(_ANSWER) : observed], text[observed + len(_OBSERVED) :]
