"""The NVML reader against a library of our own, and against what nvidia-smi says of the same machine."""

import importlib
import inspect
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuplan.domain.fleet import Gpu, GpuProcess
from gpuplan.probing import nvidia_smi, nvml
from gpuplan.probing.nvidia_faults import PciDevice
from gpuplan.probing.output import Output
from tests.unit.probing.nvml_library import Device, Machine, Refused, pci, running

CASES = Path(__file__).parents[2] / "data" / "probes" / "nvidia_smi"
MIB = 1024**2


def card(name: str, uuid: str, bus: str, memory: tuple[int, int, int] | None, **more: Any) -> Device:
    answers = {
        "nvmlDeviceGetName": name,
        "nvmlDeviceGetUUID": uuid,
        "nvmlDeviceGetPciInfo": pci(bus),
        "nvmlDeviceGetCudaComputeCapability": (9, 0),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=0),
        "nvmlDeviceGetTemperature": 32,
        "nvmlDeviceGetMigMode": [0, 0],
        **more.pop("answers", {}),
    }
    return Device(
        answers={key: value for key, value in answers.items() if value is not None}, memory=memory, **more
    )


def from_xml(case: str) -> tuple[Gpu, ...]:
    outputs = {
        f"nvidia_{name}": Output(text=(CASES / case / f"{name}.txt").read_text(encoding="utf-8"))
        for name in ("xml", "list")
        if (CASES / case / f"{name}.txt").exists()
    }
    return nvidia_smi.report(outputs).gpus


def test_two_readings_of_one_machine_agree() -> None:
    machine = Machine(
        [
            card(
                "NVIDIA H100 NVL",
                "GPU-806f8ea2-6428-1096-a076-bb687fb45fb0",
                "00000000:AD:00.0",
                (95830, 594, 95235),
            ),
            card(
                "NVIDIA H100 NVL",
                "GPU-db6d02a2-1413-eccf-8a17-d99eac29d365",
                "00000000:AE:00.0",
                (95830, 594, 95235),
                answers={"nvmlDeviceGetTemperature": 31},
            ),
        ]
    )
    report = nvml.report(machine)
    assert (report.driver_version, report.runtime_version) == ("550.54.14", "12.4")
    assert report.conditions == ()
    assert tuple(replace(gpu, compute_capability=None) for gpu in report.gpus) == from_xml("h100-nvl-550")
    assert {gpu.compute_capability for gpu in report.gpus} == {"9.0"}
    assert not machine.open


def test_slices_take_the_place_of_their_card_as_in_the_xml() -> None:
    name = "NVIDIA A100-SXM4-40GB"
    slices = [
        Device(
            answers={
                "nvmlDeviceGetName": f"{name} MIG 3g.20gb",
                "nvmlDeviceGetUUID": uuid,
                "nvmlDeviceGetGpuInstanceId": 1 + number,
                "nvmlDeviceGetComputeInstanceId": 0,
            },
            memory=(19968, 0, 19948),
        )
        for number, uuid in enumerate(
            ("MIG-5a6ef5fb-e69b-5021-a35e-ad1781308f59", "MIG-3ba76b8d-4677-5637-bb32-ce72da625fa2")
        )
    ]
    machine = Machine(
        [
            card(
                name,
                "GPU-27b94a00-ed54-5c24-b1fd-1054085de32a",
                "00000000:00:04.0",
                (40960, 605, 40315),
                slices=slices,
                answers={
                    "nvmlDeviceGetMigMode": [1, 1],
                    "nvmlDeviceGetTemperature": 36,
                    "nvmlDeviceGetUtilizationRates": None,
                    "nvmlDeviceGetCudaComputeCapability": None,
                    "nvmlDeviceGetComputeRunningProcesses": [running(4711, None, (2, 0))],
                },
            )
        ],
        names={4711: "python3"},
    )
    assert nvml.report(machine).gpus == from_xml("a100-40-mig-510")


def test_unified_memory_is_not_unknown_memory() -> None:
    machine = Machine(
        [
            card("NVIDIA GB10", "GPU-1", "0000000F:01:00.0", None),
            card("Tesla K80", "GPU-2", "0000:05:00.0", None),
        ]
    )
    report = nvml.report(machine)
    assert [(gpu.unified, gpu.total_bytes, gpu.pci_bus_id) for gpu in report.gpus] == [
        (True, None, "000f:01:00.0"),
        (False, None, "0000:05:00.0"),
    ]
    assert [(fact.code, dict(fact.subject)) for fact in report.conditions] == [("GP609", {"gpu": 1})]


def test_a_driver_without_the_second_version_gives_the_whole_total() -> None:
    machine = Machine(
        [card("Tesla V100", "GPU-1", "0000:05:00.0", (32510, 300, 32000), second_version=False)]
    )
    (gpu,) = nvml.report(machine).gpus
    assert (gpu.total_bytes, gpu.reported_bytes, gpu.free_bytes) == (32510 * MIB, 32510 * MIB, 32000 * MIB)


def test_a_lost_card_leaves_the_others() -> None:
    machine = Machine(
        [Refused(15, "GPU is lost"), card("NVIDIA L4", "GPU-1", "0000:05:00.0", (23034, 462, 22000))]
    )
    report = nvml.report(machine, pci=[PciDevice(bus="0000:05:00.0", numa_node=1)])
    assert [(gpu.index, gpu.numa_node) for gpu in report.gpus] == [(1, 1)]
    assert [(fact.code, dict(fact.subject), dict(fact.figures)) for fact in report.conditions] == [
        ("GP608", {"gpu": 0}, {"detail": "GPU is lost"})
    ]


def test_a_process_in_both_lists_is_told_once_with_its_owner() -> None:
    machine = Machine(
        [
            card(
                "NVIDIA L4",
                "GPU-1",
                "0000:05:00.0",
                (23034, 462, 22000),
                answers={
                    "nvmlDeviceGetComputeRunningProcesses": [running(9, 100 * MIB), running(7, None)],
                    "nvmlDeviceGetGraphicsRunningProcesses": [running(9, 120 * MIB), running(8, 2**64 - 1)],
                },
            )
        ],
        names={9: "python"},
    )
    (gpu,) = nvml.report(machine, owners={9: GpuProcess(pid=9, user="ada", container="c1")}).gpus
    assert gpu.processes == (
        GpuProcess(pid=7),
        GpuProcess(pid=8),
        GpuProcess(pid=9, name="python", used_bytes=120 * MIB, user="ada", container="c1"),
    )


def test_states_are_told_as_nvidia_smi_tells_them() -> None:
    machine = Machine(
        [
            card(
                "NVIDIA A100",
                "GPU-1",
                "0000:05:00.0",
                (40960, 600, 40000),
                answers={
                    "nvmlDeviceGetTotalEccErrors": 3,
                    "nvmlDeviceGetRemappedRows": (0, 2, 1, 1),
                    "nvmlDeviceGetRetiredPagesPendingStatus": 1,
                    "nvmlDeviceGetCurrentClocksThrottleReasons": 0x08 | 0x40 | 0x04 | 0x20,
                    "nvmlDeviceGetComputeMode": 3,
                    "nvmlDeviceGetDisplayActive": 1,
                    "nvmlDeviceGetVirtualizationMode": 2,
                },
            )
        ]
    )
    assert [(fact.code, dict(fact.figures)) for fact in nvml.report(machine).conditions] == [
        ("GP611", {"count": 3}),
        ("GP612", {"detail": "page retirement pending, row remapping pending, row remapping failed"}),
        ("GP614", {"reasons": "hardware thermal slowdown, software thermal slowdown"}),
        ("GP617", {"mode": "exclusive process"}),
        ("GP618", {}),
        ("GP620", {"detail": "virtualization mode VGPU"}),
    ]


@pytest.mark.parametrize(
    ("code", "words", "devices", "expected"),
    [
        (12, "NVML Shared Library Not Found", 0, None),
        (12, "NVML Shared Library Not Found", 2, ("GP601", {"devices": 2})),
        (9, "Driver Not Loaded", 0, None),
        (9, "Driver Not Loaded", 1, ("GP602", {"detail": "Driver Not Loaded"})),
        (
            18,
            "RM has detected an NVML/RM version mismatch.",
            1,
            ("GP603", {"detail": "RM has detected an NVML/RM version mismatch."}),
        ),
        (4, "Insufficient Permissions", 1, ("GP605", {"tool": "NVML", "detail": "Insufficient Permissions"})),
        (999, "Unknown Error", 1, ("GP606", {"tool": "NVML", "exit_code": 999, "detail": "Unknown Error"})),
    ],
)
def test_a_library_that_does_not_start(
    code: int, words: str, devices: int, expected: tuple[str, Any] | None
) -> None:
    seen = [PciDevice(bus=f"0000:0{number}:00.0") for number in range(devices)]
    report = nvml.report(Machine([], refused=Refused(code, words)), pci=seen)
    assert report.gpus == ()
    told = [(fact.code, dict(fact.figures)) for fact in report.conditions]
    assert told == ([] if expected is None else [expected])


def test_every_function_is_one_of_the_library() -> None:
    """A name that pynvml does not have would look like a figure no driver supports."""
    source = inspect.getsource(nvml)
    pynvml = importlib.import_module("pynvml")
    assert all(hasattr(pynvml, name) for name in re.findall(r'"(nvml[A-Z]\w+|c_nvml\w+)"', source))


def test_facts_of_both_readers_are_plain_json() -> None:
    machine = Machine([Refused(15, "GPU is lost")])
    assert nvml.report(machine).conditions
    for fact in nvml.report(machine).conditions:
        assert json.loads(json.dumps([dict(fact.subject), dict(fact.figures)]))
