"""The GPUs of a test host: a replayed nvidia-smi, device files and PCI devices."""

import hashlib
import re
import shutil
from pathlib import Path

from tests.hosts.machine import PROGRAMS, Machine
from tests.hosts.network import HarnessFailed

_UUID = re.compile(r"(?<=GPU-)[0-9a-f]{8}(?=-[0-9a-f]{4}-)")
"""The first part of a GPU's UUID."""
_PROCESS = """\
			<process_info>
				<gpu_instance_id>N/A</gpu_instance_id>
				<compute_instance_id>N/A</compute_instance_id>
				<pid>{pid}</pid>
				<type>C</type>
				<process_name>{name}</process_name>
				<used_memory>{used} MiB</used_memory>
			</process_info>
		</processes>"""
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
            if self.spec.own_uuids:
                path.write_text(_UUID.sub(self._own, path.read_text()))
        shutil.copy(PROGRAMS / "nvidia-smi", tools / "nvidia-smi")
        (tools / "nvidia-smi").chmod(0o755)
        self.run("sh", "-c", _APPEAR)

    def _own(self, first: re.Match[str]) -> str:
        return hashlib.sha256(f"{self.name} {first[0]}".encode()).hexdigest()[:8]

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

    def gpu_uuids(self) -> list[str]:
        """Of its GPUs, in the order of their indexes."""
        listed = self.text("nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader")
        return listed.splitlines()

    def take_gpu_memory(
        self, index: int, mebibytes: int, *, pid: int = 51877, name: str = "/home/alice/venv/bin/python3"
    ) -> None:
        """Have somebody else's process hold memory of an idle GPU, in every output of nvidia-smi."""
        recorded = self.directory / "bin" / "recorded"
        before = {path: path.read_text() for path in recorded.iterdir()}
        _take_in_xml(
            recorded / "query.xml", index, mebibytes, _PROCESS.format(pid=pid, name=name, used=mebibytes)
        )
        rows = [row.split(", ") for row in before[recorded / "gpus.csv"].splitlines()]
        columns, row = rows[0], rows[index + 2]
        used, free = columns.index("memory.used"), columns.index("memory.free")
        row[used], row[free] = str(int(row[used]) + mebibytes), str(int(row[free]) - mebibytes)
        (recorded / "gpus.csv").write_text("".join(f"{', '.join(cells)}\n" for cells in rows))
        known = dict(zip(columns, row, strict=True))
        app = [known["uuid"], known["pci.bus_id"], known["name"], pid, name, name, mebibytes, mebibytes]
        with (recorded / "compute-apps.csv").open("a") as file:
            file.write(f"{', '.join(map(str, app))}\n")
        self.later(lambda: [path.write_text(text) for path, text in before.items() if path.exists()])

    def recorded(self, old: str, new: str) -> None:
        """Replace a text in every recorded output: a process id, for one that lives on this host."""
        files = [path for path in (self.directory / "bin" / "recorded").iterdir() if old in path.read_text()]
        if not files:
            raise HarnessFailed(f"{self.name}: {old!r} is in no recorded output")
        before = {path: path.read_text() for path in files}
        for path, text in before.items():
            path.write_text(text.replace(old, new))
        self.later(lambda: [path.write_text(text) for path, text in before.items() if path.exists()])


def _take_in_xml(path: Path, index: int, mebibytes: int, process: str) -> None:
    blocks = re.split(r"(?=\t<gpu id=)", path.read_text())
    memory = re.search(r"<fb_memory_usage>.*?</fb_memory_usage>", blocks[index + 1], re.DOTALL)
    assert memory is not None, f"GPU {index} has no memory of its own"
    figures = memory[0]
    for name, change in (("used", mebibytes), ("free", -mebibytes)):
        now = re.search(rf"<{name}>(\d+) MiB", figures)
        assert now is not None, figures
        figures = figures.replace(now[0], f"<{name}>{int(now[1]) + change} MiB")
    block = blocks[index + 1].replace(memory[0], figures, 1)
    blocks[index + 1] = re.sub(r"\t*</processes>", process, block, count=1)
    path.write_text("".join(blocks))
