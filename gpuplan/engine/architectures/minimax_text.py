"""MiniMax-Text-01 and M1: lightning (linear) attention with a full attention every few layers, MoE.

vLLM 0.22 (the last with them): vllm/model_executor/models/minimax_text_01.py, layers/mamba/linear_attn.py.
"""

from dataclasses import replace
from typing import Any

from gpuplan.domain.model import (
    Cache,
    CacheKind,
    Embedding,
    Layer,
    Part,
    Partition,
    Shard,
    StateShape,
    Tensor,
)
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import (
    Blueprint,
    Builder,
    Context,
    layer_count,
    parts_of,
    rotary_buffer,
)
from gpuplan.engine.architectures.hybrid import attention_layers, attention_mixer
from gpuplan.engine.architectures.moe import (
    FLOAT32,
    MOST_EXPERTS,
    Dimensions,
    assemble,
    expert_count,
    pair_of_norms,
    router,
)


def build_minimax_text(context: Context) -> Blueprint:
    """MiniMax-Text-01: the head is kept in float32; no pipeline parallelism."""
    config = context.config
    size = Dimensions.of(config)
    count = layer_count(config)
    full = _full_layers(config, count)
    attention, _ = attention_mixer(context)
    norms = pair_of_norms(context, size.hidden)

    def layer(index: int) -> Layer:
        path = f"model.layers.{index}"
        if index in full:
            parts, cache = attention(f"{path}.self_attn")
        else:
            parts, cache = _linear_attention(context, f"{path}.self_attn", size)
        mlp = _mlp(context, _of_layer(config, index), path, size.hidden)
        return Layer(
            name="full" if index in full else "linear",
            parts=parts_of(parts, mlp, norms),
            caches=(cache,),
            intermediate=config.integer("intermediate_size"),
        )

    width = min(config.integer("rotary_dim", default=size.head_size), size.head_size)
    rotary = (rotary_buffer(size.positions, width, FLOAT32),)
    layers = tuple(layer(index) for index in range(count))
    built = assemble(context, config, size, layers, tied=False, rotary=rotary)
    parts = tuple(
        replace(resident, part=replace(resident.part, itemsize=FLOAT32))
        if isinstance(resident.part, Embedding) and resident.part.name == "lm_head"
        else resident
        for resident in built.parts
    )
    return replace(built, parts=parts, supports_pipeline=False)


def _full_layers(config: ConfigView, count: int) -> frozenset[int]:
    """Layers of full attention: 1 in the list of numbers, or named so; all when nothing is listed."""
    key = next((key for key in ("attn_type_list", "decoder_attention_types") if key in config), None)
    if key is None:
        return (
            attention_layers(config, count, "layer_types")
            if "layer_types" in config
            else frozenset(range(count))
        )
    kinds = config.items(key)
    if len(kinds) < count or any(kind not in (0, 1) for kind in kinds[:count]):
        raise config.error(key, f"does not hold 0 or 1 for each of the {count} layers")
    return frozenset(index for index in range(count) if kinds[index] == 1)


def _of_layer(config: ConfigView, index: int) -> ConfigView:
    """The config with this layer's own expert count and shared width, where they are lists."""
    own: dict[str, Any] = {}
    for key in ("num_local_experts", "shared_intermediate_size"):
        values = config.raw(key)
        if isinstance(values, (list, tuple)):
            if index >= len(values):
                raise config.error(key, f"holds {len(values)} entries, none for layer {index}")
            own[key] = values[index]
    return ConfigView({**config.values, **own}, config.place) if own else config


def _linear_attention(context: Context, path: str, size: Dimensions) -> tuple[tuple[Part, ...], Cache]:
    heads = Partition(units=size.heads, unit_size=size.head_size)
    parts = (
        context.linear(f"{path}.qkv_proj", size.hidden, (heads, heads, heads), Shard.COLUMN),
        context.linear(f"{path}.output_gate", size.hidden, heads, Shard.COLUMN),
        context.linear(f"{path}.out_proj", heads, size.hidden, Shard.ROW),
        Tensor(name="norm", partition=heads, itemsize=context.itemsize, sharded=True),
    )
    state = StateShape(
        shape=(size.heads, size.head_size, size.head_size),
        sharded_axis=0,
        itemsize=context.itemsize,
        dtype_setting="conv",
    )
    return parts, Cache(kind=CacheKind.STATE, heads=0, states=(state,), state_type="linear")


def _mlp(context: Context, config: ConfigView, path: str, hidden: int) -> tuple[Part, ...]:
    width = config.integer("intermediate_size")
    experts = expert_count(config, "num_local_experts", default=1)
    shared = config.integer("shared_intermediate_size", default=0, least=0)
    parts: list[Part] = []
    if shared:
        parts += context.gated_mlp(f"{path}.shared_mlp", hidden, shared)
        parts.append(router(context, f"{path}.coefficient", hidden, 1, itemsize=FLOAT32))
    if experts <= 1:
        return (*parts, *context.gated_mlp(f"{path}.mlp", hidden, width))
    block = f"{path}.block_sparse_moe"
    top_k = config.integer("num_experts_per_tok", default=2, most=MOST_EXPERTS)
    return (
        *parts,
        router(context, f"{block}.gate", hidden, experts, itemsize=FLOAT32),
        context.experts(f"{block}.experts", experts, top_k, hidden, width),
    )


BUILDERS: dict[str, Builder] = {
    "MiniMaxText01ForCausalLM": build_minimax_text,
    "MiniMaxM1ForCausalLM": build_minimax_text,
    "MiniMaxForCausalLM": build_minimax_text,
}
