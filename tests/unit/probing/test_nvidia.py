"""Every recorded output of nvidia-smi against what a reader finds in it, in full."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuplan.domain.fleet import Gpu
from gpuplan.probing import nvidia_csv, nvidia_smi, nvidia_xml
from gpuplan.probing.devices import DeviceReport
from gpuplan.probing.output import NOT_RUN, Output

MIB = 1024**2
CASES = Path(__file__).parents[2] / "data" / "probes" / "nvidia_smi"
NAMES = sorted(path.name for path in CASES.iterdir())
_BYTES = {"reported_bytes": "reported_mib", "total_bytes": "total_mib", "free_bytes": "free_mib"}
_PLAIN = (
    "compute_capability",
    "parent",
    "profile",
    "pci_bus_id",
    "numa_node",
    "utilization_percent",
    "temperature_celsius",
)


def recorded(case: str) -> dict[str, Output]:
    """The case's outputs by command; `status.json` has the exit codes other than 0 and the word `timeout`."""
    folder = CASES / case
    status = json.loads((folder / "status.json").read_text()) if (folder / "status.json").exists() else {}
    outputs: dict[str, Output] = {}
    for command in nvidia_smi.COMMANDS:
        name = command.name.removeprefix("nvidia_")
        path = folder / f"{name}.txt"
        if not path.exists():
            outputs[command.name] = NOT_RUN
            continue
        code = status.get(name, 0)
        hung = code == "timeout"
        outputs[command.name] = Output(
            text=path.read_text(encoding="utf-8"), exit_code=None if hung else code, timed_out=hung
        )
    return outputs


def told(report: DeviceReport) -> dict[str, Any]:
    """The report in the form of `expected.json`: sizes in MiB, what is unknown left out."""
    return {
        "driver": report.driver_version,
        "cuda": report.runtime_version,
        "gpus": [_gpu(gpu) for gpu in report.gpus],
        "links": [f"{link.a}-{link.b} {link.kind}" for link in report.links],
        "conditions": [
            {
                "code": fact.code,
                "severity": fact.severity.value,
                "subject": dict(fact.subject),
                "figures": dict(fact.figures),
            }
            for fact in report.conditions
        ],
    }


def _gpu(gpu: Gpu) -> dict[str, Any]:
    found: dict[str, Any] = {"index": gpu.index, "name": gpu.name}
    if gpu.uuid is not None:
        found["uuid"] = gpu.uuid
    for attribute, key in _BYTES.items():
        size = getattr(gpu, attribute)
        if size is not None:
            assert size % MIB == 0
            found[key] = size // MIB
    if gpu.unified:
        found["unified"] = True
    found |= {key: getattr(gpu, key) for key in _PLAIN if getattr(gpu, key) is not None}
    if gpu.processes:
        found["processes"] = [
            [
                one.pid,
                one.name,
                None if one.used_bytes is None else one.used_bytes // MIB,
                one.user,
                one.container,
            ]
            for one in gpu.processes
        ]
    return found


@pytest.mark.parametrize("case", NAMES)
def test_recorded_case(case: str) -> None:
    expected = json.loads((CASES / case / "expected.json").read_text(encoding="utf-8"))
    assert told(nvidia_smi.report(recorded(case))) == expected


def test_cases_are_many_and_distinct() -> None:
    texts = {
        case: "\0".join(f"{name}:{output.text}:{output.exit_code}" for name, output in recorded(case).items())
        for case in NAMES
    }
    assert len(set(texts.values())) == len(NAMES) >= 34
    assert all((CASES / case / "source.txt").read_text(encoding="utf-8").strip() for case in NAMES)


def test_nothing_run_says_nothing() -> None:
    assert told(nvidia_smi.report({})) == {
        "driver": None,
        "cuda": None,
        "gpus": [],
        "links": [],
        "conditions": [],
    }


def test_every_cut_of_an_output_is_read_without_a_wrong_figure() -> None:
    """A connection lost at any byte leaves fewer cards, never a card with another memory."""
    text = (CASES / "h100-nvl-550" / "xml.txt").read_text(encoding="utf-8")
    whole = {card.uuid: card.memory for card in nvidia_xml.parse(text).cards}
    assert len(whole) == 2
    for end in range(0, len(text), 97):
        log = nvidia_xml.parse(text[:end])
        assert not log.whole
        assert all(whole[card.uuid] == card.memory for card in log.cards)


def test_entities_of_a_document_type_are_not_expanded() -> None:
    bomb = (
        '<?xml version="1.0"?><!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;">]>'
        '<nvidia_smi_log><gpu id="00000000:01:00.0"><product_name>&b;</product_name></gpu></nvidia_smi_log>'
    )
    log = nvidia_xml.parse(bomb)
    assert [card.name for card in log.cards] == ["&b;"]


def test_megabytes_of_junk_are_passed_over() -> None:
    junk = (
        "<nvidia_smi_log" + "<gpu>" * 200_000 + "<gpu " * 100_000 + "index, uuid, " * 50_000 + '"' * 100_000
    )
    outputs = {command.name: Output(text=junk, exit_code=0) for command in nvidia_smi.COMMANDS}
    report = nvidia_smi.report(outputs)
    assert report.gpus == ()
    assert [fact.code for fact in report.conditions] == ["GP606"]
    assert all(len(str(fact.figures["detail"])) <= 300 for fact in report.conditions)


def test_a_name_with_commas_keeps_its_columns() -> None:
    (card,) = nvidia_csv.parse(
        "index, uuid, name, memory.total [MiB]\n0, GPU-1, NVIDIA Card, Special, Edition, 24576\n"
    ).cards
    assert (card.name, card.memory.total) == ("NVIDIA Card, Special, Edition", 24576 * MIB)
