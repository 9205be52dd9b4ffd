"""What one layer does on one rank for a token: bytes of weights read, operations, bytes of cache read, kernels started.

Kernels are counted by what a layer has to do, not in a trace.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from gpuplan.domain.hardware import Accelerator
from gpuplan.domain.model import (
    Cache,
    CacheKind,
    Embedding,
    Experts,
    Float4,
    Float8,
    Integer8,
    Layer,
    Linear,
    MicroscaledFloat8,
    ModelProfile,
    Part,
    Scheme,
    Shard,
)
from gpuplan.engine.kv_pages import CacheSettings, attention_page_bytes, state_bytes
from gpuplan.engine.tensors import local_shape
from gpuplan.engine.weights import Split, part_bytes

FAST_FOUR_BIT = ("blackwell", "cdna4")
"""Their 4-bit units are twice as fast as their 8-bit ones (data sheets of B200, GB10, MI355X)."""


class Arithmetic(StrEnum):
    """What a matrix product is computed in. Weights stored in fewer bits alone are widened: half."""

    HALF = "half"
    FLOAT8 = "float8"
    INTEGER8 = "integer8"
    FLOAT4 = "float4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Matrix products in one arithmetic: bytes read whatever the batch, operations per token."""

    arithmetic: Arithmetic
    weight_bytes: int
    operations: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertWork:
    """Routed experts of a layer on one rank."""

    product: Product
    """All experts of the rank; operations are those of a token's own `top_k`, divided over the ranks."""
    count: int
    top_k: int

    def read_share(self, tokens: float) -> float:
        """Expected share of the experts that at least one of the tokens chooses, each choosing evenly."""
        return float(1 - (1 - min(1.0, self.top_k / self.count)) ** max(tokens, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWork:
    """One kind of layer on one rank."""

    products: tuple[Product, ...]
    other_bytes: int
    """Norms, routers, convolutions."""
    experts: tuple[ExpertWork, ...]
    reductions: int
    """All-reduces of a tensor-parallel group."""
    kernels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionWork:
    """Caches of one layer on one rank, for one sequence."""

    read_bytes: float
    operations: float
    """Per new token."""


def arithmetic_of(scheme: Scheme) -> Arithmetic:
    """What the kernels of a scheme compute in, on hardware that can."""
    match scheme:
        case Float8() | MicroscaledFloat8():
            return Arithmetic.FLOAT8
        case Integer8():
            return Arithmetic.INTEGER8
        case Float4():
            return Arithmetic.FLOAT4
        case _:
            return Arithmetic.HALF


def operations_per_second(card: Accelerator, arithmetic: Arithmetic) -> float | None:
    """Dense peak; None where the data sheet's figure is not known.

    Hardware without the units widens the weights (Marlin kernels). 8-bit integers run at twice the 16-bit rate on NVIDIA
    cards from Turing on.
    """
    half, eight = card.half_flops, card.fp8_flops
    match arithmetic:
        case Arithmetic.FLOAT8:
            return eight or half
        case Arithmetic.INTEGER8:
            twice = 2 * half if half and card.architecture in ("turing", "ampere") else None
            return eight or twice or half
        case Arithmetic.FLOAT4:
            return 2 * eight if eight and card.architecture in FAST_FOUR_BIT else half
        case _:
            return half


@lru_cache(maxsize=4096)
def layer_work(layer: Layer, split: Split) -> LayerWork:
    """A layer's parts on one rank. Raises Indivisible."""
    products: dict[Arithmetic, list[float]] = {}
    other = rows = 0
    experts: list[ExpertWork] = []
    kernels = 2  # norms
    for part in layer.parts:
        match part:
            case Experts():
                experts.append(_experts(part, split))
                kernels += 7  # choosing, sorting, quantizing, two products, activation, sum
            case Linear():
                found = _product(part, split)
                sums = products.setdefault(found.arithmetic, [0, 0.0])
                sums[0] += found.weight_bytes
                sums[1] += found.operations
                kernels += 1 if found.arithmetic is Arithmetic.HALF else 2
                rows += part.shard is Shard.ROW
            case _:
                other += part_bytes(part, split)
    kernels += sum(_kernels(cache) for cache in layer.caches) + (1 if layer.intermediate else 0)
    return LayerWork(
        products=tuple(
            Product(arithmetic=kind, weight_bytes=int(size), operations=work)
            for kind, (size, work) in products.items()
        ),
        other_bytes=other,
        experts=tuple(experts),
        reductions=min(2, rows + len(experts)),
        kernels=kernels,
    )


def _kernels(cache: Cache) -> int:
    match cache.kind:
        case CacheKind.LATENT | CacheKind.SLIDING_LATENT:
            return 12  # norms of the latents, rotation, both absorbed products, the cache, attention and its merge
        case CacheKind.INDEXER | CacheKind.STATE:
            return 8
        case _:
            return 4  # rotation, the cache, attention and its merge


def _product(part: Linear, split: Split) -> Product:
    outputs, inputs = local_shape(part, split)
    return Product(
        arithmetic=arithmetic_of(part.scheme),
        weight_bytes=part_bytes(part, split),
        operations=2.0 * outputs * inputs,
    )


def _experts(part: Experts, split: Split) -> ExpertWork:
    matrices = 3 if part.gated else 2
    ranks = split.expert_ranks * split.expert_tensor
    return ExpertWork(
        product=Product(
            arithmetic=arithmetic_of(part.scheme),
            weight_bytes=part_bytes(part, split),
            operations=2.0 * part.top_k * matrices * part.hidden * part.intermediate / ranks,
        ),
        count=part.count,
        top_k=part.top_k,
    )


def head_work(part: Part, split: Split) -> Product:
    """The output head, which is read whole."""
    assert isinstance(part, Embedding)
    return Product(
        arithmetic=Arithmetic.HALF,
        weight_bytes=part_bytes(part, split),
        operations=2.0 * part.rows * part.width / (split.tensor if part.sharded else 1),
    )


def attention_work(
    layer: Layer, profile: ModelProfile, settings: CacheSettings, context: float
) -> AttentionWork:
    """What one new token reads of a sequence of `context` tokens, and computes with it."""
    size = work = 0.0
    chosen = max((cache.chosen for cache in layer.caches), default=0)
    for cache in layer.caches:
        if cache.kind is CacheKind.STATE:
            held = state_bytes(cache, settings)
            size += 2 * held  # read and written
            work += 2 * held
            continue
        seen = entries_seen(cache, context, chosen) / max(settings.context_shards, 1)
        size += (
            seen / 1024 * attention_page_bytes(cache, profile, settings, 1024, settings.engine.kv_cache_dtype)
        )
        work += seen * _operations_per_entry(cache, profile, settings.tensor)
    return AttentionWork(read_bytes=size, operations=work)


def entries_seen(cache: Cache, context: float, chosen: int) -> float:
    """Tokens of the cache that attention looks at: a window, what the indexer chose, or all."""
    seen = context
    if cache.window is not None:
        seen = min(seen, cache.window)
    if chosen and cache.kind is not CacheKind.INDEXER:
        seen = min(seen, chosen * cache.tokens_per_state)
    return seen


def _operations_per_entry(cache: Cache, profile: ModelProfile, tensor: int) -> float:
    """Products of a query with a key, and of its weight with a value, over the heads of a rank."""
    heads = max(1, profile.attention_heads // tensor)
    width = cache.head_size or profile.head_size
    return heads * (2.0 * width + 2.0 * (cache.head_size_v or width)) / cache.tokens_per_state
