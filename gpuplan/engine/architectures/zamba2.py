"""Zamba2: Mamba-2 layers, some of which first pass through one of a few transformer blocks all of them share.

vLLM 0.32: vllm/model_executor/models/zamba2.py. The shared blocks are counted once; no pipeline parallelism.
"""

from dataclasses import replace

from gpuplan.domain.model import Layer, Part, Residence, ResidentPart, Shard
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import (
    Blueprint,
    Builder,
    Context,
    attention_cache,
    layer_count,
)
from gpuplan.engine.architectures.hybrid import frame
from gpuplan.engine.architectures.rotary import text_rotary
from gpuplan.engine.architectures.state_space import MOST_KERNEL, Mamba2, mamba2

MOST_BLOCKS = 64


def build_zamba2(context: Context) -> Blueprint:
    """Zamba2: Mamba-2 everywhere, shared attention and MLP blocks, adapters per hybrid layer."""
    config = context.config
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads", default=32)
    if heads > 2 * hidden:
        raise config.error("num_attention_heads", f"is {heads}, more than twice hidden_size")
    head_size = config.integer("attention_head_dim", default=2 * hidden // heads)
    wide = config.integer("intermediate_size", default=4 * hidden)
    count = layer_count(config)
    kinds = config.items("layers_block_type")
    if len(kinds) < count:
        raise config.error("layers_block_type", f"holds {len(kinds)} entries for {count} layers")
    size = _mamba(context, config, hidden)
    norm = context.norm("input_layernorm", hidden)

    def layer(index: int) -> Layer:
        parts, states = mamba2(context, f"model.layers.{index}.mamba_decoder.mamba", size)
        if kinds[index] not in ("hybrid", "full_attention"):
            return Layer(name="mamba", parts=(*parts, norm), caches=(states,))
        own = _own_parts(context, f"model.layers.{index}", hidden, wide)
        cache = attention_cache(heads, head_size)
        return Layer(name="hybrid", parts=(*parts, norm, *own), caches=(cache, states), intermediate=wide)

    layers = tuple(layer(index) for index in range(count))
    blocks = config.integer("num_mem_blocks", default=1, most=MOST_BLOCKS)
    shared = tuple(
        ResidentPart(part=part, residence=Residence.EVERY)
        for _ in range(blocks)
        for part in _shared_block(context, hidden, heads, head_size, wide)
    )
    rotary = (
        (text_rotary(config, head_size, context.itemsize, positions=4096),)
        if config.flag("use_mem_rope")
        else ()
    )
    built = frame(context, layers, tied=True, head_quantized=False, outside=(*shared, *rotary))
    return replace(built, supports_pipeline=False)


def _mamba(context: Context, config: ConfigView, hidden: int) -> Mamba2:
    inner = config.integer("mamba_expand", default=2, most=1024) * hidden
    heads = config.integer("n_mamba_heads", default=8)
    return Mamba2(
        hidden=hidden,
        inner=inner,
        heads=heads,
        head_size=max(1, inner // heads),
        groups=config.integer("mamba_ngroups", default=1),
        state=config.integer("mamba_d_state", default=64),
        kernel=config.integer("mamba_d_conv", default=4, most=MOST_KERNEL),
        state_itemsize=context.itemsize,
        bias=config.flag("add_bias_linear"),
        conv_bias=config.flag("use_conv_bias", default=True),
    )


def _adapter(context: Context, path: str, inputs: int, outputs: tuple[int, ...]) -> tuple[Part, Part]:
    rank = context.config.integer("adapter_rank", default=128)
    return (
        context.linear(f"{path}.A", inputs, rank, Shard.COLUMN),
        context.linear(f"{path}.B", rank, outputs, Shard.COLUMN),
    )


def _own_parts(context: Context, path: str, hidden: int, wide: int) -> tuple[Part, ...]:
    """What a hybrid layer does not share: the projection back into the Mamba path, and adapters."""
    shared = f"{path}.shared_transformer"
    parts: list[Part] = [context.linear(f"{path}.linear", hidden, hidden, Shard.REPLICATED)]
    parts += _adapter(context, f"{shared}.feed_forward.gate_up_proj_adapter_list", hidden, (wide, wide))
    if context.config.flag("use_shared_attention_adapter"):
        for name in ("q", "k", "v"):
            parts += _adapter(context, f"{shared}.self_attn.linear_{name}_adapter", 2 * hidden, (2 * hidden,))
    return tuple(parts)


def _shared_block(context: Context, hidden: int, heads: int, head_size: int, wide: int) -> tuple[Part, ...]:
    """Attention over the hidden state beside the embedding, and the MLP after it."""
    projection, _ = context.attention("shared_transformer.self_attn", 2 * hidden, heads, heads, head_size)
    bias = context.config.flag("add_bias_linear")
    return (
        projection,
        context.linear("shared_transformer.self_attn.o_proj", 2 * hidden, hidden, Shard.ROW),
        *context.gated_mlp("shared_transformer.feed_forward", hidden, wide, bias=bias),
        context.norm("input_layernorm, pre_ff_layernorm", 3 * hidden),
    )


BUILDERS: dict[str, Builder] = {
    "Zamba2ForCausalLM": build_zamba2,
}
