"""Every state of a host in words: with its figures, with a command that helps, and with a page."""

from typing import Any

import pytest

from gpuplan.domain.fact import Fact, Severity
from gpuplan.present.document import text_of, width_of
from gpuplan.present.explain import page_text, pages
from gpuplan.present.findings import CODES, word
from gpuplan.present.host_findings import WORDS
from gpuplan.present.host_rulebook import PAGES
from gpuplan.present.refusal_text import finding_lines
from gpuplan.units import GIB

GPU = {"host": "h1", "gpu": 3}
HOST = {"host": "h1"}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str, str | None]] = {
    "GP601": (HOST, {"devices": 8}, "8 NVIDIA devices", "ubuntu-drivers install"),
    "GP602": (
        HOST,
        {"detail": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."},
        "does not answer",
        "sudo modprobe nvidia",
    ),
    "GP603": (
        HOST,
        {"detail": "Failed to initialize NVML: Driver/library version mismatch"},
        "different versions",
        "reboot",
    ),
    "GP604": (
        HOST,
        {"tool": "nvidia-smi", "seconds": 15.0},
        "nvidia-smi gave no answer within 15 s",
        "reboot",
    ),
    "GP605": (
        HOST,
        {"tool": "rocm-smi", "detail": "Permission denied: /dev/kfd"},
        "may not use rocm-smi",
        "usermod -aG video,render",
    ),
    "GP606": (
        HOST,
        {"tool": "amd-smi", "exit_code": 1, "detail": "ImportError: No module named 'amdsmi'"},
        "amd-smi failed, or its output cannot be read (exit status 1)",
        "run amd-smi on the host",
    ),
    "GP608": (GPU, {"detail": "GPU is lost"}, "h1 GPU 3: lost", "sudo nvidia-smi --gpu-reset -i 3"),
    "GP609": (GPU, {"detail": "[Unknown Error]"}, "h1 GPU 3: how much memory", "nvidia-smi -q -d MEMORY"),
    "GP611": (GPU, {"count": 2}, "2 uncorrectable memory errors", "nvidia-smi -q -d ECC -i 3"),
    "GP612": (GPU, {"detail": "row remapping pending"}, "faulty memory", "--gpu-reset -i 3"),
    "GP613": (
        {"host": "h1", "pci": "0000:17:00.0"},
        {"xid": 79, "count": 3, "detail": "GPU has fallen off the bus."},
        "h1 GPU at 0000:17:00.0: the driver logged Xid 79 3 times",
        "dmesg",
    ),
    "GP614": (
        GPU,
        {"reasons": "thermal slowdown by hardware"},
        "thermal slowdown by hardware",
        "-q -d PERFORMANCE",
    ),
    "GP615": (GPU, {}, "MIG is on, but the card has no slices", "sudo nvidia-smi mig -i 3 -cgi"),
    "GP616": (
        GPU,
        {"state": "In Progress"},
        "state In Progress",
        "sudo systemctl enable --now nvidia-fabricmanager",
    ),
    "GP617": (
        GPU,
        {"mode": "Exclusive_Process"},
        "compute mode is Exclusive_Process",
        "sudo nvidia-smi -i 3 -c DEFAULT",
    ),
    "GP618": (GPU, {}, "a display is attached", "reserve: {vram: 1GiB}"),
    "GP619": (
        {"host": "spark", "gpu": 0},
        {"total_bytes": 120 * GIB, "available_bytes": 101 * GIB},
        "101.00 GiB of 120.00 GiB available",
        "reserve: {ram: 12GiB}",
    ),
    "GP620": (GPU, {"detail": "GRID A100D-40C"}, "virtual GPU", None),
    "GP621": (
        HOST,
        {"detail": "/var/run/docker.sock: no such file"},
        "Docker is not installed",
        "docs.docker.com",
    ),
    "GP622": (
        HOST,
        {"user": "ada", "groups": "ada sudo", "path": "/var/run/docker.sock"},
        "ada may not use the Docker socket /var/run/docker.sock",
        "sudo usermod -aG docker ada, then log in again",
    ),
    "GP623": (HOST, {"detail": "connection refused"}, "daemon is not running", "sudo systemctl start docker"),
    "GP624": (HOST, {}, "forbids forwarding sockets", None),
    "GP625": (HOST, {}, "no way to the Docker engine", "AllowStreamLocalForwarding yes"),
    "GP626": (
        HOST,
        {},
        "cannot hand GPUs to containers",
        "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
    ),
    "GP627": (HOST, {"api_version": "1.22"}, "API version 1.22", "update Docker Engine"),
    "GP628": (HOST, {"root_dir": "/var/snap/docker/common/var-lib-docker"}, "/var/snap/docker", "no-cgroups"),
    "GP629": (HOST, {"detail": "500 Server Error"}, "no usable answer", "journalctl -u docker"),
    "GP631": (
        HOST,
        {"declared": "8 × NVIDIA H100 80GB HBM3", "found": "7 × NVIDIA H100 80GB HBM3"},
        "declares 8 × NVIDIA H100 80GB HBM3, found: 7 × NVIDIA H100 80GB HBM3",
        "nvidia-smi -L",
    ),
    "GP632": (HOST, {"other": "h2"}, "h1 and h2 are one machine", "machine-id"),
    "GP633": (HOST, {"seconds": -92.4}, "92.4 s behind", "timedatectl set-ntp true"),
    "GP634": (HOST, {"interface": "eth1", "found": "eno1, ib0"}, "the interface eth1", "ip -br addr"),
    "GP635": (HOST, {"index": 7}, "names GPU 7, which does not exist", "nvidia-smi -L"),
    "GP636": (
        HOST,
        {"what": "interfaces", "detail": "ip: not found"},
        "no answer about interfaces",
        "gpuplan probe",
    ),
    "GP637": (GPU, {}, "Windows gives out its memory", "0.9 or less"),
}
"""Subject and figures of a real case, and what headline and hint must hold."""


def fact(code: str) -> Fact:
    subject, figures, _, _ = CASES[code]
    return Fact(code=code, severity=Severity.WARNING, subject=subject, figures=figures)


def test_every_state_is_here_and_has_words_and_a_page() -> None:
    assert set(CASES) == set(WORDS) == {page.code for page in PAGES}
    assert set(WORDS) <= set(CODES)


@pytest.mark.parametrize("code", CASES)
def test_a_state_names_its_place_its_figures_and_a_command(code: str) -> None:
    subject, figures, headline, hint = CASES[code]
    finding = word(fact(code))
    assert finding.headline.startswith(subject["host"])
    assert headline in finding.headline
    assert (finding.hint is None) is (hint is None)
    if hint is not None:
        assert hint in str(finding.hint)
    if figures.get("detail"):
        assert any(figures["detail"] in reason for reason in finding.because)


@pytest.mark.parametrize("code", CASES)
@pytest.mark.parametrize("width", [80, 120])
def test_a_state_stays_within_the_columns(code: str, width: int) -> None:
    for row in text_of(tuple(finding_lines(word(fact(code)), width))).splitlines():
        assert width_of(row) <= width


@pytest.mark.parametrize("code", CASES)
def test_a_figure_that_is_missing_leaves_the_finding_said(code: str) -> None:
    finding = word(Fact(code=code, severity=Severity.ERROR, subject={}, figures={}))
    said = " ".join((finding.headline, *finding.because, str(finding.hint)))
    assert finding.headline.startswith("this host")
    assert "None" not in said.removesuffix("None")
    assert "{" not in finding.headline


@pytest.mark.parametrize("code", CASES)
def test_a_state_can_be_explained(code: str) -> None:
    (page,) = pages(code.lower())
    text = text_of(page_text(page, 80))
    assert page.title in text
    assert all(width_of(row) <= 80 for row in text.splitlines())
    assert all((page.what, page.why, page.do, page.source))


def test_several_reasons_are_listed() -> None:
    told = word(
        Fact(code="GP614", severity=Severity.WARNING, subject=GPU, figures={"reasons": ["heat", "power"]})
    )
    assert "(heat, power)" in told.headline


def test_what_a_host_said_cannot_move_the_cursor() -> None:
    hostile = Fact(
        code="GP602", severity=Severity.ERROR, subject=HOST, figures={"detail": "\x1b[2Jgone\u202e"}
    )
    shown = text_of(tuple(finding_lines(word(hostile), 80)))
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "gone" in shown


def test_a_code_of_another_version_has_words() -> None:
    fact = Fact(code="GP999", severity=Severity.ERROR, subject=HOST, figures={"detail": "it said so"})
    finding = word(fact)
    assert (finding.code, finding.because) == ("GP999", ("it said so",))
    assert finding.headline.startswith("h1: ")
    assert finding.hint is not None
