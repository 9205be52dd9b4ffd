"""A model as an engine builds it: parameters with the way they are split, and what each layer caches.

A profile holds facts only. What they weigh on a rank is `engine.weights`, what they cache is `engine.kv_cache`.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from gpuplan.domain.repository import Evidence


class Shard(StrEnum):
    """How a linear layer is split over the ranks of a tensor-parallel group."""

    COLUMN = "column"
    """Outputs are divided."""
    ROW = "row"
    """Inputs are divided; a bias stands whole on every rank."""
    REPLICATED = "replicated"
    """Every rank holds all of it."""


class Residence(StrEnum):
    """Which pipeline stages hold a part that belongs to no decoder layer."""

    FIRST = "first"
    LAST = "last"
    FIRST_AND_LAST = "first_and_last"
    """One copy per stage that needs it; one in all when there is a single stage (tied embeddings)."""
    EVERY = "every"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One logical matrix of a stacked weight: `units` pieces of `unit_size` outputs, divided by whole units."""

    units: int
    unit_size: int = 1
    replicable: bool = False
    """Fewer units than ranks are repeated (KV heads) instead of being an error."""
    uneven: bool = False
    """Units that do not divide are rounded up on every rank (shared experts of DeepSeek-V4 in blocks)."""

    @property
    def size(self) -> int:
        return self.units * self.unit_size


@dataclass(frozen=True, slots=True)
class Unquantized:
    """Parameters in the model's own type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Float8:
    """8-bit floats with float32 scales per tensor, output channel or block."""

    granularity: str
    """tensor, channel or block"""
    block: tuple[int, int] = (128, 128)
    """Outputs, inputs of one block."""
    scale_bytes: int = 4
    static_input: bool = False
    """One float32 input scale per logical matrix."""
    input_scale_bytes: int = 4
    layer_bytes: int = 0
    """Further bytes per layer (the activation bound of FBGEMM)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer8:
    """8-bit integers with one scale per output channel (w8a8)."""

    scale_bytes: int = 4
    per_tensor: bool = False
    """One scale per logical matrix instead."""
    static_input: bool = False
    asymmetric_input: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedInteger:
    """2- to 8-bit integers packed into 32-bit words with a scale per group of inputs (AWQ, GPTQ, compressed-tensors)."""

    layout: str
    """awq, gptq or compressed"""
    bits: int
    group_size: int
    """-1: one group over all inputs."""
    zero_points: bool
    reorder: bool = False
    """GPTQ's g_idx (desc_act): scales of a row-split layer stay whole."""
    scale_bytes: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Float4:
    """4-bit floats: nvfp4 (fp8 scale per 16 inputs, float32 global scales) or mxfp4 (8-bit exponent per 32 inputs)."""

    variety: str
    """nvfp4 or mxfp4"""
    group_size: int
    global_scales: int = 2
    """float32 values per logical matrix (weight and input scale)."""
    narrow_scales: int = 0
    """Further values per logical matrix, in the model's own type."""
    input_scales_of_all_experts: bool = False
    """On Blackwell every rank holds the input scales of all experts, its own or not."""
    kernels: str | None = None
    """gpt_oss or deepseek_v4: the family of fused-MoE kernels that pads mxfp4 experts; None: not padded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroscaledFloat8:
    """mxfp8: 8-bit floats with an 8-bit exponent per 32 inputs."""

    group_size: int = 32


Scheme = Unquantized | Float8 | Integer8 | GroupedInteger | Float4 | MicroscaledFloat8
UNQUANTIZED = Unquantized()


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """A (stacked) linear layer."""

    name: str
    inputs: Partition
    """Units matter for a row split: attention outputs are divided by heads."""
    outputs: tuple[Partition, ...]
    shard: Shard
    itemsize: float
    """Bytes of an unquantized element."""
    bias: bool = False
    scheme: Scheme = UNQUANTIZED
    alignment: int = 1
    """Outputs on a rank are padded to a multiple of it."""
    token_parallel: bool = False
    """Whole on every rank where the MoE input is sharded by tokens (`Split.token_sharded_experts`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The routed experts of one layer: gate+up (or up alone) and down matrices per expert."""

    name: str
    count: int
    top_k: int
    hidden: int
    intermediate: int
    itemsize: float
    gated: bool = True
    bias: bool = False
    scheme: Scheme = UNQUANTIZED
    least_share: int = 0
    """Width below which an expert's share of a rank is padded up to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """Any other parameter: a norm, a router, a convolution, a state matrix."""

    name: str
    partition: Partition
    itemsize: float
    sharded: bool = False
    alignment: int = 1
    """Units on a rank are rounded up to a multiple of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """A table of `rows` vectors, divided by rows after padding (vocabulary) or whole on every rank."""

    name: str
    rows: int
    width: int
    itemsize: float
    padding: int = 64
    """Rows are padded to a multiple of it before they are divided. 1: not padded."""
    sharded: bool = True
    bias: bool = False
    scheme: Scheme = UNQUANTIZED


Part = Linear | Experts | Tensor | Embedding


class CacheKind(StrEnum):
    FULL = "full"
    SLIDING = "sliding"
    CHUNKED = "chunked"
    LATENT = "mla"
    SLIDING_LATENT = "sliding_mla"
    INDEXER = "indexer"
    STATE = "mamba"
    CROSS = "cross"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateShape:
    """One tensor of a recurrent state: the first axis that `sharded_axis` names is divided by the TP size."""

    shape: tuple[int, ...]
    sharded_axis: int | None
    itemsize: float
    dtype_setting: str
    """conv or ssm: which of vLLM's cache dtype settings rules it."""
    groups: int = 0
    """Groups on the sharded axis (Mamba-2's B and C); where the TP size does not divide them there are as many as ranks."""
    group_width: int = 0
    """Entries of one group on the sharded axis."""
    draft_axis: int | None = None
    """Axis that is longer by the number of speculative tokens."""

    def on_rank(self, ranks: int, draft_tokens: int = 0) -> tuple[int, ...]:
        """Shape on one of `ranks` tensor-parallel ranks (vLLM 0.32 layers/mamba/mamba_utils.py)."""
        axes = list(self.shape)
        if self.sharded_axis is not None:
            missing = ranks - self.groups if self.groups % ranks else 0
            axes[self.sharded_axis] = (axes[self.sharded_axis] + missing * self.group_width) // ranks
        if self.draft_axis is not None:
            axes[self.draft_axis] += draft_tokens
        return tuple(axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """What one layer keeps per token (attention) or per sequence (recurrent states)."""

    kind: CacheKind
    heads: int = 1
    """KV heads over all ranks; 1 and replicated for latent caches."""
    head_size: int = 0
    head_size_v: int | None = None
    """None: as head_size."""
    window: int | None = None
    """Sliding window or chunk in tokens."""
    tokens_per_state: int = 1
    """Several tokens share one entry (compressed sparse attention)."""
    fixed_bytes_per_token: int | None = None
    """Set where the layout does not follow the KV dtype (indexers, packed latents)."""
    packed_float8_bytes: int | None = None
    """Bytes per token of an 8-bit cache where the GPU's kernel packs scales beside the values (fp8_ds_mla: Hopper
    and compute capability 12, not 10); None: as head_size says."""
    chosen: int = 0
    """Entries per token that this indexer chooses for sparse attention."""
    page_tokens: int | None = None
    """Tokens of one page where the layer fixes it; None: the engine's block size."""
    page_alignment: int = 1
    """A page is padded to a multiple of this many bytes."""
    least_block: int = 0
    """The engine's block is raised to this many tokens for this cache's kernel."""
    states: tuple[StateShape, ...] = ()
    state_type: str | None = None
    """mamba1, mamba2, gdn, kda, short_conv, linear"""
    group: str | None = None
    """Caches of one group name never share blocks with others (drafts, indexers), where vLLM keeps them apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One kind of decoder layer."""

    name: str
    parts: tuple[Part, ...]
    caches: tuple[Cache, ...] = ()
    intermediate: int = 0
    """Width of the dense MLP (0: none); rules the activation peak."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Hashed once: layers are the keys of every memo of the engine."""
        object.__setattr__(self, "_hash", hash((self.name, self.parts, self.caches, self.intermediate)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidentPart:
    """A part outside the decoder layers, with the stages that hold it."""

    part: Part
    residence: Residence
    buffer: bool = False
    """Registered buffer (rotary cache), counted beside the parameters."""
    tower: str | None = None
    """vision, audio, …: dropped by `--language-model-only`."""
    tensor_parallel: bool = True
    """False: replicated on every rank whatever its own split says (towers under data parallel)."""
    heads: int | None = None
    """Attention heads of the tower: it stands whole on every rank where they do not divide by the TP size."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Hashed once, like layers."""
        object.__setattr__(self, "_hash", hash((self.part, self.residence, self.buffer, self.tower)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """A tower as the profile run sees it."""

    kind: str
    """vision or audio"""
    heads: int
    hidden: int
    layers: int
    intermediate: int
    tokens_per_item: int
    """Most output tokens one item can have."""
    patches_per_item: int
    """Tokens inside the tower for that item."""
    data_parallel: bool = False
    least_batched_tokens: int = 0
    """The batch is raised to this many tokens (prefix-LM attention over an item); 0: not raised."""
    inputs_per_patch: int = 0
    """Values of one patch before it is embedded; 0: three channels of 14 × 14 pixels."""
    output_levels: int = 1
    """Embeddings per output token, each of the language model's width (deep-stack towers give several)."""
    formatted_tokens_per_item: int = 0
    """Tokens of a video with its time stamps, which older releases take for the largest item; 0: no such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """A model with everything its memory depends on."""

    name: str
    architecture: str
    model_type: str
    dtype: str
    """bfloat16, float16 or float32: what unquantized parameters and activations are in."""
    itemsize: int
    hidden: int
    vocabulary: int
    attention_heads: int
    """0 for a model without attention."""
    kv_heads: int
    head_size: int
    layer_kinds: tuple[Layer, ...]
    layer_order: tuple[int, ...]
    """Index into layer_kinds, one entry per decoder layer."""
    parts: tuple[ResidentPart, ...]
    draft_kinds: tuple[Layer, ...] = ()
    draft_order: tuple[int, ...] = ()
    """MTP layers in the checkpoint: loaded only when speculative decoding asks for them."""
    longest_context: int = 0
    """What the config allows without scaling overrides (tokens); 0 when unknown."""
    encoders: tuple[Encoder, ...] = ()
    quantization: str | None = None
    """vLLM's name of the method, None when unquantized."""
    quantized_while_loading: bool = False
    """The checkpoint holds the model's own type."""
    kv_cache_dtype: str | None = None
    """What `auto` becomes by the checkpoint's own wish (fp8), None: the model's dtype."""
    supports_pipeline: bool = True
    pooling: bool = False
    """Embedding, reranker, classifier: no head, no sampler."""
    evidence: Evidence = Evidence.CONFIG
    recognised: bool = True
    """False: the architecture is unknown, figures are the best evidence there is."""
    assumptions: tuple[str, ...] = field(default=())
    checkpoint_bytes: int | None = None
    """Bytes of all tensors in the checkpoint, where headers or an index were read."""
    draft: "Draft | None" = None
    """The draft model of speculative decoding that has a checkpoint of its own; `engine.draft` adds what loading it adds."""

    @property
    def expert_count(self) -> int:
        """Largest number of routed experts in a layer; 0 for dense models."""
        counts = (
            part.count for layer in self.layer_kinds for part in layer.parts if isinstance(part, Experts)
        )
        return max(counts, default=0)

    @property
    def layer_count(self) -> int:
        return len(self.layer_order)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A draft model with a checkpoint of its own, beside the model it drafts for."""

    name: str
    method: str
    """vLLM's name: eagle, eagle3, dflash, medusa, draft_model, …"""
    profile: ModelProfile | None
    """None: nothing is known of its size."""
    states: int = 0
    """Layers of the target whose hidden states it reads besides the last one's."""
    holds: frozenset[str] | None = None
    """Which of embed_tokens and lm_head its checkpoint holds; None: no header was read."""
    missing: str = ""
    """Why its files could not be read; the profile is then an assumption. Empty: they were."""
