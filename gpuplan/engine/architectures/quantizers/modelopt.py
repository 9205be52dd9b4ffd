"""NVIDIA ModelOpt checkpoints: FP8, NVFP4, MXFP8, and a different one per layer.

vLLM 0.32 layers/quantization/modelopt.py; the KV-cache type: `get_kv_cache_quant_algo_string`
(utils/torch_utils.py).
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

from gpuplan.domain.model import UNQUANTIZED, Float4, Float8, MicroscaledFloat8, Scheme
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.quantizers.base import CACHE_SCALES, NoQuantizer, names_in, view_of
from gpuplan.engine.architectures.quantizers.module_names import ExcludedModules, bare, shards

NAMES = {
    "FP8": "modelopt",
    "FP8_PER_CHANNEL_PER_TOKEN": "modelopt",
    "FP8_PB_WO": "modelopt",
    "NVFP4": "modelopt_fp4",
    "W4A16_NVFP4": "modelopt_fp4",
    "MXFP8": "modelopt_mxfp8",
    "MIXED_PRECISION": "modelopt_mixed",
}
_BLOCK_ALGORITHMS = {"FP8_PB_WO", "FP8_BLOCK_SCALES"}
_NVFP4 = {"NVFP4", "W4A16_NVFP4"}
_TOWERS = ("vision_tower", "vision_model", "vit_large_projector")
_UNLISTED_SHARDS = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}


def linear_scheme(algorithm: str, group_size: int = 16) -> Scheme:
    """Parameters of a linear layer of that algorithm; unquantized when it is not one for linear layers."""
    match algorithm:
        case "FP8":
            return Float8(granularity="tensor", static_input=True)
        case "FP8_PER_CHANNEL_PER_TOKEN":
            return Float8(granularity="channel")
        case "FP8_PB_WO":
            return Float8(granularity="block")
        case "NVFP4":
            return Float4(variety="nvfp4", group_size=group_size)
        case "W4A16_NVFP4":
            return Float4(variety="nvfp4", group_size=group_size, global_scales=1, narrow_scales=1)
        case "MXFP8":
            return MicroscaledFloat8()
        case _:
            return UNQUANTIZED


def experts_scheme(algorithm: str, group_size: int = 16, *, mixed: bool = False) -> Scheme:
    """Parameters of routed experts of that algorithm."""
    if mixed and algorithm in _BLOCK_ALGORITHMS:
        return Float8(granularity="block")
    if algorithm == "NVFP4":
        return Float4(variety="nvfp4", group_size=group_size, input_scales_of_all_experts=True)
    if algorithm == "W4A16_NVFP4":
        return Float4(variety="nvfp4", group_size=group_size)
    if algorithm.startswith("FP8"):
        return Float8(granularity="tensor", static_input=True)
    return linear_scheme(algorithm, group_size)


class ModelOptQuantizer(NoQuantizer):
    """One algorithm for everything that is not excluded."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        inner = _inner(config)
        self._algorithm = inner.text("quant_algo").upper()
        if self._algorithm not in NAMES:
            raise inner.error("quant_algo", f"is {self._algorithm[:40]!r}, not one of {', '.join(NAMES)}")
        self.name = NAMES.get(self._algorithm, "modelopt")
        self.kv_cache_dtype = kv_cache_dtype(config)
        key = "exclude_modules" if "quantization" in config else "ignore"
        self._excluded = ExcludedModules(names_in(inner, key))
        self._group_size = inner.integer("group_size", default=16, most=65536)

    def linear(self, path: str, fused: tuple[str, ...] = ()) -> Scheme:
        if any(tower in path for tower in _TOWERS) or self._excluded.hold(path, fused):
            return UNQUANTIZED
        return linear_scheme(self._algorithm, self._group_size)

    def experts(self, path: str) -> Scheme:
        return UNQUANTIZED if self._excluded.hold(path) else experts_scheme(self._algorithm, self._group_size)

    def embedding(self, path: str) -> Scheme:
        return self.linear(path) if path.endswith("lm_head") else UNQUANTIZED

    def cache_scale_bytes(self, itemsize: int, *, latent: bool) -> int:
        del latent
        return CACHE_SCALES * itemsize


class MixedQuantizer(NoQuantizer):
    """MIXED_PRECISION: `quantized_layers` names the algorithm of every module that has one."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        inner = _inner(config)
        self.name = "modelopt_mixed"
        self.kv_cache_dtype = kv_cache_dtype(config)
        key = "exclude_modules" if "quantization" in config else "ignore"
        self._excluded = ExcludedModules(names_in(inner, key))
        layers = inner.view("quantized_layers")
        if not layers.values:
            raise inner.error("quantized_layers", "is missing or empty, which MIXED_PRECISION needs")
        self._algorithms: dict[str, str] = {}
        group_size = inner.raw("group_size")
        for name, entry in layers.values.items():
            algorithm = entry.get("quant_algo") if isinstance(entry, Mapping) else None
            if not isinstance(algorithm, str):
                raise layers.error(str(name)[:80], "does not name its quant_algo")
            algorithm = algorithm.upper()
            self._algorithms[bare(name)] = algorithm
            if group_size is None and algorithm in _NVFP4:
                group_size = entry.get("group_size", 16)
        self._sorted = sorted(self._algorithms)
        self._group_size = view_of({"group_size": group_size}).integer("group_size", default=16, most=65536)

    def linear(self, path: str, fused: tuple[str, ...] = ()) -> Scheme:
        if self._excluded.hold(path, fused):
            return UNQUANTIZED
        algorithm = self._algorithm(bare(path), fused)
        return UNQUANTIZED if algorithm is None else linear_scheme(algorithm, self._group_size)

    def experts(self, path: str) -> Scheme:
        if self._excluded.hold(path):
            return UNQUANTIZED
        algorithm = self._algorithm(bare(path), ())
        return UNQUANTIZED if algorithm is None else experts_scheme(algorithm, self._group_size, mixed=True)

    def embedding(self, path: str) -> Scheme:
        return self.linear(path) if path.endswith("lm_head") else UNQUANTIZED

    def cache_scale_bytes(self, itemsize: int, *, latent: bool) -> int:
        return CACHE_SCALES * itemsize if self.kv_cache_dtype and not latent else 0

    def _algorithm(self, path: str, fused: tuple[str, ...]) -> str | None:
        own = self._algorithms.get(path)
        if own is not None:
            return own
        for stacked in (fused, _UNLISTED_SHARDS.get(path.rpartition(".")[2], ())):
            for shard in shards(path, stacked):
                if shard in self._algorithms:
                    return self._algorithms[shard]
        inside = self._first_under(path + ".")
        if inside is None and path.endswith(".experts"):
            inside = self._first_under(path.removesuffix("experts"))
        return inside

    def _first_under(self, prefix: str) -> str | None:
        at = bisect_left(self._sorted, prefix)
        if at < len(self._sorted) and self._sorted[at].startswith(prefix):
            return self._algorithms[self._sorted[at]]
        return None


def _inner(config: Mapping[str, Any]) -> ConfigView:
    view = view_of(config)
    return view.view("quantization") if "quantization" in view else view


def kv_cache_dtype(config: Mapping[str, Any]) -> str | None:
    """What `--kv-cache-dtype auto` becomes for a ModelOpt checkpoint; None: the model's own type."""
    inner, outer = _inner(config).values, config
    asked = (
        inner.get("kv_cache_scheme")
        or outer.get("kv_cache_scheme")
        or inner.get("kv_cache_quant_algo")
        or outer.get("kv_cache_quant_algo")
    )
    if isinstance(asked, Mapping):
        if asked.get("type") != "float":
            return None
        if asked.get("dynamic") is False and asked.get("num_bits") == 8:
            return "fp8_e4m3"
        return "nvfp4" if asked.get("num_bits") == 4 else None
    return {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}.get(asked.lower()) if isinstance(asked, str) else None


def algorithm_of(config: Mapping[str, Any]) -> str:
    """The upper-cased `quant_algo`, empty when there is none."""
    return _inner(config).text("quant_algo").upper()
