"""Multi-head latent attention (MLA): projections, the latent cache, the sparse indexer and the rotary table.

vLLM 0.32: vllm/model_executor/models/deepseek_v2.py (DeepseekV2MLAAttention, Indexer),
vllm/models/deepseek_v32/attention.py, vllm/model_executor/layers/attention/mla_attention.py.
"""

from dataclasses import dataclass

from gpuplan.domain.model import Cache, CacheKind, Part, Partition, ResidentPart, Shard, Tensor
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import Context, parts_of, rotary_buffer

FLOAT32 = 4
INDEXER_BLOCK = 128
"""Values of an indexer key that share one float32 scale."""
PACKED_BYTES = 656
"""One token of an fp8_ds_mla cache: 512 8-bit values, four float32 scales, 64 rotary values in bfloat16."""
LARGEST_TABLE = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentShape:
    """Widths of one latent attention layer."""

    hidden: int
    heads: int
    nope: int
    """Width per head without a position."""
    rope: int
    """Width per head with a rotary position; the key's is shared by all heads."""
    value: int
    query_rank: int | None
    """None: the query is projected directly."""
    rank: int
    """Width of the latent that is cached."""

    @property
    def head(self) -> int:
        """Width of one query head."""
        return self.nope + self.rope


def latent_shape(config: ConfigView, *, hidden: int | None = None) -> LatentShape:
    """The widths a config states under the names all MLA families share."""
    return LatentShape(
        hidden=config.integer("hidden_size") if hidden is None else hidden,
        heads=config.integer("num_attention_heads"),
        nope=config.integer("qk_nope_head_dim"),
        rope=config.integer("qk_rope_head_dim"),
        value=config.integer("v_head_dim"),
        query_rank=config.optional_integer("q_lora_rank", least=1),
        rank=config.integer("kv_lora_rank"),
    )


def latent_attention(context: Context, path: str, shape: LatentShape) -> tuple[Part, ...]:
    """Projections and norms: the down-projections stand whole on every rank, the rest is divided by heads."""
    latent = shape.rank + shape.rope
    heads = Partition(units=shape.heads, unit_size=shape.head)
    query: tuple[Part, ...]
    if shape.query_rank is None:
        query = (
            context.linear(f"{path}.kv_a_proj_with_mqa", shape.hidden, latent, Shard.REPLICATED),
            context.linear(f"{path}.q_proj", shape.hidden, heads, Shard.COLUMN),
        )
    else:
        query = (
            context.linear(
                f"{path}.fused_qkv_a_proj",
                shape.hidden,
                (shape.query_rank, latent),
                Shard.REPLICATED,
                fused=("q_a_proj", "kv_a_proj_with_mqa"),
            ),
            context.norm("q_a_layernorm", shape.query_rank),
            context.linear(f"{path}.q_b_proj", shape.query_rank, heads, Shard.COLUMN),
        )
    return (*query, *latent_output(context, path, shape))


def latent_output(context: Context, path: str, shape: LatentShape) -> tuple[Part, ...]:
    """Norm and up-projection of the latent, and the output projection."""
    return (
        context.norm("kv_a_layernorm", shape.rank),
        context.linear(
            f"{path}.kv_b_proj",
            shape.rank,
            Partition(units=shape.heads, unit_size=shape.nope + shape.value),
            Shard.COLUMN,
        ),
        context.linear(
            f"{path}.o_proj", Partition(units=shape.heads, unit_size=shape.value), shape.hidden, Shard.ROW
        ),
    )


def latent_cache(shape: LatentShape, *, sparse: bool = False, window: int | None = None) -> Cache:
    """A latent and a rotary key per token, whole on every rank; `sparse` kernels pack 8-bit ones with scales."""
    return Cache(
        kind=CacheKind.LATENT if window is None else CacheKind.SLIDING_LATENT,
        heads=1,
        head_size=shape.rank + shape.rope,
        window=window,
        packed_float8_bytes=PACKED_BYTES if sparse else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexerShape:
    """The lightning indexer of sparse attention (DSA)."""

    heads: int
    head: int
    chosen: int = 0
    """Entries it chooses per token."""
    frequency: int = 1
    """Every so many layers have one of their own; the others use the last one's choice."""
    offset: int = 2
    pattern: str | tuple[str, ...] | None = None
    """One letter per layer, S: shares."""

    def stands_on(self, index: int) -> bool:
        """Whether decoder layer `index` has an indexer (vllm/models/deepseek_v32/attention.py)."""
        if self.pattern is None:
            return max(index - self.offset + 1, 0) % self.frequency == 0
        return index >= len(self.pattern) or self.pattern[index] != "S"


def indexer_shape(config: ConfigView) -> IndexerShape | None:
    """The indexer a config asks for, None without sparse attention."""
    if "index_topk" not in config:
        return None
    pattern = config.raw("index_topk_pattern")
    if pattern is not None and not isinstance(pattern, str):
        pattern = tuple(str(item) for item in config.items("index_topk_pattern"))
    return IndexerShape(
        heads=config.integer("index_n_heads"),
        head=config.integer("index_head_dim"),
        chosen=config.integer("index_topk"),
        frequency=config.integer("index_topk_freq", default=1),
        offset=config.integer("index_skip_topk_offset", default=2, least=0),
        pattern=pattern,
    )


def indexer_parts(context: Context, path: str, shape: LatentShape, indexer: IndexerShape) -> tuple[Part, ...]:
    """Projections and norm of the indexer, whole on every rank; only the query projection is quantized."""
    return (
        context.linear(
            f"{path}.indexer.wq_b",
            shape.query_rank or shape.hidden,
            indexer.head * indexer.heads,
            Shard.REPLICATED,
        ),
        context.linear(
            f"{path}.indexer.wk_weights_proj",
            shape.hidden,
            (indexer.head, indexer.heads),
            Shard.REPLICATED,
            quantized=False,
        ),
        Tensor(name="indexer.k_norm", partition=Partition(units=2 * indexer.head), itemsize=FLOAT32),
    )


def indexer_cache(indexer: IndexerShape, *, tokens_per_state: int = 1) -> Cache:
    """An 8-bit key and its float32 scales per token (132 bytes for a head of 128)."""
    width = indexer.head + indexer.head // INDEXER_BLOCK * FLOAT32
    return Cache(
        kind=CacheKind.INDEXER,
        heads=1,
        head_size=width,
        fixed_bytes_per_token=width,
        tokens_per_state=tokens_per_state,
        chosen=indexer.chosen,
    )


def sparse_layer(
    context: Context, path: str, shape: LatentShape, indexer: IndexerShape | None, *, shared: bool = False
) -> tuple[tuple[Part, ...], tuple[Cache, ...]]:
    """Parts and caches of a latent attention layer; `shared`: it attends by another layer's indexer."""
    attention = latent_attention(context, path, shape)
    if indexer is None:
        return attention, (latent_cache(shape),)
    latent = latent_cache(shape, sparse=True)
    if shared:
        return attention, (latent,)
    return parts_of(attention, indexer_parts(context, path, shape, indexer)), (indexer_cache(indexer), latent)


def rope_parameters(config: ConfigView) -> ConfigView:
    """Rotary settings under either name."""
    return config.view("rope_parameters", "rope_scaling")


def latent_rotary(
    context: Context, config: ConfigView, width: int, *, tables: int = 1, itemsize: int | None = None
) -> ResidentPart:
    """The cos/sin tables: YaRN's in float32 over the scaled context, else in the model's type."""
    rope = rope_parameters(config)
    positions = config.integer("max_position_embeddings", default=8192, least=0)
    kind = rope.text("rope_type", "type", default="default")
    if kind == "default":
        return rotary_buffer(positions * tables, width, context.itemsize if itemsize is None else itemsize)
    original = rope.integer("original_max_position_embeddings", default=positions, least=0)
    rows = min(LARGEST_TABLE, max(0, int(original * min(1e6, max(0.0, rope.number("factor", default=1.0))))))
    return rotary_buffer(rows * tables, width, FLOAT32)
