"""What a rank's memory holds beside weights and KV cache, against figures engines printed."""

from dataclasses import replace
from typing import Any

import pytest

from gpuplan.domain.model import (
    Cache,
    CacheKind,
    Encoder,
    Experts,
    GroupedInteger,
    Layer,
    Linear,
    ModelProfile,
    Partition,
    Shard,
)
from gpuplan.domain.plan import Parallelism
from gpuplan.domain.workload import NO_ARGUMENTS, EngineArguments
from gpuplan.engine.activation import activation_term, cuda_graph_term, non_torch_term, start_overhead_bytes
from gpuplan.engine.allocator import rounding_bytes, slack
from gpuplan.engine.cuda_graphs import captured
from gpuplan.engine.encoder_profile import encoder_memory, towers_left_out
from gpuplan.engine.forward import forward_memory
from gpuplan.engine.rank_setting import RankSetting
from gpuplan.engine.sampler import sampler_memory
from gpuplan.engine.versions import EngineVersion
from gpuplan.engine.weights import Split
from gpuplan.units import GIB, MIB

V010, V012, V019, V024, V033 = (EngineVersion(0, minor) for minor in (10, 12, 19, 24, 33))
H100 = RankSetting(
    version=V019,
    engine=NO_ARGUMENTS,
    parallelism=Parallelism(),
    stage=0,
    total_bytes=int(79.19 * GIB),
    device_name="NVIDIA H100 80GB HBM3",
    compute_capability="9.0",
    backend="cuda",
    unified=False,
    max_num_batched_tokens=8192,
    max_num_seqs=1024,
)
CAPTURED = 51


def column(name: str, inputs: int, *outputs: int) -> Linear:
    return Linear(
        name=name,
        inputs=Partition(units=inputs),
        outputs=tuple(Partition(units=size) for size in outputs),
        shard=Shard.COLUMN,
        itemsize=2,
    )


def row(name: str, inputs: int, outputs: int) -> Linear:
    return Linear(
        name=name,
        inputs=Partition(units=inputs),
        outputs=(Partition(units=outputs),),
        shard=Shard.ROW,
        itemsize=2,
    )


def profile(hidden: int, wide: int, vocabulary: int, layers: int = 32, **others: Any) -> ModelProfile:
    layer = Layer(
        name="layer",
        parts=(column("gate_up_proj", hidden, wide, wide), row("down_proj", wide, hidden)),
        intermediate=wide,
    )
    dense = ModelProfile(
        name="model",
        architecture="LlamaForCausalLM",
        model_type="llama",
        dtype="bfloat16",
        itemsize=2,
        hidden=hidden,
        vocabulary=vocabulary,
        attention_heads=32,
        kv_heads=8,
        head_size=128,
        layer_kinds=(layer,),
        layer_order=(0,) * layers,
        parts=(),
    )
    return replace(dense, **others)


LLAMA_8B = profile(4096, 14336, 128256)
ROUTED = Experts(name="experts", count=128, top_k=8, hidden=2048, intermediate=768, itemsize=2)
QWEN_30B = replace(profile(2048, 0, 151936, layers=48), layer_kinds=(Layer(name="sparse", parts=(ROUTED,)),))


def gib(size: int) -> float:
    return size / GIB


def test_peaks_of_vllm_0_19_on_h100() -> None:
    """Accuracy report of vLLM 0.19.0 at 1024 sequences: 1.89 and 2.68 GiB."""
    assert gib(activation_term(LLAMA_8B, H100).bytes) == pytest.approx(1.89, abs=0.03)
    assert gib(activation_term(QWEN_30B, H100).bytes) == pytest.approx(2.68, abs=0.03)


def test_the_first_pipeline_stage_samples_nothing() -> None:
    """1.10 GiB on the first of two stages, 1.05 of four."""
    first = replace(H100, parallelism=Parallelism(pipeline=2))
    term = activation_term(LLAMA_8B, first)
    assert gib(term.bytes) == pytest.approx(1.08, abs=0.04)
    assert dict(term.inputs)["phase"] == "forward"
    assert dict(activation_term(LLAMA_8B, replace(first, stage=1)).inputs)["phase"] == "sampler"


@pytest.mark.parametrize(("vocabulary", "logged"), [(151936, 5.57), (128256, 4.80), (201088, 7.38)])
def test_the_sorting_sampler_takes_38_bytes_per_logit(vocabulary: int, logged: float) -> None:
    made = sampler_memory(profile(4096, 14336, vocabulary), replace(H100, version=V012))
    assert gib(made.likely) == pytest.approx(logged, rel=0.05)


def test_few_rows_are_sorted_whole() -> None:
    """Qwen3-VL-30B on 0.12: 0.92 GiB between 64 and 256 sequences."""
    many, few = (
        sampler_memory(QWEN_30B, replace(H100, version=V012, max_num_seqs=rows)) for rows in (256, 64)
    )
    assert gib(many.likely - few.likely) == pytest.approx(0.92, abs=0.01)


def test_images_of_0_10_may_sample_with_flashinfer() -> None:
    made = sampler_memory(LLAMA_8B, replace(H100, version=V010))
    assert made.low < made.likely < made.high
    assert made.low == sampler_memory(LLAMA_8B, H100).likely


def test_runner_v2_keeps_counts_of_every_token() -> None:
    older, newer = (sampler_memory(LLAMA_8B, replace(H100, version=v)).kept for v in (V024, V033))
    assert newer - older == int(1024 * 128256 * 4.125)


def test_pooling_models_have_no_sampler() -> None:
    assert sampler_memory(replace(LLAMA_8B, pooling=True), H100).likely == 0


def test_rows_are_bounded_by_the_batch() -> None:
    assert sampler_memory(LLAMA_8B, replace(H100, max_num_batched_tokens=512)).rows == 512


def test_logits_are_gathered_whole_on_every_rank() -> None:
    pair = replace(H100, parallelism=Parallelism(tensor=2))
    assert sampler_memory(LLAMA_8B, pair) == sampler_memory(LLAMA_8B, H100)
    assert forward_memory(LLAMA_8B, pair).peak < forward_memory(LLAMA_8B, H100).peak


def test_expert_caches_are_kept_from_0_14() -> None:
    kept = forward_memory(QWEN_30B, H100)
    assert kept.kept == 8192 * 8 * 2 * 2048 * 2
    freed = forward_memory(QWEN_30B, replace(H100, version=V012))
    assert freed.kept == 0
    assert freed.peak == 8192 * 2 * (4 * 2048 + 8 * (2048 + 768))


def test_whole_experts_need_wider_caches() -> None:
    wide = replace(QWEN_30B.layer_kinds[0], parts=(replace(ROUTED, intermediate=4096),))
    model = replace(QWEN_30B, layer_kinds=(wide,))
    divided = forward_memory(model, replace(H100, parallelism=Parallelism(tensor=4)))
    whole = forward_memory(model, replace(H100, parallelism=Parallelism(tensor=4, expert=True)))
    assert whole.kept == 8192 * 8 * (8192 + 4096) * 2 > divided.kept


def test_packed_experts_reach_the_workspace_later() -> None:
    packed = GroupedInteger(layout="compressed", bits=4, group_size=128, zero_points=False)
    layer = Layer(name="sparse", parts=(replace(ROUTED, scheme=packed),))
    model = replace(QWEN_30B, layer_kinds=(layer,))
    assert forward_memory(model, H100).kept == 0
    assert forward_memory(model, replace(H100, version=V024)).kept > 0


def test_latent_attention_simulates_its_context() -> None:
    layer = Layer(
        name="latent",
        parts=(column("self_attn.kv_b_proj", 512, 128 * 256),),
        caches=(Cache(kind=CacheKind.LATENT, head_size=576),),
    )
    model = replace(LLAMA_8B, layer_kinds=(layer,), longest_context=163840)
    setting = replace(H100, parallelism=Parallelism(tensor=8))
    assert forward_memory(model, setting).peak >= 64 * 1024 * 16 * 256 * 2


QWEN2_VL = profile(
    1536,
    8960,
    151936,
    layers=28,
    encoders=(
        Encoder(
            kind="vision",
            heads=16,
            hidden=1280,
            layers=32,
            intermediate=5120,
            tokens_per_item=16384,
            patches_per_item=65536,
            inputs_per_patch=1176,
        ),
    ),
)
RTX_4080 = replace(
    H100,
    version=V010,
    total_bytes=int(15.99 * GIB),
    device_name="RTX 4080",
    compute_capability="8.9",
    max_num_batched_tokens=2048,
    max_num_seqs=256,
)


def test_a_tower_can_set_the_peak() -> None:
    """Qwen2-VL-2B on an RTX 4080, 0.10.2: 2.65 GiB."""
    term = activation_term(QWEN2_VL, RTX_4080)
    assert gib(term.bytes) == pytest.approx(2.65, abs=0.05)
    assert dict(term.inputs)["phase"] == "tower"


@pytest.mark.parametrize(
    "engine",
    [
        replace(NO_ARGUMENTS, language_model_only=True),
        replace(NO_ARGUMENTS, skip_mm_profiling=True),
        replace(NO_ARGUMENTS, limit_mm_per_prompt={"image": 0, "video": 0}),
        replace(NO_ARGUMENTS, limit_mm_per_prompt={"image": {"count": 0}, "video": {"count": 0}}),
    ],
)
def test_towers_that_are_not_profiled(engine: EngineArguments) -> None:
    setting = replace(RTX_4080, engine=engine)
    assert encoder_memory(QWEN2_VL, setting).peak == 0


def test_one_modality_left_keeps_the_tower() -> None:
    engine = replace(NO_ARGUMENTS, limit_mm_per_prompt={"video": 0})
    assert encoder_memory(QWEN2_VL, replace(RTX_4080, engine=engine)).peak > 0
    assert not towers_left_out(QWEN2_VL, engine, V019)
    nothing = replace(NO_ARGUMENTS, limit_mm_per_prompt={"image": 0, "video": 0})
    assert towers_left_out(QWEN2_VL, nothing, V019)
    assert not towers_left_out(QWEN2_VL, nothing, V012)


def test_embeddings_fill_the_budget_from_0_11_to_0_13() -> None:
    """Qwen3-VL: 153,600 tokens of four levels are kept."""
    (encoder,) = QWEN2_VL.encoders
    deep = replace(encoder, output_levels=4, formatted_tokens_per_item=153600)
    model = replace(QWEN2_VL, encoders=(deep,), hidden=2048)
    kept = encoder_memory(model, replace(H100, version=V012)).kept
    assert kept == 153600 * 2048 * 4 * 2 + 4 * 1176 * 65536
    assert encoder_memory(model, H100).kept < kept


def test_graphs_count_from_0_20() -> None:
    assert cuda_graph_term(LLAMA_8B, H100).bytes == 0
    assert cuda_graph_term(LLAMA_8B, replace(H100, version=V024)).bytes > 0
    for engine in (
        replace(NO_ARGUMENTS, enforce_eager=True),
        replace(NO_ARGUMENTS, compilation_config={"cudagraph_mode": "NONE"}),
    ):
        assert cuda_graph_term(LLAMA_8B, replace(H100, version=V024, engine=engine)).most == 0


@pytest.mark.parametrize(
    ("layers", "sequences", "logged"), [(80, 256, 0.81), (80, 5, 0.10), (48, 64, 0.14), (48, 16, 0.15)]
)
def test_graph_estimates_hold_the_logged_ones(layers: int, sequences: int, logged: float) -> None:
    setting = replace(H100, version=V024, max_num_seqs=sequences)
    term = cuda_graph_term(profile(8192, 28672, 128256, layers=layers), setting)
    assert gib(term.least) <= logged <= gib(term.most)


def test_captured_sizes() -> None:
    assert captured(H100) == (CAPTURED, CAPTURED)
    assert captured(replace(H100, max_num_seqs=256)) == (CAPTURED, 35)
    assert captured(replace(H100, max_num_seqs=1)) == (2, 1)
    given = replace(NO_ARGUMENTS, cudagraph_capture_sizes=(1, 8))
    assert captured(replace(H100, engine=given, max_num_seqs=4)) == (2, 1)


@pytest.mark.parametrize(
    ("tensor", "capability", "logged"),
    [(1, "9.0", 0.25), (2, "9.0", 2.07), (4, "9.0", 2.13), (2, "8.0", 0.17), (4, "9.0", 0.63)],
)
def test_memory_outside_the_allocator(tensor: int, capability: str, logged: float) -> None:
    setting = replace(H100, parallelism=Parallelism(tensor=tensor), compute_capability=capability)
    term = non_torch_term(LLAMA_8B, setting)
    assert gib(term.least) <= logged <= gib(term.most)


def test_an_unknown_card_has_the_wider_range() -> None:
    pair = replace(H100, parallelism=Parallelism(tensor=2))
    known, unknown = (
        non_torch_term(LLAMA_8B, setting) for setting in (pair, replace(pair, compute_capability=None))
    )
    assert unknown.least <= known.least
    assert unknown.most >= known.most
    assert non_torch_term(LLAMA_8B, replace(H100, unified=True)).most > 2 * known.most


def test_start_overhead_grows_with_the_communicators() -> None:
    sizes = [
        start_overhead_bytes(80 * GIB, compute_capability="8.0", tensor=n, version=V019) for n in (1, 2, 4)
    ]
    assert sizes == sorted(set(sizes))
    assert gib(sizes[0]) < 0.6


def test_ranges_hold_the_value() -> None:
    for setting in (H100, RTX_4080, replace(H100, compute_capability=None), replace(H100, version=V033)):
        for model in (LLAMA_8B, QWEN_30B, QWEN2_VL):
            for make in (activation_term, non_torch_term, cuda_graph_term):
                term = make(model, setting)
                assert 0 <= term.least <= term.bytes <= term.most


def test_an_unnamed_card_may_have_the_small_limits() -> None:
    unnamed = replace(H100, compute_capability=None, device_name="custom")
    stated = replace(unnamed, engine=replace(NO_ARGUMENTS, max_num_seqs=1024, max_num_batched_tokens=8192))
    assert activation_term(LLAMA_8B, unnamed).least < activation_term(LLAMA_8B, stated).least


def test_torch_rounds_large_tensors() -> None:
    assert slack(43 * MIB) == MIB
    assert slack(44 * MIB) == 0
    assert slack(40 * MIB + MIB // 2) == 0
    assert slack(9 * MIB) == 0


def test_the_down_projections_of_qwen2_5_3b_are_rounded() -> None:
    """5.79 GiB are 36 MiB more than parameters and buffers."""
    assert rounding_bytes(profile(2048, 11008, 151936, layers=36), Split()) == 36 * MIB
