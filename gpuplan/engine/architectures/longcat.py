"""LongCat-Flash: two latent attentions and two dense MLPs per layer beside one mixture of experts.

vLLM 0.32: vllm/model_executor/models/longcat_flash.py.
"""

from dataclasses import replace

from gpuplan.domain.model import Layer, Part, Partition, Shard, Tensor
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import (
    Blueprint,
    Builder,
    Context,
    final_norm,
    layer_count,
    parts_of,
)
from gpuplan.engine.architectures.mla import (
    FLOAT32,
    LatentShape,
    latent_attention,
    latent_cache,
    latent_rotary,
    latent_shape,
)
from gpuplan.engine.architectures.quantizer import NoQuantizer

HALVES = 2


def build_longcat_flash(context: Context) -> Blueprint:
    """LongCat-Flash; experts that compute nothing are counted by the router alone."""
    config = context.config
    shape = latent_shape(config)
    vocabulary = config.integer("vocab_size")
    count = layer_count(config, "num_layers", "num_hidden_layers")
    disabled = {str(name) for name in config.items("disable_quant_module")}
    plain = replace(context, quantizer=NoQuantizer())
    return Blueprint(
        layers=tuple(
            _layer(
                f"model.layers.{index}",
                config,
                shape,
                experts=context,
                attending=plain if "self_attn" in disabled else context,
                dense=plain if "mlps" in disabled else context,
            )
            for index in range(count)
        ),
        parts=(
            *context.vocabulary_parts(vocabulary, shape.hidden, tied=False),
            final_norm(context, shape.hidden),
            latent_rotary(context, config, shape.rope),
        ),
        hidden=shape.hidden,
        vocabulary=vocabulary,
        attention_heads=shape.heads,
        kv_heads=1,
        head_size=shape.rank + shape.rope,
    )


def _layer(
    path: str, config: ConfigView, shape: LatentShape, *, experts: Context, attending: Context, dense: Context
) -> Layer:
    """The layer at `path`; each of its three kinds of modules may be left unquantized by itself."""
    intermediate = config.integer("ffn_hidden_size", "intermediate_size")
    halves = range(HALVES)
    norms = experts.norm("layernorms", 2 * HALVES * shape.hidden)
    return Layer(
        name="decoder",
        parts=parts_of(
            *(latent_attention(attending, f"{path}.self_attn.{half}", shape) for half in halves),
            *(dense.gated_mlp(f"{path}.mlps.{half}", shape.hidden, intermediate) for half in halves),
            _experts(experts, f"{path}.mlp", config, shape.hidden),
            norms,
        ),
        caches=(latent_cache(shape),) * HALVES,
        intermediate=intermediate,
    )


def _experts(context: Context, path: str, config: ConfigView, hidden: int) -> tuple[Part, ...]:
    count = config.integer("n_routed_experts")
    outputs = count + config.integer("zero_expert_num", default=0, least=0)
    router = context.linear(f"{path}.gate.classifier", hidden, outputs, Shard.REPLICATED, quantized=False)
    return (
        replace(router, itemsize=FLOAT32),
        Tensor(name="e_score_correction_bias", partition=Partition(units=outputs), itemsize=FLOAT32),
        context.experts(
            f"{path}.experts",
            count,
            config.integer("moe_topk", "num_experts_per_tok"),
            hidden,
            config.integer("expert_ffn_hidden_size", "moe_intermediate_size"),
        ),
    )


BUILDERS: dict[str, Builder] = {
    "LongcatFlashForCausalLM": build_longcat_flash,
}
