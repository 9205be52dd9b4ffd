"""Which weight scheme each module of a checkpoint has: the checkpoint's quantization config, and what it leaves alone.

Patterns are matched as the quantization methods of vLLM 0.32 do (`is_layer_skipped`, compressed-tensors targets,
ModelOpt `exclude_modules`).
"""

from collections.abc import Mapping
from typing import Any, Protocol

from gpuplan.domain.model import UNQUANTIZED, Float8, Scheme

class Quantizer(Protocol):
    """Scheme of a module by its path in vLLM's own naming."""

    name: str | None
    kv_cache_dtype: str | None

    def linear(self, path: str, fused: tuple[str, ...] = ()) -> Scheme:
        """Scheme of the linear layer at `path`; `fused` are the checkpoint's names of what it stacks (`q_proj`, …)."""

    def experts(self, path: str) -> Scheme:
        """Scheme of the routed experts at `path` (`model.layers.3.mlp.experts`)."""

    def embedding(self, path: str) -> Scheme:
        """Scheme of a vocabulary table at `path` (`lm_head`, `model.embed_tokens`)."""


class NoQuantizer:
    name: str | None = None
    kv_cache_dtype: str | None = None

    def linear(self, path: str, fused: tuple[str, ...] = ()) -> Scheme:
        del path, fused
        return UNQUANTIZED

    def experts(self, path: str) -> Scheme:
        del path
        return UNQUANTIZED

    def embedding(self, path: str) -> Scheme:
        del path
        return UNQUANTIZED


class Float8Quantizer(NoQuantizer):
    """`quant_method: fp8`."""

    name = "fp8"

    def __init__(self, config: Mapping[str, Any]) -> None:
        block = config.get("weight_block_size")
        static = config.get("activation_scheme") == "static"
        self._ignored = tuple(config.get("ignored_layers") or config.get("modules_to_not_convert") or ())
        self._scheme = (
            Float8(granularity="block", block=(block[0], block[1]), static_input=static)
            if block
            else Float8(granularity="tensor", static_input=static)
        )

    def linear(self, path: str, fused: tuple[str, ...] = ()) -> Scheme:
        names = tuple(path.rpartition(".")[0] + "." + name for name in fused) or (path,)
        return UNQUANTIZED if all(name in self._ignored for name in names) else self._scheme

    def experts(self, path: str) -> Scheme:
        return self._scheme


def quantizer_for(config: Mapping[str, Any], hf_quant_config: Mapping[str, Any] | None, override: str | None) -> Quantizer:
    """The quantizer a checkpoint asks for; `override` is `--quantization`."""
    del hf_quant_config, override
    quantization = config.get("quantization_config")
    if isinstance(quantization, Mapping) and quantization.get("quant_method") == "fp8":
        return Float8Quantizer(quantization)
    return NoQuantizer()
