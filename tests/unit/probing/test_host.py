"""The host's own facts: recorded outputs compared in full, real shells for the disk commands, and any text at all."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.probing import host
from gpuplan.probing.output import Output
from tests.unit.probing import recorded_cases
from tests.unit.probing.texts import outputs_of

PROBE = "host"
DISKS = host.disk_commands(
    {
        "model_dir": "/data",
        "docker_root": "/var/lib/docker",
        "shm": "/dev/shm",
        "huggingface_cache": "~/.cache",
    }
)
COMMANDS = (*host.COMMANDS, *DISKS)
SHELLS = [
    shell for shell in (["sh"], ["dash"], ["bash", "--posix"], ["busybox", "sh"]) if shutil.which(shell[0])
]


@pytest.mark.parametrize("case", recorded_cases.names(PROBE))
def test_recorded_output_is_read_in_full(case: str) -> None:
    outputs = recorded_cases.outputs(PROBE, case)
    assert outputs.keys() <= {command.name for command in COMMANDS}
    clock = recorded_cases.given(PROBE, case)
    report = host.report(outputs, sent=clock.get("sent"), received=clock.get("received"))
    assert recorded_cases.plain(report) == recorded_cases.expected(PROBE, case)
    assert recorded_cases.source(PROBE, case).strip()


@given(outputs_of(COMMANDS), st.none() | st.floats(0, 2e9))
def test_any_text_gives_a_report(outputs: dict[str, Output], sent: float | None) -> None:
    report = host.report(outputs, sent=sent, received=sent)
    assert report.ram_available_bytes is None or report.ram_available_bytes >= 0
    assert all(disk.free_bytes >= 0 for disk in report.disks)


@pytest.mark.parametrize(
    "junk", ["= " * 2_000_000, "a: 1 \n" * 700_000, "/dev/x 1 1 1 1% " * 250_000, " " * 4_000_000]
)
def test_four_megabytes_of_junk_take_bounded_time(junk: str) -> None:
    begin = time.process_time()
    report = host.report(
        dict.fromkeys((command.name for command in COMMANDS), Output(text=junk)), sent=0.0, received=1.0
    )
    assert report.disks == ()
    assert report.ram_total_bytes is None
    assert time.process_time() - begin < 20


def test_a_clock_is_skewed_only_beyond_what_the_round_trip_leaves_open() -> None:
    outputs = {"host_clock": Output(text="1767225610.000000000\n")}
    far = host.report(outputs, sent=1767225600.0, received=1767225602.0)
    assert far.clock_offset_seconds == 9.0
    assert [fact.code for fact in far.conditions] == ["GP633"]
    slow = host.report(outputs, sent=1767225600.0, received=1767225612.0)
    assert slow.clock_offset_seconds == 4.0
    assert slow.conditions == ()
    assert host.report(outputs).clock_offset_seconds is None


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_path_that_is_not_there_yet_has_the_disk_of_the_nearest_directory(
    shell: list[str], tmp_path: Path
) -> None:
    asked = f"{tmp_path}/it's not there/$HOME/`x`"
    (command,) = host.disk_commands({"model_dir": asked})
    done = subprocess.run(
        [*shell, "-c", command.shell], capture_output=True, text=True, timeout=30, check=False
    )
    (disk,) = host.report({command.name: Output(text=done.stdout + done.stderr)}).disks
    assert disk.path == asked
    assert disk.purpose == "model_dir"
    assert abs(disk.total_bytes - shutil.disk_usage(tmp_path).total) <= 1024


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_tilde_is_the_home_of_the_login(shell: list[str], tmp_path: Path) -> None:
    (command,) = host.disk_commands({"huggingface_cache": "~/.cache/huggingface"})
    done = subprocess.run(
        [*shell, "-c", command.shell],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    (disk,) = host.report({command.name: Output(text=done.stdout)}).disks
    assert disk.path == f"{tmp_path}/.cache/huggingface"


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_this_machine_describes_itself_in_every_shell(shell: list[str]) -> None:
    outputs = {}
    for command in host.COMMANDS:
        done = subprocess.run(
            [*shell, "-c", command.shell], capture_output=True, text=True, timeout=30, check=False
        )
        outputs[command.name] = Output(text=done.stdout, exit_code=done.returncode)
    now = time.time()
    report = host.report(outputs, sent=now, received=now)
    assert report.architecture
    assert report.kernel
    assert report.cpu_count
    assert report.ram_total_bytes is not None
    assert 0 < (report.ram_available_bytes or 0) <= report.ram_total_bytes
    assert report.clock_offset_seconds is not None
