"""The engine's own estimate of its CUDA graphs."""

from dataclasses import replace

import pytest

from gpuplan.domain.model import Cache, CacheKind, Layer
from gpuplan.domain.plan import Parallelism
from gpuplan.domain.workload import NO_ARGUMENTS
from gpuplan.engine.cuda_graphs import captured, cuda_graph_term
from tests.unit.engine.memory_models import H100, LLAMA_8B, QWEN_30B, V022, V024, V026, V031, gib, profile

CAPTURED = 51
HYBRID = replace(
    profile(5120, 17408, 248320, layers=64, architecture="Qwen3_5ForCausalLM"),
    layer_kinds=(Layer(name="linear", parts=(), caches=(Cache(kind=CacheKind.STATE),)),),
)


def test_graphs_count_from_0_20() -> None:
    assert cuda_graph_term(QWEN_30B, H100).bytes == 0
    assert cuda_graph_term(QWEN_30B, replace(H100, version=V024)).bytes > 0
    for engine in (
        replace(NO_ARGUMENTS, enforce_eager=True),
        replace(NO_ARGUMENTS, compilation_config={"cudagraph_mode": "NONE"}),
    ):
        assert cuda_graph_term(QWEN_30B, replace(H100, version=V024, engine=engine)).most == 0


def test_the_second_runner_books_none_until_0_29() -> None:
    assert cuda_graph_term(LLAMA_8B, replace(H100, version=V026)).most == 0
    assert cuda_graph_term(QWEN_30B, replace(H100, version=V026)).bytes > 0
    assert cuda_graph_term(LLAMA_8B, replace(H100, version=V031)).bytes > 0


@pytest.mark.parametrize(
    ("layers", "sequences", "tensor", "logged"),
    [
        (80, 256, 8, 0.81),
        (80, 5, 8, 0.10),
        (48, 64, 1, 0.14),
        (48, 16, 1, 0.15),
        (26, 256, 1, 0.19),
        (28, 4, 1, 0.05),
    ],
)
def test_estimates_are_near_the_logged_ones(layers: int, sequences: int, tensor: int, logged: float) -> None:
    setting = replace(H100, version=V022, max_num_seqs=sequences, parallelism=Parallelism(tensor=tensor))
    term = cuda_graph_term(profile(8192, 28672, 128256, layers=layers), setting)
    assert gib(term.least) <= logged <= gib(term.most)
    assert gib(term.bytes) == pytest.approx(logged, abs=0.1)


def test_recurrent_states_make_graphs_larger() -> None:
    """Qwen3.6-27B, 0.27: 0.96 GiB of 51 and 35 graphs."""
    setting = replace(H100, version=V024, max_num_seqs=256)
    assert gib(cuda_graph_term(HYBRID, setting).bytes) == pytest.approx(0.96, abs=0.15)


def test_indexers_make_graphs_larger_and_score_a_whole_context_in_the_first() -> None:
    """GLM-5.2 NVFP4 tp 4, 1024 sequences of 819,200 tokens, 0.26: 4.99 GiB."""
    sparse = replace(
        profile(6144, 12288, 154880, layers=78, architecture="GlmMoeDsaForCausalLM"),
        layer_kinds=(Layer(name="sparse", parts=(), caches=(Cache(kind=CacheKind.INDEXER, chosen=2048),)),),
    )
    setting = replace(
        H100,
        version=V024,
        parallelism=Parallelism(tensor=4),
        engine=replace(NO_ARGUMENTS, max_model_len=819200),
    )
    term = cuda_graph_term(sparse, setting)
    assert gib(term.bytes) == pytest.approx(4.99, abs=1.1)
    assert gib(term.least) <= 4.99 <= gib(term.most)
    short = replace(setting, engine=replace(NO_ARGUMENTS, max_model_len=8192))
    assert gib(term.bytes - cuda_graph_term(sparse, short).bytes) == pytest.approx(1.55, abs=0.02)


def test_captured_sizes() -> None:
    assert captured(H100) == (CAPTURED, CAPTURED)
    assert captured(replace(H100, max_num_seqs=256)) == (CAPTURED, 35)
    assert captured(replace(H100, max_num_seqs=1)) == (2, 1)
    given = replace(NO_ARGUMENTS, cudagraph_capture_sizes=(1, 8))
    assert captured(replace(H100, engine=given, max_num_seqs=4)) == (2, 1)
