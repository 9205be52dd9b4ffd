"""CLIP and SigLIP towers: patches, learned positions, ordinary encoder layers.

vLLM 0.32: vllm/model_executor/models/{clip,siglip}.py.
"""

from dataclasses import dataclass

from gpuplan.domain.model import Part, Partition, ResidentPart, Shard, Tensor
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import MOST_LAYERS, Context
from gpuplan.engine.architectures.wrapping import repeated, tower_buffer, tower_parts

MOST_SIDE = 1 << 16
INTEGER = 8
ALIGNED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """A tower's sizes as its config gives them."""

    hidden: int
    heads: int
    wide: int
    layers: int
    patch: int
    image: int
    channels: int
    class_token: bool
    """CLIP's class embedding and the norm before the layers."""

    @property
    def patches(self) -> int:
        return (self.image // self.patch) ** 2

    @property
    def positions(self) -> int:
        return self.patches + (1 if self.class_token else 0)


def tower_of(vision: ConfigView, *, clip: bool | None = None) -> Tower:
    """Read a CLIP or SigLIP config, with the defaults of transformers' classes; raises ModelError."""
    is_clip = "clip" in vision.text("model_type", default="clip") and "siglip" not in vision.text(
        "model_type"
    )
    if clip is not None:
        is_clip = clip
    hidden = vision.integer("hidden_size", default=768)
    heads = vision.integer("num_attention_heads", default=12)
    if hidden % heads:
        raise vision.error("num_attention_heads", f"is {heads}, which does not divide hidden_size {hidden}")
    patch = vision.integer("patch_size", default=32 if is_clip else 16, most=MOST_SIDE)
    return Tower(
        hidden=hidden,
        heads=heads,
        wide=vision.integer("intermediate_size", default=3072),
        layers=vision.integer("num_hidden_layers", default=12, most=MOST_LAYERS),
        patch=patch,
        image=vision.integer("image_size", default=224, least=patch, most=MOST_SIDE),
        channels=vision.integer("num_channels", default=3, most=64),
        class_token=is_clip,
    )


def layers_used(context: Context, layers: int, default: int = -1) -> int:
    """Layers up to the deepest of `vision_feature_layer` (clip.py, `_get_num_hidden_layers`)."""
    value = context.config.raw("vision_feature_layer")
    indices = value if isinstance(value, (list, tuple)) else (default if value is None else value,)
    deepest = 0
    for index in indices:
        if isinstance(index, bool) or not isinstance(index, int) or not -layers - 1 <= index <= layers:
            raise context.config.error("vision_feature_layer", f"names no layer of {layers}")
        deepest = max(deepest, layers + index + 1 if index < 0 else index)
    return deepest


def clip_tower(
    context: Context,
    tower: Tower,
    path: str,
    *,
    used: int | None = None,
    post_norm: bool | None = None,
    head: bool = False,
    any_width: bool = False,
) -> tuple[ResidentPart, ...]:
    """The tower at `path` (`vision_tower.vision_model`), with the first `used` of its layers.

    `post_norm`: None as vLLM decides (only where all layers are used). `head`: SigLIP's pooling head.
    `any_width`: its class quantizes MLPs of any width; SigLIP's only where both widths are multiples of 64.
    """
    count = tower.layers if used is None else min(used, tower.layers)
    hidden = tower.hidden
    kernel = tower.channels * tower.patch * tower.patch
    bias = 0 if tower.class_token else hidden
    parts: list[Part] = [
        Tensor(
            name="patch embedding",
            partition=Partition(units=kernel * hidden + bias),
            itemsize=context.itemsize,
        ),
        Tensor(
            name="positions", partition=Partition(units=tower.positions * hidden), itemsize=context.itemsize
        ),
    ]
    if tower.class_token:
        parts.append(context.norm("class embedding, pre norm", 3 * hidden))
    if post_norm if post_norm is not None else count == tower.layers:
        parts.append(context.norm("post norm", hidden, bias=True))
    fits = tower.class_token or any_width or tower.hidden % ALIGNED == tower.wide % ALIGNED == 0
    quantized = fits or context.quantizer.name in {"bitsandbytes", "torchao"}
    parts += _layers(context, tower, f"{path}.encoder.layers", count, quantized=quantized)
    if head:
        parts += _pooling_head(context, tower, f"{path}.head", quantized=quantized)
    positions = Tensor(name="position ids", partition=Partition(units=tower.positions), itemsize=INTEGER)
    return (*tower_parts(parts), tower_buffer(positions))


def _layers(context: Context, tower: Tower, path: str, count: int, *, quantized: bool) -> list[Part]:
    if context.quantizer.name is None:
        return list(_layer(context, tower, f"{path}.0", quantized=quantized) * count)
    return [
        part
        for index in range(count)
        for part in _layer(context, tower, f"{path}.{index}", quantized=quantized)
    ]


def _mlp(context: Context, tower: Tower, path: str, *, quantized: bool) -> tuple[Part, ...]:
    hidden, wide = tower.hidden, tower.wide
    return (
        context.linear(f"{path}.mlp.fc1", hidden, wide, Shard.COLUMN, bias=True, quantized=quantized),
        context.linear(f"{path}.mlp.fc2", wide, hidden, Shard.ROW, bias=True, quantized=quantized),
    )


def _layer(context: Context, tower: Tower, path: str, *, quantized: bool) -> tuple[Part, ...]:
    one = Partition(units=tower.heads, unit_size=tower.hidden // tower.heads)
    linears = (
        context.linear(
            f"{path}.self_attn.qkv_proj",
            tower.hidden,
            (one, one, one),
            Shard.COLUMN,
            bias=True,
            fused=("q_proj", "k_proj", "v_proj"),
        ),
        context.linear(f"{path}.self_attn.out_proj", one, tower.hidden, Shard.ROW, bias=True),
        *_mlp(context, tower, path, quantized=quantized),
    )
    return (*repeated(linears, "vision"), context.norm("layer norms", 2 * tower.hidden, bias=True))


def _pooling_head(context: Context, tower: Tower, path: str, *, quantized: bool) -> tuple[Part, ...]:
    """Attention pooling with a probe; its attention is torch's own, whole on every rank."""
    hidden = tower.hidden
    return (
        context.norm("probe, attention, norm", hidden + 4 * hidden * (hidden + 1) + 2 * hidden),
        *_mlp(context, tower, path, quantized=quantized),
    )
