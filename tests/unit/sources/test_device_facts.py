"""Probed devices completed: what CUDA makes of slices, of cards with a desktop, of cards under Windows, of shared memory."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuplan.domain.fleet import Gpu, Host
from gpuplan.domain.host_facts import HostFacts
from gpuplan.planning.allocatable import account
from gpuplan.probing import nvidia_smi
from gpuplan.probing.output import NOT_RUN, Output
from gpuplan.sources.device_facts import completed, on_windows
from gpuplan.units import GIB, MIB

CASES = Path(__file__).parents[2] / "data" / "probes" / "nvidia_smi"


def probed(case: str) -> tuple[Gpu, ...]:
    """The devices of a recorded nvidia-smi."""
    texts = {path.stem: path.read_text() for path in (CASES / case).glob("*.txt")}
    outputs = {
        command.name: Output(text=texts[name]) if name in texts else NOT_RUN
        for command in nvidia_smi.COMMANDS
        for name in [command.name.removeprefix("nvidia_")]
    }
    return nvidia_smi.report(outputs).gpus


def test_a_slice_has_its_own_memory_and_the_capability_of_its_card() -> None:
    for gpu in map(completed, probed("a100-80-mig-535")):
        assert (gpu.total_bytes, gpu.free_bytes) == (19968 * MIB, 19955 * MIB)
        assert (gpu.compute_capability, gpu.bandwidth_bytes_per_second, gpu.parent) == ("8.0", None, 0)


def test_what_a_desktop_holds_is_not_free() -> None:
    (gpu,) = map(completed, probed("rtx-4070-laptop-575-display"))
    assert (gpu.total_bytes, gpu.free_bytes) == (7798 * MIB, 5773 * MIB)
    assert account(gpu).allocatable_bytes == 5773 * MIB


def test_under_windows_the_total_is_nominal_and_a_part_is_never_free() -> None:
    (gpu,) = probed("wsl-510")
    linux, windows = completed(gpu), completed(gpu, windows=True)
    assert linux.total_bytes == 3985 * MIB
    assert (windows.total_bytes, windows.free_bytes) == (4096 * MIB, 3104 * MIB)
    idle = completed(replace(gpu, free_bytes=4000 * MIB), windows=True)
    assert idle.free_bytes == 4096 * MIB - GIB // 2 - 4096 * MIB // 50


@pytest.mark.parametrize(
    ("reported", "gone"), [(6144, 1.05), (12282, 1.2), (16376, 1.33), (24564, 1.54), (32607, 1.64)]
)
def test_what_windows_keeps_is_what_logs_show(reported: int, gone: float) -> None:
    """Less the engine's context of half a GiB, which the plan counts apart."""
    total = reported * MIB
    gpu = Gpu(index=0, name="x", total_bytes=total, free_bytes=total, reported_bytes=total)
    free = completed(gpu, windows=True).free_bytes
    assert free is not None
    assert (total - free) / GIB + 0.5 == pytest.approx(gone, abs=0.12)


def test_completing_twice_changes_nothing() -> None:
    (gpu,) = probed("wsl-510")
    once = completed(gpu, windows=True)
    assert completed(once, windows=True) == once


def test_linux_under_windows_is_told_by_its_name() -> None:
    assert on_windows(Host(name="a", facts=HostFacts(os="Ubuntu 24.04.1 LTS (WSL)")))
    assert not on_windows(Host(name="a", facts=HostFacts(os="Ubuntu 24.04.1 LTS")))
    assert not on_windows(Host(name="a"))


def test_shared_memory_without_figures_stays_unknown() -> None:
    (gpu,) = map(completed, probed("gb10-csv-only"))
    assert (gpu.unified, gpu.compute_capability, gpu.total_bytes) == (True, "12.1", None)
