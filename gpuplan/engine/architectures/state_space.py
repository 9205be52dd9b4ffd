"""Recurrent mixers (Mamba, Mamba-2, gated delta net, short convolution) and the states a sequence keeps.

vLLM 0.32: vllm/model_executor/layers/mamba/{mamba_mixer,mamba_mixer2,short_conv,mamba_utils}.py,
layers/mamba/gdn/qwen_gdn_linear_attn.py.
"""

from dataclasses import dataclass

from gpuplan.domain.model import Cache, CacheKind, Part, Partition, Shard, StateShape, Tensor
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import Context

FLOAT32 = 4
STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
MOST_KERNEL = 4096
REPLICATED_GATES = frozenset({"auto_awq", "auto_gptq", "inc"})
"""Methods whose kernels are too wide for a share of the gates: whole on every rank (`maybe_disable_tp`)."""

Mixer = tuple[tuple[Part, ...], Cache]


def state_itemsize(context: Context, config: ConfigView, *keys: str, default: str = "auto") -> int:
    """Bytes of one value of the recurrent state, as the config wishes it; `auto`: the model's type."""
    wish = config.text(*keys, default=default).removeprefix("torch.")
    if wish in ("auto", ""):
        return context.itemsize
    if wish not in STATE_BYTES:
        raise config.error(keys[0], f"is {wish[:40]!r}, not one of auto, {', '.join(sorted(STATE_BYTES))}")
    return STATE_BYTES[wish]


def _state(kind: str, *shapes: StateShape) -> Cache:
    return Cache(kind=CacheKind.STATE, heads=0, states=shapes, state_type=kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """Sizes of a MambaMixer2."""

    hidden: int
    inner: int
    heads: int
    head_size: int
    groups: int
    state: int
    kernel: int
    state_itemsize: int
    bias: bool = False
    conv_bias: bool = True
    normed: bool = True

    @property
    def group_units(self) -> Partition:
        """B or C: a single group is repeated on every rank, several must divide."""
        return Partition(units=self.groups, unit_size=self.state, replicable=self.groups == 1)


def mamba2(context: Context, path: str, size: Mamba2) -> Mixer:
    """The mixer at `path` and its states: the convolution's tail and one matrix per head."""
    groups = size.group_units
    norm = Tensor(name="norm", partition=Partition(units=size.inner), itemsize=context.itemsize, sharded=True)
    parts: tuple[Part, ...] = (
        context.linear(
            f"{path}.conv1d",
            size.kernel,
            (size.inner, groups, groups),
            Shard.COLUMN,
            bias=size.conv_bias,
            quantized=False,
        ),
        context.linear(
            f"{path}.in_proj",
            size.hidden,
            (size.inner, size.inner, groups, groups, size.heads),
            Shard.COLUMN,
            bias=size.bias,
        ),
        context.linear(f"{path}.out_proj", size.inner, size.hidden, Shard.ROW, bias=size.bias),
        Tensor(name="A", partition=Partition(units=size.heads), itemsize=FLOAT32, sharded=True),
        Tensor(
            name="D, dt_bias",
            partition=Partition(units=size.heads, unit_size=2),
            itemsize=context.itemsize,
            sharded=True,
        ),
        *((norm,) if size.normed else ()),
    )
    convolution = StateShape(
        shape=(size.kernel - 1, size.inner + 2 * size.groups * size.state),
        sharded_axis=1,
        itemsize=context.itemsize,
        dtype_setting="conv",
        groups=size.groups,
        group_width=2 * size.state,
        draft_axis=0,
    )
    matrices = StateShape(
        shape=(size.heads, size.head_size, size.state),
        sharded_axis=0,
        itemsize=size.state_itemsize,
        dtype_setting="ssm",
    )
    return parts, _state("mamba2", convolution, matrices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba1:
    """Sizes of a MambaMixer."""

    hidden: int
    inner: int
    state: int
    kernel: int
    time_step: int
    state_itemsize: int
    bias: bool = False
    conv_bias: bool = True
    norms: bool = False
    """Learned norms of the time step, B and C (Jamba)."""


def mamba1(context: Context, path: str, size: Mamba1) -> Mixer:
    """The mixer at `path` and its states; never quantized."""
    inner = size.inner
    parts: tuple[Part, ...] = (
        context.linear(
            f"{path}.conv1d", size.kernel, inner, Shard.COLUMN, bias=size.conv_bias, quantized=False
        ),
        context.linear(
            f"{path}.in_proj", size.hidden, (inner, inner), Shard.COLUMN, bias=size.bias, quantized=False
        ),
        context.linear(f"{path}.x_proj", inner, size.time_step + 2 * size.state, Shard.ROW, quantized=False),
        context.linear(f"{path}.dt_proj", size.time_step, inner, Shard.COLUMN, bias=True, quantized=False),
        Tensor(
            name="A", partition=Partition(units=inner, unit_size=size.state), itemsize=FLOAT32, sharded=True
        ),
        Tensor(name="D", partition=Partition(units=inner), itemsize=context.itemsize, sharded=True),
        context.linear(f"{path}.out_proj", inner, size.hidden, Shard.ROW, bias=size.bias, quantized=False),
    )
    if size.norms:
        parts = (*parts, context.norm("time step, B and C norms", size.time_step + 2 * size.state))
    convolution = StateShape(
        shape=(size.kernel - 1, inner), sharded_axis=1, itemsize=context.itemsize, dtype_setting="conv"
    )
    matrix = StateShape(
        shape=(inner, size.state), sharded_axis=0, itemsize=size.state_itemsize, dtype_setting="ssm"
    )
    return parts, _state("mamba1", convolution, matrix)


def short_convolution(context: Context, path: str, hidden: int, kernel: int, *, bias: bool) -> Mixer:
    """LFM2's gated convolution over the last `kernel` tokens."""
    parts = (
        context.linear(f"{path}.conv", kernel, hidden, Shard.COLUMN, bias=bias, quantized=False),
        context.linear(f"{path}.in_proj", hidden, (hidden, hidden, hidden), Shard.COLUMN, bias=bias),
        context.linear(f"{path}.out_proj", hidden, hidden, Shard.ROW, bias=bias),
    )
    tail = StateShape(
        shape=(kernel - 1, hidden),
        sharded_axis=1,
        itemsize=context.itemsize,
        dtype_setting="conv",
        draft_axis=0,
    )
    return parts, _state("short_conv", tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaNet:
    """Sizes of Qwen's gated delta net."""

    hidden: int
    key_heads: int
    value_heads: int
    key_size: int
    value_size: int
    kernel: int
    state_itemsize: int
    interleaved: bool
    """Query, key, value and gate are one matrix in the checkpoint (Qwen3-Next), else four (Qwen3.5)."""


def delta_net(context: Context, path: str, size: DeltaNet) -> Mixer:
    """The mixer at `path` and its states."""
    keys = Partition(units=size.key_heads, unit_size=size.key_size)
    values = Partition(units=size.value_heads, unit_size=size.value_size)
    width = 2 * keys.size + values.size
    qkvz: tuple[Partition, ...] = (keys, keys, values, values)
    ba: tuple[Partition, ...] = (Partition(units=size.value_heads),) * 2
    stacked: dict[str, tuple[str, ...]] = {
        "qkvz": ("in_proj_qkv", "in_proj_z"),
        "ba": ("in_proj_b", "in_proj_a"),
    }
    gates = Shard.COLUMN
    if size.interleaved:
        stacked = {"qkvz": (), "ba": ()}
        group = (2 * width - 2 * keys.size) // size.key_heads
        qkvz, ba = (
            (Partition(units=size.key_heads, unit_size=group),),
            (Partition(units=2 * size.value_heads),),
        )
    elif context.quantizer.name in REPLICATED_GATES:
        gates = Shard.REPLICATED
    parts = (
        context.linear(f"{path}.conv1d", size.kernel, (keys, keys, values), Shard.COLUMN, quantized=False),
        context.linear(f"{path}.in_proj_qkvz", size.hidden, qkvz, Shard.COLUMN, fused=stacked["qkvz"]),
        context.linear(f"{path}.in_proj_ba", size.hidden, ba, gates, fused=stacked["ba"]),
        Tensor(
            name="dt_bias",
            partition=Partition(units=size.value_heads),
            itemsize=context.itemsize,
            sharded=True,
        ),
        Tensor(name="A_log", partition=Partition(units=size.value_heads), itemsize=FLOAT32, sharded=True),
        context.norm("norm", size.value_size),
        context.linear(f"{path}.out_proj", values, size.hidden, Shard.ROW),
    )
    convolution = StateShape(
        shape=(size.kernel - 1, width),
        sharded_axis=1,
        itemsize=context.itemsize,
        dtype_setting="conv",
        draft_axis=0,
    )
    matrices = StateShape(
        shape=(size.value_heads, size.value_size, size.key_size),
        sharded_axis=0,
        itemsize=size.state_itemsize,
        dtype_setting="ssm",
    )
    return parts, _state("gdn", convolution, matrices)
