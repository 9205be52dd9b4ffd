"""What kernels add to quantized weights, by hand and against logged sizes."""

from dataclasses import replace

import pytest

from gpuplan.domain.model import Experts, Float8, GroupedInteger, Layer, Linear, Partition, Scheme, Shard
from gpuplan.engine.repacking import assumed_capability, repacked_bytes
from gpuplan.engine.versions import EngineVersion
from gpuplan.engine.weights import Split
from gpuplan.engine.weights import rank_weights as weights_of
from gpuplan.units import GIB
from tests.fleets import profile

V010, V014, V015, V020, V033 = (EngineVersion(0, minor) for minor in (10, 14, 15, 20, 33))


def linear(scheme: Scheme, outputs: int = 1024, inputs: int = 4096) -> Layer:
    part = Linear(
        name="o_proj",
        inputs=Partition(units=inputs),
        outputs=(Partition(units=outputs),),
        shard=Shard.REPLICATED,
        itemsize=2,
        scheme=scheme,
    )
    return Layer(name="layer", parts=(part,))


def added(layer: Layer, capability: str | None, version: EngineVersion = V033) -> int:
    return repacked_bytes(layer, Split(compute_capability=capability), version)


@pytest.mark.parametrize(
    ("name", "tensor", "capability", "version", "logged"),
    [
        ("openai__gpt-oss-120b", 1, "9.0", V014, 64.38),
        ("openai__gpt-oss-120b", 2, "9.0", V015, 32.98),
        ("openai__gpt-oss-120b", 1, "9.0", V010, 65.9651),
        ("openai__gpt-oss-120b", 4, "8.0", V010, 17.2217),
        ("openai__gpt-oss-20b", 1, "12.1", V014, 13.7193),
    ],
)
def test_mxfp4_experts_of_gpt_oss(
    name: str, tensor: int, capability: str, version: EngineVersion, logged: float
) -> None:
    """The allocator's rounding, up to 2 MiB a layer, is not part of it."""
    model = profile(name)
    split = Split(tensor=tensor, expert_tensor=tensor, compute_capability=capability)
    weights = weights_of(model, split)
    kernels = sum(repacked_bytes(model.layer_kinds[kind], split, version) for kind in model.layer_order)
    total = (weights.parameters + weights.buffers + kernels) / GIB
    assert total == pytest.approx(logged, rel=0.0025)


def test_marlin_repeats_the_scales_of_float8_blocks() -> None:
    blocks = linear(Float8(granularity="block"))
    assert added(blocks, "9.0") == 0
    assert added(blocks, "8.9") == 0
    assert added(blocks, "8.0") == 32 * (1024 * 2 - 8 * 4)


def test_experts_in_float8_blocks_do_so_too() -> None:
    model = profile("Qwen__Qwen3-30B-A3B-FP8")
    experts = next(part for part in model.layer_kinds[0].parts if isinstance(part, Experts))
    layer = Layer(name="layer", parts=(experts,))
    up, down = 16 * (2 * 768 * 2 - 12 * 4), 6 * (2048 * 2 - 16 * 4)
    assert added(layer, "8.6") == 128 * (up + down)
    assert added(layer, "9.0") == 0


def test_machete_unpacks_zero_points() -> None:
    asymmetric = GroupedInteger(layout="compressed", bits=4, group_size=128, zero_points=True)
    points = 32 * 1024
    assert added(linear(asymmetric), "9.0") == points * 2 - points // 2
    assert added(linear(asymmetric), "8.9") == 0
    assert added(linear(asymmetric, outputs=1088), "9.0") == 0
    assert added(linear(replace(asymmetric, zero_points=False)), "9.0") == 0


def test_awq_runs_on_marlin_before_0_19() -> None:
    awq = linear(GroupedInteger(layout="awq", bits=4, group_size=128, zero_points=True))
    assert added(awq, "9.0", V014) == 0
    assert added(awq, "9.0", V020) == 32 * 1024 * 3 // 2


def test_marlin_drops_the_zero_points_of_gptq() -> None:
    scheme = GroupedInteger(layout="gptq", bits=4, group_size=128, zero_points=True)
    assert added(linear(scheme), "8.9") == -32 * 1024 // 2
    assert added(linear(scheme), "9.0") == 0
    assert added(linear(replace(scheme, reorder=True)), "8.9") == 0


def test_ungated_nvfp4_experts_are_padded_on_blackwell() -> None:
    model = profile("nvidia__MiniMax-M2.5-NVFP4")
    gated = next(part for kind in model.layer_kinds for part in kind.parts if isinstance(part, Experts))
    part = replace(gated, gated=False, intermediate=928)
    grown = added(Layer(name="layer", parts=(part,)), "12.0")
    assert grown == part.count * 2 * part.hidden * 96 * 9 // 16
    assert added(Layer(name="layer", parts=(replace(part, gated=True),)), "12.0") == 0
    assert added(Layer(name="layer", parts=(part,)), "9.0") == 0


def test_an_unknown_card_is_reckoned_with_by_its_size() -> None:
    sizes = (24, 48, 79.2, 95, 119.6, 141, 183)
    assumed = [assumed_capability(int(size * GIB)) for size in sizes]
    assert assumed == ["8.9", "8.9", "9.0", "9.0", "12.1", "9.0", "10.0"]
