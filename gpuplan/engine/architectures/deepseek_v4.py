"""DeepSeek-V4: compressed sparse attention, hash-routed first layers, hyper-connections.

vLLM 0.32: vllm/models/deepseek_v4/{attention,compressor}.py, vllm/models/deepseek_v4/nvidia/{model,mtp}.py,
vllm/v1/attention/backends/mla/sparse_swa.py.
"""

from dataclasses import dataclass, replace

from gpuplan.domain.model import (
    UNQUANTIZED,
    Cache,
    CacheKind,
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
    Blueprint,
    Builder,
    Context,
    final_norm,
    layer_count,
    parts_of,
    rotary_buffer,
)
from gpuplan.engine.architectures.deepseek import draft_count
from gpuplan.engine.architectures.mla import FLOAT32, IndexerShape, indexer_cache, rope_parameters

PACKED_BYTES = 584
"""One state of an fp8_ds_mla cache of a head of 512: 448 8-bit values, 64 in bfloat16, 8 scales."""
PAGE_ALIGNMENT = 576
PAGE_TOKENS = 256
SLIDING_PAGE_TOKENS = 64
SINK_ALIGNMENT = 64
"""The attention kernel takes 64 or 128 query heads."""
INDEXED_RATIO = 4
STATE_PAGES = {4: 4, 128: 8}
"""Tokens of a compressor state page by compression ratio."""
BLOCK_ROWS = 128
SCALES_PER_MIX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedShape:
    """Widths of the model that every layer shares."""

    hidden: int
    heads: int
    head: int
    query_rank: int
    groups: int
    output_rank: int
    window: int
    ratios: tuple[int, ...]
    """Tokens per cached state by layer; 1 or 0: the sliding window alone."""
    indexer: IndexerShape
    streams: int
    """Residual streams of the hyper-connections."""
    experts: int
    top_k: int
    intermediate: int
    shared: int
    hashed: int
    """The first so many layers route by a table over the vocabulary."""
    vocabulary: int
    corrected: bool
    pictures: bool
    """Built with the vision tower: a second routing bias on every layer."""

    def ratio(self, index: int) -> int:
        return max(1, self.ratios[index]) if index < len(self.ratios) else 1


def compressed_shape(config: ConfigView) -> CompressedShape:
    """The widths a DeepSeek-V4 config states."""
    ratios = config.items("compress_ratios")
    if not all(isinstance(ratio, int) and 0 <= ratio <= 1 << 20 for ratio in ratios):
        raise config.error("compress_ratios", "is not a list of whole numbers")
    count = layer_count(config)
    if len(ratios) < count:
        raise config.error("compress_ratios", f"has {len(ratios)} entries for {count} layers")
    unknown = [ratio for ratio in ratios if ratio > 1 and ratio not in STATE_PAGES]
    if unknown:
        raise config.error("compress_ratios", f"holds {unknown[0]}; vLLM knows 0, 1, 4 and 128")
    intermediate = config.integer("moe_intermediate_size")
    pictures = config.integer("vision_n_layers", default=0, least=0) > 0
    return CompressedShape(
        hidden=config.integer("hidden_size"),
        heads=config.integer("num_attention_heads"),
        head=config.integer("head_dim"),
        query_rank=config.integer("q_lora_rank"),
        groups=config.integer("o_groups"),
        output_rank=config.integer("o_lora_rank"),
        window=config.integer("sliding_window"),
        ratios=tuple(ratios[:count]),
        indexer=IndexerShape(
            heads=config.integer("index_n_heads"),
            head=config.integer("index_head_dim"),
            chosen=config.integer("index_topk"),
        ),
        streams=config.integer("hc_mult", most=64),
        experts=config.integer("n_routed_experts"),
        top_k=config.integer("num_experts_per_tok"),
        intermediate=intermediate,
        shared=config.integer("n_shared_experts", default=0, least=0) * intermediate,
        hashed=config.integer("num_hash_layers", default=0, least=0),
        vocabulary=config.integer("vocab_size"),
        corrected=config.text("topk_method") == "noaux_tc",
        pictures=pictures,
    )


def _float32(name: str, size: int) -> Tensor:
    return Tensor(name=name, partition=Partition(units=size), itemsize=FLOAT32)


def _compressor(context: Context, path: str, hidden: int, head: int, ratio: int) -> tuple[Part, ...]:
    """Position bias, projection and norm of a compressor; overlapping windows double it at ratio 4."""
    width = head * (2 if ratio == INDEXED_RATIO else 1)
    return (
        _float32("ape", ratio * width),
        context.linear(f"{path}.fused_wkv_wgate", hidden, (width, width), Shard.REPLICATED, quantized=False),
        context.norm("norm", head),
    )


def _attention(context: Context, path: str, shape: CompressedShape, ratio: int) -> tuple[Part, ...]:
    heads = Partition(units=shape.heads, unit_size=shape.head)
    base: tuple[Part, ...] = (
        Tensor(
            name="attn_sink",
            partition=Partition(units=shape.heads),
            itemsize=FLOAT32,
            sharded=True,
            alignment=SINK_ALIGNMENT,
        ),
        context.linear(
            f"{path}.fused_wqa_wkv",
            shape.hidden,
            (shape.query_rank, shape.head),
            Shard.REPLICATED,
            fused=("wq_a", "wkv"),
        ),
        context.norm("q_norm", shape.query_rank),
        context.linear(f"{path}.wq_b", shape.query_rank, heads, Shard.COLUMN),
        context.norm("kv_norm", shape.head),
        context.linear(
            f"{path}.wo_a",
            max(1, shape.heads * shape.head // shape.groups),
            shape.groups * shape.output_rank,
            Shard.COLUMN,
        ),
        context.linear(
            f"{path}.wo_b",
            shape.groups * shape.output_rank,
            shape.hidden,
            Shard.ROW,
        ),
    )
    if ratio > 1:
        base = (*base, *_compressor(context, f"{path}.compressor", shape.hidden, shape.head, ratio))
    if ratio != INDEXED_RATIO:
        return base
    indexer = shape.indexer
    return (
        *base,
        context.linear(
            f"{path}.indexer.wq_b", shape.query_rank, indexer.head * indexer.heads, Shard.REPLICATED
        ),
        context.linear(
            f"{path}.indexer.weights_proj", shape.hidden, indexer.heads, Shard.REPLICATED, quantized=False
        ),
        *_compressor(context, f"{path}.indexer.compressor", shape.hidden, indexer.head, ratio),
    )


def _state_cache(head: int, ratio: int) -> Cache:
    """The compressor's running sums (float32), kept for the tokens of the open window."""
    overlap = 2 if ratio == INDEXED_RATIO else 1
    width = 2 * overlap * head
    return Cache(
        kind=CacheKind.SLIDING_LATENT,
        head_size=width,
        window=overlap * ratio,
        fixed_bytes_per_token=width * FLOAT32,
        page_tokens=STATE_PAGES[ratio],
        page_alignment=PAGE_ALIGNMENT,
    )


def layer_caches(shape: CompressedShape, ratio: int) -> tuple[Cache, ...]:
    """The sliding window of every layer, the compressed states, the indexer's and the compressors' sums."""
    sliding = Cache(
        kind=CacheKind.SLIDING_LATENT,
        head_size=shape.head,
        window=shape.window,
        fixed_bytes_per_token=PACKED_BYTES,
        page_tokens=SLIDING_PAGE_TOKENS,
        page_alignment=PAGE_ALIGNMENT,
    )
    if ratio <= 1:
        return (sliding,)
    compressed = Cache(
        kind=CacheKind.LATENT,
        head_size=shape.head,
        tokens_per_state=ratio,
        fixed_bytes_per_token=PACKED_BYTES,
        page_tokens=PAGE_TOKENS,
        page_alignment=PAGE_ALIGNMENT,
    )
    states = _state_cache(shape.head, ratio)
    if ratio != INDEXED_RATIO:
        return (sliding, compressed, states)
    keys = replace(
        indexer_cache(shape.indexer, tokens_per_state=ratio),
        page_tokens=PAGE_TOKENS,
        page_alignment=PAGE_ALIGNMENT,
    )
    return (sliding, keys, _state_cache(shape.indexer.head, ratio), compressed, states)


def _shared_experts(context: Context, path: str, shape: CompressedShape) -> tuple[Linear, ...]:
    """Shared experts; block-quantized ones are divided by whole blocks, rounded up on every rank."""
    parts = context.gated_mlp(path, shape.hidden, shape.shared)
    if parts[0].scheme != UNQUANTIZED and context.quantizer.name in {"fp8", "deepseek_v4_fp8"}:
        blocks = Partition(units=max(1, shape.shared // BLOCK_ROWS), unit_size=BLOCK_ROWS, uneven=True)
        parts = (replace(parts[0], outputs=(blocks, blocks)), replace(parts[1], inputs=blocks))
    return tuple(replace(part, token_parallel=True) for part in parts)


def _experts(context: Context, path: str, shape: CompressedShape, *, hashed: bool) -> tuple[Part, ...]:
    table = Tensor(name="tid2eid", partition=Partition(units=shape.vocabulary * shape.top_k), itemsize=4)
    return parts_of(
        context.linear(f"{path}.gate", shape.hidden, shape.experts, Shard.REPLICATED, quantized=False),
        (table,) if hashed else (),
        (_float32("e_score_correction_bias", shape.experts),)
        if shape.corrected and (not hashed or shape.pictures)
        else (),
        (_float32("bias_vl", shape.experts),) if shape.pictures else (),
        _shared_experts(context, f"{path}.shared_experts", shape) if shape.shared else (),
        context.experts(f"{path}.experts", shape.experts, shape.top_k, shape.hidden, shape.intermediate),
    )


def _mixes(shape: CompressedShape) -> tuple[Part, ...]:
    """Hyper-connections before attention and before the experts, in float32."""
    outputs = (2 + shape.streams) * shape.streams
    size = outputs * shape.streams * shape.hidden + outputs + SCALES_PER_MIX
    return (_float32("hc_attn", size), _float32("hc_ffn", size))


def _stream_head(shape: CompressedShape) -> Tensor:
    """What joins the residual streams again, in float32."""
    return _float32("hc_head", shape.streams * shape.streams * shape.hidden + shape.streams + 1)


def compressed_layer(context: Context, prefix: str, index: int, shape: CompressedShape) -> Layer:
    """Decoder layer `index`; one past the last is a draft's."""
    path = f"{prefix}.layers.{index}"
    ratio = shape.ratio(index)
    return Layer(
        name="decoder",
        parts=parts_of(
            _attention(context, f"{path}.attn", shape, ratio),
            _experts(context, f"{path}.ffn", shape, hashed=index < shape.hashed),
            context.norm("attn_norm", shape.hidden),
            context.norm("ffn_norm", shape.hidden),
            _mixes(shape),
        ),
        caches=layer_caches(shape, ratio),
        intermediate=shape.shared,
    )


def _drafts(context: Context, config: ConfigView, prefix: str, shape: CompressedShape) -> tuple[Layer, ...]:
    hidden, first = shape.hidden, layer_count(config)
    drafts = []
    for index in range(first, first + draft_count(config)):
        path = f"{prefix}.layers.{index}"
        block = compressed_layer(context, prefix, index, shape)
        front = (
            context.norm("enorm", hidden),
            context.norm("hnorm", hidden),
            context.linear(f"{path}.e_proj", hidden, hidden, Shard.REPLICATED),
            context.linear(f"{path}.h_proj", hidden, hidden, Shard.REPLICATED),
            _stream_head(shape),
            context.norm("shared_head.norm", hidden),
        )
        drafts.append(replace(block, name="draft", parts=(*front, *block.parts)))
    return tuple(drafts)


def _rotary(config: ConfigView, shape: CompressedShape) -> tuple[ResidentPart, ...]:
    """A float32 table for the compressed layers and one for those with the sliding window alone."""
    positions = config.integer("max_position_embeddings", default=8192, least=0)
    width = config.integer("qk_rope_head_dim")
    rope = rope_parameters(config)
    rope = rope.view("compress") if "compress" in rope else rope
    scaled = positions
    if rope.text("rope_type", "type", default="default") != "default":
        original = rope.integer("original_max_position_embeddings", default=positions, least=0)
        scaled = int(original * min(1e6, max(0.0, rope.number("factor", default=1.0))))
    ratios = [shape.ratio(index) for index in range(len(shape.ratios))]
    tables = []
    if any(ratio > 1 for ratio in ratios):
        tables.append(rotary_buffer(scaled, width, FLOAT32))
    plain = [index for index, ratio in enumerate(ratios) if ratio <= 1]
    if plain:
        table = rotary_buffer(positions, width, FLOAT32)
        tables.append(replace(table, residence=Residence.FIRST) if max(plain) * 2 < len(ratios) else table)
    return tuple(tables)


def build_deepseek_v4(context: Context) -> Blueprint:
    """DeepSeek-V4 Flash and Pro."""
    config = context.config
    shape = compressed_shape(config)
    return Blueprint(
        layers=tuple(
            compressed_layer(context, "model", index, shape) for index in range(layer_count(config))
        ),
        drafts=_drafts(context, config, "model", shape),
        parts=(
            *context.vocabulary_parts(shape.vocabulary, shape.hidden, tied=False),
            final_norm(context, shape.hidden),
            ResidentPart(part=_stream_head(shape), residence=Residence.EVERY),
            *_rotary(config, shape),
        ),
        hidden=shape.hidden,
        vocabulary=shape.vocabulary,
        attention_heads=shape.heads,
        kv_heads=1,
        head_size=shape.head,
        kv_cache_dtype="fp8_ds_mla",
        assumptions=("the vision tower is not counted",) if shape.pictures else (),
    )


BUILDERS: dict[str, Builder] = {
    "DeepseekV4ForCausalLM": build_deepseek_v4,
    "DeepseekV4ForConditionalGeneration": build_deepseek_v4,
}
