"""MoonViT, the vision tower of Kimi-K2.5 and Kimi-K3, and its projector.

vLLM 0.32: vllm/model_executor/models/kimi_k25_vit.py.
"""

from dataclasses import dataclass, replace

from gpuplan.domain.model import Encoder, Part, Partition, Residence, ResidentPart, Shard, Tensor
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import Context, parts_of
from gpuplan.engine.architectures.quantizer import NoQuantizer

CHANNELS = 3
MOST_BLOCKS = 512
PATCHES_PER_ITEM = 16384
"""`in_patch_limit` of the published preprocessors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerShape:
    """The sizes of the tower."""

    hidden: int
    heads: int
    attention: int
    """Width of query, key and value."""
    intermediate: int
    blocks: int
    patch: int
    grid: int
    """Learnt positions: height times width."""
    merge: int
    """Patches that become one token."""
    text: int
    attention_bias: bool
    linear_bias: bool
    patch_bias: bool
    norm_bias: bool
    second_projector: bool


def tower_shape(config: ConfigView, text: int) -> TowerShape:
    """Widths under Kimi's own keys (`vt_…`) or transformers' names."""
    hidden = config.integer("vt_hidden_size", "hidden_size", default=1152)
    merge = config.items("merge_kernel_size") or (2, 2)
    if len(merge) != 2 or not all(isinstance(side, int) and 1 <= side <= 64 for side in merge):
        raise config.error("merge_kernel_size", "is not two whole numbers")
    return TowerShape(
        hidden=hidden,
        heads=config.integer("vt_num_attention_heads", "num_attention_heads", default=16),
        attention=config.integer("qkv_hidden_size", default=hidden),
        intermediate=config.integer("vt_intermediate_size", "intermediate_size", default=4304),
        blocks=config.integer("vt_num_hidden_layers", "num_hidden_layers", default=27, most=MOST_BLOCKS),
        patch=config.integer("patch_size", default=14, most=4096),
        grid=config.integer("init_pos_emb_height", "pos_emb_height", default=64, most=65536)
        * config.integer("init_pos_emb_width", "pos_emb_width", default=64, most=65536),
        merge=merge[0] * merge[1],
        text=text,
        attention_bias=config.flag("attn_bias", default=True),
        linear_bias=config.flag("linear_bias", default=True),
        patch_bias=config.flag("patch_embed_proj_bias", default=True),
        norm_bias=config.text("norm_type", default="layernorm") == "layernorm",
        second_projector=config.text("mm_projector_type", default="patchmerger") == "patchmergerv2",
    )


def _block(context: Context, path: str, shape: TowerShape) -> tuple[Part, ...]:
    heads = Partition(units=shape.heads, unit_size=max(1, shape.attention // shape.heads))
    return (
        context.norm("norm0", shape.hidden, bias=shape.norm_bias),
        context.norm("norm1", shape.hidden, bias=shape.norm_bias),
        context.linear(
            f"{path}.mlp.fc0", shape.hidden, shape.intermediate, Shard.COLUMN, bias=shape.linear_bias
        ),
        context.linear(
            f"{path}.mlp.fc1", shape.intermediate, shape.hidden, Shard.ROW, bias=shape.linear_bias
        ),
        context.linear(
            f"{path}.wqkv", shape.hidden, (heads, heads, heads), Shard.COLUMN, bias=shape.attention_bias
        ),
        context.linear(f"{path}.wo", heads, shape.hidden, Shard.ROW, bias=shape.attention_bias),
    )


def _projector(context: Context, path: str, shape: TowerShape) -> tuple[Part, ...]:
    merged = shape.hidden * shape.merge
    bias = not shape.second_projector
    norm = (
        context.norm("post_norm", shape.text)
        if shape.second_projector
        else context.norm("pre_norm", shape.hidden, bias=True)
    )
    return (
        norm,
        context.linear(f"{path}.linear_1", merged, merged, Shard.REPLICATED, bias=bias),
        context.linear(f"{path}.linear_2", merged, shape.text, Shard.REPLICATED, bias=bias),
    )


def tower_parts(context: Context, config: ConfigView, text: int) -> tuple[tuple[ResidentPart, ...], Encoder]:
    """The tower and projector, on every stage, and what the profile run sees of them.

    compressed-tensors checkpoints leave both unquantized.
    """
    shape = tower_shape(config, text)
    if context.quantizer.name in {"compressed-tensors", "mxfp4"}:
        context = replace(context, quantizer=NoQuantizer())
    patches = CHANNELS * shape.patch * shape.patch * shape.hidden
    embedding = Tensor(
        name="patch_embed",
        partition=Partition(
            units=patches + (shape.hidden if shape.patch_bias else 0) + shape.grid * shape.hidden
        ),
        itemsize=context.itemsize,
    )
    blocks = [_block(context, f"vision_tower.encoder.blocks.{index}", shape) for index in range(shape.blocks)]
    parts = parts_of(
        embedding,
        *blocks,
        context.norm("final_layernorm", shape.hidden, bias=shape.norm_bias),
        _projector(context, "mm_projector", shape),
    )
    residents = tuple(
        ResidentPart(part=part, residence=Residence.EVERY, tower="vision", heads=shape.heads)
        for part in parts
    )
    encoder = Encoder(
        kind="vision",
        heads=shape.heads,
        hidden=shape.hidden,
        layers=shape.blocks,
        intermediate=shape.intermediate,
        tokens_per_item=PATCHES_PER_ITEM // shape.merge,
        patches_per_item=PATCHES_PER_ITEM,
    )
    return residents, encoder
