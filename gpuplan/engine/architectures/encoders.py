"""Encoders that embed, rank and classify: BERT, RoBERTa, ModernBERT, GTE, Nomic. Nothing is cached.

vLLM 0.32: vllm/model_executor/models/{bert,roberta,modernbert,bert_with_rope}.py.
"""

from dataclasses import dataclass, replace

from gpuplan.domain.model import (
    Embedding,
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
from gpuplan.engine.architectures.context import Blueprint, Builder, Context, layer_count, rotary_buffer
from gpuplan.engine.architectures.moe import MOST_EXPERTS, expert_count, router

FLOAT32, INTEGER = 4, 8
MOST_LABELS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """The sizes of an encoder."""

    hidden: int
    heads: int
    wide: int
    layers: int
    vocabulary: int
    positions: int
    types: int

    @classmethod
    def of(cls, config: ConfigView) -> "_Sizes":
        hidden = config.integer("hidden_size", "n_embd", default=768)
        heads = config.integer("num_attention_heads", "n_head", default=12)
        if hidden % heads:
            raise config.error(
                "num_attention_heads", f"is {heads}, which does not divide hidden_size {hidden}"
            )
        return cls(
            hidden=hidden,
            heads=heads,
            wide=config.integer("intermediate_size", "n_inner", default=4 * hidden),
            layers=layer_count(config, "num_hidden_layers", "n_layer"),
            vocabulary=config.integer("vocab_size"),
            positions=config.integer("max_position_embeddings", "n_positions", default=512),
            types=config.integer("type_vocab_size", default=2, least=0),
        )


def label_count(config: ConfigView) -> int:
    """Outputs of a classifier: `num_labels`, else the names in `id2label`, else 2 (transformers' default)."""
    if "num_labels" in config:
        return config.integer("num_labels", most=MOST_LABELS)
    names = config.raw("id2label")
    return max(1, len(names)) if isinstance(names, dict) else 2


def build_bert(context: Context) -> Blueprint:
    """BERT and RoBERTa, with the head their class has."""
    config = context.config
    size = _Sizes.of(config)
    tables = (
        *_tables(context, size, positions=size.positions, types=size.types),
        _resident(context.norm("LayerNorm", size.hidden, bias=True)),
        _buffer("position ids", size.positions, INTEGER),
    )
    parts = (
        *_attention(
            context, size, "{path}.attention.self.qkv_proj", "{path}.attention.output.dense", bias=True
        ),
        context.linear("intermediate.dense", size.hidden, size.wide, Shard.COLUMN, bias=True),
        context.linear("output.dense", size.wide, size.hidden, Shard.ROW, bias=True),
        context.norm("LayerNorms", 2 * size.hidden, bias=True),
    )
    return _encoder(size, (parts,) * size.layers, (*tables, *_bert_head(context, size)))


def _bert_head(context: Context, size: _Sizes) -> tuple[ResidentPart, ...]:
    """Pooler and classifier, in float32 as pooling heads are."""
    name, hidden = context.architecture, size.hidden
    labels = label_count(context.config)
    square, out = hidden * (hidden + 1), labels * (hidden + 1)
    if name.endswith("ForSequenceClassification"):
        return (_float32("pooler and classifier", square + out),)
    if name.endswith("ForTokenClassification"):
        return (_float32("classifier", out),)
    if name == "BertForMaskedLM" or "Splade" in name:
        head = context.linear("mlm_head", hidden, hidden, Shard.REPLICATED, bias=True)
        return (
            _resident(head),
            _resident(context.norm("mlm norm", hidden, bias=True)),
            _resident(context.norm("decoder", size.vocabulary * (hidden + 1))),
        )
    return ()


def build_modernbert(context: Context) -> Blueprint:
    """ModernBERT: gated MLPs, no biases, one rotary table for all layers and one for the windowed ones."""
    config = context.config
    size = _Sizes.of(config)
    hidden, head = size.hidden, size.hidden // size.heads
    bias = config.flag("attention_bias")
    mlp_bias = config.flag("mlp_bias")
    norm_bias = config.flag("norm_bias")
    common = (
        *_attention(context, size, "{path}.attn.Wqkv", "{path}.attn.Wo", bias=bias),
        context.linear("mlp.Wi", hidden, (size.wide, size.wide), Shard.COLUMN, bias=mlp_bias),
        context.linear("mlp.Wo", size.wide, hidden, Shard.ROW, bias=mlp_bias),
    )
    first = (*common, context.norm("mlp_norm", hidden, bias=norm_bias))
    rest = (*common, context.norm("attn_norm, mlp_norm", 2 * hidden, bias=norm_bias))
    outside = (
        *_tables(context, size),
        _resident(context.norm("norm, final_norm", 2 * hidden, bias=norm_bias)),
        rotary_buffer(size.positions, head, context.itemsize),
        rotary_buffer(size.positions, head, context.itemsize),
        *_modernbert_head(context, size),
    )
    return _encoder(size, (first, *(rest,) * (size.layers - 1)), outside)


def _modernbert_head(context: Context, size: _Sizes) -> tuple[ResidentPart, ...]:
    hidden, labels = size.hidden, label_count(context.config)
    bias = hidden if context.config.flag("classifier_bias") else 0
    if context.architecture.endswith("ForSequenceClassification"):
        return (_float32("head and classifier", hidden * hidden + bias + hidden + labels * (hidden + 1)),)
    if context.architecture.endswith("ForTokenClassification"):
        dense = _resident(context.norm("head", hidden * hidden + bias + hidden))
        return (dense, _resident(context.norm("classifier", labels * (hidden + 1))))
    return ()


def build_rope_bert(context: Context) -> Blueprint:
    """GTE, Snowflake's GTE and Nomic: BERT with rotated attention and (usually) gated MLPs, in Nomic v2 with experts."""
    config = context.config
    size = _Sizes.of(config)
    nomic = "Nomic" in context.architecture
    bias = config.flag("qkv_proj_bias") if nomic else True
    act = config.text("activation_function" if nomic else "hidden_act", default="swiglu" if nomic else "gelu")
    gated = not nomic or act in {"swiglu", "geglu"}
    attention = _attention(context, size, "{path}.attn.qkv_proj", "{path}.attn.out_proj", bias=bias)
    up = context.linear(
        "mlp.gate_up_proj",
        size.hidden,
        (size.wide, size.wide) if gated else size.wide,
        Shard.COLUMN,
        bias=bias and (nomic or not gated),
    )
    dense = (up, context.linear("mlp.down_proj", size.wide, size.hidden, Shard.ROW, bias=bias))
    norms = context.norm("attn_ln, mlp_ln", 2 * size.hidden, bias=True)
    every = config.integer("moe_every_n_layers", default=0, least=0)
    sparse = _nomic_experts(context, size) if every else ()
    layers = tuple(
        (*attention, *(sparse if every and index % every == 1 else dense), norms)
        for index in range(size.layers)
    )
    outside = (
        *_tables(context, size, types=size.types),
        _resident(context.norm("LayerNorm", size.hidden, bias=True)),
        rotary_buffer(
            config.integer("max_trained_positions", default=size.positions),
            size.hidden // size.heads,
            context.itemsize,
        ),
        *_rope_head(context, size),
    )
    return _encoder(size, layers, outside)


def _rope_head(context: Context, size: _Sizes) -> tuple[ResidentPart, ...]:
    if not context.architecture.endswith("ForSequenceClassification"):
        return ()
    hidden = size.hidden
    return (
        _float32("pooler and classifier", hidden * (hidden + 1) + label_count(context.config) * (hidden + 1)),
    )


def _nomic_experts(context: Context, size: _Sizes) -> tuple[Part, ...]:
    """Experts without gate, their inner width divided over the ranks."""
    count = expert_count(context.config, "num_experts", default=8)
    context.config.integer("moe_top_k", default=2, most=MOST_EXPERTS)
    wide = Partition(units=size.wide, unit_size=2 * size.hidden * count)
    return (
        router(context, "mlp.router", size.hidden, count),
        Tensor(name="experts", partition=wide, itemsize=context.itemsize, sharded=True),
        context.norm("experts bias", size.hidden),
    )


def _attention(context: Context, size: _Sizes, qkv: str, output: str, *, bias: bool) -> tuple[Linear, Linear]:
    one = Partition(units=size.heads, unit_size=size.hidden // size.heads)
    return (
        context.linear(qkv.format(path="layer"), size.hidden, (one, one, one), Shard.COLUMN, bias=bias),
        context.linear(output.format(path="layer"), one, size.hidden, Shard.ROW, bias=bias),
    )


def _tables(
    context: Context, size: _Sizes, *, positions: int = 0, types: int = 0
) -> tuple[ResidentPart, ...]:
    """Words, and positions and token types where the class learns them: all padded and divided like a vocabulary."""
    rows = (("words", size.vocabulary), ("positions", positions), ("token types", types))
    return tuple(
        _resident(Embedding(name=name, rows=count, width=size.hidden, itemsize=context.itemsize))
        for name, count in rows
        if count
    )


def _encoder(
    size: _Sizes, layers: tuple[tuple[Part, ...], ...], outside: tuple[ResidentPart, ...]
) -> Blueprint:
    known: dict[int, Layer] = {}
    for parts in layers:
        known.setdefault(id(parts), Layer(name="encoder", parts=parts, intermediate=size.wide))
    return Blueprint(
        layers=tuple(known[id(parts)] for parts in layers),
        parts=outside,
        hidden=size.hidden,
        vocabulary=size.vocabulary,
        attention_heads=size.heads,
        kv_heads=size.heads,
        head_size=size.hidden // size.heads,
        supports_pipeline=False,
        pooling=True,
    )


def _resident(part: Part) -> ResidentPart:
    return ResidentPart(part=part, residence=Residence.EVERY)


def _float32(name: str, units: int) -> ResidentPart:
    return _resident(Tensor(name=name, partition=Partition(units=units), itemsize=FLOAT32))


def _buffer(name: str, units: int, itemsize: int) -> ResidentPart:
    return replace(
        _resident(Tensor(name=name, partition=Partition(units=units), itemsize=itemsize)), buffer=True
    )


BUILDERS: dict[str, Builder] = {
    **dict.fromkeys(
        (
            "BertModel",
            "BertForMaskedLM",
            "BertSpladeSparseEmbeddingModel",
            "BertForSequenceClassification",
            "BertForTokenClassification",
            "RobertaModel",
            "RobertaForMaskedLM",
            "RobertaForSequenceClassification",
            "RobertaForTokenClassification",
            "XLMRobertaModel",
            "XLMRobertaForSequenceClassification",
            "XLMRobertaForTokenClassification",
        ),
        build_bert,
    ),
    **dict.fromkeys(
        (
            "ModernBertModel",
            "ModernBertForSequenceClassification",
            "ModernBertForTokenClassification",
            "ModernBertForMaskedLM",
        ),
        build_modernbert,
    ),
    **dict.fromkeys(
        ("GteModel", "GteNewModel", "NewModel", "NomicBertModel", "GteNewForSequenceClassification"),
        build_rope_bert,
    ),
}
