"""Draft models with a checkpoint of their own: EAGLE, EAGLE-3, P-EAGLE, DFlash and Medusa.

vLLM 0.32: vllm/model_executor/models/{llama_eagle,llama_eagle3,qwen3_eagle3,qwen3_dflash,medusa}.py,
vllm/transformers_utils/configs/eagle.py. Parts are what the class allocates; an embedding or head that is the target's
own is given up for it once weights are loaded (vllm/v1/spec_decode/eagle.py).
"""

from dataclasses import replace

from gpuplan.domain.model import Layer, Linear, Part, Partition, Residence, ResidentPart, Shard, Tensor
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import (
    MOST_LAYERS,
    Blueprint,
    Builder,
    Context,
    attention_cache,
    final_norm,
    parts_of,
)
from gpuplan.engine.architectures.decoder import Sizes
from gpuplan.engine.architectures.quantizer import NoQuantizer
from gpuplan.engine.architectures.rotary import text_rotary

INTEGER = 8
AUX_STATES = 3
"""Hidden states of the target an EAGLE-3 draft reads, where its config does not list them."""
MOST_STATES = 512
PREFIXES = {"eagle": "Eagle", "eagle3": "Eagle3", "dflash": "DFlash"}


def draft_architecture(method: str, architecture: str) -> str:
    """The class vLLM takes for a draft of `method` whose config names `architecture` (EAGLEConfig)."""
    prefix = PREFIXES.get(method)
    if prefix is None or architecture.startswith(prefix) or architecture.endswith((prefix, "DraftModel")):
        return architecture
    return f"{prefix}{architecture}"


def build_eagle(context: Context) -> Blueprint:
    """EAGLE: layers of the target's kind without the first norm, no final norm, no head."""
    config = context.config
    size = Sizes.of(config)
    fc = context.linear("model.fc", 2 * size.hidden, size.hidden, Shard.REPLICATED)
    embedding = replace(context, pooling=True).vocabulary_parts(size.vocabulary, size.hidden, tied=False)
    bias = config.flag("attention_bias", "bias")
    layers = tuple(
        _layer(context, size, index, inputs=size.hidden, norms=1 if index == 0 else 2, bias=bias)
        for index in range(size.layers)
    )
    return _drafted(context, size, layers, (*embedding, _whole(fc)))


def build_eagle3(context: Context) -> Blueprint:
    """EAGLE-3 and P-EAGLE: the first layer reads the embedding beside the target's states, the vocabulary may be short."""
    config = context.config
    size = Sizes.of(config)
    qwen = "Qwen3" in context.architecture and "vl" not in context.architecture
    states, read = _states(config), config.integer("target_hidden_size", default=size.hidden)
    eagle = config.view("eagle_config")
    outside: list[ResidentPart] = []
    if eagle.flag("use_aux_hidden_state", default=True):
        outside.append(_whole(context.linear("model.fc", read * states, size.hidden, Shard.REPLICATED)))
        if eagle.flag("norm_before_fc", default=config.flag("norm_before_fc")):
            outside.append(_whole(context.norm("input_norm", read * states)))
        if config.flag("fc_norm"):
            outside.append(_whole(context.norm("fc_norm", read * states)))
    bias = config.flag("attention_bias")
    layers = tuple(
        _layer(
            context,
            size,
            index,
            inputs=size.hidden * (2 if index == 0 else 1),
            norms=3,
            bias=bias,
            output_bias=bias or (config.flag("bias") and not qwen),
            head_norms=qwen,
        )
        for index in range(size.layers)
    )
    head = _short_head(context, config, size)
    return _drafted(context, size, layers, (*head, final_norm(context, size.hidden), *outside))


def build_dflash(context: Context) -> Blueprint:
    """DFlash: Qwen3's layers over the states of several layers of the target, read at once."""
    config = context.config
    size = Sizes.of(config)
    options = {**config.view("eagle_config").values, **config.view("dflash_config").values}
    drafter = ConfigView(options, f"{config.place}: dflash_config")
    listed = _listed(config)
    read = config.integer("target_hidden_size", default=size.hidden)
    bias = config.flag("attention_bias")
    sinks = drafter.flag("attention_sink_bias", default=config.flag("add_swa_attention_sink_bias"))
    layers = tuple(
        _layer(
            context,
            size,
            index,
            inputs=size.hidden,
            norms=2,
            bias=bias,
            output_bias=bias,
            head_norms=True,
            sinks=sinks,
        )
        for index in range(size.layers)
    )
    outside: list[Part] = [
        context.norm("mask_embedding", size.hidden),
        context.norm("hidden_norm", size.hidden),
    ]
    if drafter.flag("use_aux_hidden_state", default=config.flag("use_aux_hidden_state", default=True)):
        inputs = read * (len(listed) or size.layers)
        outside.append(context.linear("model.fc", inputs, size.hidden, Shard.REPLICATED))
    head = _short_head(context, config, size, quantized=config.flag("has_own_lm_head"))
    return _drafted(
        context, size, layers, (*head, final_norm(context, size.hidden), *(_whole(part) for part in outside))
    )


def build_medusa(context: Context) -> Blueprint:
    """Medusa: heads of residual blocks, each with a vocabulary of its own unless the target's is used."""
    config = context.config
    hidden = config.integer("hidden_size", default=4096)
    heads = config.integer("num_heads", default=5, most=256)
    blocks = config.integer("num_hidden_layers", default=1, most=MOST_LAYERS)
    vocabulary = config.integer("vocab_size", default=32001)
    bias = hidden if config.flag("medusa_fc_bias") else 0
    block = context.norm("residual blocks", blocks * (hidden * hidden + bias))
    own = not config.flag("original_lm_head")
    rows = vocabulary if own else config.integer("truncated_vocab_size", default=vocabulary)
    head = context.vocabulary_parts(rows, hidden, tied=False)[-1]
    return Blueprint(
        layers=(),
        parts=(
            *(_whole(block),) * heads,
            *(replace(head, residence=Residence.EVERY),) * (heads if own else 1),
        ),
        hidden=hidden,
        vocabulary=vocabulary,
        attention_heads=0,
        kv_heads=0,
        head_size=0,
        supports_pipeline=False,
    )


def _states(config: ConfigView) -> int:
    if "num_aux_hidden_states" in config:
        return config.integer("num_aux_hidden_states", most=MOST_STATES)
    return len(config.view("eagle_config").items("eagle_aux_hidden_state_layer_ids")) or AUX_STATES


def _listed(config: ConfigView) -> tuple[object, ...]:
    """Layers of the target whose states are read (`get_eagle3_aux_layers_from_config`)."""
    dflash, eagle = config.view("dflash_config"), config.view("eagle_config")
    places = (
        (config, "eagle_aux_hidden_state_layer_ids"),
        (dflash, "target_layer_ids"),
        (config, "dspark_target_layer_ids"),
        (config, "target_layer_ids"),
        (dflash, "layer_ids"),
        (eagle, "layer_ids"),
    )
    return next((found for view, key in places if (found := view.items(key))), ())


def _layer(
    context: Context,
    size: Sizes,
    index: int,
    *,
    inputs: int,
    norms: int,
    bias: bool,
    output_bias: bool | None = None,
    head_norms: bool = False,
    sinks: bool = False,
) -> Layer:
    path = f"model.layers.{index}"
    qkv, out = context.attention(
        f"{path}.self_attn",
        size.hidden,
        size.heads,
        size.kv_heads,
        size.head_size,
        bias=bias,
        output_bias=bias if output_bias is None else output_bias,
    )
    inner: tuple[Part, ...] = (context.norm("q_norm, k_norm", 2 * size.head_size),) if head_norms else ()
    if sinks:
        heads = Partition(units=size.heads)
        inner = (*inner, Tensor(name="sinks", partition=heads, itemsize=context.itemsize, sharded=True))
    wide: Linear = replace(qkv, inputs=Partition(units=inputs))
    mlp = context.gated_mlp(
        f"{path}.mlp", size.hidden, size.intermediate, bias=context.config.flag("mlp_bias")
    )
    return Layer(
        name="draft",
        parts=parts_of(wide, out, inner, mlp, context.norm("norms", norms * size.hidden)),
        caches=(attention_cache(size.kv_heads, size.head_size),),
        intermediate=size.intermediate,
    )


def _short_head(
    context: Context, config: ConfigView, size: Sizes, *, quantized: bool = True
) -> tuple[ResidentPart, ...]:
    """The embedding of the whole vocabulary, a head of the draft's, and where each of its tokens stands in the target's."""
    short = config.integer("draft_vocab_size", default=size.vocabulary)
    first = context.vocabulary_parts(size.vocabulary, size.hidden, tied=False)[0]
    plain = context if quantized else replace(context, quantizer=NoQuantizer())
    head = plain.vocabulary_parts(short, size.hidden, tied=False)[-1]
    if short == size.vocabulary:
        return (first, head)
    table = Tensor(name="draft_id_to_target_id", partition=Partition(units=short), itemsize=INTEGER)
    return (first, head, _whole(table))


def _whole(part: Part) -> ResidentPart:
    return ResidentPart(part=part, residence=Residence.EVERY)


def _drafted(
    context: Context, size: Sizes, layers: tuple[Layer, ...], parts: tuple[ResidentPart, ...]
) -> Blueprint:
    return Blueprint(
        layers=layers,
        parts=(*parts, text_rotary(context.config, size.head_size, context.itemsize)),
        hidden=size.hidden,
        vocabulary=size.vocabulary,
        attention_heads=size.heads,
        kv_heads=size.kv_heads,
        head_size=size.head_size,
        supports_pipeline=False,
    )


BUILDERS: dict[str, Builder] = {
    "EagleLlamaForCausalLM": build_eagle,
    **dict.fromkeys(
        (
            "Eagle3LlamaForCausalLM",
            "LlamaForCausalLMEagle3",
            "Eagle3MiniMaxM2ForCausalLM",
            "Eagle3Qwen2_5vlForCausalLM",
            "Eagle3Qwen3vlForCausalLM",
            "Eagle3Qwen3ForCausalLM",
            "PEagleDraftModel",
            "PeagleLlamaForCausalLM",
            "PeagleQwen3ForCausalLM",
        ),
        build_eagle3,
    ),
    **dict.fromkeys(
        ("DFlashDraftModel", "MuseGlimmerAssistantModel", "DFlashMuseGlimmerAssistantModel"), build_dflash
    ),
    "MedusaModel": build_medusa,
}
