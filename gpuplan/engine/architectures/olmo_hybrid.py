"""OLMo hybrid: gated delta nets with attention every few layers.

vLLM 0.32: vllm/model_executor/models/olmo_hybrid.py, layers/mamba/gdn/olmo_gdn_linear_attn.py.
"""

from gpuplan.domain.model import Layer, Partition, Shard, Tensor
from gpuplan.engine.architectures.context import Blueprint, Builder, Context, layer_count
from gpuplan.engine.architectures.hybrid import (
    attention_layers,
    attention_mixer,
    frame,
    hybrid_layer,
)
from gpuplan.engine.architectures.moe import pair_of_norms
from gpuplan.engine.architectures.rotary import text_rotary
from gpuplan.engine.architectures.state_space import MOST_KERNEL, DeltaNet, Mixer, delta_net


def build_olmo_hybrid(context: Context) -> Blueprint:
    """OLMo hybrid: gated delta nets and attention with norms over all heads."""
    config = context.config
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    wide = config.integer("intermediate_size")
    keys = config.integer("linear_num_key_heads", default=heads)
    key_size = config.integer("linear_key_head_dim", default=max(1, int(0.75 * hidden / keys)))
    size = DeltaNet(
        hidden=hidden,
        key_heads=keys,
        value_heads=config.integer("linear_num_value_heads", default=heads),
        key_size=key_size,
        value_size=config.integer("linear_value_head_dim", default=2 * key_size),
        kernel=config.integer("linear_conv_kernel_dim", default=4, most=MOST_KERNEL),
        state_itemsize=context.itemsize,
        interleaved=False,
    )
    head_size = max(1, hidden // heads)
    kv_width = config.integer("num_key_value_heads", default=heads) * head_size
    attention, _ = attention_mixer(context, inner=(context.norm("q_norm, k_norm", hidden + kv_width),))
    norms = pair_of_norms(context, hidden)
    count = layer_count(config)
    where = attention_layers(config, count, "layer_types")

    def layer(index: int) -> Layer:
        path = f"model.layers.{index}"
        if index in where:
            parts, cache = attention(f"{path}.self_attn")
        else:
            parts, cache = _olmo_delta_net(context, f"{path}.linear_attn", size)
        return hybrid_layer(parts, (cache,), context.gated_mlp(f"{path}.mlp", hidden, wide), norms, wide)

    rope = config.view("rope_parameters").values
    outside = (
        (text_rotary(context.config, head_size, context.itemsize, positions=65536),)
        if rope.get("rope_theta", True) is not None
        else ()
    )
    layers = tuple(layer(index) for index in range(count))
    return frame(context, layers, tied=config.flag("tie_word_embeddings"), outside=outside)


def _olmo_delta_net(context: Context, path: str, size: DeltaNet) -> Mixer:
    """As Qwen's, with separate projections of the gates and everything in the model's type."""
    keys = Partition(units=size.key_heads, unit_size=size.key_size)
    values = Partition(units=size.value_heads, unit_size=size.value_size)
    _, states = delta_net(context, path, size)
    parts = (
        context.linear(
            f"{path}.in_proj_qkvg",
            size.hidden,
            (keys, keys, values, values),
            Shard.COLUMN,
            fused=("q_proj", "k_proj", "v_proj", "g_proj"),
        ),
        context.linear(f"{path}.b_proj", size.hidden, size.value_heads, Shard.COLUMN),
        context.linear(f"{path}.a_proj", size.hidden, size.value_heads, Shard.COLUMN),
        context.linear(f"{path}.conv1d", size.kernel, (keys, keys, values), Shard.COLUMN, quantized=False),
        Tensor(
            name="dt_bias, A_log",
            partition=Partition(units=size.value_heads, unit_size=2),
            itemsize=context.itemsize,
            sharded=True,
        ),
        context.norm("o_norm", size.value_size),
        context.linear(f"{path}.o_proj", values, size.hidden, Shard.ROW),
    )
    return parts, states


BUILDERS: dict[str, Builder] = {
    "OlmoHybridForCausalLM": build_olmo_hybrid,
}
