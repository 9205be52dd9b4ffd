"""What a family's builder is given, and the pieces most families share."""

from collections.abc import Callable
from dataclasses import dataclass

from gpuplan.domain.model import (
    UNQUANTIZED,
    Cache,
    CacheKind,
    Embedding,
    Encoder,
    Experts,
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
from gpuplan.engine.architectures.quantizer import Quantizer

MOST_LAYERS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """What a builder returns: the profile's structure, without name, evidence and the like."""

    layers: tuple[Layer, ...]
    """One entry per decoder layer, in order; equal layers are the same kind."""
    parts: tuple[ResidentPart, ...]
    hidden: int
    vocabulary: int
    attention_heads: int
    kv_heads: int
    head_size: int
    drafts: tuple[Layer, ...] = ()
    encoders: tuple[Encoder, ...] = ()
    supports_pipeline: bool = True
    assumptions: tuple[str, ...] = ()
    recognised: bool = True
    pooling: bool = False
    """An embedder or classifier whatever the runner: no output head."""
    kv_cache_dtype: str | None = None
    """What the model class itself makes of `auto`, None: leaves it."""
    text_view: ConfigView | None = None
    """The language model's own config, where the longest context stands; None: the top level."""


@dataclass(frozen=True, slots=True)
class Context:
    """A config being turned into a profile."""

    config: ConfigView
    """The whole config.json."""
    quantizer: Quantizer
    itemsize: int
    """Bytes of an unquantized element (dtype)."""
    pooling: bool = False
    """Built by the pooling runner: no output head."""
    architecture: str = ""

    def linear(
        self,
        path: str,
        inputs: int | Partition,
        outputs: int | Partition | tuple[Partition | int, ...],
        shard: Shard,
        *,
        bias: bool = False,
        fused: tuple[str, ...] = (),
        quantized: bool = True,
    ) -> Linear:
        """A linear layer at `path`; plain numbers are divided element by element."""
        given = outputs if isinstance(outputs, tuple) else (outputs,)
        return Linear(
            name=path.rpartition("layers.")[2].partition(".")[2] if "layers." in path else path,
            inputs=inputs if isinstance(inputs, Partition) else Partition(units=inputs),
            outputs=tuple(p if isinstance(p, Partition) else Partition(units=p) for p in given),
            shard=shard,
            itemsize=self.itemsize,
            bias=bias,
            scheme=self.quantizer.linear(path, fused) if quantized else UNQUANTIZED,
        )

    def norm(self, name: str, width: int, *, bias: bool = False) -> Tensor:
        """A replicated vector (with its bias)."""
        return Tensor(
            name=name, partition=Partition(units=width * (2 if bias else 1)), itemsize=self.itemsize
        )

    def attention(
        self,
        path: str,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_size: int,
        *,
        head_size_v: int | None = None,
        bias: bool = False,
        output_bias: bool = False,
        replicate_kv: bool = True,
        qkv: str = "qkv_proj",
        output: str = "o_proj",
    ) -> tuple[Linear, Linear]:
        """QKVParallelLinear and the row-parallel output projection of ordinary attention."""
        value = head_size if head_size_v is None else head_size_v
        return (
            self.linear(
                f"{path}.{qkv}",
                hidden,
                (
                    Partition(units=heads, unit_size=head_size),
                    Partition(units=kv_heads, unit_size=head_size, replicable=replicate_kv),
                    Partition(units=kv_heads, unit_size=value, replicable=replicate_kv),
                ),
                Shard.COLUMN,
                bias=bias,
                fused=("q_proj", "k_proj", "v_proj"),
            ),
            self.linear(
                f"{path}.{output}",
                Partition(units=heads, unit_size=value),
                hidden,
                Shard.ROW,
                bias=output_bias,
            ),
        )

    def gated_mlp(
        self, path: str, hidden: int, intermediate: int, *, bias: bool = False
    ) -> tuple[Linear, Linear]:
        """Merged gate and up projection, and the down projection."""
        return (
            self.linear(
                f"{path}.gate_up_proj",
                hidden,
                (intermediate, intermediate),
                Shard.COLUMN,
                bias=bias,
                fused=("gate_proj", "up_proj"),
            ),
            self.linear(f"{path}.down_proj", intermediate, hidden, Shard.ROW, bias=bias),
        )

    def experts(
        self,
        path: str,
        count: int,
        top_k: int,
        hidden: int,
        intermediate: int,
        *,
        gated: bool = True,
        bias: bool = False,
    ) -> Experts:
        """Routed experts (FusedMoE) at `path`."""
        return Experts(
            name="experts",
            count=count,
            top_k=top_k,
            hidden=hidden,
            intermediate=intermediate,
            itemsize=self.itemsize,
            gated=gated,
            bias=bias,
            scheme=self.quantizer.experts(path),
        )

    def vocabulary_parts(
        self,
        vocabulary: int,
        hidden: int,
        *,
        tied: bool,
        prefix: str = "model",
        head: str = "lm_head",
        everywhere: bool = False,
        head_everywhere: bool | None = None,
        head_bias: bool = False,
    ) -> tuple[ResidentPart, ...]:
        """Token embedding and output head. `everywhere`: the class builds them on every pipeline stage."""
        embedding = Embedding(
            name="embed_tokens",
            rows=vocabulary,
            width=hidden,
            itemsize=self.itemsize,
            scheme=self.quantizer.embedding(f"{prefix}.embed_tokens"),
        )
        if tied and not self.pooling:
            residence = Residence.EVERY if everywhere else Residence.FIRST_AND_LAST
            return (ResidentPart(part=embedding, residence=residence),)
        first = ResidentPart(part=embedding, residence=Residence.EVERY if everywhere else Residence.FIRST)
        if self.pooling:
            return (first,)
        on_all = everywhere if head_everywhere is None else head_everywhere
        last = Embedding(
            name="lm_head",
            rows=vocabulary,
            width=hidden,
            itemsize=self.itemsize,
            bias=head_bias,
            scheme=self.quantizer.embedding(head),
        )
        return (first, ResidentPart(part=last, residence=Residence.EVERY if on_all else Residence.LAST))


Builder = Callable[[Context], Blueprint]


def attention_cache(
    kv_heads: int, head_size: int, *, head_size_v: int | None = None, window: int | None = None
) -> Cache:
    """Cache of ordinary attention, sliding when `window` is given."""
    return Cache(
        kind=CacheKind.FULL if window is None else CacheKind.SLIDING,
        heads=kv_heads,
        head_size=head_size,
        head_size_v=head_size_v,
        window=window,
    )


def layer_count(config: ConfigView, *keys: str) -> int:
    """Number of decoder layers, bounded."""
    return config.integer(*(keys or ("num_hidden_layers", "n_layer", "num_layers")), most=MOST_LAYERS)


def rotary_buffer(rows: int, width: int, itemsize: float) -> ResidentPart:
    """The cos/sin table of a rotary embedding: a buffer on every stage."""
    tensor = Tensor(name="rotary cache", partition=Partition(units=rows * width), itemsize=itemsize)
    return ResidentPart(part=tensor, residence=Residence.EVERY, buffer=True)


def final_norm(context: Context, hidden: int, *, bias: bool = False) -> ResidentPart:
    return ResidentPart(part=context.norm("norm", hidden, bias=bias), residence=Residence.LAST)


def parts_of(*groups: Part | tuple[Part, ...]) -> tuple[Part, ...]:
    """Flatten parts and groups of parts."""
    flat: list[Part] = []
    for group in groups:
        flat.extend(group if isinstance(group, tuple) else (group,))
    return tuple(flat)
