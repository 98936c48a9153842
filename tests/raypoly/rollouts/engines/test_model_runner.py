"""A GPU's vLLM engine has another model runner than a CPU's: Model Runner V2. What of it runs without a GPU."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from raypoly.core.config import GeneratorConfig
from raypoly.rollouts.engines import SampleRequest, vllm_engine
from raypoly.rollouts.engines.vllm_engine import VllmEngine
from tests.support.triton_by_numpy import run_kernels_by_numpy

VOCABULARY = 7
LARGEST_SEED = 2**63 - 1
"""Of `raypoly.core.seeds.derive`, and of an int64."""


class RecordingEngine:
    """Takes vLLM's engine's place, and keeps what it is given."""

    def __init__(self, arguments: Any) -> None:
        self.arguments = arguments
        self.requests: list[Any] = []

    def apply_model(self, function: Callable[[Any], Any]) -> list[None]:
        return [None]

    def add_request(self, name: str, prompt: Any, params: Any) -> None:
        self.requests.append(params)

    def has_unfinished_requests(self) -> bool:
        return False

    def reset_prefix_cache(self) -> bool:
        return True

    def set_weight_version(self, version: str) -> None:
        assert version == "0"


@pytest.fixture
def gpus_engine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[VllmEngine, RecordingEngine]]:
    """Builds raypoly's engine as on a GPU, around a `RecordingEngine`."""
    import vllm
    from vllm.platforms import current_platform

    def build(**keys: Any) -> tuple[VllmEngine, RecordingEngine]:
        made: list[RecordingEngine] = []

        def from_engine_args(arguments: Any) -> RecordingEngine:
            made.append(RecordingEngine(arguments))
            return made[-1]

        monkeypatch.setattr(vllm.LLMEngine, "from_engine_args", from_engine_args)
        with monkeypatch.context() as here:
            here.setattr(torch.cuda, "is_available", lambda: True)
            engine = VllmEngine(folder, GeneratorConfig(**keys), "bfloat16")
        return engine, made[0]

    for name in ("is_sleep_mode_available", "is_cumem_allocator_available"):
        monkeypatch.setattr(type(current_platform), name, lambda self: True)
    for name in ("VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_LOGGING_LEVEL", "VLLM_NO_USAGE_STATS"):
        monkeypatch.setenv(name, {"VLLM_LOGGING_LEVEL": "WARNING"}.get(name, "1"))  # put back what the engine sets
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
    return build


@pytest.mark.parametrize(("placement", "transport"), [("colocated", "ipc"), ("split", "nccl"), ("split", "objects")])
def test_a_gpu_takes_runner_v2_and_a_cpu_v1(
    gpus_engine: Any, monkeypatch: pytest.MonkeyPatch, placement: str, transport: str
) -> None:
    """The choice is by Triton and by the arguments. The platform is the CPU's, which vLLM's choice does not ask for."""
    _, recorded = gpus_engine(placement=placement, transport=transport)
    assert recorded.arguments.enable_sleep_mode == (placement == "colocated")
    assert not recorded.arguments.enforce_eager
    for triton in (True, False):
        monkeypatch.setattr("vllm.config.vllm.HAS_TRITON", triton)
        assert recorded.arguments.create_engine_config().use_v2_model_runner == triton


def test_a_users_argument_can_bring_runner_v1_back_and_vllm_warns(
    gpus_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr("vllm.config.vllm.HAS_TRITON", True)
    monkeypatch.setattr("vllm.config.vllm.logger.warning_once", lambda text, *values, **_: warned.append(text % values))
    given = {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2}, "kv_cache_dtype": "fp8"}
    _, recorded = gpus_engine(engine_args=given)
    config = recorded.arguments.create_engine_config()
    assert config.use_v2_model_runner
    config.parallel_config.enable_dbo = True  # as an argument of its own a CPU's platform would clear it
    warned.clear()
    assert not config.use_v2_model_runner
    assert "does not yet support dual batch overlap; using the V1" in warned[0]


def test_every_call_of_ours_exists_in_the_worker_and_ends_in_runner_v2() -> None:
    from vllm import LLMEngine
    from vllm.v1.worker.gpu.model_runner import GPUModelRunner
    from vllm.v1.worker.gpu_worker import Worker

    calls = [node for node in ast.walk(ast.parse(inspect.getsource(vllm_engine))) if isinstance(node, ast.Call)]
    named = [call for call in calls if isinstance(call.func, ast.Attribute)]
    of_worker = {ast.literal_eval(call.args[0]) for call in named if call.func.attr == "collective_rpc"}  # type: ignore[attr-defined]
    assert {"reload_weights", "start_weight_update", "update_weights", "finish_weight_update"} <= of_worker
    of_engine = {call.func.attr for call in named if ast.unparse(call.func.value) == "self._engine"}  # type: ignore[attr-defined]
    assert of_engine >= {"sleep", "wake_up", "step"}
    assert [name for name in of_engine if not hasattr(LLMEngine, name)] == []
    assert [name for name in of_worker if not hasattr(Worker, name)] == []
    worker = "".join(inspect.getsource(getattr(Worker, name)) for name in [*of_worker, "apply_model", "get_model"])
    of_runner = set(re.findall(r"self\.model_runner\.(\w+)\(", worker))
    assert of_runner >= {"reload_weights", "reset_lora_state", "get_model"}
    assert [name for name in of_runner if not hasattr(GPUModelRunner, name)] == []
    assert "weights_iterator" in inspect.signature(GPUModelRunner.reload_weights).parameters


class Sampling:
    """Runner V2's sampler: on the GPU where there is one, else with its kernels run by numpy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, requests: int) -> None:
        from vllm.triton_utils import HAS_TRITON
        from vllm.v1.worker.gpu import buffer_utils, input_batch, states
        from vllm.v1.worker.gpu.sample import gumbel, logprob, prompt_logprob, sampler

        self.device = torch.device("cuda" if HAS_TRITON else "cpu")
        if not HAS_TRITON:
            run_kernels_by_numpy(monkeypatch, buffer_utils, input_batch, gumbel, logprob, prompt_logprob)
            monkeypatch.setattr(buffer_utils, "is_uva_available", lambda: False)
        self._states = states.RequestState(requests, 64, 64, 0, VOCABULARY, self.device)
        config: Any = SimpleNamespace(reasoning_config=None)
        self._sampler = sampler.Sampler(
            config, requests, VOCABULARY, self.device, self._states, logprobs_mode="processed_logprobs"
        )

    def draw(self, logits: Tensor, params: Sequence[Any], positions: Sequence[int]) -> tuple[list[int], list[float]]:
        """Tokens and their log-probabilities, one for each row of logits [T, V]."""
        count = len(params)
        places = []
        for row, (given, position) in enumerate(zip(params, positions, strict=True)):
            self._states.add_request(str(row), 1, list(range(1, position + 2)), position, 8)
            places.append(self._states.req_id_to_index[str(row)])
            self._sampler.add_request(places[-1], given)
        self._states.apply_staged_writes()
        self._sampler.apply_staged_writes()
        rows = np.arange(count + 1, dtype=np.int32)
        index, lengths = self._ints(places), self._ints(positions) + 1
        batch: Any = SimpleNamespace(
            num_reqs=count,
            expanded_idx_mapping=index,
            idx_mapping=index,
            idx_mapping_np=np.array(places, np.int32),
            cu_num_logits=self._ints(rows),
            cu_num_logits_np=rows,
            expanded_local_pos=self._ints([0] * count),
            positions=self._ints(positions).long(),
            logits_indices=self._ints(rows[:-1]).long(),
            input_ids=self._ints([0] * count),
            seq_lens=lengths,
            seq_lens_cpu_upper_bound=lengths.cpu(),
        )
        output = self._sampler(logits.to(self.device, copy=True), batch)
        for row in range(count):
            self._states.remove_request(str(row))
        assert output.num_sampled.tolist() == [1] * count
        assert torch.equal(output.logprobs_tensors.logprob_token_ids, output.sampled_token_ids)
        return output.sampled_token_ids[:, 0].tolist(), output.logprobs_tensors.logprobs[:, 0].tolist()

    def _ints(self, values: Any) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=self.device)


def ours(gpus_engine: Any, seeds: Sequence[int], greedy: bool = False, **keys: Any) -> list[Any]:
    """The SamplingParams of raypoly's requests."""
    engine, recorded = gpus_engine(**keys)
    list(engine.sample([SampleRequest(0, np.arange(3, dtype=np.int32), tuple(seeds), greedy=greedy)]))
    return list(recorded.requests)


def test_a_sample_of_v2_depends_on_its_seed_position_and_logits_alone(
    gpus_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not on the batch, its place there, or the draws before: a prompt cut in two or found in the cache, and a request
    that is preempted, draw as they would have."""
    sampling = Sampling(monkeypatch, 32)
    seeds = [LARGEST_SEED - 1000 * row for row in range(20)]
    params = ours(gpus_engine, seeds, temperature=0.7)
    positions = [4 + row % 3 for row in range(20)]
    logits = torch.randn(20, VOCABULARY, generator=torch.Generator().manual_seed(0))
    together = sampling.draw(logits, params, positions)
    assert len(set(together[0])) > 3
    turned = list(reversed(range(20)))
    again = sampling.draw(logits[turned], [params[row] for row in turned], [positions[row] for row in turned])
    assert [again[0][row] for row in turned] == together[0]
    alone = [sampling.draw(logits[row : row + 1], [params[row]], [positions[row]]) for row in range(20)]
    assert ([tokens[0] for tokens, _ in alone], [values[0] for _, values in alone]) == together
    elsewhere = sampling.draw(logits, params, [position + 1 for position in positions])
    others = sampling.draw(logits, ours(gpus_engine, range(20), temperature=0.7), positions)
    assert elsewhere[0] != together[0]
    assert others[0] != together[0]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probabilities_of_v2_are_after_temperature_and_before_it_where_greedy(
    gpus_engine: Any, monkeypatch: pytest.MonkeyPatch, temperature: float
) -> None:
    sampling = Sampling(monkeypatch, 16)
    logits = 3 * torch.randn(16, VOCABULARY, generator=torch.Generator().manual_seed(1))
    sampled = ours(gpus_engine, range(8), temperature=temperature)
    params = sampled + ours(gpus_engine, range(8), greedy=True, temperature=temperature)
    tokens, values = sampling.draw(logits, params, range(16))
    divided = logits / torch.tensor([[temperature]] * 8 + [[1.0]] * 8)
    want = torch.log_softmax(divided.double(), -1)[torch.arange(16), tokens]
    assert torch.allclose(torch.tensor(values, dtype=torch.float64), want, atol=1e-6)
    assert tokens[8:] == logits[8:].argmax(-1).tolist()


def test_v2_draws_by_the_softmax_and_anew_at_each_position(gpus_engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chi-square of 1,000 seeds: tokens against the softmax, and pairs of neighbouring positions against its square."""
    rows = 1000
    sampling = Sampling(monkeypatch, rows)
    params = ours(gpus_engine, [7 * row for row in range(rows)], temperature=1.0)
    chances = torch.tensor([0.3, 0.2, 0.2, 0.1, 0.1, 0.06, 0.04], dtype=torch.float64)
    logits = chances.log().float().expand(rows, VOCABULARY)
    first, second = (sampling.draw(logits, params, [position] * rows)[0] for position in (11, 12))
    singles, pairs = Counter(first), Counter(zip(first, second, strict=True))
    single = sum((singles[a] - rows * p) ** 2 / (rows * p) for a, p in enumerate(chances.tolist()))
    assert single < 22.5  # 6 degrees of freedom, once in 1,000
    expected = {(a, b): rows * p * q for a, p in enumerate(chances.tolist()) for b, q in enumerate(chances.tolist())}
    double = sum((pairs[ab] - count) ** 2 / count for ab, count in expected.items())
    assert double < 84.1  # 48 degrees of freedom


@pytest.mark.parametrize("cuts", [(9,), (1, 8), (4, 4, 1)], ids=str)
def test_v2_has_each_prompt_tokens_log_probability_however_the_prompt_is_cut(
    gpus_engine: Any, monkeypatch: pytest.MonkeyPatch, cuts: tuple[int, ...]
) -> None:
    from vllm.v1.worker.gpu.sample.prompt_logprob import PromptLogprobsWorker

    device = Sampling(monkeypatch, 1).device
    tokens = [3, 1, 4, 1, 5, 2, 6, 5, 3]
    logits = torch.randn(9, VOCABULARY, generator=torch.Generator().manual_seed(2)).to(device)
    engine, recorded = gpus_engine(temperature=0.5)
    with pytest.raises(AssertionError):  # nobody answers
        engine.prompt_logprobs(np.array(tokens, np.int32))
    (params,) = recorded.requests
    assert params.skip_reading_prefix_cache
    worker = PromptLogprobsWorker(1, device, logprobs_mode="processed_logprobs")
    worker.add_request("a", 0, params)
    found: Any = {}
    for cut, start in zip(cuts, np.cumsum([0, *cuts]), strict=False):
        assert found == {}
        batch: Any = SimpleNamespace(
            req_ids=["a"],
            idx_mapping=torch.zeros(1, dtype=torch.int32, device=device),
            idx_mapping_np=np.zeros(1, np.int32),
            num_tokens=cut,
            num_computed_prefill_tokens_np=np.array([start]),
            num_scheduled_tokens=np.array([cut]),
            prefill_len_np=np.array([9]),
            query_start_loc=torch.tensor([0, cut], dtype=torch.int32, device=device),
            query_start_loc_np=np.array([0, cut]),
        )
        found = worker.compute_prompt_logprobs(
            lambda rows: rows,  # the hidden states are the logits
            logits[start : start + cut],
            batch,
            torch.tensor([[*tokens, 0]], dtype=torch.int32, device=device),
            torch.tensor([start], dtype=torch.int32, device=device),
            np.array([9]),
        )
    want = torch.log_softmax(logits[:-1], -1)[torch.arange(8), tokens[1:]]
    assert found["a"].logprob_token_ids[:, 0].tolist() == tokens[1:]
    assert torch.allclose(found["a"].logprobs[:, 0], want, atol=1e-6)


class TiedModel(nn.Module):
    """An embedding, a layer with a bias and a buffer, and a head that is the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(6, 4), nn.Linear(4, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embedding.weight
        self.layer.register_buffer("turns", torch.arange(4.0), persistent=False)


def test_vllms_reload_writes_into_the_same_storage_tied_heads_too() -> None:
    """What a captured CUDA graph reads. Both runners call it; that a CPU's head is packed elsewhere is the worker's."""
    from vllm.model_executor.model_loader import reload
    from vllm.model_executor.model_loader.weight_utils import default_weight_loader

    model = TiedModel()
    places = {name: tensor.data_ptr() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    reload.record_metadata_for_reloading(model)
    for _ in range(2):
        new = {name: torch.randn_like(tensor) for name, tensor in model.named_parameters()}
        reload.initialize_layerwise_reload(model)
        for name, tensor in new.items():
            parameter = model.get_parameter(name)
            getattr(parameter, "weight_loader", default_weight_loader)(parameter, tensor)
        reload.finalize_layerwise_reload(model, SimpleNamespace(dtype=torch.float32))
        assert all(torch.equal(model.get_parameter(name), tensor) for name, tensor in new.items())
        assert torch.equal(model.head.weight, new["embedding.weight"])
        assert model.layer.turns.tolist() == [0, 1, 2, 3]  # type: ignore[operator]
        now = {name: tensor.data_ptr() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
        assert now == places
