"""Dense decoder families: Llama, Mistral, Qwen2, Qwen3, Phi-3 and their like.

vLLM 0.32: vllm/model_executor/models/{llama,qwen2,qwen3,phi3,mimo}.py.
"""

from gpuplan.domain.model import Layer
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import (
    Blueprint,
    Builder,
    Context,
    attention_cache,
    final_norm,
    layer_count,
    parts_of,
)
from gpuplan.engine.architectures.rotary import text_rotary


def head_size_of(config: ConfigView, hidden: int, heads: int) -> int:
    """`head_dim`, else hidden size over heads."""
    return config.integer("head_dim", default=hidden // heads)


def build_llama(context: Context) -> Blueprint:
    """Llama and every class that subclasses it without changing its parameters."""
    return _build(context, qkv_bias=context.config.flag("attention_bias", "bias"))


def build_qwen2(context: Context) -> Blueprint:
    """Qwen2: a bias on the QKV projection only."""
    return _build(context, qkv_bias=True, output_bias=False)


def build_qwen3(context: Context) -> Blueprint:
    """Qwen3: per-head norms of query and key."""
    return _build(context, qkv_bias=context.config.flag("attention_bias"), head_norms=True, output_bias=False)


def _build(
    context: Context, *, qkv_bias: bool, head_norms: bool = False, output_bias: bool | None = None
) -> Blueprint:
    config = context.config
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    kv_heads = config.integer("num_key_value_heads", default=heads)
    head_size = head_size_of(config, hidden, heads)
    intermediate = config.integer("intermediate_size")
    vocabulary = config.integer("vocab_size")
    window = (
        config.optional_integer("sliding_window")
        if config.flag("use_sliding_window", default=False)
        else None
    )
    mlp_bias = config.flag("mlp_bias")

    def layer(index: int) -> Layer:
        path = f"model.layers.{index}"
        norms = (context.norm("input_layernorm", hidden), context.norm("post_attention_layernorm", hidden))
        inner = (context.norm("q_norm", head_size), context.norm("k_norm", head_size)) if head_norms else ()
        attention = context.attention(
            f"{path}.self_attn",
            hidden,
            heads,
            kv_heads,
            head_size,
            bias=qkv_bias,
            output_bias=qkv_bias if output_bias is None else output_bias,
        )
        mlp = context.gated_mlp(f"{path}.mlp", hidden, intermediate, bias=mlp_bias)
        return Layer(
            name="decoder",
            parts=parts_of(attention, inner, mlp, norms),
            caches=(attention_cache(kv_heads, head_size, window=window),),
            intermediate=intermediate,
        )

    tied = config.flag("tie_word_embeddings")
    return Blueprint(
        layers=tuple(layer(index) for index in range(layer_count(config))),
        parts=(
            *context.vocabulary_parts(vocabulary, hidden, tied=tied),
            final_norm(context, hidden),
            text_rotary(config, head_size, context.itemsize),
        ),
        hidden=hidden,
        vocabulary=vocabulary,
        attention_heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
    )


BUILDERS: dict[str, Builder] = {
    "LlamaForCausalLM": build_llama,
    "Qwen2ForCausalLM": build_qwen2,
    "MiMoForCausalLM": build_qwen2,
    "Qwen3ForCausalLM": build_qwen3,
}
