"""AMD's tools: recorded outputs of ROCm 5 to 7 compared in full, and any text at all."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.probing import amd_smi, rocm_smi
from gpuplan.probing.devices import DeviceReport
from gpuplan.probing.output import Output
from tests.unit.probing import recorded_cases
from tests.unit.probing.texts import outputs_of

PROBE = "amd_smi"
SHELLS = [
    shell for shell in (["sh"], ["dash"], ["bash", "--posix"], ["busybox", "sh"]) if shutil.which(shell[0])
]
OLD_AMD_SMI = """\
#!/bin/sh
case "$*" in
  "static --json") echo '[{"gpu": 0, "asic": {"market_name": "AMD Instinct MI210"}}]' ;;
  static*) echo "amd-smi static: error: unrecognized arguments: --numa"; exit 2 ;;
  "process --json") echo '[{"gpu": 0, "process_list": [{"process_info": "No running processes detected"}]}]' ;;
  *) exit 2 ;;
esac
"""


@pytest.mark.parametrize("case", recorded_cases.names(PROBE))
def test_recorded_output_is_read_in_full(case: str) -> None:
    outputs = recorded_cases.outputs(PROBE, case)
    assert outputs.keys() <= {command.name for command in amd_smi.COMMANDS}
    report = amd_smi.report(outputs)
    assert recorded_cases.plain(report) == recorded_cases.expected(PROBE, case)
    assert recorded_cases.source(PROBE, case).strip()


@given(outputs_of(amd_smi.COMMANDS))
def test_any_text_gives_a_report(outputs: dict[str, Output]) -> None:
    report = amd_smi.report(outputs)
    assert report.vendor == "amd"
    for gpu in report.gpus:
        assert gpu.free_bytes is None or (
            gpu.total_bytes is not None and 0 <= gpu.free_bytes <= gpu.total_bytes
        )


@pytest.mark.parametrize(
    "junk",
    [
        "[" * 4_000_000,
        "{" * 4_000_000,
        "[\n" * 2_000_000,
        '{"gpu": ' * 500_000,
        "[" + "1," * 2_000_000,
        "card0" * 800_000,
    ],
    ids=["brackets", "braces", "lines", "nested", "endless list", "words"],
)
def test_four_megabytes_of_junk_take_bounded_time(junk: str) -> None:
    begin = time.process_time()
    report = amd_smi.report(dict.fromkeys((command.name for command in amd_smi.COMMANDS), Output(text=junk)))
    assert not report.gpus
    assert [fact.code for fact in report.conditions] == ["GP606"]
    assert time.process_time() - begin < 20


def test_a_junk_detail_is_one_short_line() -> None:
    text = "Error: \x1b[31m" + "x" * 5000 + "\x00\nsecond"
    (fact,) = amd_smi.report({"amd_static": Output(text=text, exit_code=1)}).conditions
    assert fact.figures["detail"] == "Error: " + "x" * 293


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_version_that_lacks_a_flag_is_asked_without(shell: list[str], tmp_path: Path) -> None:
    tool = tmp_path / "amd-smi"
    tool.write_text(OLD_AMD_SMI)
    tool.chmod(0o755)
    outputs = {}
    for command in amd_smi.COMMANDS:
        done = subprocess.run(
            [*shell, "-c", command.shell],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        )
        outputs[command.name] = Output(text=done.stdout + done.stderr, exit_code=done.returncode)
    assert outputs["amd_rocm_smi"].exit_code == 127
    (gpu,) = amd_smi.report(outputs).gpus
    assert gpu.name == "AMD Instinct MI210"


def test_no_tool_and_no_device_is_nothing_to_tell() -> None:
    assert amd_smi.report({}) == DeviceReport(vendor="amd")
    missing = Output(text="amd-smi: not found\n", exit_code=127)
    assert amd_smi.report({"amd_static": missing, "amd_rocm_smi": missing}).conditions == ()


@pytest.mark.parametrize(
    ("name", "device", "marketed"),
    [
        ("AMD Instinct MI300X", "0x74a1", "AMD Instinct MI300X"),
        ("Arcturus GL-XL [Instinct MI100]", "0x738c", "AMD Instinct MI100"),
        ("AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2", "0x7408", "AMD Instinct MI250X"),
        ("AMD INSTINCT MI250 (MCM) OAM AC MBA", "0x740c", "AMD Instinct MI250"),
        ("Aqua Vanjaram [Instinct MI300X VF]", "0x74b5", "AMD Instinct MI300X VF"),
        ("Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]", "0x73bf", "Radeon RX 6800/6800 XT / 6900 XT"),
        ("0x740f", "0x740f", "AMD Instinct MI210"),
        ("", "0x74A5", "AMD Instinct MI325X"),
        ("", "0x1234", "AMD GPU 0x1234"),
        ("", "", "AMD GPU"),
        ("Radeon RX 9070 XT", "0x7550", "Radeon RX 9070 XT"),
    ],
)
def test_a_device_is_called_what_it_is_sold_as(name: str, device: str, marketed: str) -> None:
    assert rocm_smi.marketed_name(name, device) == marketed


@given(st.text())
def test_rocm_smi_never_raises(text: str) -> None:
    assert rocm_smi.gpus(text) == ()
    assert rocm_smi.links(text) == ()
