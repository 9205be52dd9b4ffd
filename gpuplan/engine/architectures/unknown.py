"""An architecture nobody described: the best evidence there is, labelled, never a crash.

Checkpoint bytes decide the weights where they are known; the config's ordinary fields decide the cache; the size in
the name is the last resort (S0.1).
"""

import re

from gpuplan.domain.model import Layer, Partition, Residence, ResidentPart, Tensor
from gpuplan.engine.architectures.config_view import MISSING, ConfigView
from gpuplan.engine.architectures.context import (
    Blueprint,
    Context,
    attention_cache,
    final_norm,
    layer_count,
    parts_of,
)
from gpuplan.engine.weights import Split, part_bytes
from gpuplan.errors import ConfigError

_SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)b(?![a-z0-9])", re.IGNORECASE)


def size_from_name(name: str) -> float | None:
    """Parameters the name states, in billions (`…-7B` is 7.0, `0.5b` is 0.5); None when it states none (S0.1)."""
    sizes = [float(match) for match in _SIZE.findall(name.rpartition("/")[2])]
    return max(sizes, default=None)


def build_unknown(context: Context, name: str, checkpoint_bytes: int | None) -> Blueprint:
    """A plain decoder read from the ordinary fields, its weights scaled to what the checkpoint or the name says.

    Raises ModelError when neither the config, the checkpoint nor the name tells a size.
    """
    config = context.config
    text = config.view("text_config") if "text_config" in config else config
    try:
        plain = _plain(context, text)
    except ConfigError as error:
        if error.problem != MISSING:
            raise
        return _sized(context, name, checkpoint_bytes, error)
    assumptions = [f"{context.architecture or 'this model'} is read as an ordinary decoder"]
    layers = plain.layers
    if checkpoint_bytes is not None:
        layers = _scaled(plain, checkpoint_bytes)
        assumptions.append("weights are the checkpoint's bytes, divided evenly over layers and ranks")
    return Blueprint(
        layers=layers,
        parts=plain.parts,
        hidden=plain.hidden,
        vocabulary=plain.vocabulary,
        attention_heads=plain.attention_heads,
        kv_heads=plain.kv_heads,
        head_size=plain.head_size,
        assumptions=tuple(assumptions),
        recognised=False,
        text_view=text,
    )


def _plain(context: Context, text: ConfigView) -> Blueprint:
    hidden = text.integer("hidden_size", "n_embd", "d_model", "dim")
    heads = text.integer("num_attention_heads", "n_head", "n_heads", "num_heads")
    kv_heads = text.integer(
        "num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num", default=heads
    )
    head_size = text.integer("head_dim", default=max(1, hidden // heads))
    intermediate = text.integer("intermediate_size", "n_inner", "ffn_hidden_size", "d_ff", default=4 * hidden)
    vocabulary = text.integer("vocab_size", "padded_vocab_size")
    experts = text.integer("num_experts", "num_local_experts", "n_routed_experts", default=0, least=0)
    width = text.integer("moe_intermediate_size", "expert_ffn_hidden_size", default=intermediate)

    def layer(index: int) -> Layer:
        path = f"model.layers.{index}"
        mlp = (
            (context.experts(f"{path}.mlp.experts", experts, 1, hidden, width),)
            if experts
            else context.gated_mlp(f"{path}.mlp", hidden, intermediate)
        )
        return Layer(
            name="decoder",
            parts=parts_of(context.attention(f"{path}.self_attn", hidden, heads, kv_heads, head_size), mlp),
            caches=(attention_cache(kv_heads, head_size),),
            intermediate=0 if experts else intermediate,
        )

    return Blueprint(
        layers=tuple(layer(index) for index in range(layer_count(text))),
        parts=(
            *context.vocabulary_parts(vocabulary, hidden, tied=text.flag("tie_word_embeddings")),
            final_norm(context, hidden),
        ),
        hidden=hidden,
        vocabulary=vocabulary,
        attention_heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
    )


def _scaled(plain: Blueprint, checkpoint_bytes: int) -> tuple[Layer, ...]:
    """Layers whose parameters are an even share of what the checkpoint holds beside the vocabulary."""
    outside = sum(part_bytes(part.part, Split()) for part in plain.parts if not part.buffer)
    share = max(0, checkpoint_bytes - outside) // len(plain.layers)
    even = Tensor(name="all parameters of the layer", partition=_even(share), itemsize=1, sharded=True)
    return tuple(
        Layer(name=layer.name, parts=(even,), caches=layer.caches, intermediate=layer.intermediate)
        for layer in plain.layers
    )


TENSOR_SIZES = 5040 * 1024
"""A multiple of every tensor-parallel size in use: shares of unknown parts are rounded up to it."""


def _even(size: int) -> Partition:
    return Partition(units=TENSOR_SIZES, unit_size=max(1, -(-size // TENSOR_SIZES)))


def _sized(context: Context, name: str, checkpoint_bytes: int | None, error: ConfigError) -> Blueprint:
    """No layout at all: one lump of weights and no cache that can be computed."""
    billions = size_from_name(name)
    if checkpoint_bytes is None and billions is None:
        known = f"the architecture {context.architecture[:60]!r} is not known"
        named = known if context.architecture else "no architecture is named"
        raise ConfigError(
            error.document,
            error.keys,
            f"{error.problem}; {named}, and neither the files nor the name tell the model's size",
            hint="complete the config, or plan with --vram-claim SIZE",
        )
    size = checkpoint_bytes if checkpoint_bytes is not None else int((billions or 0) * 1e9 * context.itemsize)
    told = (
        "the checkpoint's size"
        if checkpoint_bytes is not None
        else f"the size in the name ({billions:g} billion parameters)"
    )
    lump = Tensor(name="all parameters", partition=_even(size), itemsize=1, sharded=True)
    return Blueprint(
        layers=(),
        parts=(ResidentPart(part=lump, residence=Residence.EVERY),),
        hidden=0,
        vocabulary=0,
        attention_heads=0,
        kv_heads=0,
        head_size=0,
        supports_pipeline=False,
        recognised=False,
        assumptions=(f"weights are {told}; the KV cache is unknown and counted as nothing",),
    )
