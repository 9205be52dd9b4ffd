"""Memory outside torch where the GPU shares the host's, and what is gone before the engine looks."""

import pytest

from gpuplan.engine.overhead import start_overhead_bytes
from gpuplan.engine.shared_memory import BEFORE, counts, non_torch_gib
from gpuplan.engine.versions import version_of
from gpuplan.units import GIB

# GiB logged as memory outside torch on GB10: (ranks, figure)
LOGGED = [
    (1, 2.23),  # Qwen3-0.6B, 0.27.1: 3.35 consumed, 1.12 of them weights
    (1, 4.64),  # Qwen3.8-27B, 0.27.1: 55.99 consumed, 51.35 of them weights
    (1, 1.39),  # gpt-oss-20b, 0.13, less the sampler's peak
    (1, 4.35),  # Gemma-4-31B, 0.22, less its peak
    (2, 5.72),  # GLM-5.3 on two hosts, printed
    (2, 10.8),  # MiniMax-M2.7 on two hosts, 0.29, less weights, peak and graphs
]


@pytest.mark.parametrize(("ranks", "gib"), LOGGED)
def test_the_range_holds_what_was_logged(ranks: int, gib: float) -> None:
    likely, least, most = non_torch_gib(ranks)
    assert least <= gib <= most
    assert least <= likely <= most


def test_ranks_on_several_hosts_lose_more() -> None:
    assert all(more >= alone for more, alone in zip(non_torch_gib(2), non_torch_gib(1), strict=True))


@pytest.mark.parametrize(("available", "found"), [(116.43, 113.69), (32.4, 29.83)])
def test_what_is_available_before_the_start_is_more_than_the_engine_finds(
    available: float, found: float
) -> None:
    assert available - BEFORE == pytest.approx(found, abs=0.15)


@pytest.mark.parametrize(
    ("total", "capability", "ranks", "version", "logged"),
    [
        (23.65, "8.9", 1, "0.10.2", 0.44),
        (79.25, "8.0", 1, "0.26.0", 0.41),
        (79.18, "9.0", 1, "0.10.2", 0.61),
        (267.69, "10.3", 1, "0.26.0", 0.61),
        (139.81, "9.0", 2, "0.10.2", 0.60),
        (79.25, "8.0", 2, "0.27.1", 1.15),
        (95.0, "9.0", 4, "0.23.1", 2.02),
        (184.31, "10.0", 4, "0.26.0", 2.47),
        (94.97, "12.0", 4, "0.26.0", 0.96),
        (121.69, "12.1", 1, "0.28.0", 2.74),
    ],
)
def test_the_start_takes_what_was_logged(
    total: float, capability: str, ranks: int, version: str, logged: float
) -> None:
    size = start_overhead_bytes(
        round(total * GIB),
        compute_capability=capability,
        tensor=ranks,
        version=version_of(version),
        unified=capability == "12.1",
    )
    assert size / GIB == pytest.approx(logged, abs=0.1)


def test_only_cuda_takes_the_hosts_memory_for_the_gpus() -> None:
    assert counts(unified=True, backend="cuda")
    assert not counts(unified=True, backend="rocm")
    assert not counts(unified=False, backend="cuda")
