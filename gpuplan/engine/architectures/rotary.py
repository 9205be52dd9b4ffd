"""The cos/sin table of a text model's rotary embedding: how many positions and dimensions it holds.

vLLM 0.32: vllm/model_executor/layers/rotary_embedding/__init__.py (`get_rope`) and the classes beside it.
"""

from gpuplan.domain.model import ResidentPart
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import rotary_buffer

MOST_ROWS = 1 << 31
STRETCHED = frozenset({"linear", "ntk"})
FROM_ORIGINAL = frozenset({"yarn", "deepseek_yarn", "deepseek_llama_scaling"})
MROPE_TIMES = 4
"""Tables of Qwen2-VL's positions are four times as long as the context (mrope.py `positions_factor`)."""


def text_rotary(
    config: ConfigView,
    head_size: int,
    itemsize: float,
    *,
    layer_type: str | None = None,
    rope: ConfigView | None = None,
    times: int = 1,
    positions: int = 0,
    share: float = 1.0,
) -> ResidentPart:
    """The table for heads of `head_size` in a text config; `layer_type` picks one of the rotations a config may name.

    `times` stretches unscaled positions (`MROPE_TIMES`); `positions` and `share`, of a head that is rotated, are the
    family's where the config is silent. Raises ModelError for a share of a head outside 0..1.
    """
    scaling = rope_of(config, layer_type) if rope is None else rope
    factor = scaling.number(
        "partial_rotary_factor",
        default=config.number(
            "partial_rotary_factor", "rotary_pct", "rotary_emb_fraction", "rope_pct", default=share
        ),
    )
    if not 0 < factor <= 1:
        raise config.error("partial_rotary_factor", "must lie between 0 and 1")
    positions = config.integer(
        "max_position_embeddings", "n_positions", "seq_length", "max_seq_len", default=positions, least=0
    )
    original = config.integer("original_max_position_embeddings", default=positions, least=0)
    rows = positions_of(
        scaling, positions, scaling.integer("original_max_position_embeddings", default=original, least=0)
    )
    return rotary_buffer(min(MOST_ROWS, rows * times), int(head_size * factor), itemsize)


def rope_of(config: ConfigView, layer_type: str | None = None) -> ConfigView:
    """The rotation's parameters, of `layer_type` where the config gives one set per type of layer."""
    rope = config.view("rope_parameters", "rope_scaling")
    nested = rope.raw(layer_type) if layer_type else None
    return rope.view(layer_type) if isinstance(nested, dict) and layer_type else rope


def positions_of(scaling: ConfigView, positions: int, original: int) -> int:
    """Rows of the table for a context of `positions` tokens, `original` before it was stretched."""
    kind = str(scaling.raw("rope_type", "type"))
    stretch = min(1e6, max(0.0, scaling.number("factor", default=1.0)))
    if kind in STRETCHED:
        return int(positions * stretch)
    if kind in FROM_ORIGINAL:
        return int(original * stretch)
    if kind in ("longrope", "su"):
        return original + positions
    return positions


def tables_in_use(
    sliding: tuple[bool, ...], local: ResidentPart, full: ResidentPart
) -> tuple[ResidentPart, ...]:
    """The tables that layers of either type make."""
    return (*((local,) if any(sliding) else ()), *((full,) if not all(sliding) else ()))
