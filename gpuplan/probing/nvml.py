"""NVIDIA's GPUs of this machine through NVML: the same report nvidia-smi gives, without a process started.

The library is a parameter with the functions of `pynvml`. A driver that does not support a call costs only that figure.
"""

import importlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from ctypes import byref
from dataclasses import dataclass, field, replace
from typing import Any

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import GpuProcess
from gpuplan.probing import nvidia_states
from gpuplan.probing.devices import DeviceReport
from gpuplan.probing.nvidia_cards import Card, CardProcess, Memory, Slice, devices, merged, named, process
from gpuplan.probing.nvidia_faults import PciDevice
from gpuplan.probing.nvidia_values import bus_id
from gpuplan.probing.tool_failure import one_line

TOOL = "NVML"
_NOT_SUPPORTED = 3
_NO_PERMISSION = 4
_DRIVER_NOT_LOADED = 9
_LIBRARY_NOT_FOUND = 12
_GPU_IS_LOST = 15
_RESET_REQUIRED = 16
_VERSION_MISMATCH = 18
_MEMORY_V2 = 0x02000028
_UNCORRECTED, _VOLATILE = 1, 0
_MODES = {1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
_VGPU = 2
_FABRIC = {1: "Not Started", 2: "In Progress", 3: "Completed"}
_REASONS = {
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
_UNSET = 0xFFFFFFFF
"""An instance id of a process outside MIG."""
_NO_FIGURE = 0xFFFFFFFFFFFFFFFF
"""Memory of a process the driver does not tell."""
_PROFILE = re.compile(r"\bMIG (\d\S*)$")


def report(
    library: Any = None, *, pci: Sequence[PciDevice] = (), owners: Mapping[int, GpuProcess] | None = None
) -> DeviceReport:
    """What NVML says of this machine; nothing at all where it is not installed and no device is on the PCI bus.

    `pci` are the devices the kernel sees, with their NUMA nodes; `owners` the users and containers of processes.
    Links between GPUs are not asked: `nvidia-smi topo -m` tells them.
    """
    nvml = _Nvml(library if library is not None else importlib.import_module("pynvml"))
    try:
        nvml.library.nvmlInit()
    except nvml.library.NVMLError as error:
        return DeviceReport(vendor="nvidia", conditions=tuple(_refused(error, len(pci))))
    try:
        return _read(nvml, pci, owners or {})
    finally:
        with suppress(nvml.library.NVMLError):
            nvml.library.nvmlShutdown()


@dataclass(frozen=True, slots=True)
class _Nvml:
    """The library, with calls that may be refused."""

    library: Any
    codes: dict[str, int] = field(default_factory=dict)
    """Last error of each function."""

    def ask(self, function: str, *arguments: Any) -> Any:
        """The answer, or None where the driver has none."""
        call: Callable[..., Any] | None = getattr(self.library, function, None)
        if call is None:
            return None
        try:
            answer = call(*arguments)
        except self.library.NVMLError as error:
            self.codes[function] = _code(error)
            return None
        return answer.decode(errors="replace") if isinstance(answer, bytes) else answer


def _refused(error: Exception, devices_on_bus: int) -> Iterable[Fact]:
    code = _code(error)
    detail = one_line(str(error))
    if code == _LIBRARY_NOT_FOUND:
        if devices_on_bus:
            figures = {"devices": devices_on_bus}
            yield Fact(code="GP601", severity=Severity.WARNING, subject={}, figures=figures)
    elif code == _DRIVER_NOT_LOADED:
        if devices_on_bus:
            yield _error("GP602", detail=detail)
    elif code == _VERSION_MISMATCH:
        yield _error("GP603", detail=detail)
    elif code == _NO_PERMISSION:
        yield _error("GP605", tool=TOOL, detail=detail)
    else:
        yield _error("GP606", tool=TOOL, exit_code=code, detail=detail)


def _read(nvml: _Nvml, pci: Sequence[PciDevice], owners: Mapping[int, GpuProcess]) -> DeviceReport:
    nodes = {device.bus: device.numa_node for device in pci}
    cards: list[Card] = []
    gone: list[Fact] = []
    for index in range(nvml.ask("nvmlDeviceGetCount") or 0):
        try:
            handle = nvml.library.nvmlDeviceGetHandleByIndex(index)
        except nvml.library.NVMLError as error:
            gone.append(replace(nvidia_states.needs_reset(str(error)), subject={"gpu": index}))
            continue
        card = _card(nvml, handle, index)
        cards.append(replace(card, numa_node=nodes.get(card.bus or "")))
    gpus, states = devices(cards)
    cuda = nvml.ask("nvmlSystemGetCudaDriverVersion_v2") or nvml.ask("nvmlSystemGetCudaDriverVersion")
    return DeviceReport(
        vendor="nvidia",
        gpus=tuple(
            replace(gpu, processes=tuple(named(one, owners) for one in gpu.processes)) for gpu in gpus
        ),
        driver_version=nvml.ask("nvmlSystemGetDriverVersion"),
        runtime_version=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        conditions=(*gone, *states),
    )


def _card(nvml: _Nvml, handle: Any, index: int) -> Card:
    memory = _memory(nvml, handle)
    capability = nvml.ask("nvmlDeviceGetCudaComputeCapability", handle)
    mode = nvml.ask("nvmlDeviceGetMigMode", handle)
    mig = bool(mode) and mode[0] == 1
    utilization = nvml.ask("nvmlDeviceGetUtilizationRates", handle)
    pci = nvml.ask("nvmlDeviceGetPciInfo", handle)
    slices = tuple(_slices(nvml, handle)) if mig else ()
    return Card(
        index=index,
        name=nvml.ask("nvmlDeviceGetName", handle) or "NVIDIA GPU",
        uuid=nvml.ask("nvmlDeviceGetUUID", handle),
        bus=bus_id(_text(pci.busId)) if pci is not None else None,
        memory=memory,
        compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
        mig=mig,
        slices=slices,
        processes=merged(_processes(nvml, handle)),
        states=tuple(_states(nvml, handle, memory)),
        utilization_percent=utilization.gpu if utilization is not None else None,
        temperature_celsius=nvml.ask("nvmlDeviceGetTemperature", handle, 0),
    )


def _memory(nvml: _Nvml, handle: Any) -> Memory:
    """The second version tells what the driver reserves; before driver 510 there is only the first."""
    usage = nvml.ask("nvmlDeviceGetMemoryInfo", handle, _MEMORY_V2)
    if usage is not None:
        return Memory(total=usage.total, reserved=usage.reserved, free=usage.free)
    usage = nvml.ask("nvmlDeviceGetMemoryInfo", handle)
    if usage is not None:
        return Memory(total=usage.total, free=usage.free)
    code = nvml.codes.get("nvmlDeviceGetMemoryInfo", 0)
    words = {
        _GPU_IS_LOST: "GPU is lost",
        _RESET_REQUIRED: "GPU requires reset",
        _NO_PERMISSION: "Insufficient Permissions",
    }
    return Memory(shared=code == _NOT_SUPPORTED, detail=words.get(code, f"NVML error {code}"))


def _slices(nvml: _Nvml, handle: Any) -> Iterable[Slice]:
    for number in range(nvml.ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        part = nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
        if part is None:
            continue
        gpu_instance = nvml.ask("nvmlDeviceGetGpuInstanceId", part)
        compute_instance = nvml.ask("nvmlDeviceGetComputeInstanceId", part)
        profile = _PROFILE.search(nvml.ask("nvmlDeviceGetName", part) or "")
        yield Slice(
            number=number,
            instance=(gpu_instance, compute_instance)
            if gpu_instance is not None and compute_instance is not None
            else None,
            memory=_memory(nvml, part),
            uuid=nvml.ask("nvmlDeviceGetUUID", part),
            profile=profile.group(1) if profile is not None else None,
        )


def _processes(nvml: _Nvml, handle: Any) -> Iterable[CardProcess]:
    for function in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
        for one in nvml.ask(function, handle) or ():
            used = one.usedGpuMemory
            instance = (getattr(one, "gpuInstanceId", _UNSET), getattr(one, "computeInstanceId", _UNSET))
            yield CardProcess(
                process=process(
                    one.pid,
                    nvml.ask("nvmlSystemGetProcessName", one.pid),
                    used if used is not None and used != _NO_FIGURE else None,
                ),
                instance=instance if _UNSET not in instance else None,
            )


def _states(nvml: _Nvml, handle: Any, memory: Memory) -> Iterable[Fact]:
    if memory.total is None and memory.detail.startswith(("GPU is lost", "GPU requires")):
        yield nvidia_states.needs_reset(memory.detail)
    yield from nvidia_states.uncorrectable(
        nvml.ask("nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _VOLATILE)
    )
    rows = nvml.ask("nvmlDeviceGetRemappedRows", handle) or (0, 0, 0, 0)
    yield from nvidia_states.repairs(
        retirement=bool(nvml.ask("nvmlDeviceGetRetiredPagesPendingStatus", handle)),
        remap=bool(rows[2]),
        remap_failed=bool(rows[3]),
    )
    reasons = nvml.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle) or 0
    yield from nvidia_states.throttled(reason for bit, reason in _REASONS.items() if reasons & bit)
    yield from _fabric(nvml, handle)
    yield from nvidia_states.compute_mode(_MODES.get(nvml.ask("nvmlDeviceGetComputeMode", handle) or 0))
    yield from nvidia_states.display(nvml.ask("nvmlDeviceGetDisplayActive", handle) == 1)
    if nvml.ask("nvmlDeviceGetVirtualizationMode", handle) == _VGPU:
        yield from nvidia_states.virtual("VGPU")


def _fabric(nvml: _Nvml, handle: Any) -> Iterable[Fact]:
    structure = getattr(nvml.library, "c_nvmlGpuFabricInfo_t", None)
    if structure is None:
        return
    found = structure()
    if nvml.ask("nvmlDeviceGetGpuFabricInfo", handle, byref(found)) is None:
        return
    status = "Success" if found.status == 0 else f"NVML error {found.status}"
    yield from nvidia_states.fabric(_FABRIC.get(found.state, ""), status)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _code(error: Exception) -> int:
    return int(getattr(error, "value", 0))


def _error(code: str, **figures: object) -> Fact:
    return Fact(code=code, severity=Severity.ERROR, subject={}, figures=figures)
