"""Which quantizer a declared quantization config, or `--quantization`, asks for."""

from collections.abc import Mapping
from typing import Any

from gpuplan.engine.architectures.quantizer import Quantizer
from gpuplan.engine.architectures.quantizers.base import NoQuantizer, unknown_method, view_of
from gpuplan.engine.architectures.quantizers.compressed import CompressedQuantizer
from gpuplan.engine.architectures.quantizers.float8 import (
    ONLINE,
    DeepseekV4Quantizer,
    FbgemmQuantizer,
    Float8Quantizer,
    Mxfp4Quantizer,
    OnlineQuantizer,
)
from gpuplan.engine.architectures.quantizers.integers import (
    AutoRoundQuantizer,
    AwqQuantizer,
    GptqQuantizer,
    bitsandbytes_quantizer,
    other_quantizer,
    quark_quantizer,
    torchao_quantizer,
)
from gpuplan.engine.architectures.quantizers.modelopt import MixedQuantizer, ModelOptQuantizer, algorithm_of
from gpuplan.errors import ModelError


def chosen(config: Mapping[str, Any], found: Mapping[str, Any] | None, override: str | None) -> Quantizer:
    """The quantizer for a checkpoint's `found` quantization config; None: quantization while loading, if any."""
    if found is None:
        return _online(override)
    method = _method(found)
    model_type = config.get("model_type")
    match method:
        case "fp8" | "deepseek_v4_fp8":
            v4 = isinstance(model_type, str) and model_type.startswith("deepseek_v4")
            return DeepseekV4Quantizer(found, config) if v4 else Float8Quantizer(found)
        case "modelopt" | "modelopt_fp4" | "modelopt_mxfp8" | "modelopt_mixed":
            return (
                MixedQuantizer(found)
                if algorithm_of(found) == "MIXED_PRECISION"
                else ModelOptQuantizer(found)
            )
        case "mxfp8":
            return ModelOptQuantizer({"quant_algo": "MXFP8", **found})
        case "compressed-tensors":
            if (
                isinstance(model_type, str)
                and model_type in KIMI_K3
                and found.get("format") == "mxfp4-pack-quantized"
            ):
                return Mxfp4Quantizer("mxfp4", "deepseek_v4")
            return CompressedQuantizer(found)
        case "mxfp4" | "gpt_oss_mxfp4":
            gpt_oss = model_type == "gpt_oss"
            return (
                Mxfp4Quantizer("gpt_oss_mxfp4", "gpt_oss")
                if gpt_oss
                else Mxfp4Quantizer("mxfp4", "deepseek_v4")
            )
        case _:
            return _other(method, found)


KIMI_K3 = frozenset({"kimi_k3", "kimi_k3_text"})
"""Model types whose MXFP4 experts vLLM hands to the MXFP4 method (model_executor/models/config.py)."""


def _other(method: str, found: Mapping[str, Any]) -> Quantizer:
    match method:
        case "awq" | "awq_marlin" | "auto_awq":
            return AwqQuantizer(found)
        case "gptq" | "gptq_marlin" | "auto_gptq":
            return GptqQuantizer(found)
        case "moe_wna16":
            return AwqQuantizer(found) if found.get("linear_quant_method") == "awq" else GptqQuantizer(found)
        case "auto-round" | "inc":
            return AutoRoundQuantizer(found)
        case "fbgemm_fp8":
            return FbgemmQuantizer(found)
        case "experts_int8" | "int8_per_channel_weight_only":
            return OnlineQuantizer(method, *ONLINE["experts_int8"])
        case "quark":
            return quark_quantizer(found)
        case "torchao":
            return torchao_quantizer(found)
        case "bitsandbytes":
            return bitsandbytes_quantizer(found)
        case _:
            return _estimated(method, found)


def _estimated(method: str, found: Mapping[str, Any]) -> Quantizer:
    """A method known by nothing but its name and bits."""
    bits = view_of(found).optional_integer("bits", "w_bit", "weight_bits", least=1, most=16)
    if bits is None:
        raise unknown_method(method)
    return other_quantizer(method, bits)


def _online(override: str | None) -> Quantizer:
    """Quantization while loading an unquantized checkpoint."""
    if override in (None, "", "auto"):
        return NoQuantizer()
    if override in ONLINE:
        return OnlineQuantizer(override, *ONLINE[override])
    if override == "bitsandbytes":
        return bitsandbytes_quantizer({"load_in_4bit": True})
    raise ModelError(
        f"--quantization {str(override)[:40]}: the checkpoint is not quantized that way",
        hint=f"leave it out, or quantize while loading with one of {', '.join(sorted(ONLINE))}",
    )


def _method(found: Mapping[str, Any]) -> str:
    view = view_of(found)
    method = view.text("quant_method").lower().replace("compressed_tensors", "compressed-tensors")
    if method:
        return method
    if algorithm_of(found):
        return "modelopt"
    if "config_groups" in view:
        return "compressed-tensors"
    raise view.error("quant_method", "is missing")
