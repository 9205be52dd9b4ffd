"""The lines the engine prints, word for word where scripts grep for them."""

from gpuplan.engine.startup import budget_bytes, free_memory_line, no_room_line, too_long_line
from gpuplan.engine.versions import version_of
from gpuplan.units import GIB

TOTAL = int(79.25 * GIB)


def test_budget_is_rounded_up() -> None:
    assert budget_bytes(101, 0.9) == 91
    assert budget_bytes(100, 0.5) == 50


def test_free_memory_line_names_the_device_from_0_28() -> None:
    new = free_memory_line("cuda:0", int(0.32 * GIB), TOTAL, 0.9, version_of("0.33.0"))
    old = free_memory_line("cuda:0", int(0.32 * GIB), TOTAL, 0.9, version_of("0.20.2"))
    assert new.startswith(
        "Free memory on device cuda:0 (0.32/79.25 GiB) on startup is less than desired GPU memory utilization"
    )
    assert old.startswith(
        "Free memory on device (0.32/79.25 GiB) on startup is less than desired GPU memory utilization"
    )
    assert "(0.9, 71.33 GiB)" in new


def test_no_room_line_is_the_one_of_the_release() -> None:
    assert no_room_line(version_of("0.11.0")) == (
        "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."
    )
    assert "conserving_memory" in no_room_line(version_of("0.33.0"))


def test_too_long_line_leaves_the_estimate_out_when_there_is_none() -> None:
    with_length = too_long_line(32768, 8 * GIB, int(7.76 * GIB), 31776)
    assert "max seq len (32768), (8.0 GiB KV cache is needed" in with_length
    assert "the estimated maximum model length is 31776" in with_length
    assert "estimated maximum" not in too_long_line(32768, 8 * GIB, 0, 0)
