"""Dense decoders that differ in norms, biases, sliding layers and where their vocabulary stands: one recipe each.

The families themselves are in `gemma`, `misc_dense` and the vision-language modules.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from gpuplan.domain.model import Layer, Part, Partition, Residence, ResidentPart, Shard, Tensor
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import Blueprint, Context, attention_cache, layer_count, parts_of

SLIDING, FULL = "sliding_attention", "full_attention"


class HeadNorms(StrEnum):
    """Norms of query and key."""

    NONE = "none"
    HEAD = "head"
    """One vector of a head's width each."""
    WHOLE = "whole"
    """One vector over all heads each, on every rank."""
    SHARDED = "sharded"
    """One vector over all heads each, divided by heads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What every decoder has, under any of the names configs give it."""

    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    layers: int

    @classmethod
    def of(
        cls, config: ConfigView, *, kv_default: int | None = None, intermediate: int | None = None
    ) -> "Sizes":
        """Read from `config`; raises ModelError naming what is missing or impossible."""
        hidden = config.integer("hidden_size", "n_embd", "d_model", "n_embed")
        heads = config.integer("num_attention_heads", "n_head", "n_heads", "num_heads")
        return cls(
            hidden=hidden,
            heads=heads,
            kv_heads=config.integer("num_key_value_heads", "num_kv_heads", default=kv_default or heads),
            head_size=config.integer("head_dim", default=max(1, hidden // heads)),
            intermediate=config.integer(
                "intermediate_size",
                "n_inner",
                "ffn_hidden_size",
                "ffn_dim",
                default=intermediate or 4 * hidden,
            ),
            vocabulary=config.integer("vocab_size", "padded_vocab_size"),
            layers=layer_count(config, "num_hidden_layers", "n_layer", "num_layers", "n_layers"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a family builds its layers; the defaults are Llama's."""

    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    gated: bool = True
    names: tuple[str, str, str, str] = ("self_attn", "qkv_proj", "o_proj", "mlp")
    """Modules: attention, its projections, the MLP."""
    plain_names: tuple[str, str] = ("up_proj", "down_proj")
    """Linear layers of an MLP without gate."""
    norms: int = 2
    """Vectors of hidden width per layer."""
    norm_bias: bool = False
    head_norms: HeadNorms = HeadNorms.NONE
    head_norm_bias: bool = False
    sliding: tuple[bool, ...] = ()
    """Whether each layer slides; empty: none does."""
    window: int | None = None
    final_norm: bool = True
    norm_everywhere: bool = False
    everywhere: bool = False
    """Embedding and head stand on every pipeline stage."""
    head_everywhere: bool | None = None
    tied: bool = False
    head_bias: bool = False
    prefix: str = "model"
    stacked: bool = False
    """The checkpoint stacks query, key and value (and gate and up) itself."""
    stacked_mlp: bool = False
    """It stacks gate and up alone."""
    caches: bool = True
    """False: attention in both directions, nothing is kept."""
    supports_pipeline: bool = True
    extra: Callable[[int, str], tuple[Part, ...]] | None = None
    """Further parts of a layer by number and path."""


def sliding_layers(
    config: ConfigView, count: int, *, period: int = 0, first_full: int = 0
) -> tuple[bool, ...]:
    """Which layers slide: `layer_types`, else all but every `period`-th (counted from one); 0: none without a list.

    Raises ModelError for a list that does not name each layer.
    """
    kinds = config.items("layer_types")
    if kinds:
        if len(kinds) < count:
            raise config.error("layer_types", f"holds {len(kinds)} entries for {count} layers")
        return tuple(kind == SLIDING for kind in kinds[:count])
    return tuple(bool(period and (index + 1) % period) and index >= first_full for index in range(count))


def windowed(config: ConfigView, count: int, recipe: Recipe) -> Recipe:
    """The recipe with the window every layer has, or those `layer_types` names (llama.py, attention.py).

    A window that is set slides every layer unless the config lists types; 0 is none.
    """
    window = config.optional_integer("sliding_window")
    if not window or not config.flag("use_sliding_window", default=True):
        return recipe
    listed = config.items("layer_types")
    return replace(
        recipe, window=window, sliding=sliding_layers(config, count) if listed else (True,) * count
    )


def decoder(context: Context, size: Sizes, recipe: Recipe, *outside: ResidentPart) -> Blueprint:
    """The blueprint of a recipe; `outside` are parts beyond embedding, head and final norm (rotary tables, positions)."""
    kinds: dict[bool, tuple[Part, ...]] = {}
    alike = context.quantizer.name is None and recipe.extra is None

    def parts(index: int, slides: bool) -> tuple[Part, ...]:
        if alike and slides in kinds:
            return kinds[slides]
        kinds[slides] = layer_parts(context, size, recipe, f"{recipe.prefix}.layers.{index}", index)
        return kinds[slides]

    def layer(index: int) -> Layer:
        slides = bool(recipe.sliding and recipe.sliding[index] and recipe.window)
        cache = attention_cache(size.kv_heads, size.head_size, window=recipe.window if slides else None)
        return Layer(
            name="sliding" if slides else "decoder",
            parts=parts(index, slides),
            caches=(cache,) if recipe.caches else (),
            intermediate=size.intermediate,
        )

    vocabulary = context.vocabulary_parts(
        size.vocabulary,
        size.hidden,
        tied=recipe.tied,
        prefix=recipe.prefix,
        everywhere=recipe.everywhere,
        head_everywhere=recipe.head_everywhere,
        head_bias=recipe.head_bias,
    )
    residence = Residence.EVERY if recipe.norm_everywhere else Residence.LAST
    norm = ResidentPart(part=context.norm("norm", size.hidden, bias=recipe.norm_bias), residence=residence)
    return Blueprint(
        layers=tuple(layer(index) for index in range(size.layers)),
        parts=(*vocabulary, *((norm,) if recipe.final_norm else ()), *outside),
        hidden=size.hidden,
        vocabulary=size.vocabulary,
        attention_heads=size.heads,
        kv_heads=size.kv_heads,
        head_size=size.head_size,
        supports_pipeline=recipe.supports_pipeline,
    )


def layer_parts(context: Context, size: Sizes, recipe: Recipe, path: str, index: int) -> tuple[Part, ...]:
    """One decoder layer of a recipe at `path`."""
    attention, qkv, output, mlp = recipe.names
    projections, back = context.attention(
        f"{path}.{attention}",
        size.hidden,
        size.heads,
        size.kv_heads,
        size.head_size,
        bias=recipe.qkv_bias,
        output_bias=recipe.output_bias,
        qkv=qkv,
        output=output,
    )
    if recipe.stacked:
        projections = replace(projections, scheme=context.quantizer.linear(f"{path}.{attention}.{qkv}"))
    return parts_of(
        projections,
        back,
        _mlp(context, size, recipe, f"{path}.{mlp}" if mlp else path),
        (context.norm("norms", recipe.norms * size.hidden, bias=recipe.norm_bias),) if recipe.norms else (),
        head_norms(context, size, recipe.head_norms, bias=recipe.head_norm_bias),
        recipe.extra(index, path) if recipe.extra else (),
    )


def _mlp(context: Context, size: Sizes, recipe: Recipe, path: str) -> tuple[Part, ...]:
    if recipe.gated:
        first, second = context.gated_mlp(path, size.hidden, size.intermediate, bias=recipe.mlp_bias)
        if recipe.stacked or recipe.stacked_mlp:
            first = replace(first, scheme=context.quantizer.linear(f"{path}.gate_up_proj"))
        return (first, second)
    up, down = recipe.plain_names
    return plain_mlp(
        context, f"{path}.{up}", f"{path}.{down}", size.hidden, size.intermediate, bias=recipe.mlp_bias
    )


def plain_mlp(
    context: Context, up: str, down: str, hidden: int, intermediate: int, *, bias: bool
) -> tuple[Part, ...]:
    """An MLP without gate: the paths of its two linear layers."""
    return (
        context.linear(up, hidden, intermediate, Shard.COLUMN, bias=bias),
        context.linear(down, intermediate, hidden, Shard.ROW, bias=bias),
    )


def head_norms(context: Context, size: Sizes, kind: HeadNorms, *, bias: bool = False) -> tuple[Part, ...]:
    """The norms of query and key."""
    if kind is HeadNorms.NONE:
        return ()
    if kind is HeadNorms.HEAD:
        return (context.norm("q_norm, k_norm", 2 * size.head_size, bias=bias),)
    if kind is HeadNorms.WHOLE:
        return (context.norm("q_norm, k_norm", (size.heads + size.kv_heads) * size.head_size, bias=bias),)
    return tuple(
        sharded_vector(context, name, Partition(units=units, unit_size=size.head_size, replicable=True))
        for name, units in (("q_norm", size.heads), ("k_norm", size.kv_heads))
    )


def sharded_vector(context: Context, name: str, partition: Partition) -> Part:
    """A vector divided over the ranks."""
    return Tensor(name=name, partition=partition, itemsize=context.itemsize, sharded=True)
