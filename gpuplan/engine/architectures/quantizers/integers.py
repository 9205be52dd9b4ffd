"""Integer checkpoints (AWQ, GPTQ, AutoRound) and the methods only estimated: Quark, TorchAO, bitsandbytes.

vLLM 0.32: layers/quantization/{auto_awq,auto_gptq,torchao}.py, inc, quark, utils/gptq_utils.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuplan.domain.model import (
    UNQUANTIZED,
    Float4,
    Float8,
    GroupedInteger,
    Integer8,
    MicroscaledFloat8,
    Scheme,
)
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.quantizers.base import NoQuantizer, mapping_in, names_in, view_of
from gpuplan.engine.architectures.quantizers.compressed import Names
from gpuplan.engine.architectures.quantizers.module_names import Fragments, bare, regex, shards, wildcard
from gpuplan.errors import ModelError

if TYPE_CHECKING:
    from re import Pattern

LARGEST_GROUP = 1 << 20
MOST_NAMES = 20_000
_ROUTERS = (".gate", ".router", ".shared_expert_gate")


class AwqQuantizer(NoQuantizer):
    """`awq`: 4-bit integers with zero points, packed along the outputs."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.name = "auto_awq"
        view = view_of(config)
        self._scheme = GroupedInteger(
            layout="awq",
            bits=view.integer("w_bit", "bits", default=4, most=16),
            group_size=view.integer("q_group_size", "group_size", default=128, least=-1, most=LARGEST_GROUP)
            or -1,
            zero_points=True,
        )
        self._ignored = Fragments(names_in(view, "modules_to_not_convert"))
        self._head = view.flag("lm_head")

    def linear(self, path: str, fused: tuple[str, ...] = ()) -> Scheme:
        return UNQUANTIZED if self._ignored.hold(path, fused) else self._scheme

    def experts(self, path: str) -> Scheme:
        return UNQUANTIZED if self._ignored.hold(path) else self._scheme

    def embedding(self, path: str) -> Scheme:
        return self.linear(path) if self._head and path.endswith("lm_head") else UNQUANTIZED


class GptqQuantizer(NoQuantizer):
    """`gptq`: 4- or 8-bit integers; exceptions by pattern (`dynamic`: `-:` not quantized, `+:` other values)."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.name = "auto_gptq"
        view = view_of(config)
        self._scheme = self._grouped(view, None)
        self._head = view.flag("lm_head")
        self._rules: list[tuple[Pattern[str], Scheme]] = []
        rules = view.view("dynamic")
        for pattern in rules.values:
            expression = regex(pattern[2:] if pattern[:2] in {"-:", "+:"} else pattern)
            skip = pattern.startswith("-:")
            self._rules.append(
                (expression, UNQUANTIZED if skip else self._grouped(rules.view(pattern), self._scheme))
            )
        listed = view.items("modules_in_block_to_quantize")
        flat = [name for item in listed for name in (item if isinstance(item, (list, tuple)) else (item,))]
        self._listed = Fragments(name for name in flat if isinstance(name, str)) if flat else None

    @staticmethod
    def _grouped(view: ConfigView, base: GroupedInteger | None) -> GroupedInteger:
        if base is None:
            base = GroupedInteger(layout="gptq", bits=4, group_size=128, zero_points=True)
        size = view.integer("group_size", default=base.group_size, least=-1, most=LARGEST_GROUP) or -1
        return replace(base, bits=view.integer("bits", default=base.bits, most=16), group_size=size)

    def linear(self, path: str, fused: tuple[str, ...] = ()) -> Scheme:
        if self._listed is not None and not self._listed.hold(path, fused):
            return UNQUANTIZED
        return self._ruled(path)

    def experts(self, path: str) -> Scheme:
        return self._ruled(path)

    def embedding(self, path: str) -> Scheme:
        return self.linear(path) if self._head and path.endswith("lm_head") else UNQUANTIZED

    def _ruled(self, path: str) -> Scheme:
        return next((scheme for pattern, scheme in self._rules if pattern.match(path)), self._scheme)


class AutoRoundQuantizer(NoQuantizer):
    """`auto-round` (Intel Neural Compressor): packed as GPTQ or AWQ, exceptions by name in `extra_config`."""

    assumptions: tuple[str, ...] = (
        "AutoRound weights are estimated: exceptions by block or by list may differ from vLLM's",
    )

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.name = "inc"
        view = view_of(config)
        packing = view.text("packing_format", default="auto_round:auto_gptq")
        self._scheme = GroupedInteger(
            layout="awq" if "awq" in packing else "gptq",
            bits=view.integer("bits", "weight_bits", default=4, most=16),
            group_size=view.integer("group_size", default=128, least=-1, most=LARGEST_GROUP) or -1,
            zero_points=True,
        )
        extra = mapping_in(view, "extra_config")
        whole = [n for n, v in extra.items() if isinstance(v, Mapping) and _bits(v) >= 16]
        self._whole = Names(f"re:{n}" if "*" in n or "\\" in n else n for n in whole)

    def linear(self, path: str, fused: tuple[str, ...] = ()) -> Scheme:
        names = (path, bare(path), *shards(path, fused))
        skip = path.endswith(_ROUTERS) or any(self._whole.first(name) is not None for name in names)
        return UNQUANTIZED if skip else self._scheme

    def experts(self, path: str) -> Scheme:
        return UNQUANTIZED if self._whole.first(path) is not None else self._scheme


class UniformQuantizer(NoQuantizer):
    """One scheme for every linear layer and expert but the excluded: methods whose figures are estimates."""

    def __init__(self, name: str, scheme: Scheme, excluded: tuple[str, ...], assumption: str) -> None:
        self.name = name
        self.assumptions = (assumption,)
        self._scheme = scheme
        plain = tuple(n for n in excluded if "*" not in n and not n.startswith("re:"))
        self._fragments = Fragments(plain)
        if len(excluded) > MOST_NAMES:
            raise ModelError(
                f"quantization config: more than {MOST_NAMES} excluded modules",
                hint="join them into patterns",
            )
        self._wildcards = tuple(wildcard(n) for n in excluded if "*" in n and not n.startswith("re:"))
        self._patterns = Names(n for n in excluded if n.startswith("re:"))

    def _skip(self, path: str, fused: tuple[str, ...] = ()) -> bool:
        return (
            path.endswith(_ROUTERS)
            or self._fragments.hold(path, fused)
            or self._patterns.first(path) is not None
            or any(
                pattern.match(name) for pattern in self._wildcards for name in (path, *shards(path, fused))
            )
        )

    def linear(self, path: str, fused: tuple[str, ...] = ()) -> Scheme:
        return UNQUANTIZED if self._skip(path, fused) else self._scheme

    def experts(self, path: str) -> Scheme:
        return UNQUANTIZED if self._skip(path) else self._scheme


def _bits(entry: Mapping[str, Any]) -> int:
    value = entry.get("bits", 16)
    return value if isinstance(value, int) else 16


def quark_quantizer(config: Mapping[str, Any]) -> UniformQuantizer:
    """AMD Quark: the global scheme of the weights, `exclude` by name."""
    view = view_of(config)
    raw = view.view("global_quant_config").raw("weight")
    first = raw[0] if isinstance(raw, (list, tuple)) and raw else raw
    weight = view_of(first if isinstance(first, Mapping) else {})
    kind, layout = weight.text("dtype"), weight.text("qscheme")
    static = bool(view.view("global_quant_config").raw("input_tensors"))
    scheme: Scheme
    if kind in {"fp4", "mxfp4"}:
        scheme = Float4(variety="mxfp4", group_size=32, global_scales=0)
    elif kind.startswith(("fp8", "float8")):
        scheme = Float8(granularity="channel" if layout == "per_channel" else "tensor", static_input=static)
    elif kind in {"int4", "uint4"}:
        scheme = GroupedInteger(layout="compressed", bits=4, group_size=128, zero_points=False)
    else:
        scheme = Integer8()
    return UniformQuantizer("quark", scheme, names_in(view, "exclude"), _estimate("Quark"))


def torchao_quantizer(config: Mapping[str, Any]) -> UniformQuantizer:
    """TorchAO: the type is in the name of its configuration class."""
    text = str(config.get("quant_type", ""))[:2000].lower()
    scheme: Scheme = Integer8()
    if "int4" in text or "uint4" in text:
        scheme = GroupedInteger(layout="compressed", bits=4, group_size=128, zero_points=True)
    elif "mxfp8" in text:
        scheme = MicroscaledFloat8()
    elif "float8" in text or "fp8" in text:
        scheme = Float8(granularity="channel")
    excluded = names_in(view_of(config), "modules_to_not_convert")
    return UniformQuantizer("torchao", scheme, excluded, _estimate("TorchAO"))


def bitsandbytes_quantizer(config: Mapping[str, Any]) -> UniformQuantizer:
    """bitsandbytes: 8-bit when asked for, else 4-bit with a scale per 64 weights."""
    view = view_of(config)
    scheme: Scheme = (
        Integer8() if view.flag("load_in_8bit") else Float4(variety="nf4", group_size=64, global_scales=0)
    )
    skipped = names_in(view, "llm_int8_skip_modules")
    return UniformQuantizer("bitsandbytes", scheme, skipped, _estimate("bitsandbytes"))


def other_quantizer(method: str, bits: int) -> UniformQuantizer:
    """A method known by name only: its bits per weight, a scale per 128."""
    scheme: Scheme = (
        Integer8()
        if bits >= 8
        else GroupedInteger(layout="compressed", bits=bits, group_size=128, zero_points=False)
    )
    return UniformQuantizer(method, scheme, (), _estimate(method))


def _estimate(method: str) -> str:
    return f"{method} weights are estimated from the bits per weight, not taken from vLLM's own shapes"
