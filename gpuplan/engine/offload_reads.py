"""What every step reads from host memory where `--cpu-offload-gb` left weights there, and how fast that goes.

The kernels read pinned memory in place (`engine.offloading`), so a step moves all that it needs of the moved parameters
over the card's bus: of a dense layer everything, of routed experts those that some token chose.
"""

from functools import lru_cache

from gpuplan.domain.hardware import Accelerator
from gpuplan.domain.model import Layer, ModelProfile
from gpuplan.engine.layer_work import layer_work
from gpuplan.engine.offloading import moved_tensors
from gpuplan.engine.weights import Split, layers_on_stage

COHERENT = ("GH200", "GB200", "GB300")
"""Cards whose host memory is reached over NVLink-C2C."""
COHERENT_RATE = 450e9
BUS_RATE = {"PCIe 3": 15.8e9, "PCIe 4": 31.5e9, "PCIe 5": 63e9}
"""Bytes per second in one direction of 16 lanes."""
BUS_SHARE = 0.63
"""Of the bus that kernels reach which read host memory in place: 20 of 32 GB/s on PCIe 4; a round number, not measured."""
HOST_MEMORY_RATE = 200e9
"""Bytes per second that all GPUs of a host get of its memory together: eight channels of DDR4-3200."""
_BUS_OF = {
    **dict.fromkeys(("hopper", "blackwell", "cdna3", "cdna4", "rdna4"), "PCIe 5"),
    **dict.fromkeys(("ampere", "ada", "gcn5", "cdna", "cdna2", "rdna2", "rdna3", "rdna3.5"), "PCIe 4"),
}
_NVLINK = "NVLink-C2C"


def read_bytes(
    profile: ModelProfile,
    split: Split,
    asked_gib: float,
    *,
    tokens: float,
    stage: int = 0,
    stages: int = 1,
    layer_partition: tuple[int, ...] | None = None,
) -> float:
    """Bytes of host memory that a pass of so many tokens reads on one rank of a stage. Raises Indivisible."""
    if not asked_gib:
        return 0.0
    moved = moved_tensors(
        profile, split, asked_gib, stage=stage, stages=stages, layer_partition=layer_partition
    )
    layers = layers_on_stage(profile, stage, stages, layer_partition)
    return sum(
        sum(sizes) * _needed_share(layer, split, tokens) for layer, sizes in zip(layers, moved, strict=False)
    )


@lru_cache(maxsize=1024)
def _needed_share(layer: Layer, split: Split, tokens: float) -> float:
    """Share of a layer's weights that a pass reads."""
    work = layer_work(layer, split)
    always = work.other_bytes + sum(product.weight_bytes for product in work.products)
    routed = sum(experts.product.weight_bytes for experts in work.experts)
    if not routed:
        return 1.0
    chosen = sum(experts.product.weight_bytes * experts.read_share(tokens) for experts in work.experts)
    return (always + chosen) / (always + routed)


def bus_name(card: Accelerator) -> str:
    """How a card reaches its host's memory: `PCIe 4`, …, `NVLink-C2C`."""
    if card.name.startswith(COHERENT):
        return _NVLINK
    if card.architecture is not None:
        return _BUS_OF.get(card.architecture, "PCIe 3")
    generation = (card.compute_capability or "0").partition(".")[0]
    return {"8": "PCIe 4"}.get(generation, "PCIe 5" if int(generation) > 8 else "PCIe 3")


def host_rate(card: Accelerator, ranks: int) -> float:
    """Bytes per second at which one of `ranks` GPUs of a host reads the host's memory."""
    bus = COHERENT_RATE if bus_name(card) == _NVLINK else BUS_RATE[bus_name(card)]
    return min(bus * BUS_SHARE, HOST_MEMORY_RATE / max(ranks, 1))
