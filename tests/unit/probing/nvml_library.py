"""An NVML of our own: the functions of pynvml over a machine written down, with its way of refusing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

MIB = 1024**2
NOT_SUPPORTED, NOT_FOUND = 3, 6
NO_INSTANCE = 0xFFFFFFFF
"""Instance of a process outside MIG."""


class Refused(Exception):
    """As NVMLError in pynvml: the code is in `value`."""

    def __init__(self, value: int, words: str = "Not Supported") -> None:
        super().__init__(words)
        self.value = value


def pci(bus: str) -> SimpleNamespace:
    """What nvmlDeviceGetPciInfo answers."""
    return SimpleNamespace(busId=bus)


def running(
    pid: int, used: int | None, instance: tuple[int, int] = (NO_INSTANCE, NO_INSTANCE)
) -> SimpleNamespace:
    """An entry of nvmlDeviceGetComputeRunningProcesses."""
    return SimpleNamespace(
        pid=pid, usedGpuMemory=used, gpuInstanceId=instance[0], computeInstanceId=instance[1]
    )


@dataclass(frozen=True)
class Device:
    """Answers by function name; a function without an answer is refused, with the code in `refuses` or 3."""

    answers: Mapping[str, Any]
    refuses: Mapping[str, int] = field(default_factory=dict)
    slices: Sequence["Device"] = ()
    memory: tuple[int, int, int] | None = None
    """Total, reserved and free in MiB."""
    second_version: bool = True


class Machine:
    """The library: every function of NVML is looked up by its name."""

    NVMLError = Refused

    def __init__(
        self,
        devices: Sequence[Device | Refused],
        *,
        driver: str = "550.54.14",
        cuda: int = 12040,
        refused: Refused | None = None,
        names: Mapping[int, str] | None = None,
    ) -> None:
        self._devices = devices
        self._refused = refused
        self._names = names or {}
        self.open = False
        self._functions: dict[str, Callable[..., Any]] = {
            "nvmlInit": self._start,
            "nvmlShutdown": self._stop,
            "nvmlDeviceGetCount": lambda: len(self._devices),
            "nvmlSystemGetDriverVersion": lambda: driver,
            "nvmlSystemGetCudaDriverVersion_v2": lambda: cuda,
            "nvmlSystemGetProcessName": self._name,
            "nvmlDeviceGetHandleByIndex": self._handle,
            "nvmlDeviceGetMemoryInfo": _memory,
            "nvmlDeviceGetMaxMigDeviceCount": lambda device: max(7, len(device.slices)),
            "nvmlDeviceGetMigDeviceHandleByIndex": _slice,
        }

    def __getattr__(self, function: str) -> Callable[..., Any]:
        if function in self._functions:
            return self._functions[function]
        if not function.startswith("nvmlDeviceGet"):
            raise AttributeError(function)

        def answer(device: Device, *_: Any) -> Any:
            if function in device.refuses or function not in device.answers:
                raise Refused(device.refuses.get(function, NOT_SUPPORTED))
            return device.answers[function]

        return answer

    def _start(self) -> None:
        if self._refused is not None:
            raise self._refused
        self.open = True

    def _stop(self) -> None:
        self.open = False

    def _name(self, pid: int) -> str:
        if pid not in self._names:
            raise Refused(NOT_FOUND, "Not Found")
        return self._names[pid]

    def _handle(self, index: int) -> Device:
        device = self._devices[index]
        if isinstance(device, Refused):
            raise device
        return device


def _memory(device: Device, version: int | None = None) -> SimpleNamespace:
    if device.memory is None or (version is not None and not device.second_version):
        raise Refused(device.refuses.get("nvmlDeviceGetMemoryInfo", NOT_SUPPORTED))
    total, reserved, free = (size * MIB for size in device.memory)
    if version is None:
        return SimpleNamespace(total=total, free=free, used=total - free)
    return SimpleNamespace(total=total, free=free, used=total - free - reserved, reserved=reserved)


def _slice(device: Device, number: int) -> Device:
    if number >= len(device.slices):
        raise Refused(NOT_FOUND, "Not Found")
    return device.slices[number]
