"""Dense decoders vLLM runs through transformers' own classes: no rotary table, norms whole on every rank.

vLLM 0.32: vllm/model_executor/models/transformers/base.py, registry.py (`_TRANSFORMERS_SUPPORTED_MODELS`), with
transformers' modeling files of each family.
"""

from dataclasses import replace

from gpuplan.domain.model import Layer, Linear, Partition, Residence, ResidentPart, Shard, Tensor
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import Blueprint, Builder, Context
from gpuplan.engine.architectures.decoder import HeadNorms, Recipe, Sizes, decoder, sliding_layers, windowed
from gpuplan.engine.architectures.gpt_style import GPT2_STYLE, NEOX_STYLE

CWM_WINDOW, OLMO3_WINDOW = 8192, 4096
FULL_EVERY = 4
"""Olmo 3, CWM: every fourth layer is full where the config lists no types."""


def _made(context: Context, recipe: Recipe, *outside: ResidentPart, size: Sizes | None = None) -> Blueprint:
    config = context.config
    known = size or Sizes.of(config)
    recipe = replace(recipe, tied=recipe.tied or config.flag("tie_word_embeddings"))
    return decoder(context, known, recipe, *outside)


def build_plain(context: Context) -> Blueprint:
    """Llama's layers with the biases the config asks for (GLM, Seed-OSS, SmolLM3, Jais 2, Nanbeige, CWM, HunYuan)."""
    config = context.config
    size = Sizes.of(config)
    bias = config.flag("attention_bias")
    recipe = Recipe(
        qkv_bias=bias,
        output_bias=config.flag("attention_out_bias", default=bias and "Glm" not in context.architecture),
        mlp_bias=config.flag("mlp_bias"),
        stacked_mlp="Glm" in context.architecture,
        tied=config.flag("tie_word_embeddings", default="SmolLM3" in context.architecture),
    )
    return _made(context, windowed(config, size.layers, recipe), size=size)


def build_cwm(context: Context) -> Blueprint:
    """CWM: three of four layers slide."""
    config = context.config
    size = Sizes.of(config)
    recipe = Recipe(
        sliding=_three_of_four_after_first(config, size.layers),
        window=config.integer("sliding_window", default=CWM_WINDOW),
    )
    return _made(context, recipe, size=size)


def _three_of_four_after_first(config: ConfigView, count: int) -> tuple[bool, ...]:
    """The first of every four layers is full."""
    if "layer_types" in config:
        return sliding_layers(config, count)
    return tuple(index % FULL_EVERY != 0 for index in range(count))


def build_hunyuan(context: Context) -> Blueprint:
    """HunYuan dense: norms of query and key."""
    bias = context.config.flag("attention_bias")
    return _made(context, Recipe(qkv_bias=bias, output_bias=bias, head_norms=HeadNorms.HEAD))


def build_olmo(context: Context) -> Blueprint:
    """OLMo: norms without parameters."""
    bias = context.config.flag("attention_bias")
    return _made(context, Recipe(qkv_bias=bias, output_bias=bias, norms=0, final_norm=False))


def build_olmo2(context: Context) -> Blueprint:
    """OLMo 2 and 3: norms after attention and MLP and over all heads of query and key; in OLMo 3 three of four slide."""
    config = context.config
    size = Sizes.of(config)
    bias = config.flag("attention_bias")
    recipe = Recipe(qkv_bias=bias, output_bias=bias, head_norms=HeadNorms.WHOLE)
    if "Olmo3" in context.architecture:
        recipe = replace(
            recipe,
            sliding=sliding_layers(config, size.layers, period=FULL_EVERY),
            window=config.integer("sliding_window", default=OLMO3_WINDOW),
        )
    return _made(context, recipe, size=size)


def build_arcee(context: Context) -> Blueprint:
    """Arcee: squared ReLU without gate."""
    config = context.config
    bias = config.flag("attention_bias")
    return _made(
        context, Recipe(qkv_bias=bias, output_bias=bias, mlp_bias=config.flag("mlp_bias"), gated=False)
    )


def build_gpt_neox(context: Context) -> Blueprint:
    """GPT-NeoX and Pythia: biases and LayerNorms."""
    bias = context.config.flag("attention_bias", default=True)
    recipe = replace(
        NEOX_STYLE,
        qkv_bias=bias,
        output_bias=bias,
        names=("attention", "query_key_value", "dense", "mlp"),
    )
    return _made(context, recipe)


def build_gpt_bigcode(context: Context) -> Blueprint:
    """SantaCoder and StarCoder: one KV head, learned positions and a mask kept as a buffer."""
    config = context.config
    size = Sizes.of(config)
    if config.flag("multi_query", default=True):
        size = replace(size, kv_heads=1)
    recipe = replace(GPT2_STYLE, tied=config.flag("tie_word_embeddings", default=True))
    positions = config.integer("n_positions", "max_position_embeddings", default=1024, most=1 << 20)
    table = Tensor(
        name="positions", partition=Partition(units=positions * size.hidden), itemsize=context.itemsize
    )
    mask = Tensor(name="mask", partition=Partition(units=positions * positions), itemsize=1)
    made = _made(
        context,
        recipe,
        ResidentPart(part=table, residence=Residence.EVERY),
        ResidentPart(part=mask, residence=Residence.EVERY, buffer=True),
        size=size,
    )
    return replace(made, layers=tuple(_whole_mlp(layer) for layer in made.layers))


def _whole_mlp(layer: Layer) -> Layer:
    """The layer with its MLP on every rank: the class has no tensor-parallel plan for it."""
    parts = tuple(
        replace(part, shard=Shard.REPLICATED)
        if isinstance(part, Linear) and part.name.startswith("mlp.")
        else part
        for part in layer.parts
    )
    return replace(layer, parts=parts)


def build_phi(context: Context) -> Blueprint:
    """Phi-1, 1.5 and 2: one LayerNorm a layer, biases everywhere but on the head."""
    config = context.config
    size = Sizes.of(config)
    norms = HeadNorms.HEAD if config.flag("qk_layernorm") else HeadNorms.NONE
    recipe = Recipe(
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        gated=False,
        names=("self_attn", "qkv_proj", "dense", "mlp"),
        plain_names=("fc1", "fc2"),
        norms=1,
        norm_bias=True,
        head_norms=norms,
        head_norm_bias=True,
    )
    return _made(context, recipe, size=size)


def build_starcoder2(context: Context) -> Blueprint:
    """StarCoder 2: biases and LayerNorms, a window on every layer."""
    config = context.config
    size = Sizes.of(config, kv_default=2)
    bias = config.flag("use_bias", default=True)
    recipe = Recipe(
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        gated=False,
        plain_names=("c_fc", "c_proj"),
        norm_bias=True,
        tied=config.flag("tie_word_embeddings", default=True),
    )
    return _made(context, windowed(config, size.layers, recipe), size=size)


def build_vaultgemma(context: Context) -> Blueprint:
    """VaultGemma: Gemma 2 with half the norms."""
    config = context.config
    view = config if "head_dim" in config else ConfigView({**config.values, "head_dim": 256}, config.place)
    size = Sizes.of(view, kv_default=4)
    bias = config.flag("attention_bias")
    recipe = Recipe(
        qkv_bias=bias,
        output_bias=bias,
        sliding=sliding_layers(config, size.layers, period=2),
        window=config.integer("sliding_window", default=4096),
        tied=config.flag("tie_word_embeddings", default=True),
    )
    return _made(context, recipe, size=size)


BUILDERS: dict[str, Builder] = {
    "ArceeForCausalLM": build_arcee,
    "CwmForCausalLM": build_cwm,
    "GPTBigCodeForCausalLM": build_gpt_bigcode,
    "GPTNeoXForCausalLM": build_gpt_neox,
    "GlmForCausalLM": build_plain,
    "HunYuanDenseV1ForCausalLM": build_hunyuan,
    "Jais2ForCausalLM": build_plain,
    "NanbeigeForCausalLM": build_plain,
    "Olmo2ForCausalLM": build_olmo2,
    "Olmo3ForCausalLM": build_olmo2,
    "OlmoForCausalLM": build_olmo,
    "PhiForCausalLM": build_phi,
    "SeedOssForCausalLM": build_plain,
    "SmolLM3ForCausalLM": build_plain,
    "Starcoder2ForCausalLM": build_starcoder2,
    "VaultGemmaForCausalLM": build_vaultgemma,
}
