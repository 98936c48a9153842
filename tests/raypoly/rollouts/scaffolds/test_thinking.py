"""Models that think before they answer: told not to by their chat template, and drafts without what they thought."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.core.values import Problem
from raypoly.data import build_problem_set
from raypoly.data.templates import ChatTemplate
from raypoly.rollouts import scaffolds
from raypoly.rollouts.environments.observation_template import ObservationTemplate
from raypoly.rollouts.scaffolds.plan_search import observed
from raypoly.verifier.response_text import has_thoughts, opened_thought
from tests.raypoly.rollouts.scaffolds.test_scaffolds import PLAN, asked, draft
from tests.support.scored_run import row_of, write_problems

ASKED, UNTHOUGHT = "<|im_end|>\n<|im_start|>assistant\n", "<think>\n\n</think>\n\n"
# In the form of Qwen3's: earlier thoughts are dropped, and a new answer may begin behind an empty one.
SWITCH = (
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
MESSAGES = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1].lstrip('\n') }}<|im_end|>\n"
    "{% endfor %}"
)
FORMS = {
    "switch": MESSAGES + SWITCH,
    "always": MESSAGES + "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}",
    "never": MESSAGES + "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
}
if (trl := find_spec("trl")) is not None and trl.origin is not None:  # it brings Qwen3's own
    FORMS["qwen3"] = (Path(trl.origin).parent / "chat_templates" / "qwen3.jinja").read_text()
OFF = {"enable_thinking": False}
ENDS = {
    ("switch", "off"): ASKED + UNTHOUGHT,
    ("switch", "on"): ASKED,
    ("always", "on"): ASKED + "<think>\n",
    ("never", "on"): ASKED,
    ("qwen3", "off"): ASKED + UNTHOUGHT,
    ("qwen3", "on"): ASKED,
}
THOUGHT = "<think>\nFirst:\n- A: not this\n- a loop would do\n</think>\n\n"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    found = {}
    for name, template in FORMS.items():
        words = Tokenizer(models.WordLevel({"a": 0, "pass": 1, "fail": 2}, unk_token="a"))
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<|im_end|>")
        tokenizer.chat_template = template
        found[name] = str(tmp_path_factory.mktemp(name))
        tokenizer.save_pretrained(found[name])
    return found


@pytest.fixture(params=sorted(ENDS), ids="-".join)
def case(request: pytest.FixtureRequest, folders: dict[str, str], tmp_path: Path) -> tuple[Problem, ChatTemplate, str]:
    """A problem as a chat, what rendered it, and how each prompt has to end."""
    form, thinking = request.param
    if form not in folders:
        pytest.skip("needs trl (uv pip install trl==1.16.0)")
    path = write_problems(tmp_path / "p.jsonl", [row_of("sum")])
    given = {"source": "jsonl", "path": str(path), "template": "message", "validation": 0, "test": 0}
    given |= {"chat_template": folders[form], "chat_template_kwargs": OFF if thinking == "off" else {}}
    config = ProblemsConfig.model_validate(given)
    chat = ChatTemplate.of(config)
    assert chat is not None
    return build_problem_set(config).splits["train"][0], chat, ENDS[form, thinking]


@pytest.mark.parametrize("name", ["direct", "plan_and_solve", "sketch_then_solve", "plan_search", "tuple"])
def test_every_prompt_ends_as_the_template_says(case: tuple[Problem, ChatTemplate, str], name: str) -> None:
    problem, chat, end = case
    texts = ["- one\n- two" if name == "plan_search" else PLAN]
    rounds, _ = asked(scaffolds.build(name, chat), problem, texts)
    prompts = [ask.prompt for each in rounds for ask in each]
    assert all(prompt.endswith(end) for prompt in prompts)
    assert all(prompt.count("</think>") == end.count("</think>") for prompt in prompts)
    thought, _ = asked(scaffolds.build(name, chat), problem, [f"{THOUGHT}{text}" for text in texts])
    assert [ask.prompt for each in thought for ask in each] == prompts, "thoughts are in no prompt"


def test_a_repair_too_is_asked_for_without_a_thought(case: tuple[Problem, ChatTemplate, str]) -> None:
    problem, chat, end = case
    settings = load(None, ["environment.name=repair"], str).environment
    before, after = ObservationTemplate.of_section(settings, chat).around(problem, "user")
    assert (before, after) == ("<|im_end|>\n<|im_start|>user\n", end)


def test_thoughts_are_no_observations() -> None:
    assert observed(f"{THOUGHT}- one\n- two") == ["one", "two"]
    unfinished = THOUGHT.partition("</think>")[0]
    assert observed(unfinished) == []
    counted = {THOUGHT + PLAN: True, unfinished: True, PLAN: False, UNTHOUGHT + PLAN: False, "": False}
    counted[PLAN.replace("Recurse on", "Parse `<think>` of")] = False
    assert {text: has_thoughts(text) for text in counted} == counted


def test_a_cut_thought_that_the_prompt_began_leaves_no_plan() -> None:
    assert opened_thought("a" * 200 + ENDS["always", "on"]) == "<think>"
    assert opened_thought("<think> is a tag" + ENDS["switch", "on"]) == opened_thought(ENDS["switch", "off"]) == ""
    opened = draft(f"<think>\n{PLAN}", finish_reason="length")
    problem = Problem("p", "Add.", "f", build_problem_set(ProblemsConfig()).splits["train"][0].tests)
    asks = scaffolds.build("tuple").ask(problem, [opened], 4)
    assert [ask.prompt for ask in asks] == [problem.prompt] * 4


@pytest.mark.parametrize(
    ("name", "kwargs", "said"),
    [
        ("never", OFF, "enable_thinking is no variable of the chat template of"),
        ("switch", {"enable_thinkng": False}, "enable_thinkng is no variable of the chat template of"),
        ("plain", OFF, "enable_thinking is no variable of the chat template of plain"),
        (None, OFF, "are variables of a chat template, and there is none"),
    ],
)
def test_a_switch_that_switches_nothing_is_refused(
    folders: dict[str, str], name: str | None, kwargs: dict[str, bool], said: str
) -> None:
    place = None if name is None else folders.get(name, name)
    config = ProblemsConfig(chat_template=place, chat_template_kwargs=kwargs)
    with pytest.raises(UsageError, match=said):
        _ = scaffolds.build("tuple", ChatTemplate.of(config)).render


def test_the_switch_is_a_key_of_the_command_line() -> None:
    words = ["problems.chat_template=plain", "problems.chat_template_kwargs={enable_thinking: false}"]
    assert load(None, words, str).problems.chat_template_kwargs == OFF
