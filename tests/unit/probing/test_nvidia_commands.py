"""The commands themselves, run by the shell with a tool of our own in place of nvidia-smi."""

import os
import subprocess
from pathlib import Path

import pytest

from gpuplan.probing import nvidia_csv, nvidia_smi, process_owners
from gpuplan.probing.command import Command
from gpuplan.probing.output import Output


def tool(folder: Path, body: str) -> None:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def run(command: Command, folder: Path) -> Output:
    done = subprocess.run(
        ["sh", "-c", command.shell],
        env={"PATH": f"{folder}:{os.environ['PATH']}", "LC_ALL": "C"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return Output(text=done.stdout.decode(), exit_code=done.returncode)


@pytest.mark.parametrize("command", nvidia_smi.COMMANDS, ids=lambda command: command.name)
def test_every_command_is_sound_shell(command: Command) -> None:
    assert subprocess.run(["sh", "-n", "-c", command.shell], check=False).returncode == 0


def test_the_short_list_is_asked_when_a_field_is_unknown(tmp_path: Path) -> None:
    tool(
        tmp_path,
        'case "$1" in *compute_cap*) echo \'Field "compute_cap" is not a valid field to query.\'; exit 2 ;; esac\n'
        "echo 'index, uuid, name, memory.total [MiB]'; echo '0, GPU-1, Tesla P100, 16280'",
    )
    output = run(nvidia_smi.CSV, tmp_path)
    assert output.exit_code == 0
    assert [(card.name, card.memory.total) for card in nvidia_csv.parse(output.text).cards] == [
        ("Tesla P100", 16280 * 1024**2)
    ]


def test_clocks_stay_on_the_host_and_the_status_comes_along(tmp_path: Path) -> None:
    tool(
        tmp_path,
        "echo '<gpu>'; echo '<supported_graphics_clock>210 MHz</supported_graphics_clock>'; echo '</gpu>'; exit 14",
    )
    output = run(nvidia_smi.XML, tmp_path)
    assert (output.text, output.exit_code) == ("<gpu>\n</gpu>\n", 14)


def test_a_missing_tool_is_missing(tmp_path: Path) -> None:
    for command in (nvidia_smi.XML, nvidia_smi.CSV, nvidia_smi.LISTING, nvidia_smi.TOPOLOGY):
        shell = command.shell.replace("nvidia-smi", "nvidia-smi-of-nobody")
        assert run(Command(name=command.name, shell=shell), tmp_path).exit_code == 127


def test_owners_of_running_processes(tmp_path: Path) -> None:
    tool(tmp_path, f"echo {os.getpid()}; echo '[N/A]'; echo 999999999; echo 'No devices were found'")
    output = run(nvidia_smi.OWNERS, tmp_path)
    user = subprocess.run(
        ["stat", "-c", "%U", f"/proc/{os.getpid()}"], capture_output=True, check=True
    ).stdout
    found = process_owners.parse(output.text)
    assert {pid: owner.user for pid, owner in found.items()} == {os.getpid(): user.decode().strip()}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("0::/system.slice/docker-{}.scope", True),
        ("12:memory:/docker/{}", True),
        ("0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{}.scope/container", True),
        ("0::/kubepods.slice/kubepods-pod1f2e.slice/cri-containerd-{}.scope", True),
        ("11:devices:/kubepods/besteffort/pod0a1b2c3d-1111-2222-3333-444455556666/{}", True),
        ("0::/system.slice/nerdctl-{}.scope", True),
        ("0::/kubepods.slice/kubepods-pod1f2e.slice/crio-{}.scope", True),
        ("0::/user.slice/user-1000.slice/session-4.scope", False),
        ("4:memory:/process_api/576846ca2562f3795f0ed083923f4d65", False),
    ],
)
def test_containers_of_control_groups(path: str, expected: bool) -> None:
    container = "0123456789abcdef" * 4
    (owner,) = process_owners.parse(f"41 ada ;{path.format(container)}\n").values()
    assert (owner.user, owner.container) == ("ada", container if expected else None)
