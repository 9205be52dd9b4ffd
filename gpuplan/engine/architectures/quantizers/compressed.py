"""compressed-tensors checkpoints: a scheme per config group, chosen by name, pattern or class.

vLLM 0.32 layers/quantization/compressed_tensors: schemes, compressed_tensors_moe, utils.py.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

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
from gpuplan.engine.architectures.quantizers.base import NoQuantizer, block_of, names_in, view_of
from gpuplan.engine.architectures.quantizers.module_names import LayerIndex, bare, regex, shards

_ONE_LAYER = re.compile(r"(?<![A-Za-z0-9_])layers\\\.(\d+)\\\.")
SCALE_BYTES = 4
MOST_GROUPS = 1000
_EXPERT_MATRICES = ("gate_proj", "up_proj", "down_proj")
_OTHER_EXPERT_MATRICES = ("w1", "w3", "w2")


class Names:
    """Exact names and `re:` patterns, in the order written."""

    def __init__(self, names: Iterable[str]) -> None:
        self._exact: dict[str, int] = {}
        patterns: list[tuple[str, tuple[int, re.Pattern[str]]]] = []
        for order, name in enumerate(names):
            if name.startswith("re:"):
                patterns.append((_layer_named(name), (order, regex(name[3:]))))
            else:
                self._exact.setdefault(bare(name), order)
        self._index = LayerIndex(patterns)

    def first(self, path: str) -> int | None:
        """Position of the first name that `path` matches, None when none does."""
        found = self._exact.get(bare(path))
        for order, pattern in self._index.candidates(path):
            if (found is None or order < found) and pattern.match(path):
                found = order
        return found


def _layer_named(pattern: str) -> str:
    """The decoder layer a pattern can match alone (`layers.7.`), empty when it may match others too."""
    found = _ONE_LAYER.search(pattern)
    return f"layers.{found[1]}." if found is not None and not set("|?") & set(pattern) else ""


class CompressedQuantizer(NoQuantizer):
    """`quant_method: compressed-tensors`."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.name = "compressed-tensors"
        view = view_of(config)
        self.kv_cache_dtype = "fp8" if view.raw("kv_cache_scheme") else None
        self._ignored = Names(names_in(view, "ignore"))
        layout = view.text("format")
        groups = view.view("config_groups")
        if len(groups.values) > MOST_GROUPS:
            raise view.error("config_groups", f"holds more than {MOST_GROUPS} groups")
        self._targets: list[str] = []
        self._linears: list[Scheme] = []
        self._routed: list[Scheme] = []
        for key in groups.values:
            self._add(groups.view(key), layout)
        self._names = Names(self._targets)
        self._classes = [
            (target.lower(), order)
            for order, target in enumerate(self._targets)
            if not target.startswith("re:") and "." not in target
        ]

    def _add(self, group: ConfigView, layout: str) -> None:
        targets = names_in(group, "targets")
        if len(targets) == 1 and targets[0].endswith("Attention"):
            return
        scheme, experts = group_schemes(group, group.text("format", default=layout))
        for target in targets:
            self._targets.append(target)
            self._linears.append(scheme)
            self._routed.append(experts)

    def linear(self, path: str, fused: tuple[str, ...] = ()) -> Scheme:
        found = self._target(path, fused, "replicatedlinear columnparallellinear")
        return UNQUANTIZED if found is None else self._linears[found]

    def experts(self, path: str) -> Scheme:
        """Scheme of expert 0's last matrix, as `CompressedTensorsMoEMethod.get_moe_method` looks it up."""
        for matrices in (_EXPERT_MATRICES, _OTHER_EXPERT_MATRICES):
            names = tuple(f"{path}.0.{matrix}" for matrix in matrices)
            if any(self._ignored.first(name) is not None for name in names):
                return UNQUANTIZED
        if self._ignored.first(path) is not None:
            return UNQUANTIZED
        for name in (f"{path}.0.down_proj", f"{path}.0.w2", path):
            found = self._names.first(name)
            if found is not None:
                return self._routed[found]
        found = self._by_class("linear routedexperts fusedmoe")
        return UNQUANTIZED if found is None else self._routed[found]

    def embedding(self, path: str) -> Scheme:
        found = self._target(
            path, (), "parallellmhead" if path.endswith("lm_head") else "vocabparallelembedding"
        )
        return UNQUANTIZED if found is None else self._linears[found]

    def cache_scale_bytes(self, itemsize: int, *, latent: bool) -> int:
        """Scales (float32) and zero points of query, key and value."""
        return 0 if latent else 3 * (SCALE_BYTES + itemsize)

    def _target(self, path: str, fused: tuple[str, ...], class_name: str) -> int | None:
        """Number of the target that rules a module; None: unquantized."""
        if self._ignored.first(path) is not None:
            return None
        stacked = shards(path, fused)
        if all(self._ignored.first(name) is not None for name in stacked):
            return None
        found = self._names.first(path)
        if found is None:
            matches = [self._names.first(name) for name in stacked]
            found = matches[0] if all(match is not None for match in matches) else None
        return self._by_class(class_name) if found is None else found

    def _by_class(self, class_name: str) -> int | None:
        return next((order for target, order in self._classes if target and target in class_name), None)


def group_schemes(group: ConfigView, layout: str) -> tuple[Scheme, Scheme]:
    """What a config group makes of linear layers and of routed experts."""
    if group.raw("weights") is None:
        return UNQUANTIZED, UNQUANTIZED
    weights, inputs = group.view("weights"), group.view("input_activations")
    bits = weights.integer("num_bits", default=8, most=64)
    size = weights.integer("group_size", default=0, least=-1, most=LARGEST_GROUP)
    strategy = weights.text("strategy", default={0: "tensor", -1: "channel"}.get(size, "group"))
    quantized_input = bool(inputs.values)
    static = quantized_input and not inputs.flag("dynamic")
    if weights.text("type", default="int") == "float":
        return _float_schemes(weights, bits, size, strategy, static=static, quantized_input=quantized_input)
    if bits == 8 and layout != "pack-quantized" and quantized_input:
        scheme = Integer8(
            per_tensor=strategy == "tensor",
            static_input=static,
            asymmetric_input=not inputs.flag("symmetric", default=True),
        )
        return scheme, Integer8()
    if not 1 <= bits <= 16:
        raise weights.error("num_bits", f"is {bits}; integers of 1 to 16 bits can be packed")
    grouped = GroupedInteger(
        layout="compressed",
        bits=bits,
        group_size=size if strategy == "group" and size > 0 else -1,
        zero_points=not weights.flag("symmetric", default=True),
    )
    return grouped, grouped


LARGEST_GROUP = 1 << 20


def _float_schemes(
    weights: ConfigView, bits: int, size: int, strategy: str, *, static: bool, quantized_input: bool
) -> tuple[Scheme, Scheme]:
    if bits == 4 and strategy == "tensor_group":
        experts = Float4(variety="nvfp4", group_size=size or 16)
        return Float4(
            variety="nvfp4", group_size=size or 16, global_scales=2 if quantized_input else 1
        ), experts
    if bits == 4:
        mxfp4 = Float4(variety="mxfp4", group_size=size if size > 0 else 32, global_scales=0)
        return mxfp4, mxfp4
    if strategy == "group":
        microscaled = MicroscaledFloat8(group_size=size if size > 0 else 32)
        return microscaled, microscaled
    scheme = Float8(
        granularity=strategy if strategy in {"channel", "block"} else "tensor",
        block=block_of(weights, "block_structure") or (128, 128),
        static_input=static,
    )
    return scheme, scheme
