"""Arguments of vLLM from the config: passed on, or refused in one sentence."""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from raypoly.core.config import GeneratorConfig
from raypoly.core.errors import UsageError
from raypoly.rollouts.engines import OWN_ARGUMENTS, build, check_engine_args, vllm_arguments
from tests.support.random_model import random_model

needs_vllm = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM")


@needs_vllm
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dtype": "half"}, "generator.engine_args.dtype can't be given: it is decided by model.dtype."),
        ({"seed": 1}, "generator.engine_args.seed can't be given"),
        ({"kv_cache_dtyp": "fp8"}, "no argument of the EngineArgs of vLLM; did you mean kv_cache_dtype"),
        ({"zzz": 1}, "generator.engine_args.zzz is no argument of the EngineArgs of vLLM."),
    ],
)
def test_an_argument_that_can_not_be_given_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_engine_args(GeneratorConfig(engine_args=given))
    assert said in str(refused.value)


def test_another_engine_gets_none() -> None:
    with pytest.raises(UsageError, match="are for vLLM, and generator"):
        check_engine_args(GeneratorConfig(engine="transformers", engine_args={"kv_cache_dtype": "fp8"}))
    check_engine_args(GeneratorConfig(engine="transformers"))


def test_the_list_of_own_arguments_is_what_the_engine_sets() -> None:
    source = Path(__file__).parents[4] / "raypoly" / "rollouts" / "engines" / "vllm_engine.py"
    calls = [node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Call)]
    (made,) = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "EngineArgs"]
    assert {keyword.arg for keyword in made.keywords if keyword.arg is not None} == OWN_ARGUMENTS.keys()


@needs_vllm
def test_arguments_reach_vllm_whose_refusal_is_an_error_of_usage(tmp_path: Path) -> None:
    from vllm import EngineArgs

    assert vllm_arguments() == {field.name for field in fields(EngineArgs)}
    given = {"speculative_config": {"method": "ngram"}, "kv_cache_dtype": "fp9"}
    with pytest.raises(UsageError, match=r"vLLM does not start with generator\.engine_args=.*fp9"):
        build(random_model(tmp_path), GeneratorConfig(engine_args=given), "float32")
