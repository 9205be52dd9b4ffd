"""What one forward pass over a full batch holds."""

from dataclasses import replace

from gpuplan.domain.model import Cache, CacheKind, GroupedInteger, Layer
from gpuplan.domain.plan import Parallelism
from gpuplan.domain.workload import NO_ARGUMENTS
from gpuplan.engine.forward import decode_logits_bytes, forward_memory
from gpuplan.units import MIB
from tests.unit.engine.memory_models import H100, LLAMA_8B, QWEN_30B, ROUTED, V012, V024, V026, column


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


SPARSE = replace(
    QWEN_30B,
    attention_heads=64,
    layer_kinds=(
        Layer(
            name="sparse",
            parts=(ROUTED,),
            caches=(
                Cache(kind=CacheKind.LATENT, head_size=576),
                Cache(kind=CacheKind.INDEXER, head_size=128, fixed_bytes_per_token=132, chosen=2048),
            ),
        ),
    ),
)
LENGTH = 819200
LONG = replace(
    H100, version=V026, compute_capability="10.0", engine=replace(NO_ARGUMENTS, max_model_len=LENGTH)
)


def test_indexers_gather_forty_contexts_in_the_kept_workspace() -> None:
    """GLM-5.2 at 819,200 tokens, 0.26: 4.03 of 6.31 GiB. The experts' caches are in the same workspace."""
    made = forward_memory(SPARSE, LONG)
    assert made.kept == 40 * 132 * LENGTH > forward_memory(QWEN_30B, LONG).kept > 0
    assert made.peak >= 512 * MIB + 8192 * 4 * 2048 * 2
    assert forward_memory(SPARSE, replace(LONG, version=V012)).kept == 0


def test_flashmla_reserves_latents_of_five_contexts() -> None:
    eight = replace(LONG.engine, kv_cache_dtype="fp8_ds_mla")
    hopper = replace(LONG, compute_capability="9.0", parallelism=Parallelism(tensor=4))
    reserved = forward_memory(SPARSE, replace(hopper, engine=eight)).kept
    assert reserved == (5 * LENGTH + 8192 * 16) * 1152
    assert forward_memory(SPARSE, hopper).kept == 40 * 132 * LENGTH


def test_indexers_of_blocks_gather_nothing() -> None:
    """MiniMax-M3 scores blocks where they lie."""
    (layer,) = SPARSE.layer_kinds
    blocks = replace(layer, caches=(Cache(kind=CacheKind.INDEXER, head_size=128),))
    model = replace(SPARSE, layer_kinds=(blocks,))
    assert forward_memory(model, LONG) == forward_memory(QWEN_30B, LONG)


def test_indexers_score_every_key_of_the_longest_context() -> None:
    assert decode_logits_bytes(SPARSE, LONG, 512) == 512 * LENGTH * 4
    assert decode_logits_bytes(QWEN_30B, LONG, 512) == 0
