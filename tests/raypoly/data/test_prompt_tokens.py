"""A prompt begins with what its tokenizer adds in front of a text, once, and a rendered chat with what its template
writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from actors.model_files import ModelTokenizer
from raypoly.analysis.evaluation.evaluation_config import ModelEvaluationConfig, with_room
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.values import Problem, TestSuite
from raypoly.data.long_prompts import require_readable
from raypoly.data.preparing.candidates import Candidate, SourceFacts
from raypoly.data.preparing.problem_selection import encoder
from raypoly.data.problem_set import ProblemSet
from raypoly.data.puzzles.puzzle_language import all_puzzles
from raypoly.data.templates import encode_prompts, encode_texts, tokenizer_renderer
from raypoly.learner.tiny_model import build_tokenizer
from tests.support.random_model import TEXTS, random_model

SPECIAL = ["<s>", "</s>", "<mask>"]
PROMPTS = ["def f(n):\n    return n", " x", "<mask> def", "Sum ünïcode ≤ 10", "\n\n# end"]


def bpe() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(
        TEXTS, trainers.BpeTrainer(special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False)
    )
    return made


def unigram() -> Tokenizer:
    """As sentencepiece writes Llama's: blanks are marked, and one stands in front of every text."""
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Metaspace()
    special = [*SPECIAL, "<unk>"]
    made.train_from_iterator(
        TEXTS, trainers.UnigramTrainer(special_tokens=special, unk_token="<unk>", show_progress=False)
    )
    return made


def adding(form: str, base: Callable[[], Tokenizer] = bpe, chat: str | None = None) -> PreTrainedTokenizerFast:
    """A tokenizer whose post-processor adds what stands around `$A`."""
    made = base()
    pairs = [(token, made.token_to_id(token)) for token in SPECIAL if token in form]
    made.post_processor = processors.TemplateProcessing(single=form, pair=f"{form} $B", special_tokens=pairs)
    named = dict(zip(("bos_token", "eos_token", "mask_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=made, chat_template=chat, **named)


@pytest.mark.parametrize("base", [bpe, unigram])
@pytest.mark.parametrize(
    ("form", "front"),
    [
        ("$A", []),
        ("<s> $A", ["<s>"]),
        ("<s> $A </s>", ["<s>"]),
        ("$A </s>", []),
        ("<mask> <s> $A", ["<mask>", "<s>"]),
    ],
)
def test_what_is_added_in_front_is_there_once_and_nothing_behind(
    base: Callable[[], Tokenizer], form: str, front: list[str]
) -> None:
    tokenizer = adding(form, base)
    own = tokenizer.convert_tokens_to_ids(front)
    written = ["".join(front) + prompt for prompt in PROMPTS]
    assert encode_prompts(tokenizer, PROMPTS) == [own + ids for ids in encode_texts(tokenizer, PROMPTS)]
    assert encode_prompts(tokenizer, written) == encode_texts(tokenizer, written)
    assert encode_prompts(tokenizer, [*PROMPTS, ""])[-1] == encode_texts(tokenizer, [""])[0]


def test_the_default_runs_prompts_are_what_they_were() -> None:
    prompts = [puzzle.prompt for puzzle in all_puzzles()]
    tokenizer = build_tokenizer(prompts)
    assert encode_prompts(tokenizer, prompts) == tokenizer(prompts, add_special_tokens=False)["input_ids"]
    assert encode_prompts(tokenizer, prompts) == tokenizer(prompts)["input_ids"]


@pytest.mark.parametrize(
    "chat",
    [
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}<assistant>",
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}<assistant>",
        "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}[U]{{ messages[0].content }}[/U]",
    ],
)
def test_a_rendered_chat_is_what_the_template_alone_makes_of_it(chat: str) -> None:
    tokenizer = adding("<s> $A", chat=chat)
    (bos,) = tokenizer.convert_tokens_to_ids(["<s>"])
    render = tokenizer_renderer(tokenizer)
    user = {"role": "user", "content": "Sum n."}
    for messages in ([user], [{"role": "system", "content": "Be brief."}, user]):
        if "raise" in chat and len(messages) > 1:
            continue
        (found,) = encode_prompts(tokenizer, [render(messages)])
        assert found == tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
        assert found.count(bos) == ("bos_token" in chat)
    (plain,) = encode_prompts(tokenizer, ["Sum n."])
    assert plain[0] == bos, "a text that no template made"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder whose tokenizer adds a BOS and an end."""
    made = random_model(tmp_path_factory.mktemp("bos") / "model")
    adding("<s> $A </s>").save_pretrained(made)
    return made


def test_every_way_to_a_prompts_tokens_adds_it(folder: Path) -> None:
    tokenizer = ModelTokenizer(folder)
    bos, end = 0, 1
    (prompt,) = tokenizer.encode(["def f(n):"])
    (response,) = tokenizer.encode_responses(["def f(n):"])
    assert prompt.dtype == response.dtype == np.int32
    assert (prompt[0], prompt.tolist().count(bos), end in prompt) == (bos, 1, False)
    assert [*prompt[1:], end] == response.tolist(), "a response has no BOS"
    assert asyncio.run(encoder(str(folder))(["def f(n):"])) == [prompt.tolist()]
    assert tokenizer.decode(prompt) == "def f(n):"


@pytest.mark.parametrize("room", [0, -1])
def test_limits_count_it(folder: Path, room: int) -> None:
    problem = Problem("p", "def f(n):", "f", TestSuite("calls", "[]"))
    tokens = len(ModelTokenizer(folder).encode([problem.prompt])[0])
    problem_set = ProblemSet({"train": [problem], "validation": [], "test": []}, "")
    keys = {"model": {"path": str(folder)}, "generator": {"max_prompt_tokens": tokens + room, "max_tokens": 16}}
    evaluation = ModelEvaluationConfig.model_validate({**keys, "problems": {"path": "p"}})
    asked = Candidate("p", lambda: problem, SourceFacts("p", 1), True)
    too_long = nullcontext() if room == 0 else pytest.raises(UsageError, match=f"has {tokens}")
    with too_long:
        require_readable(problem_set, problem_set, Config.model_validate(keys), resumes=False)
    with too_long:
        with_room(evaluation, [asked])
