"""Parameters moved to host memory, one at a time."""

from gpuplan.engine.offloading import offloaded_bytes
from gpuplan.engine.weights import Split, layer_bytes
from gpuplan.units import GIB
from tests.fleets import profile

MODEL = profile("Qwen__Qwen3-32B")


def test_nothing_is_moved_unasked() -> None:
    assert offloaded_bytes(MODEL, Split(), 0.0) == 0


def test_the_last_parameter_is_moved_whole() -> None:
    """qkv and o_proj first, then gate_up, which goes beyond the asked half GiB."""
    attention = 5120 * (64 + 8 + 8) * 128 * 2 + 64 * 128 * 5120 * 2
    norms = 2 * 128 * 2
    moved = offloaded_bytes(MODEL, Split(), 0.5)
    assert moved >= GIB // 2
    assert (
        attention + 2 * 25600 * 5120 * 2
        <= moved
        <= attention + norms + 2 * 25600 * 5120 * 2 + 25600 * 5120 * 2
    )


def test_no_more_than_the_layers_of_the_stage() -> None:
    one = layer_bytes(MODEL.layer_kinds[0], Split())[0]
    assert offloaded_bytes(MODEL, Split(), 1000.0) == 64 * one
    assert offloaded_bytes(MODEL, Split(), 1000.0, stage=1, stages=2) == 32 * one
