"""Gemma 4: heads of two widths, keys that stand for values, shared caches, per-layer embeddings, experts beside the MLP.

vLLM 0.32: vllm/model_executor/models/{gemma4,gemma4_mm}.py. The towers are transformers' own, whole on every rank.
"""

from dataclasses import dataclass, replace

from gpuplan.domain.model import (
    Cache,
    Embedding,
    Encoder,
    Layer,
    Linear,
    Part,
    Partition,
    Residence,
    ResidentPart,
    Shard,
    Tensor,
)
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import (
    MOST_LAYERS,
    Blueprint,
    Context,
    attention_cache,
    layer_count,
    parts_of,
)
from gpuplan.engine.architectures.decoder import FULL, SLIDING
from gpuplan.engine.architectures.moe import MOST_EXPERTS, router
from gpuplan.engine.architectures.quantizer import NoQuantizer
from gpuplan.engine.architectures.rotary import tables_in_use, text_rotary
from gpuplan.engine.architectures.wrapping import inherited, tower_buffer, tower_parts, with_towers

PERIOD = 6
FRAMES, TOKENS_PER_FRAME = 32, 70 + 2 + 6
"""Frames sampled from a video and the soft, marker and time tokens of each."""
AUDIO_TOKENS = 750
"""`audio_seq_length` of the processor."""
QUANTIZED_TOWERS = frozenset({"bitsandbytes", "torchao", "compressed-tensors"})
CLIPS = 4
"""Bounds of a clipped linear layer's input and output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    """The language model's sizes."""

    hidden: int
    heads: int
    layers: int
    intermediate: int
    own_caches: int
    """Layers before the ones that read another layer's cache."""
    per_layer: int
    """Width of the per-layer embedding, 0: none."""
    sliding: tuple[bool, ...]

    @classmethod
    def of(cls, config: ConfigView) -> "_Text":
        count = layer_count(config)
        shared = config.integer("num_kv_shared_layers", default=0, least=0)
        if shared > count:
            raise config.error("num_kv_shared_layers", f"is {shared}, more than the {count} layers")
        return cls(
            hidden=config.integer("hidden_size"),
            heads=config.integer("num_attention_heads"),
            layers=count,
            intermediate=config.integer("intermediate_size"),
            own_caches=count - shared,
            per_layer=config.integer("hidden_size_per_layer_input", default=0, least=0),
            sliding=_sliding(config, count),
        )


def _sliding(config: ConfigView, count: int) -> tuple[bool, ...]:
    """Whether each layer slides; the last is always full."""
    kinds = config.items("layer_types") or tuple(
        SLIDING if (index + 1) % PERIOD and index + 1 < count else FULL for index in range(count)
    )
    if len(kinds) < count or any(kind not in (SLIDING, FULL) for kind in kinds[:count]):
        raise config.error("layer_types", f"does not name {SLIDING} or {FULL} for each of the {count} layers")
    return tuple(kind == SLIDING for kind in kinds[:count])


def build_gemma4(context: Context) -> Blueprint:
    """Gemma 4 without towers: every pipeline stage holds embedding, per-layer embedding and final norm."""
    config = context.config
    text = _Text.of(config)
    layers = tuple(_layer(context, config, text, index) for index in range(text.layers))
    vocabulary = config.integer("vocab_size", default=262144)
    tables = context.vocabulary_parts(
        vocabulary, text.hidden, tied=config.flag("tie_word_embeddings", default=True), everywhere=True
    )
    every = (context.norm("norm", text.hidden), *_per_layer_tables(context, config, text, vocabulary))
    local, wide = _head_sizes(config)
    rotary = tables_in_use(
        text.sliding,
        text_rotary(config, local, context.itemsize, rope=_rotation(config, SLIDING)),
        text_rotary(config, wide, context.itemsize, rope=_whole(_rotation(config, FULL))),
    )
    return Blueprint(
        layers=layers,
        parts=(*tables, *(ResidentPart(part=part, residence=Residence.EVERY) for part in every), *rotary),
        hidden=text.hidden,
        vocabulary=vocabulary,
        attention_heads=text.heads,
        kv_heads=config.integer("num_key_value_heads"),
        head_size=local,
    )


def _rotation(config: ConfigView, kind: str) -> ConfigView:
    """One type's rotation."""
    rope = config.view("rope_parameters", "rope_scaling")
    return rope.view(kind) if kind in rope else rope


def _whole(rope: ConfigView) -> ConfigView:
    """Proportional rotation keeps cos and sin of the whole head, rotated or not."""
    return ConfigView({**rope.values, "partial_rotary_factor": 1.0}, rope.place)


def _head_sizes(config: ConfigView) -> tuple[int, int]:
    """Width of a head on sliding and on full layers."""
    local = config.integer("head_dim", default=256)
    return local, config.integer("global_head_dim", default=local)


def _layer(context: Context, config: ConfigView, text: _Text, index: int) -> Layer:
    path = f"model.layers.{index}"
    slides, shared = text.sliding[index], index >= text.own_caches
    attention, cache = _attention(context, config, text, f"{path}.self_attn", slides=slides, shared=shared)
    doubled = shared and text.own_caches > 0 and config.flag("use_double_wide_mlp")
    wide = text.intermediate * (2 if doubled else 1)
    return Layer(
        name="sliding" if slides else "full",
        parts=parts_of(
            attention,
            context.gated_mlp(f"{path}.mlp", text.hidden, wide),
            context.norm("four norms", 4 * text.hidden),
            _experts(context, config, text, path),
            _per_layer(context, text, path),
        ),
        caches=() if shared else (cache,),
        intermediate=wide,
    )


def _attention(
    context: Context, config: ConfigView, text: _Text, path: str, *, slides: bool, shared: bool
) -> tuple[tuple[Part, ...], Cache]:
    """Query, key and value; the query alone where the layer reads an earlier layer's cache."""
    local, wide = _head_sizes(config)
    size = local if slides else wide
    kv_heads = config.integer("num_key_value_heads")
    if not slides and config.flag("attention_k_eq_v"):
        kv_heads = config.integer("num_global_key_value_heads", default=kv_heads)
    bias = config.flag("attention_bias")
    qkv, output = context.attention(
        path, text.hidden, text.heads, kv_heads, size, bias=bias, output_bias=bias
    )
    window = config.integer("sliding_window", default=512) if slides else None
    cache = attention_cache(kv_heads, size, window=window)
    if not shared:
        return (qkv, output, context.norm("q_norm, k_norm", 2 * size)), cache
    query = context.linear(f"{path}.q_proj", text.hidden, text.heads * size, Shard.COLUMN, bias=bias)
    return (query, output, context.norm("q_norm", size)), cache


def _experts(context: Context, config: ConfigView, text: _Text, path: str) -> tuple[Part, ...]:
    """Routed experts beside the MLP, with the router's scales and three more norms."""
    if "num_experts" not in config:
        return ()
    count = config.integer("num_experts", most=MOST_EXPERTS)
    width = config.integer("moe_intermediate_size", "expert_intermediate_size")
    top_k = config.integer("top_k_experts", default=8, most=MOST_EXPERTS)
    return (
        router(context, f"{path}.router.proj", text.hidden, count),
        context.norm("router scales", text.hidden + count),
        context.experts(f"{path}.experts", count, top_k, text.hidden, width),
        context.norm("three norms", 3 * text.hidden),
    )


def _per_layer(context: Context, text: _Text, path: str) -> tuple[Part, ...]:
    if not text.per_layer:
        return ()
    return (
        context.linear(f"{path}.per_layer_input_gate", text.hidden, text.per_layer, Shard.REPLICATED),
        context.linear(f"{path}.per_layer_projection", text.per_layer, text.hidden, Shard.REPLICATED),
        context.norm("post_per_layer_input_norm", text.hidden),
    )


def _per_layer_tables(context: Context, config: ConfigView, text: _Text, vocabulary: int) -> tuple[Part, ...]:
    """The second embedding, as wide as all layers together, and the projection into it."""
    if not text.per_layer:
        return ()
    width = text.per_layer * text.layers
    return (
        Embedding(
            name="embed_tokens_per_layer",
            rows=config.integer("vocab_size_per_layer_input", default=vocabulary),
            width=width,
            itemsize=context.itemsize,
            scheme=context.quantizer.embedding("model.embed_tokens_per_layer"),
        ),
        context.linear("model.per_layer_model_projection", text.hidden, width, Shard.COLUMN),
        context.norm("per_layer_projection_norm", text.per_layer),
    )


def build_gemma4_towers(context: Context) -> Blueprint:
    """Gemma 4 with its vision and, where configured, audio tower."""
    config = context.config
    view = inherited(context, "text_config")
    hidden = view.integer("hidden_size")
    vision, encoder = _vision(context, config.view("vision_config"), hidden)
    if "audio_config" not in config:
        return with_towers(context, build_gemma4, view, vision, (encoder,))
    audio, listener = _audio(context, config.view("audio_config"), hidden)
    return with_towers(context, build_gemma4, view, (*vision, *audio), (encoder, listener))


def _tower_context(context: Context, vision: ConfigView) -> Context:
    """Towers are quantized by the methods that take any size, by the others where 64 divides their widths."""
    fits = vision.integer("hidden_size") % 64 == 0 and vision.integer("intermediate_size") % 64 == 0
    if fits or context.quantizer.name in QUANTIZED_TOWERS or context.quantizer.name is None:
        return context
    return replace(context, quantizer=NoQuantizer())


def _vision(
    context: Context, vision: ConfigView, text_hidden: int
) -> tuple[tuple[ResidentPart, ...], Encoder]:
    context = _tower_context(context, vision)
    hidden, wide = vision.integer("hidden_size"), vision.integer("intermediate_size")
    heads = vision.integer("num_attention_heads")
    kv_heads = vision.integer("num_key_value_heads", default=heads)
    size = vision.integer("head_dim", default=max(1, hidden // heads))
    count = vision.integer("num_hidden_layers", most=MOST_LAYERS)
    patch = vision.integer("patch_size", default=16, most=4096)
    positions = vision.integer("position_embedding_size", default=10240)
    soft = vision.integer("default_output_length", default=280)
    pooled = vision.integer("pooling_kernel_size", default=3, most=256) ** 2
    parts: list[Part] = [
        context.norm("positions", 2 * positions * hidden),
        _whole_linear(context, "vision_tower.patch_embedder.input_proj", 3 * patch * patch, hidden),
        _whole_linear(context, "embed_vision.embedding_projection", hidden, text_hidden),
    ]
    for index in range(count):
        path = f"vision_tower.encoder.layers.{index}"
        parts += [
            _whole_linear(context, f"{path}.self_attn.q_proj.linear", hidden, heads * size),
            _whole_linear(context, f"{path}.self_attn.k_proj.linear", hidden, kv_heads * size),
            _whole_linear(context, f"{path}.self_attn.v_proj.linear", hidden, kv_heads * size),
            _whole_linear(context, f"{path}.self_attn.o_proj.linear", heads * size, hidden),
            _whole_linear(context, f"{path}.mlp.gate_proj.linear", hidden, wide),
            _whole_linear(context, f"{path}.mlp.up_proj.linear", hidden, wide),
            _whole_linear(context, f"{path}.mlp.down_proj.linear", wide, hidden),
            context.norm("norms", 2 * size + 4 * hidden),
        ]
    scales = 2 * hidden * context.itemsize if vision.flag("standardize") else 0
    clips = 7 * count * CLIPS * context.itemsize if vision.flag("use_clipped_linears") else 0
    buffers = Tensor(
        name="frequencies, scales, bounds",
        partition=Partition(units=scales + clips + 2 * 4 * (size // 4)),
        itemsize=1,
    )
    encoder = Encoder(
        kind="vision",
        heads=heads,
        hidden=hidden,
        layers=count,
        intermediate=wide,
        tokens_per_item=soft,
        patches_per_item=soft * pooled,
        data_parallel=True,
        least_batched_tokens=FRAMES * TOKENS_PER_FRAME,
    )
    return (*tower_parts(parts, tensor_parallel=False), tower_buffer(buffers)), encoder


def _whole_linear(context: Context, path: str, inputs: int, outputs: int, *, bias: bool = False) -> Linear:
    made = context.linear(path, inputs, outputs, Shard.REPLICATED, bias=bias)
    return replace(made, name=f"tower {path.rpartition('.')[2]}")


def _audio(context: Context, audio: ConfigView, text_hidden: int) -> tuple[tuple[ResidentPart, ...], Encoder]:
    """A conformer over mel frames (transformers' Gemma4AudioModel)."""
    hidden = audio.integer("hidden_size", default=1024)
    heads = audio.integer("num_attention_heads", default=8)
    count = audio.integer("num_hidden_layers", default=12, most=MOST_LAYERS)
    kernel = audio.integer("conv_kernel_size", default=5, most=4096)
    out = audio.integer("output_proj_dims", default=1536)
    channels = audio.items("subsampling_conv_channels") or (128, 32)
    if len(channels) != 2 or not all(isinstance(c, int) and 0 < c < 65536 for c in channels):
        raise audio.error("subsampling_conv_channels", "is not a pair of sizes")
    first, second = channels
    parts: list[Part] = [
        context.norm("subsampling", first * 9 + first + second * first * 9 + second),
        _whole_linear(
            context, "audio_tower.subsample_conv_projection.input_proj_linear", second * 32, hidden
        ),
        _whole_linear(context, "audio_tower.output_proj", hidden, out, bias=True),
        _whole_linear(context, "embed_audio.embedding_projection", out, text_hidden),
    ]
    for index in range(count):
        path = f"audio_tower.layers.{index}"
        parts += [
            _whole_linear(context, f"{path}.{name}.linear", wide_in * hidden, wide_out * hidden)
            for name, wide_in, wide_out in _CONFORMER
        ]
        parts.append(context.norm("norms", hidden // max(1, heads) + kernel * hidden + 9 * hidden))
    clipped = CLIPS * (len(_CONFORMER) - 1) if audio.flag("use_clipped_linears", default=True) else 0
    buffers = Tensor(
        name="time scales, bounds",
        partition=Partition(units=hidden // 2 + count * (clipped + 1)),
        itemsize=context.itemsize,
    )
    encoder = Encoder(
        kind="audio",
        heads=heads,
        hidden=hidden,
        layers=count,
        intermediate=4 * hidden,
        tokens_per_item=AUDIO_TOKENS,
        patches_per_item=AUDIO_TOKENS,
        data_parallel=True,
    )
    return (
        *tower_parts(parts, tower="audio", tensor_parallel=False),
        tower_buffer(buffers, tower="audio"),
    ), encoder


_CONFORMER = (
    ("feed_forward1.ffw_layer_1", 1, 4),
    ("feed_forward1.ffw_layer_2", 4, 1),
    ("feed_forward2.ffw_layer_1", 1, 4),
    ("feed_forward2.ffw_layer_2", 4, 1),
    ("self_attn.q_proj", 1, 1),
    ("self_attn.k_proj", 1, 1),
    ("self_attn.v_proj", 1, 1),
    ("self_attn.post", 1, 1),
    ("lconv1d.linear_start", 1, 2),
    ("lconv1d.linear_end", 1, 1),
    ("self_attn.relative_k_proj", 1, 1),
)
"""Linear layers of a conformer layer, with inputs and outputs in hidden widths; the last is not clipped."""


def build_gemma4_unified(context: Context) -> Blueprint:
    """Gemma 4 12B (gemma4_unified.py): no towers, patches and sound frames are projected into the language model."""
    config = context.config
    view = inherited(context, "text_config")
    hidden = view.integer("hidden_size")
    vision, audio = config.view("vision_config"), config.view("audio_config")
    width = vision.integer("mm_embed_dim", default=hidden)
    side = vision.integer("patch_size", default=16, most=4096) * vision.integer(
        "pooling_kernel_size", default=3, most=256
    )
    patch = 3 * side * side
    projected = vision.integer("output_proj_dims", "hidden_size", default=3840)
    positions = vision.integer("mm_posemb_size", default=1120)
    tokens = vision.integer("num_soft_tokens", "default_output_length", default=280)
    eyes: tuple[Part, ...] = (
        context.norm("patch norms, positions", 2 * patch + 4 * width + 2 * positions * width),
        context.linear("vision_embedder.patch_dense", patch, width, Shard.COLUMN, bias=True),
        _whole_linear(context, "embed_vision.embedding_projection", projected, hidden),
    )
    parts = tower_parts(eyes)
    if "audio_config" in config:
        frame = audio.integer("audio_embed_dim", default=640)
        ear = _whole_linear(context, "embed_audio.embedding_projection", frame, hidden)
        parts = (*parts, *tower_parts((ear,), tower="audio"))
    encoder = Encoder(
        kind="vision",
        heads=1,
        hidden=width,
        layers=1,
        intermediate=patch,
        tokens_per_item=tokens,
        patches_per_item=tokens,
        least_batched_tokens=FRAMES * TOKENS_PER_FRAME,
    )
    return with_towers(context, build_gemma4, view, parts, (encoder,))


BUILDERS = {
    "Gemma4ForCausalLM": build_gemma4,
    "Gemma4ForConditionalGeneration": build_gemma4_towers,
    "Gemma4UnifiedForConditionalGeneration": build_gemma4_unified,
}
