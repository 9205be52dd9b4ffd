"""Dense decoders beside Llama, Qwen and Gemma, each as a recipe.

vLLM 0.32: vllm/model_executor/models/{apertus,commandr,ernie45,exaone,exaone4,glm4,granite,
hyperclovax,internlm2,minicpm,nemotron,orion,phi3,plamo3,solar,stablelm,telechat2}.py.
"""

from dataclasses import replace

from gpuplan.domain.model import CacheKind, Part, Partition, Tensor
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import Blueprint, Builder, Context
from gpuplan.engine.architectures.decoder import (
    HeadNorms,
    Recipe,
    Sizes,
    decoder,
    sliding_layers,
    windowed,
)
from gpuplan.engine.architectures.rotary import text_rotary


def rotated(context: Context, size: Sizes, recipe: Recipe) -> Blueprint:
    """A recipe with an ordinary rotary table."""
    table = text_rotary(context.config, size.head_size, context.itemsize)
    return decoder(context, size, recipe, table)


def tied(config: ConfigView, *, default: bool = False) -> bool:
    return config.flag("tie_word_embeddings", default=default)


def build_llama_like(context: Context) -> Blueprint:
    """Llama with whatever window the config asks for."""
    config = context.config
    size = Sizes.of(config)
    bias = config.flag("attention_bias", "bias")
    recipe = Recipe(
        qkv_bias=bias or config.flag("qkv_bias"),
        output_bias=bias,
        mlp_bias=config.flag("mlp_bias"),
        tied=tied(config),
    )
    return rotated(context, size, windowed(config, size.layers, recipe))


def build_granite(context: Context) -> Blueprint:
    """Granite: Llama, with a sink per head where the config lists types of layers (granite.py)."""
    config = context.config
    size = Sizes.of(config)
    bias = config.flag("attention_bias", "bias")
    sinks = config.flag("attention_sinks", default="layer_types" in config)

    def extra(index: int, path: str) -> tuple[Part, ...]:
        del index, path
        heads = Partition(units=size.heads)
        return (Tensor(name="sinks", partition=heads, itemsize=context.itemsize, sharded=True),)

    recipe = Recipe(
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=config.flag("mlp_bias"),
        tied=tied(config),
        extra=extra if sinks else None,
    )
    return rotated(context, size, windowed(config, size.layers, recipe))


def build_phi3(context: Context) -> Blueprint:
    """Phi-3, Phi-3.5 and Phi-4: Llama whose checkpoint stacks its projections."""
    config = context.config
    size = Sizes.of(config)
    recipe = Recipe(tied=tied(config), stacked=True)
    return rotated(context, size, windowed(config, size.layers, recipe))


def build_exaone4(context: Context) -> Blueprint:
    """EXAONE 4: norms after attention and MLP, three of four layers slide."""
    config = context.config
    size = Sizes.of(config)
    bias = config.flag("attention_bias", "bias")
    pattern = config.raw("sliding_window_pattern")
    period = len(pattern) if isinstance(pattern, str) else pattern if isinstance(pattern, int) else 4
    recipe = Recipe(
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=config.flag("mlp_bias"),
        head_norms=HeadNorms.HEAD,
        sliding=sliding_layers(config, size.layers, period=max(0, period)),
        window=config.optional_integer("sliding_window"),
        tied=tied(config),
    )
    return rotated(context, size, recipe)


def build_cohere(context: Context) -> Blueprint:
    """Command R and R+: one norm a layer, head tied, on every pipeline stage."""
    return _cohere(context, HeadNorms.SHARDED if context.config.flag("use_qk_norm") else HeadNorms.NONE)


def build_cohere2(context: Context) -> Blueprint:
    """Command A and R7B: three of four layers slide, the current token not counted in the window."""
    config = context.config
    size = Sizes.of(config)
    period = config.integer("sliding_window_pattern", "_sliding_window_pattern", default=4)
    window = config.optional_integer("sliding_window")
    made = _cohere(context, HeadNorms.NONE)
    sliding = sliding_layers(config, size.layers, period=period)
    layers = tuple(
        replace(
            layer,
            name="sliding" if slides and window else layer.name,
            caches=tuple(
                replace(cache, kind=CacheKind.SLIDING, window=window + 1) if slides and window else cache
                for cache in layer.caches
            ),
        )
        for layer, slides in zip(made.layers, sliding, strict=True)
    )
    return replace(made, layers=layers)


def _cohere(context: Context, norms: HeadNorms) -> Blueprint:
    recipe = Recipe(norms=1, head_norms=norms, tied=True, everywhere=True, norm_everywhere=True)
    return rotated(context, Sizes.of(context.config), recipe)


def build_stablelm(context: Context) -> Blueprint:
    """StableLM: LayerNorms, optional biases of query, key and value."""
    config = context.config
    recipe = Recipe(
        qkv_bias=config.flag("use_qkv_bias"),
        norm_bias=True,
        tied=tied(config),
        everywhere=True,
        norm_everywhere=True,
    )
    return rotated(context, Sizes.of(config), recipe)


def build_orion(context: Context) -> Blueprint:
    """Orion: Llama with LayerNorms."""
    recipe = Recipe(norm_bias=True, tied=tied(context.config), everywhere=True, norm_everywhere=True)
    return rotated(context, Sizes.of(context.config), recipe)


def build_everywhere(context: Context) -> Blueprint:
    """InternLM2 and MiniCPM: Llama with embedding, head and norm on every pipeline stage."""
    config = context.config
    names = (
        ("attention", "wqkv", "wo", "feed_forward") if "InternLM" in context.architecture else Recipe().names
    )
    recipe = Recipe(names=names, tied=tied(config), everywhere=True, norm_everywhere=True)
    return rotated(context, Sizes.of(config), recipe)


def build_nemotron(context: Context) -> Blueprint:
    """Nemotron 3 and 4, Minitron: LayerNorms, squared ReLU without gate."""
    config = context.config
    bias = config.flag("attention_bias")
    recipe = Recipe(
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=config.flag("mlp_bias"),
        gated=False,
        norm_bias=True,
        tied=tied(config),
    )
    view = config if "partial_rotary_factor" in config else _half_rotated(config)
    return rotated(replace(context, config=view), Sizes.of(config), recipe)


def _half_rotated(config: ConfigView) -> ConfigView:
    if "rope_percent" in config or "rope_pct" in config:
        factor = config.number("rope_percent", "rope_pct", default=0.5)
        return ConfigView({**config.values, "partial_rotary_factor": factor}, config.place)
    return ConfigView({**config.values, "partial_rotary_factor": 0.5}, config.place)


def build_glm4(context: Context) -> Blueprint:
    """GLM-4-0414: four norms a layer."""
    config = context.config
    size = Sizes.of(config)
    recipe = Recipe(qkv_bias=config.flag("attention_bias"), norms=4, tied=tied(config), stacked_mlp=True)
    view = config
    if "partial_rotary_factor" not in config:
        view = ConfigView({**config.values, "partial_rotary_factor": 0.5}, config.place)
    return rotated(replace(context, config=view), size, recipe)


def build_hyperclovax(context: Context) -> Blueprint:
    """HyperCLOVA X: Llama with two more norms where configured."""
    config = context.config
    bias = config.flag("attention_bias")
    recipe = Recipe(
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=config.flag("mlp_bias"),
        norms=4 if config.flag("use_post_norm") else 2,
        tied=tied(config),
    )
    return rotated(context, Sizes.of(config), recipe)


def build_plamo3(context: Context) -> Blueprint:
    """PLaMo 3: four norms a layer, norms of query and key, most layers slide."""
    config = context.config
    size = Sizes.of(config)
    window = config.optional_integer("window_size")
    period = config.integer("sliding_window_pattern", default=8)
    recipe = Recipe(
        norms=4,
        head_norms=HeadNorms.HEAD,
        sliding=sliding_layers(config, size.layers, period=period),
        window=window,
        tied=tied(config),
        everywhere=True,
        norm_everywhere=True,
        stacked=True,
        stacked_mlp=True,
    )
    return rotated(context, size, recipe)


def build_apertus(context: Context) -> Blueprint:
    """Apertus: norms of query and key, an activation with parameters and no gate."""
    config = context.config
    size = Sizes.of(config)
    bias = config.flag("attention_bias", "bias")

    def extra(index: int, path: str) -> tuple[Part, ...]:
        del index, path
        return (Tensor(name="xielu", partition=Partition(units=2), itemsize=context.itemsize),)

    recipe = Recipe(
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=config.flag("mlp_bias"),
        gated=False,
        head_norms=HeadNorms.HEAD,
        tied=tied(config),
        extra=extra,
    )
    return rotated(context, size, windowed(config, size.layers, recipe))


def build_telechat2(context: Context) -> Blueprint:
    """TeleChat2: biases of the two projections back to the hidden width."""
    config = context.config
    size = Sizes.of(config)

    def extra(index: int, path: str) -> tuple[Part, ...]:
        del index, path
        return (context.norm("down_proj bias", size.hidden),)

    recipe = Recipe(output_bias=True, tied=tied(config), extra=extra)
    return rotated(context, size, recipe)


def build_exaone3(context: Context) -> Blueprint:
    """EXAONE 3 and 3.5: Llama under GPT-2's names."""
    config = context.config
    bias = config.flag("attention_bias", "bias")
    recipe = Recipe(
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=config.flag("mlp_bias"),
        names=("attn.attention", "qkv_proj", "out_proj", "mlp"),
        tied=tied(config),
        prefix="transformer",
    )
    return rotated(context, Sizes.of(config), recipe)


def build_ernie45(context: Context) -> Blueprint:
    """ERNIE 4.5 without experts: Llama."""
    config = context.config
    bias = config.flag("use_bias")
    recipe = Recipe(qkv_bias=bias, output_bias=bias, mlp_bias=bias, tied=tied(config, default=True))
    return rotated(context, Sizes.of(config), recipe)


BUILDERS: dict[str, Builder] = {
    "ApertusForCausalLM": build_apertus,
    "Cohere2ForCausalLM": build_cohere2,
    "CohereForCausalLM": build_cohere,
    "Ernie4_5ForCausalLM": build_ernie45,
    "Exaone4ForCausalLM": build_exaone4,
    "ExaoneForCausalLM": build_exaone3,
    "Glm4ForCausalLM": build_glm4,
    "GraniteForCausalLM": build_granite,
    "GraniteSWAForCausalLM": build_granite,
    "HyperCLOVAXForCausalLM": build_hyperclovax,
    "IQuestCoderForCausalLM": build_llama_like,
    "InternLM2ForCausalLM": build_everywhere,
    "InternLM3ForCausalLM": build_llama_like,
    "LLaMAForCausalLM": build_llama_like,
    "MiniCPMForCausalLM": build_everywhere,
    "Ministral3ForCausalLM": build_llama_like,
    "MistralForCausalLM": build_llama_like,
    "NemotronForCausalLM": build_nemotron,
    "OrionForCausalLM": build_orion,
    "Phi3ForCausalLM": build_phi3,
    "Plamo3ForCausalLM": build_plamo3,
    "SolarForCausalLM": build_llama_like,
    "StableLmForCausalLM": build_stablelm,
    "StableLMEpochForCausalLM": build_stablelm,
    "TeleChat2ForCausalLM": build_telechat2,
    "TeleChat3ForCausalLM": build_llama_like,
    "TeleFLMForCausalLM": build_llama_like,
}
