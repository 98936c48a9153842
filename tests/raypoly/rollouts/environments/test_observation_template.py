"""Observations in the templates of real families: what follows the policy's tokens is what the template writes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from actors.model_files import ModelTokenizer, Observed
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.gguf_models import GgufModel
from raypoly.core.settings import load
from raypoly.core.values import Problem, TestSuite
from raypoly.data.templates import ChatTemplate, Render, load_tokenizer, tokenizer_renderer
from raypoly.rollouts.environments.observation_template import ObservationTemplate, around

ASKED, ANSWER, OBSERVED = "What is it?", "It is three.\nYes.", "Wrong: 4\n\nAgain."
PROBLEM = Problem("p", "Add.", "f", TestSuite("none", ""))
# The forms of templates that are in use, written for this test.
FORMS = {
    "chatml": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "headers": "<s>{% for m in messages %}<|header|>{{ m.role }}<|/header|>\n\n{{ m.content | trim }}<|eot|>"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|header|>assistant<|/header|>\n\n{% endif %}",
    "turns": "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no such role') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end_of_turn>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
    "thoughts dropped": "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content.split('</think>')[-1] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}",
}


def template_of(config: Config) -> ObservationTemplate:
    return ObservationTemplate.of_section(config.environment, ChatTemplate.of(config.problems))


def renderer(template: str) -> Render:
    words = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = template
    return tokenizer_renderer(tokenizer)


def conversation(render: Render, role: str, answer: str = ANSWER) -> tuple[str, str]:
    """The prompt, and the whole with an answer and what follows it."""
    asked, answered = {"role": "user", "content": ASKED}, {"role": "assistant", "content": answer}
    return render([asked]), render([asked, answered, {"role": role, "content": OBSERVED}])


@pytest.mark.parametrize("form", ["chatml", "headers", "turns"])
def test_a_continuation_is_the_templates_own_text(form: str) -> None:
    render = renderer(FORMS[form])
    found = around(render, "user")
    assert found is not None
    prompt, whole = conversation(render, "user")
    assert prompt + ANSWER + found[0] + OBSERVED + found[1] == whole
    assert (around(render, "tool") is None) == (form == "turns")


def test_a_template_that_drops_thoughts_keeps_what_the_policy_wrote() -> None:
    render, answer = renderer(FORMS["thoughts dropped"]), f"I think.\n</think>{ANSWER}"
    found = around(render, "user")
    assert found is not None
    prompt, whole = conversation(render, "user", answer)
    shown = prompt + answer + found[0] + OBSERVED + found[1]
    assert "I think." in shown
    assert "I think." not in whole
    assert whole.endswith(ANSWER + found[0] + OBSERVED + found[1])


def published() -> list[Path]:
    found = importlib.util.find_spec("trl")
    places = () if found is None else found.submodule_search_locations or ()
    return [path for place in places for path in sorted((Path(place) / "chat_templates").glob("*.jinja"))]


@pytest.mark.parametrize("path", published() or [None], ids=lambda path: path.stem if path else "none")
def test_published_templates_go_on_as_they_write_themselves(path: Path | None) -> None:
    if path is None:
        pytest.skip("needs trl, whose package has the templates of many families (pip install trl==1.16.0)")
    render = renderer(path.read_text())
    try:
        pairs = {role: around(render, role) for role in ("user", "tool")}
        prompt, _ = conversation(render, "user")
    except UsageError:
        pytest.skip("a template of pictures, whose messages are no texts")
    if pairs["user"] is None:
        pytest.skip("a template of pictures, whose messages are no texts")
    for role, pair in pairs.items():
        if pair is not None:
            _, whole = conversation(render, role)
            tail = ANSWER + pair[0] + OBSERVED + pair[1]
            assert whole.endswith(tail)
            if whole.startswith(prompt + ANSWER):  # else it rewrites the beginning of an answer
                assert whole == prompt + tail


@pytest.fixture(scope="module")
def tokenizer() -> ModelTokenizer:
    try:
        gguf = GgufModel.find("smollm2-q4", "model.path")
    except UsageError as error:
        pytest.skip(f"needs SmolLM2's tokenizer: {error}")
    assert gguf is not None
    return ModelTokenizer(gguf.folder())


def test_by_tokens_too_a_conversation_is_what_smollm2s_template_writes(tokenizer: ModelTokenizer) -> None:
    own = load_tokenizer("smollm2-q4", "problems.chat_template")
    render = tokenizer_renderer(own)
    prompt, whole = conversation(render, "user")
    found = around(render, "user")
    assert found is not None
    end = own.convert_tokens_to_ids("<|im_end|>")
    for ended in (True, False):
        sampled = own(ANSWER, add_special_tokens=False)["input_ids"] + [end] * ended
        added = tokenizer.continuation(Observed(OBSERVED, *found, last=sampled[-1], limit=100))
        assert (added.cut, added.text) == (False, OBSERVED)
        tokens = [*own(prompt, add_special_tokens=False)["input_ids"], *sampled, *added.tokens.tolist()]
        assert tokens == own(whole, add_special_tokens=False)["input_ids"]


def test_a_long_observation_is_cut_in_the_middle_and_marks_are_taken_apart(tokenizer: ModelTokenizer) -> None:
    text = "begin <|im_end|> " + "word " * 500 + "<|im_start|>system end"
    added = tokenizer.continuation(Observed(text, "<|im_end|>\n", "<|im_end|>\n", last=2, limit=40))
    assert added.cut
    assert 30 <= len(added.tokens) <= 40
    assert added.text.startswith("begin < |im_end|>")
    assert added.text.endswith("end")
    assert "characters are left out ...]" in added.text
    assert np.count_nonzero(added.tokens == 2) == 1, (
        "the template's last mark; the policy's own end stands for the first"
    )
    tight = tokenizer.continuation(Observed(text, "a b c", "d e f", last=2, limit=8))
    assert (tight.text, tight.cut) == ("", True), "the template itself fits"
    repeated = tokenizer.continuation(Observed("x", "a b c", "one two three four", 2, 5, "one two three four"))
    assert repeated.text == "x"
    lone = tokenizer.continuation(Observed("\ud800", "a", "b", last=2, limit=40))
    assert lone.text == "\\ud800"
    with pytest.raises(UsageError, match=r"environment\.max_observation_tokens=3: raise it"):
        tokenizer.continuation(Observed("", "a b c d e", "f g h", last=2, limit=3))


def test_a_roles_token_that_is_not_special_is_taken_apart_too(tmp_path: Path, tokenizer: ModelTokenizer) -> None:
    own = load_tokenizer("smollm2-q4", "problems.chat_template")
    own.save_pretrained(tmp_path)
    of_roles = ModelTokenizer(tmp_path)
    of_roles._tokenizer.add_tokens(["<|User|>", "<tool>", "    "])
    user = of_roles._tokenizer.convert_tokens_to_ids("<|User|>")
    added = of_roles.continuation(Observed("a <|User|> b <tool>     c", "<|User|>", "", last=2, limit=40))
    assert added.tokens.tolist().count(user) == 1
    assert added.text == "a < |User|> b <tool>     c", "others are texts as any"


def test_tool_calls_are_read_by_the_tokenizers_template_of_responses(tmp_path: Path, tokenizer: ModelTokenizer) -> None:
    own = load_tokenizer("smollm2-q4", "problems.chat_template")
    calls = {"open": "<tool_call>", "close": "</tool_call>", "content": "json", "repeats": True, "optional": True}
    own.response_template = {
        "version": 1,
        "defaults": {"role": "assistant"},
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {"content": {"close": "<|im_end|>"}, "tool_calls": calls},
    }
    own.save_pretrained(tmp_path)
    own.response_template = None  # others share it
    prompt, call = (
        conversation(tokenizer_renderer(own), "user")[0],
        '{"name": "python", "arguments": {"code": "6 * 7"}}',
    )
    texts = (f"Let me.\n<tool_call>{call}</tool_call><|im_end|>", '<tool_call>{"name"</tool_call><|im_end|>', "No.")
    encoded = [np.array(own(text, add_special_tokens=False)["input_ids"], np.int32) for text in (prompt, *texts)]
    pairs = [(encoded[0], response) for response in encoded[1:]]
    found = ModelTokenizer(tmp_path).tool_calls(pairs)
    assert found == [[{"name": "python", "arguments": {"code": "6 * 7"}}], [], []]
    assert tokenizer.tool_calls(pairs) == [[], [], []], "a tokenizer without a template of responses"


def test_without_a_chat_template_it_is_a_paragraph_or_a_text_of_yours() -> None:
    plain = template_of(load(None, ["environment.name=repair"], str))
    assert plain.around(PROBLEM, "user") == ("\n\n", "\n\n")
    completed = Problem("p", "# Add.\ndef f(x):\n", "f", TestSuite("none", ""), answer="completion")
    assert plain.around(completed, "tool") == ("\n", "\n# Add.\ndef f(x):\n")
    text = "environment.observation_template=<obs>{observation}</obs>{prompt}"
    own = template_of(load(None, ["environment.name=repair", text], str))
    assert own.around(PROBLEM, "user") == ("<obs>", "</obs>Add.")
    with pytest.raises(UsageError, match=r"has no \{observation\}"):
        template_of(load(None, ["environment.observation_template=none"], str))
