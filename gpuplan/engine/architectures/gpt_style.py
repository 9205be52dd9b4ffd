"""Older dense decoders with MLPs without gate, LayerNorms and names of their own.

vLLM 0.32: vllm/model_executor/models/{bloom,chatglm,falcon,gpt2,gpt_j,opt}.py.
"""

from dataclasses import replace

from gpuplan.domain.model import Partition, Residence, ResidentPart, Shard, Tensor
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import Blueprint, Builder, Context
from gpuplan.engine.architectures.decoder import Recipe, Sizes, decoder
from gpuplan.engine.architectures.misc_dense import rotated, tied

FALCON_HEADS = 71
PLAIN_STYLE = Recipe(
    qkv_bias=True, output_bias=True, mlp_bias=True, gated=False, norm_bias=True, stacked=True
)
"""Biases everywhere, LayerNorms, an MLP without gate, query, key and value stacked in the checkpoint."""
NEOX_STYLE = replace(
    PLAIN_STYLE,
    names=("self_attention", "query_key_value", "dense", "mlp"),
    plain_names=("dense_h_to_4h", "dense_4h_to_h"),
)
GPT2_STYLE = replace(PLAIN_STYLE, names=("attn", "c_attn", "c_proj", "mlp"), plain_names=("c_fc", "c_proj"))


def build_falcon(context: Context) -> Blueprint:
    """Falcon: one KV head or grouped ones, a MLP without gate, one to two LayerNorms."""
    config = context.config
    grouped = config.flag("new_decoder_architecture")
    heads = config.integer("num_attention_heads", "n_head", default=FALCON_HEADS)
    kv_heads = heads
    if grouped:
        kv_heads = config.integer("num_kv_heads", "n_head_kv", default=heads)
    elif config.flag("multi_query", default=True):
        kv_heads = 1
    view = ConfigView(
        {**config.values, "num_attention_heads": heads, "num_key_value_heads": kv_heads}, config.place
    )
    size = Sizes.of(view)
    in_parallel = config.integer("num_ln_in_parallel_attn", default=2 if grouped else 1)
    parallel = config.flag("parallel_attn", default=True)
    bias = config.flag("bias")
    recipe = replace(
        NEOX_STYLE,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        norms=1 if parallel and in_parallel == 1 else 2,
        tied=tied(config, default=True),
        everywhere=True,
        norm_everywhere=True,
    )
    if config.flag("alibi"):
        return decoder(context, size, recipe)
    return rotated(replace(context, config=_positions(view, 2048)), size, recipe)


def _positions(config: ConfigView, default: int) -> ConfigView:
    if config.raw("max_position_embeddings") is not None:
        return config
    return ConfigView({**config.values, "max_position_embeddings": default}, config.place)


def build_bloom(context: Context) -> Blueprint:
    """BLOOM: ALiBi, biases everywhere, a norm after the embedding."""
    config = context.config
    size = Sizes.of(config)
    recipe = replace(NEOX_STYLE, tied=tied(config, default=True), everywhere=True, norm_everywhere=True)
    norm = ResidentPart(
        part=context.norm("embedding norm", size.hidden, bias=True), residence=Residence.EVERY
    )
    return decoder(context, size, recipe, norm)


def build_gpt2(context: Context) -> Blueprint:
    """GPT-2: learned positions on every pipeline stage."""
    config = context.config
    size = Sizes.of(config)
    recipe = replace(GPT2_STYLE, tied=tied(config, default=True), everywhere=True, norm_everywhere=True)
    positions = config.integer("n_positions", "max_position_embeddings", default=1024)
    return decoder(context, size, recipe, _table(context, "positions", positions * size.hidden))


def _table(context: Context, name: str, units: int, residence: Residence = Residence.EVERY) -> ResidentPart:
    part = Tensor(name=name, partition=Partition(units=units), itemsize=context.itemsize)
    return ResidentPart(part=part, residence=residence)


def build_gptj(context: Context) -> Blueprint:
    """GPT-J: one norm a layer, a head with bias."""
    config = context.config
    size = Sizes.of(config)
    recipe = Recipe(
        gated=False,
        names=("attn", "qkv_proj", "out_proj", "mlp"),
        plain_names=("fc_in", "fc_out"),
        mlp_bias=True,
        norms=1,
        norm_bias=True,
        tied=False,
        everywhere=True,
        norm_everywhere=True,
        head_bias=True,
    )
    rotary = config.integer("rotary_dim", default=64)
    positions = config.integer("n_positions", "max_position_embeddings", default=2048)
    table = replace(_table(context, "rotary cache", positions * rotary), buffer=True)
    return decoder(context, size, recipe, table)


def build_opt(context: Context) -> Blueprint:
    """OPT: learned positions, an embedding that may be narrower than the layers."""
    config = context.config
    size = Sizes.of(config)
    bias = config.flag("enable_bias", default=True)
    narrow = config.integer("word_embed_proj_dim", default=size.hidden)
    before = config.flag("do_layer_norm_before", default=True) and not config.flag("_remove_final_layer_norm")
    recipe = Recipe(
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        gated=False,
        names=("self_attn", "qkv_proj", "out_proj", ""),
        plain_names=("fc1", "fc2"),
        norm_bias=True,
        final_norm=before,
        norm_everywhere=True,
        tied=tied(config, default=True),
        everywhere=True,
        prefix="model.decoder",
    )
    outside = [
        _table(
            context, "positions", (config.integer("max_position_embeddings", default=2048) + 2) * size.hidden
        )
    ]
    if narrow != size.hidden:
        both = (("project_in", narrow, size.hidden), ("project_out", size.hidden, narrow))
        outside += [
            ResidentPart(
                part=context.linear(f"model.decoder.{name}", inputs, outputs, Shard.REPLICATED),
                residence=Residence.EVERY,
            )
            for name, inputs, outputs in both
        ]
    made = decoder(context, size, recipe, *outside)
    tables = context.vocabulary_parts(
        size.vocabulary, narrow, tied=recipe.tied, prefix=recipe.prefix, everywhere=True
    )
    return replace(made, parts=(*tables, *made.parts[len(tables) :]))


def build_chatglm(context: Context) -> Blueprint:
    """ChatGLM2, ChatGLM3 and the first GLM-4."""
    config = context.config
    heads = config.integer("num_attention_heads")
    grouped = config.flag("multi_query_attention")
    kv_heads = config.integer("multi_query_group_num", default=1) if grouped else heads
    hidden = config.integer("hidden_size")
    view = ConfigView(
        {
            **config.values,
            "num_key_value_heads": kv_heads,
            "head_dim": hidden // heads or 1,
            "intermediate_size": config.integer("ffn_hidden_size"),
            "vocab_size": config.integer("padded_vocab_size", "vocab_size"),
            "max_position_embeddings": config.integer("seq_length", default=2048),
            "partial_rotary_factor": 0.5,
            "num_hidden_layers": config.integer("num_layers", "num_hidden_layers"),
        },
        config.place,
    )
    bias = config.flag("add_bias_linear")
    rms = config.flag("rmsnorm", default=True)
    recipe = Recipe(
        qkv_bias=bias or config.flag("add_qkv_bias"),
        output_bias=bias,
        mlp_bias=bias,
        names=("self_attention", "query_key_value", "dense", "mlp"),
        norm_bias=not rms,
        final_norm=config.flag("post_layer_norm", default=True),
        norm_everywhere=True,
        tied=tied(config),
        everywhere=True,
        prefix="transformer.encoder",
        stacked=True,
    )
    return rotated(replace(context, config=view), Sizes.of(view), recipe)


BUILDERS: dict[str, Builder] = {
    "BloomForCausalLM": build_bloom,
    "ChatGLMModel": build_chatglm,
    "ChatGLMForConditionalGeneration": build_chatglm,
    "FalconForCausalLM": build_falcon,
    "GPT2LMHeadModel": build_gpt2,
    "GPTJForCausalLM": build_gptj,
    "OPTForCausalLM": build_opt,
}
