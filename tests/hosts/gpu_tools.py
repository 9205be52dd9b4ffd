"""The GPUs of a test host: a replayed nvidia-smi, device files and PCI devices."""

import shutil
from pathlib import Path

from tests.hosts.machine import PROGRAMS, Machine
from tests.hosts.network import HarnessFailed

RECORDINGS = Path(__file__).parent.parent / "data" / "hosts"
_FORGET = """\
rm -rf /dev/nvidia* /sys/bus/pci/devices/* /sys/bus/pci/drivers/nvidia
umount /proc/meminfo 2>/dev/null
true"""
_APPEAR = """\
set -eu
n=0
while read -r bus class driver node; do
    device=/sys/bus/pci/devices/$bus
    mkdir -p "$device"
    echo 0x10de >"$device/vendor"
    echo "$class" >"$device/class"
    echo "$node" >"$device/numa_node"
    [ "$driver" != - ] || continue
    mkdir -p "/sys/bus/pci/drivers/$driver"
    ln -s "../../drivers/$driver" "$device/driver"
    mknod -m 666 "/dev/nvidia$n" c 195 "$n"
    n=$((n + 1))
done </srv/bin/recorded/pci
[ "$n" = 0 ] || mknod -m 666 /dev/nvidiactl c 195 255
mount --bind /srv/bin/recorded/meminfo /proc/meminfo"""
"""PCI devices (bus, class, driver or -, NUMA node), their device files, and the host's memory."""


class GpuTools(Machine):
    """A machine whose GPUs are those of a recording."""

    def lay_out_gpus(self) -> None:
        """Have the GPUs of the spec."""
        self._install(self.spec.recording)

    def _install(self, recording: str | None) -> None:
        tools = self.directory / "bin"
        shutil.rmtree(tools / "recorded", ignore_errors=True)
        for name in ("nvidia-smi", "mode"):
            (tools / name).unlink(missing_ok=True)
        self.run("sh", "-c", _FORGET)
        if recording is None:
            return
        source = RECORDINGS / recording
        if not source.is_dir():
            raise HarnessFailed(f"no recording {source}")
        shutil.copytree(source, tools / "recorded")
        (tools / "recorded").chmod(0o755)
        for path in (tools / "recorded").iterdir():
            path.chmod(0o644)
        shutil.copy(PROGRAMS / "nvidia-smi", tools / "nvidia-smi")
        (tools / "nvidia-smi").chmod(0o755)
        self.run("sh", "-c", _APPEAR)

    def replay(self, recording: str | None) -> None:
        """Have other GPUs, or none."""
        self._install(recording)
        self.later(self.lay_out_gpus)

    def nvidia_smi(self, mode: str, argument: str = "") -> None:
        """Have nvidia-smi misbehave.

        `hang` (whatever signal but KILL it is sent), `slow` (argument: seconds), `garbage`, `bytes` (not UTF-8), `flood`
        (10 MiB), `driver` (status 9), `mismatch`, `denied`, `absent` (the devices stay), `not-executable`.
        """
        tool, order = self.directory / "bin" / "nvidia-smi", self.directory / "bin" / "mode"
        match mode:
            case "absent":
                hidden = tool.with_name("nvidia-smi.hidden")
                tool.rename(hidden)
                self.later(lambda: hidden.rename(tool))
            case "not-executable":
                tool.chmod(0o644)
                self.later(lambda: tool.chmod(0o755))
            case "hang" | "slow" | "garbage" | "bytes" | "flood" | "driver" | "mismatch" | "denied":
                order.write_text(f"{mode}\n{argument}\n")
                self.later(lambda: order.unlink(missing_ok=True))
            case _:
                raise ValueError(mode)

    def recorded(self, old: str, new: str) -> None:
        """Replace a text in every recorded output: a process id, for one that lives on this host."""
        files = [path for path in (self.directory / "bin" / "recorded").iterdir() if old in path.read_text()]
        if not files:
            raise HarnessFailed(f"{self.name}: {old!r} is in no recorded output")
        before = {path: path.read_text() for path in files}
        for path, text in before.items():
            path.write_text(text.replace(old, new))
        self.later(lambda: [path.write_text(text) for path, text in before.items() if path.exists()])
