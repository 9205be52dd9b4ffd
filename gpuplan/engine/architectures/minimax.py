"""MiniMax M2 and M3.

vLLM 0.32: vllm/model_executor/models/minimax_m2.py,
vllm/models/minimax_m3/{nvidia/model,common/vision_tower}.py.
"""

from collections.abc import Callable
from dataclasses import replace

from gpuplan.domain.model import (
    Cache,
    CacheKind,
    Encoder,
    Layer,
    Linear,
    Part,
    Partition,
    Residence,
    ResidentPart,
    Shard,
    Tensor,
)
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import (
    MOST_LAYERS,
    Blueprint,
    Builder,
    Context,
    attention_cache,
    layer_count,
    parts_of,
    rotary_buffer,
)
from gpuplan.engine.architectures.moe import (
    FLOAT32,
    MOST_EXPERTS,
    Dimensions,
    assemble,
    expert_count,
    pair_of_head_norms,
    pair_of_norms,
    plain_layers,
    router,
    shared_width,
    vector,
)
from gpuplan.engine.architectures.rotary import text_rotary

INDEX_BLOCK = 128
"""Tokens the sparse index kernel takes as one block."""
INDEX_ITEMSIZE = 2
"""The indexer's side cache is bfloat16 unless `--attention-config` says otherwise."""
TOWER = "vision_tower"


def build_minimax_m2(context: Context) -> Blueprint:
    """MiniMax M2 to M2.7: a norm over all heads, divided with them; a float32 router."""
    config = context.config
    size = Dimensions.of(config)
    experts = expert_count(config, "num_local_experts")
    top_k = config.integer("num_experts_per_tok", most=MOST_EXPERTS)
    width = config.integer("intermediate_size")
    routing_bias = config.flag("use_routing_bias")

    def mlp(index: int, path: str) -> tuple[Part, ...]:
        del index
        gate = router(context, f"{path}.mlp.gate", size.hidden, experts, itemsize=FLOAT32)
        correction = (vector("e_score_correction_bias", experts, FLOAT32),) if routing_bias else ()
        return (gate, *correction, context.experts(f"{path}.mlp.experts", experts, top_k, size.hidden, width))

    inner = (
        _head_norm(context, "q_norm", size.heads, size.head_size),
        _head_norm(context, "k_norm", size.kv_heads, size.head_size),
    )
    layers = plain_layers(context, config, size, mlp, bias=config.flag("attention_bias"), inner=inner)
    width_rotated = config.integer("rotary_dim", default=size.head_size)
    rotary = (rotary_buffer(size.positions, min(width_rotated, size.head_size), context.itemsize),)
    return assemble(context, config, size, layers, tied=False, rotary=rotary)


def _head_norm(context: Context, name: str, heads: int, head_size: int) -> Tensor:
    units = Partition(units=heads, unit_size=head_size, replicable=True)
    return Tensor(name=name, partition=units, itemsize=context.itemsize, sharded=True)


def build_minimax_m3(context: Context) -> Blueprint:
    """MiniMax M3, text only or with its vision tower."""
    config = context.config
    if "text_config" not in config:
        return _m3_text(context, config, "model", "lm_head", ())
    tower, encoder = _vision(context, config)
    blueprint = _m3_text(
        context, config.view("text_config"), "language_model.model", "language_model.lm_head", tower
    )
    return replace(blueprint, encoders=(encoder,))


def _m3_text(
    context: Context, config: ConfigView, prefix: str, head: str, tower: tuple[ResidentPart, ...]
) -> Blueprint:
    size = Dimensions.of(config)
    count = layer_count(config)
    dense = _zeros(config, "moe_layer_freq", count)
    sparse_config = config.view("sparse_attention_config")
    plain = (
        _zeros(sparse_config, "sparse_attention_freq", count)
        if sparse_config.values
        else frozenset(range(count))
    )
    head_norms = pair_of_head_norms(context, size.head_size)
    norms = pair_of_norms(context, size.hidden)
    mlp = _m3_mlp(context, config, size.hidden)

    def layer(index: int) -> Layer:
        path = f"{prefix}.layers.{index}"
        indexed = index not in plain
        attention, caches = _m3_attention(context, sparse_config, size, f"{path}.self_attn", indexed=indexed)
        return Layer(
            name="sparse" if indexed else "full",
            parts=parts_of(attention, head_norms, mlp(index in dense, path), norms),
            caches=caches,
            intermediate=config.integer("dense_intermediate_size", default=12288) if index in dense else 0,
        )

    rotary = text_rotary(config, size.head_size, context.itemsize)
    layers = tuple(layer(index) for index in range(count))
    return assemble(
        context,
        config,
        size,
        layers,
        tied=False,
        rotary=(rotary, *tower),
        prefix=prefix,
        head=head,
        wrapped=True,
    )


def _zeros(config: ConfigView, key: str, count: int) -> frozenset[int]:
    """Layers whose entry is 0; the first three when the config leaves the list out (the class default)."""
    if key not in config:
        return frozenset(range(min(3, count)))
    values = config.items(key)
    if len(values) < count:
        raise config.error(key, f"holds {len(values)} entries for {count} layers")
    return frozenset(index for index in range(count) if values[index] == 0)


def _m3_attention(
    context: Context, sparse: ConfigView, size: Dimensions, path: str, *, indexed: bool
) -> tuple[tuple[Part, ...], tuple[Cache, ...]]:
    full = attention_cache(size.kv_heads, size.head_size)
    ordinary = context.attention(path, size.hidden, size.heads, size.kv_heads, size.head_size)
    if not indexed:
        return ordinary, (full,)
    width = sparse.integer("sparse_index_dim", default=128)
    heads = Partition(units=size.kv_heads, unit_size=size.head_size, replicable=True)
    index_heads = Partition(units=size.kv_heads, unit_size=width, replicable=True)
    projection = context.linear(
        f"{path}.qkv_proj",
        size.hidden,
        (
            Partition(units=size.heads, unit_size=size.head_size),
            heads,
            heads,
            index_heads,
            Partition(units=1, unit_size=width, replicable=True),
        ),
        Shard.COLUMN,
        fused=("q_proj", "k_proj", "v_proj"),
    )
    norms = (context.norm("index_q_norm", width), context.norm("index_k_norm", width))
    side = Cache(
        kind=CacheKind.INDEXER,
        heads=1,
        head_size=width,
        fixed_bytes_per_token=width * INDEX_ITEMSIZE,
        least_block=INDEX_BLOCK,
    )
    return (projection, ordinary[1], *norms), (full, side)


def _m3_mlp(context: Context, config: ConfigView, hidden: int) -> Callable[[bool, str], tuple[Part, ...]]:
    experts = expert_count(config, "num_local_experts", default=128)
    top_k = config.integer("num_experts_per_tok", default=4, most=MOST_EXPERTS)
    width = config.integer("intermediate_size", default=3072)
    shared = shared_width(config, "n_shared_experts", width, default=1)
    wide = config.integer("dense_intermediate_size", default=12288)
    routing_bias = config.flag("use_routing_bias", default=True)

    def mlp(dense: bool, path: str) -> tuple[Part, ...]:
        if dense:
            return context.gated_mlp(f"{path}.mlp", hidden, wide)
        block = f"{path}.block_sparse_moe"
        correction = (vector("e_score_correction_bias", experts, FLOAT32),) if routing_bias else ()
        common = context.gated_mlp(f"{block}.shared_experts", hidden, shared) if shared else ()
        gate = router(context, f"{block}.gate", hidden, experts, itemsize=FLOAT32)
        return (
            gate,
            *correction,
            *common,
            context.experts(f"{block}.experts", experts, top_k, hidden, width),
        )

    return mlp


def _vision(context: Context, config: ConfigView) -> tuple[tuple[ResidentPart, ...], Encoder]:
    """The tower, its projector and the patch merger, on every stage."""
    vision = config.view("vision_config")
    hidden = vision.integer("hidden_size")
    heads = vision.integer("num_attention_heads")
    count = layer_count(vision)
    wide = vision.integer("intermediate_size")
    text = config.view("text_config").integer("hidden_size")
    compression = vision.view("img_token_compression_config")
    merge = compression.integer("spatial_merge_size", default=2, most=64)
    patch = vision.integer("patch_size", default=14, most=4096)
    channels = vision.integer("num_channels", default=3, most=64)
    kernel = compression.integer("temporal_patch_size", default=2, most=64) * patch * patch * channels
    layer = _vision_layer(context, f"{TOWER}.vision_model.encoder.layers.0", hidden, heads, wide)
    middle = config.integer("projector_hidden_size", default=text)
    bias = config.flag("multimodal_projector_bias", default=True)
    outer: tuple[Part, ...] = (
        Tensor(name="patch_embedding", partition=Partition(units=kernel * hidden), itemsize=context.itemsize),
        context.norm("pre_layernorm", hidden, bias=True),
        *_projector(context, f"{TOWER}.multi_modal_projector", hidden, middle, text, bias=bias),
        *_projector(context, f"{TOWER}.patch_merge_mlp", text * merge * merge, middle, text, bias=True),
    )
    parts = (*outer, *(layer * min(count, MOST_LAYERS)))
    side = vision.integer("image_size", default=2016, most=1 << 16) // patch
    encoder = Encoder(
        kind="vision",
        heads=heads,
        hidden=hidden,
        layers=count,
        intermediate=wide,
        tokens_per_item=max(1, side // merge) ** 2,
        patches_per_item=side * side,
    )
    return tuple(
        ResidentPart(part=part, residence=Residence.EVERY, tower="vision") for part in parts
    ), encoder


def _vision_layer(context: Context, path: str, hidden: int, heads: int, wide: int) -> tuple[Part, ...]:
    head_size = max(1, hidden // heads)
    attention = context.attention(
        f"{path}.self_attn", hidden, heads, heads, head_size, bias=True, output_bias=True, output="out_proj"
    )
    return (
        *attention,
        context.linear(f"{path}.fc1", hidden, wide, Shard.COLUMN, bias=True),
        context.linear(f"{path}.fc2", wide, hidden, Shard.ROW, bias=True),
        context.norm("layer_norm1", hidden, bias=True),
        context.norm("layer_norm2", hidden, bias=True),
    )


def _projector(
    context: Context, path: str, inputs: int, middle: int, outputs: int, *, bias: bool
) -> tuple[Linear, Linear]:
    return (
        context.linear(f"{path}.linear_1", inputs, middle, Shard.COLUMN, bias=bias),
        context.linear(f"{path}.linear_2", middle, outputs, Shard.ROW, bias=bias),
    )


BUILDERS: dict[str, Builder] = {
    "MiniMaxM2ForCausalLM": build_minimax_m2,
    "MiniMaxM3SparseForCausalLM": build_minimax_m3,
    "MiniMaxM3SparseForConditionalGeneration": build_minimax_m3,
}
