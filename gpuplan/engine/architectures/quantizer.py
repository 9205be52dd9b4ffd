"""Which weight scheme each module of a checkpoint has, by its quantization config and what that leaves alone.

`quantizer_for` chooses as vLLM 0.32 does (config/model.py `_verify_quantization`,
transformers_utils/config.py): the config's own `quantization_config` or `compression_config`, that of its
text model, else `hf_quant_config.json`.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

from gpuplan.domain.model import Scheme
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.quantizers.base import NoQuantizer

__all__ = ["NoQuantizer", "Quantizer", "quantizer_for"]


class Quantizer(Protocol):
    """Scheme of a module by its path in vLLM's own naming."""

    name: str | None
    """vLLM's name of the method, None when unquantized."""
    kv_cache_dtype: str | None
    """What `--kv-cache-dtype auto` becomes; None: the model's own type."""
    assumptions: tuple[str, ...]
    while_loading: bool
    """The checkpoint is not quantized: it is loaded in its own type first."""

    def linear(self, path: str, fused: tuple[str, ...] = ()) -> Scheme:
        """Scheme of the linear layer at `path`; `fused`: the checkpoint's names of what it stacks."""

    def experts(self, path: str) -> Scheme:
        """Scheme of the routed experts at `path` (`model.layers.3.mlp.experts`)."""

    def embedding(self, path: str) -> Scheme:
        """Scheme of a vocabulary table at `path` (`lm_head`, `model.embed_tokens`)."""

    def cache_scale_bytes(self, itemsize: int, *, latent: bool) -> int:
        """Bytes of the KV-cache scales an attention layer holds; `latent`: MLA."""


def quantizer_for(
    config: Mapping[str, Any], hf_quant_config: Mapping[str, Any] | None, override: str | None
) -> Quantizer:
    """The quantizer a checkpoint asks for; `override` is `--quantization`. Raises ModelError.

    The methods are imported when a checkpoint is quantized.
    """
    found = _declared(config, hf_quant_config)
    if found is None and override in (None, "", "auto"):
        return NoQuantizer()
    choice = import_module("gpuplan.engine.architectures.quantizers.choice")
    quantizer: Quantizer = choice.chosen(config, found, override)
    return quantizer


def _declared(config: Mapping[str, Any], beside: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The quantization config that rules, None when there is none."""
    text = config.get("text_config")
    nested = text if isinstance(text, Mapping) else {}
    for holder in (config, nested):
        for key in ("quantization_config", "compression_config"):
            found = holder.get(key)
            if found is None or found == {}:
                continue
            if not isinstance(found, Mapping):
                raise ConfigView(holder).error(key, "is not an object")
            return found
    return beside or None
