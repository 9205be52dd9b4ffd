"""DeepSeek V1, V2, V3, R1, V3.2 and the classes that reuse them: Kimi-K2, GLM-5, Mistral Large 3, A.X K1.

vLLM 0.32: vllm/model_executor/models/{deepseek_v2,deepseek_mtp,mistral_large_3}.py, vllm/models/deepseek_v32.
"""

from dataclasses import dataclass, replace

from gpuplan.domain.model import Cache, Layer, Part, Partition, ResidentPart, Shard, Tensor
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
from gpuplan.engine.architectures.mla import (
    FLOAT32,
    IndexerShape,
    LatentShape,
    indexer_shape,
    latent_attention,
    latent_rotary,
    latent_shape,
    sparse_layer,
)
from gpuplan.engine.architectures.rotary import text_rotary

MOST_DRAFTS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertShape:
    """The mixture of experts of a DeepSeek-like model."""

    count: int
    """0: every layer is dense."""
    top_k: int
    intermediate: int
    shared: int
    """Width of the shared experts together; 0 when there are none."""
    first_dense: int
    every: int
    corrected: bool
    """A float32 bias per expert corrects the choice."""

    def stands_on(self, index: int) -> bool:
        """Whether decoder layer `index` has experts."""
        return self.count > 0 and index >= self.first_dense and index % self.every == 0

    def at(self, index: int) -> "ExpertShape | None":
        """The experts of decoder layer `index`, None where it is dense."""
        return self if self.stands_on(index) else None


def expert_shape(config: ConfigView, *, corrected: bool | None = None) -> ExpertShape:
    """Routed and shared experts by DeepSeek's keys; `corrected` None: as `topk_method` says."""
    count = config.integer("n_routed_experts", default=0, least=0)
    intermediate = config.integer("moe_intermediate_size") if count else 0
    return ExpertShape(
        count=count,
        top_k=config.integer("num_experts_per_tok", default=1),
        intermediate=intermediate,
        shared=config.integer("n_shared_experts", default=0, least=0) * intermediate,
        first_dense=config.integer("first_k_dense_replace", default=0, least=0),
        every=config.integer("moe_layer_freq", default=1),
        corrected=config.text("topk_method") == "noaux_tc" if corrected is None else corrected,
    )


def expert_parts(context: Context, path: str, hidden: int, experts: ExpertShape) -> tuple[Part, ...]:
    """Router, its correction, routed experts and shared experts at `path` (`….mlp`)."""
    gate = context.linear(f"{path}.gate", hidden, experts.count, Shard.REPLICATED, quantized=False)
    bias = Tensor(name="e_score_correction_bias", partition=Partition(units=experts.count), itemsize=FLOAT32)
    shared: tuple[Part, ...] = ()
    if experts.shared:
        shared = tuple(
            replace(part, token_parallel=True)
            for part in context.gated_mlp(f"{path}.shared_experts", hidden, experts.shared)
        )
    return parts_of(
        gate,
        (bias,) if experts.corrected else (),
        shared,
        context.experts(f"{path}.experts", experts.count, experts.top_k, hidden, experts.intermediate),
    )


def feed_forward(
    context: Context, path: str, hidden: int, dense: int, experts: ExpertShape | None
) -> tuple[tuple[Part, ...], int]:
    """Parts of a layer's MLP and the width of its dense part; `experts` None: a dense layer `dense` wide."""
    if experts is not None:
        return expert_parts(context, f"{path}.mlp", hidden, experts), experts.shared
    return context.gated_mlp(f"{path}.mlp", hidden, dense), dense


def layer_norms(context: Context, hidden: int) -> tuple[Part, ...]:
    return (context.norm("input_layernorm", hidden), context.norm("post_attention_layernorm", hidden))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepseekText:
    """What every decoder layer of the model is made from."""

    shape: LatentShape
    intermediate: int
    experts: ExpertShape
    indexer: IndexerShape | None
    latent: bool
    """False: without the latent cache (`is_causal` false, or MLA not supported)."""


def deepseek_text(config: ConfigView, *, corrected: bool | None = None) -> DeepseekText:
    """Widths of a DeepSeek-like language model."""
    experts = expert_shape(config, corrected=corrected)
    return DeepseekText(
        shape=latent_shape(config),
        intermediate=config.integer("intermediate_size"),
        experts=experts,
        indexer=indexer_shape(config),
        latent=config.flag("is_causal", default=True),
    )


def deepseek_layer(
    context: Context, prefix: str, index: int, text: DeepseekText, *, draft: bool = False
) -> Layer:
    """Decoder layer `index`; a draft's always has its own indexer."""
    path = f"{prefix}.layers.{index}"
    shape = text.shape
    caches: tuple[Cache, ...]
    shared = text.indexer is not None and not draft and not text.indexer.stands_on(index)
    attention, caches = sparse_layer(context, f"{path}.self_attn", shape, text.indexer, shared=shared)
    if not text.latent:
        attention = latent_attention(context, f"{path}.self_attn", shape)
        caches = ()
    mlp, dense = feed_forward(context, path, shape.hidden, text.intermediate, text.experts.at(index))
    return Layer(
        name="draft" if draft else "decoder",
        parts=parts_of(attention, mlp, layer_norms(context, shape.hidden)),
        caches=caches,
        intermediate=dense,
    )


def draft_count(config: ConfigView) -> int:
    """MTP layers of the checkpoint."""
    return config.integer("num_nextn_predict_layers", default=0, least=0, most=MOST_DRAFTS)


def draft_layers(context: Context, config: ConfigView, prefix: str, text: DeepseekText) -> tuple[Layer, ...]:
    """MTP layers: a decoder layer behind two norms and a projection; embedding and head are the target's."""
    first = layer_count(config)
    hidden = text.shape.hidden
    drafts = []
    for index in range(first, first + draft_count(config)):
        block = deepseek_layer(context, prefix, index, text, draft=True)
        front = (
            context.norm("enorm", hidden),
            context.norm("hnorm", hidden),
            context.linear(
                f"{prefix}.layers.{index}.eh_proj", 2 * hidden, hidden, Shard.REPLICATED, quantized=False
            ),
            context.norm("shared_head.norm", hidden),
        )
        drafts.append(replace(block, parts=(*front, *block.parts)))
    return tuple(drafts)


def build_deepseek(context: Context) -> Blueprint:
    """DeepSeek V2 and later: latent attention, sparse where the config has an indexer."""
    config = context.config
    widths = (config.integer(key, default=0, least=0) for key in ("qk_nope_head_dim", "qk_rope_head_dim"))
    if config.text("model_type") == "deepseek" or not any(widths):
        return build_deepseek_v1(context)
    return deepseek_blueprint(context, config)


def deepseek_blueprint(
    context: Context,
    config: ConfigView,
    *,
    prefix: str = "model",
    head: str = "lm_head",
    corrected: bool | None = None,
    tied: bool = False,
    extra: tuple[ResidentPart, ...] = (),
) -> Blueprint:
    """A language model of DeepSeek layers read from `config`, whose modules stand under `prefix`."""
    text = deepseek_text(config, corrected=corrected)
    hidden, vocabulary = text.shape.hidden, config.integer("vocab_size")
    return Blueprint(
        layers=tuple(deepseek_layer(context, prefix, index, text) for index in range(layer_count(config))),
        drafts=draft_layers(context, config, prefix, text),
        parts=(
            *context.vocabulary_parts(vocabulary, hidden, tied=tied, prefix=prefix, head=head),
            final_norm(context, hidden),
            latent_rotary(context, config, text.shape.rope, tables=rotary_tables(config, text.indexer)),
            *extra,
        ),
        hidden=hidden,
        vocabulary=vocabulary,
        attention_heads=text.shape.heads,
        kv_heads=1,
        head_size=text.shape.rank + text.shape.rope,
        text_view=config,
    )


def build_axk1(context: Context) -> Blueprint:
    """A.X K1: a norm behind the MLP of every layer (models/AXK1.py)."""
    corrected = context.config.text("topk_method", default="noaux_tc") == "noaux_tc"
    return _with_norms(deepseek_blueprint(context, context.config, corrected=corrected), context, 1)


def build_pangu_ultra(context: Context) -> Blueprint:
    """openPangu Ultra MoE: norms before and behind every MLP when `sandwich_norm` is set (models/openpangu.py)."""
    config = context.config
    blueprint = deepseek_blueprint(
        context,
        config,
        corrected=config.flag("router_enable_expert_bias"),
        tied=config.flag("tie_word_embeddings"),
    )
    return _with_norms(blueprint, context, 2 if config.flag("sandwich_norm") else 0)


def _with_norms(blueprint: Blueprint, context: Context, count: int) -> Blueprint:
    """Every layer with `count` more norms over the hidden size."""
    if not count:
        return blueprint
    norms = context.norm("mlp norms", count * blueprint.hidden)

    def widened(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
        return tuple(replace(layer, parts=(*layer.parts, norms)) for layer in layers)

    return replace(blueprint, layers=widened(blueprint.layers), drafts=widened(blueprint.drafts))


def rotary_tables(config: ConfigView, indexer: IndexerShape | None) -> int:
    """The indexer has a table of its own where its layout differs from the attention's interleaved one."""
    return 2 if indexer is not None and not config.flag("indexer_rope_interleave") else 1


def build_deepseek_v1(context: Context) -> Blueprint:
    """DeepSeek V1: ordinary attention before the same mixture of experts."""
    config = context.config
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    kv_heads = config.integer("num_key_value_heads", default=heads)
    head_size = hidden // heads
    intermediate = config.integer("intermediate_size")
    vocabulary = config.integer("vocab_size")
    experts = expert_shape(config)

    def layer(index: int) -> Layer:
        path = f"model.layers.{index}"
        attention = context.attention(f"{path}.self_attn", hidden, heads, kv_heads, head_size)
        mlp, dense = feed_forward(context, path, hidden, intermediate, experts.at(index))
        return Layer(
            name="decoder",
            parts=parts_of(attention, mlp, layer_norms(context, hidden)),
            caches=(attention_cache(kv_heads, head_size),),
            intermediate=dense,
        )

    return Blueprint(
        layers=tuple(layer(index) for index in range(layer_count(config))),
        parts=(
            *context.vocabulary_parts(vocabulary, hidden, tied=False),
            final_norm(context, hidden),
            text_rotary(config, head_size, context.itemsize, positions=8192),
        ),
        hidden=hidden,
        vocabulary=vocabulary,
        attention_heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
    )


BUILDERS: dict[str, Builder] = {
    "DeepseekForCausalLM": build_deepseek,
    "DeepseekV2ForCausalLM": build_deepseek,
    "DeepseekV3ForCausalLM": build_deepseek,
    "DeepseekV32ForCausalLM": build_deepseek,
    "GlmMoeDsaForCausalLM": build_deepseek,
    "MistralLarge3ForCausalLM": build_deepseek,
    "AXK1ForCausalLM": build_axk1,
    "PanguUltraMoEForCausalLM": build_pangu_ultra,
}
