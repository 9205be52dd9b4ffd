"""The vision tower of Qwen3-VL, Qwen3.5 and Qwen3.6: patches, blocks, mergers and the deep-stack mergers.

vLLM 0.32: vllm/model_executor/models/qwen3_vl.py (`Qwen3_VisionTransformer`).
"""

from dataclasses import replace

from gpuplan.domain.model import Encoder, Linear, Part, Partition, Residence, ResidentPart, Shard, Tensor
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import MOST_LAYERS, Context

TOWER = "vision"
LARGEST_IMAGE = 16_777_216
"""Pixels of the largest image Qwen's preprocessor_config.json lets through (`size.longest_edge`)."""
LARGEST_VIDEO = 25_165_824
"""The same of its video preprocessor, over pairs of frames."""
FORMATTED = 12.5
"""Tokens that Qwen3-VL counts for a video token with its time stamp (`get_max_video_tokens` up to 0.18)."""
ROTARY_POSITIONS = 8192
MOST_PATCH = 4096


def qwen3_vision(
    context: Context, vision: ConfigView, *, prefix: str = "visual"
) -> tuple[tuple[ResidentPart, ...], Encoder]:
    """The tower a vision_config describes, on every pipeline stage, and its facts for the profile run.

    Raises ModelError for sizes that cannot be.
    """
    hidden = vision.integer("hidden_size", default=1152)
    heads = vision.integer("num_heads", default=16)
    depth = vision.integer("depth", default=27, most=MOST_LAYERS)
    wide = vision.integer("intermediate_size", default=4304)
    merge = vision.integer("spatial_merge_size", default=2, most=64)
    patch = _square(vision, "patch_size", 16)
    if hidden % heads:
        raise vision.error("num_heads", f"is {heads}, which does not divide hidden_size {hidden}")
    parts: list[Part] = [*_patches(context, vision, hidden, patch)]
    parts += _merger(context, f"{prefix}.merger", vision, hidden, merge, norm_width=hidden)
    deep = len(vision.items("deepstack_visual_indexes"))
    if deep > depth:
        raise vision.error("deepstack_visual_indexes", f"names {deep} layers of {depth}")
    for index in range(deep):
        path = f"{prefix}.deepstack_merger_list.{index}"
        parts += _merger(context, path, vision, hidden, merge, norm_width=hidden * merge * merge)
    for index in range(depth):
        parts += _block(context, f"{prefix}.blocks.{index}", hidden, heads, wide)
    resident = tuple(ResidentPart(part=part, residence=Residence.EVERY, tower=TOWER) for part in parts)
    rotary = Tensor(
        name="vision rotary cache",
        partition=Partition(units=ROTARY_POSITIONS * (hidden // heads // 2)),
        itemsize=context.itemsize,
    )
    table = ResidentPart(part=rotary, residence=Residence.EVERY, buffer=True, tower=TOWER)
    tokens = max(1, LARGEST_IMAGE // (patch * merge) ** 2)
    encoder = Encoder(
        kind=TOWER,
        heads=heads,
        hidden=hidden,
        layers=depth,
        intermediate=wide,
        tokens_per_item=tokens,
        patches_per_item=tokens * merge * merge,
        inputs_per_patch=_inputs(vision, patch),
        output_levels=1 + deep,
        formatted_tokens_per_item=int(LARGEST_VIDEO // (2 * (patch * merge) ** 2) * FORMATTED) if deep else 0,
    )
    return (*resident, table), encoder


def _square(vision: ConfigView, key: str, default: int) -> int:
    """A size given as one number or as a list of equal ones."""
    value = vision.raw(key)
    if isinstance(value, (list, tuple)) and value:
        return ConfigView({key: value[0]}, vision.place).integer(key, most=MOST_PATCH)
    return vision.integer(key, default=default, most=MOST_PATCH)


def _inputs(vision: ConfigView, patch: int) -> int:
    """Values of one patch: channels × frames × patch²."""
    channels = vision.integer("in_channels", default=3, most=64)
    return _square(vision, "temporal_patch_size", 2) * patch * patch * channels


def _patches(context: Context, vision: ConfigView, hidden: int, patch: int) -> tuple[Tensor, Tensor]:
    """The patch convolution with its bias, and the table of learned positions."""
    kernel = _inputs(vision, patch)
    positions = vision.integer("num_position_embeddings", default=2304)
    return (
        Tensor(
            name="patch_embed", partition=Partition(units=(kernel + 1) * hidden), itemsize=context.itemsize
        ),
        Tensor(name="pos_embed", partition=Partition(units=positions * hidden), itemsize=context.itemsize),
    )


def _merger(
    context: Context, path: str, vision: ConfigView, hidden: int, merge: int, *, norm_width: int
) -> tuple[Part, ...]:
    """Neighbouring patches to one token of the language model."""
    width = hidden * merge * merge
    out = vision.integer("out_hidden_size", default=3584)
    return (
        context.norm("merger norm", norm_width, bias=True),
        context.linear(f"{path}.linear_fc1", width, width, Shard.COLUMN, bias=True),
        context.linear(f"{path}.linear_fc2", width, out, Shard.ROW, bias=True),
    )


def _block(context: Context, path: str, hidden: int, heads: int, wide: int) -> tuple[Part, ...]:
    units = Partition(units=heads, unit_size=hidden // heads)
    linears = (
        context.linear(
            f"{path}.attn.qkv", hidden, (units, units, units), Shard.COLUMN, bias=True, fused=("q", "k", "v")
        ),
        context.linear(f"{path}.attn.proj", units, hidden, Shard.ROW, bias=True),
        context.linear(f"{path}.mlp.linear_fc1", hidden, wide, Shard.COLUMN, bias=True),
        context.linear(f"{path}.mlp.linear_fc2", wide, hidden, Shard.ROW, bias=True),
    )
    return (
        *(_of_any_block(linear) for linear in linears),
        context.norm("norm1, norm2", 2 * hidden, bias=True),
    )


def _of_any_block(linear: Linear) -> Linear:
    """The same part for every block of equal scheme, so that its bytes are computed once."""
    return replace(linear, name=f"vision {linear.name.rpartition('blocks.')[2].partition('.')[2]}")
