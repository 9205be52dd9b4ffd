"""GLM-4.1V, GLM-4.5V, GLM-4.6V and GLM-OCR: a tower of any image size whose merger is a gated MLP.

vLLM 0.32: vllm/model_executor/models/{glm4_1v,glm_ocr}.py.
"""

from gpuplan.domain.model import Encoder, Part, Partition, Shard, Tensor
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import MOST_LAYERS, Blueprint, Builder, Context
from gpuplan.engine.architectures.misc_dense import build_glm4
from gpuplan.engine.architectures.moe_shared import build_glm4_moe
from gpuplan.engine.architectures.qwen_vision import ROTARY_POSITIONS
from gpuplan.engine.architectures.qwen_vl import mrope, text_of
from gpuplan.engine.architectures.wrapping import repeated, tower_buffer, tower_parts, with_towers

MOST_TOKENS = 6144
"""Tokens of the largest image the preprocessor lets through."""
POSITION_BYTES = 8


def build_glm4v(context: Context) -> Blueprint:
    """The dense and the MoE models."""
    view = text_of(context)
    sparse = "n_routed_experts" in view
    builder = mrope(build_glm4_moe if sparse else build_glm4, partial=0.5)
    vision = context.config.view("vision_config")
    hidden = vision.integer("hidden_size", default=1536)
    heads = vision.integer("num_heads", default=12)
    if hidden % heads:
        raise vision.error("num_heads", f"is {heads}, which does not divide hidden_size {hidden}")
    depth = vision.integer("depth", default=24, most=MOST_LAYERS)
    out = vision.integer("out_hidden_size", default=4096)
    patch = vision.integer("patch_size", default=14, most=4096)
    merge = vision.integer("spatial_merge_size", default=2, most=64)
    side = vision.integer("image_size", default=336, least=patch, most=1 << 16) // patch
    reads = "GlmOcr" in context.architecture
    wide = vision.integer("intermediate_size", default=4096 if reads else 13696)
    parts: list[Part] = [_stem(context, vision, hidden, patch, side, merge, out, learned=not reads)]
    for index in range(depth):
        path = f"visual.blocks.{index}"
        parts += _block(context, path, hidden, heads, wide if reads else out, normed=reads)
    parts += _merger(context, out, view.integer("intermediate_size") if reads else wide)
    buffers = Tensor(
        name="rotary cache, position ids",
        partition=Partition(
            units=ROTARY_POSITIONS * (hidden // heads // 2) * context.itemsize
            + (0 if reads else side * side * POSITION_BYTES)
        ),
        itemsize=1,
    )
    encoder = Encoder(
        kind="vision",
        heads=heads,
        hidden=hidden,
        layers=depth,
        intermediate=out,
        tokens_per_item=MOST_TOKENS,
        patches_per_item=MOST_TOKENS * merge * merge,
    )
    return with_towers(context, builder, view, (*tower_parts(parts), tower_buffer(buffers)), (encoder,))


def _stem(
    context: Context,
    vision: ConfigView,
    hidden: int,
    patch: int,
    side: int,
    merge: int,
    out: int,
    *,
    learned: bool,
) -> Part:
    """Patches, norms and the convolution that joins neighbours, whole on every rank; `learned`: positions too."""
    channels = vision.integer("in_channels", default=3, most=64)
    kernel = vision.integer("temporal_patch_size", default=2, most=64) * channels * patch * patch
    positions = side * side * hidden + hidden if learned else 0
    units = (kernel + 1) * hidden + positions + hidden + (merge * merge * hidden + 1) * out
    return context.norm("patches, positions, norms, downsample", units)


def _block(
    context: Context, path: str, hidden: int, heads: int, wide: int, *, normed: bool = False
) -> tuple[Part, ...]:
    """`normed`: GLM-OCR's norms of query and key, and its biases."""
    one = Partition(units=heads, unit_size=hidden // heads)
    linears = (
        context.linear(f"{path}.attn.qkv", hidden, (one, one, one), Shard.COLUMN, bias=normed),
        context.linear(f"{path}.attn.proj", one, hidden, Shard.ROW, bias=normed),
        *context.gated_mlp(f"{path}.mlp", hidden, wide, bias=normed),
    )
    inner = 2 * (hidden // heads) if normed else 0
    return (*repeated(linears, "vision"), context.norm("norm1, norm2, q_norm, k_norm", 2 * hidden + inner))


def _merger(context: Context, hidden: int, wide: int) -> tuple[Part, ...]:
    return (
        context.linear("visual.merger.proj", hidden, hidden, Shard.COLUMN),
        context.norm("post_projection_norm", hidden, bias=True),
        *context.gated_mlp("visual.merger", hidden, wide),
    )


BUILDERS: dict[str, Builder] = {
    "Glm4vForConditionalGeneration": build_glm4v,
    "Glm4vMoeForConditionalGeneration": build_glm4v,
    "GlmOcrForConditionalGeneration": build_glm4v,
}
