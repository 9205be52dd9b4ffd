"""8-bit float checkpoints: `fp8`, FBGEMM, DeepSeek V4's mixture, and quantization while loading.

vLLM 0.32: layers/quantization/{fp8,fbgemm_fp8,online/*}.py, models/deepseek_v4/quant_config.py,
config/quantization.py.
"""

from collections.abc import Mapping
from typing import Any

from gpuplan.domain.model import UNQUANTIZED, Float4, Float8, Integer8, MicroscaledFloat8, Scheme
from gpuplan.engine.architectures.quantizers.base import (
    CACHE_SCALES,
    NoQuantizer,
    block_of,
    names_in,
    view_of,
)
from gpuplan.engine.architectures.quantizers.module_names import ExactNames
from gpuplan.errors import ModelError

MXFP4 = Float4(variety="mxfp4", group_size=32, global_scales=0)
NVFP4 = Float4(variety="nvfp4", group_size=16)


class Float8Quantizer(NoQuantizer):
    """`quant_method: fp8`: every linear layer and expert that the checkpoint does not name."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.name = "fp8"
        view = view_of(config)
        block = block_of(view, "weight_block_size")
        static = view.text("activation_scheme", default="dynamic") == "static"
        names = names_in(view, "ignored_layers") or names_in(view, "modules_to_not_convert")
        self._ignored = ExactNames(names)
        self._scheme = (
            Float8(granularity="block", block=block)
            if block
            else Float8(granularity="tensor", static_input=static)
        )
        self._experts: Scheme = self._scheme
        if view.text("store_dtype") == "mxfp4":
            self._experts = Float4(variety="mxfp4", group_size=32, global_scales=0, kernels="deepseek_v4")

    def linear(self, path: str, fused: tuple[str, ...] = ()) -> Scheme:
        return UNQUANTIZED if self._ignored.hold(path, fused) else self._scheme

    def experts(self, path: str) -> Scheme:
        return UNQUANTIZED if self._ignored.hold(path) else self._experts

    def cache_scale_bytes(self, itemsize: int, *, latent: bool) -> int:
        return 0 if latent else CACHE_SCALES * itemsize


class DeepseekV4Quantizer(Float8Quantizer):
    """`deepseek_v4_fp8`: block fp8 layers, experts as `expert_dtype` and `moe_quant_algo` say."""

    def __init__(self, config: Mapping[str, Any], model: Mapping[str, Any]) -> None:
        super().__init__(config)
        self.name = "deepseek_v4_fp8"
        block = block_of(view_of(config), "weight_block_size") or (128, 128)
        expert_dtype = view_of(model).text("expert_dtype", default="fp4")
        if expert_dtype == "fp8":
            return
        if expert_dtype != "fp4":
            raise ModelError(
                f"config.json: expert_dtype {expert_dtype[:20]!r} is neither fp4 nor fp8",
                hint="correct the file, or override the value with --hf-overrides",
            )
        self._scheme = Float8(granularity="block", block=block, scale_bytes=1)
        if block == (32, 32):
            self._scheme = Float8(granularity="block", block=(1, 32), scale_bytes=1)
        nvfp4 = view_of(config).text("moe_quant_algo").upper() == "NVFP4"
        self._experts = (
            Float4(variety="nvfp4", group_size=16, input_scales_of_all_experts=True)
            if nvfp4
            else Float4(variety="mxfp4", group_size=32, global_scales=0, kernels="deepseek_v4")
        )


class FbgemmQuantizer(NoQuantizer):
    """`fbgemm_fp8`: one scale per output channel and one bound per layer."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.name = "fbgemm_fp8"
        self._ignored = ExactNames(names_in(view_of(config), "modules_to_not_convert"))

    def linear(self, path: str, fused: tuple[str, ...] = ()) -> Scheme:
        return (
            UNQUANTIZED if self._ignored.hold(path, fused) else Float8(granularity="channel", layer_bytes=4)
        )


class Mxfp4Quantizer(NoQuantizer):
    """`mxfp4`: the experts alone; `kernels` names the family of kernels that pads them."""

    def __init__(self, name: str, kernels: str) -> None:
        self.name = name
        self._experts = Float4(variety="mxfp4", group_size=32, global_scales=0, kernels=kernels)

    def experts(self, path: str) -> Scheme:
        del path
        return self._experts


class OnlineQuantizer(NoQuantizer):
    """`--quantization fp8` on an unquantized checkpoint and the like: sizes after loading."""

    while_loading = True

    def __init__(self, name: str, linear: Scheme, experts: Scheme) -> None:
        self.name = name
        self._linear = linear
        self._experts = experts

    def linear(self, path: str, fused: tuple[str, ...] = ()) -> Scheme:
        del path, fused
        return self._linear

    def experts(self, path: str) -> Scheme:
        del path
        return self._experts


_TENSOR = Float8(granularity="tensor")
_BLOCK = Float8(granularity="block")
_CHANNEL = Float8(granularity="channel")
_INTEGER = Integer8()

ONLINE: dict[str, tuple[Scheme, Scheme]] = {
    "fp8": (_TENSOR, _TENSOR),
    "fp8_per_tensor": (_TENSOR, _TENSOR),
    "fp8_per_block": (_BLOCK, _BLOCK),
    "fp8_per_channel": (_CHANNEL, _CHANNEL),
    "mxfp8": (MicroscaledFloat8(), MicroscaledFloat8()),
    "mxfp4": (MXFP4, MXFP4),
    "int8_per_channel_weight_only": (UNQUANTIZED, _INTEGER),
    "experts_int8": (UNQUANTIZED, _INTEGER),
    "nvfp4_per_token": (UNQUANTIZED, NVFP4),
}
"""Linear layers and experts by the name `--quantization` takes."""
