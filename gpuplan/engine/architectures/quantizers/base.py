"""What every quantizer answers, and the one of an unquantized model."""

from collections.abc import Mapping
from typing import Any

from gpuplan.domain.model import UNQUANTIZED, Scheme
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.errors import ModelError

PLACE = "quantization config"
CACHE_SCALES = 4
"""Scales of query, key, value and probabilities (vLLM 0.32 layers/quantization/kv_cache.py)."""
MOST_NAMES = 1_000_000


class NoQuantizer:
    """Every module in the model's own type; the base of the others."""

    name: str | None = None
    kv_cache_dtype: str | None = None
    assumptions: tuple[str, ...] = ()
    while_loading: bool = False

    def linear(self, path: str, fused: tuple[str, ...] = ()) -> Scheme:
        del path, fused
        return UNQUANTIZED

    def experts(self, path: str) -> Scheme:
        del path
        return UNQUANTIZED

    def embedding(self, path: str) -> Scheme:
        del path
        return UNQUANTIZED

    def cache_scale_bytes(self, itemsize: int, *, latent: bool) -> int:
        del itemsize, latent
        return 0


def view_of(config: Mapping[str, Any]) -> ConfigView:
    """A quantization config as a checked view."""
    return ConfigView(config, PLACE)


def names_in(view: ConfigView, *keys: str) -> tuple[str, ...]:
    """A list of module names; ModelError when it holds anything else."""
    names = view.items(*keys)
    if len(names) > MOST_NAMES or not all(isinstance(name, str) for name in names):
        raise view.error(keys[0], "is not a list of module names")
    return names


def block_of(view: ConfigView, *keys: str) -> tuple[int, int] | None:
    """Rows and columns of a block, written as a list or as `128x128`; None when absent."""
    value = view.raw(*keys)
    if value is None:
        return None
    parts = value.lower().split("x") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or len(parts) != 2:
        raise view.error(keys[0], "is not a pair of block sizes")
    sizes = []
    for part in parts:
        text = str(part).strip()
        if isinstance(part, bool) or not text.isdecimal() or not 1 <= int(text[:9]) <= 65536:
            raise view.error(keys[0], "is not a pair of block sizes")
        sizes.append(int(text[:9]))
    return sizes[0], sizes[1]


def mapping_in(view: ConfigView, key: str) -> Mapping[str, Any]:
    """A nested object; empty when absent, ModelError when it is something else."""
    return view.view(key).values


def unknown_method(method: str) -> ModelError:
    return ModelError(
        f"{PLACE}: quant_method {method[:40]!r} is not one vLLM knows",
        hint="see the methods `vllm serve --help=quantization` lists, or plan for the unquantized checkpoint",
    )
