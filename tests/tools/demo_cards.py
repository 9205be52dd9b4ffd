"""Outputs of nvidia-smi for a host of the demo: a recording of `tests/data/hosts`, or cards cut out of one."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuplan.probing.nvidia_csv import FIELDS

HOSTS = Path(__file__).parents[1] / "data" / "hosts"
_UUID = re.compile(r"(?<=GPU-)[0-9a-f]{8}(?=-[0-9a-f]{4}-)")
_MIG = re.compile(r"(?<=MIG-)[0-9a-f]{8}(?=-[0-9a-f]{4}-)")
_PROCESS = """\
			<process_info>
				<gpu_instance_id>N/A</gpu_instance_id>
				<compute_instance_id>N/A</compute_instance_id>
				<pid>{pid}</pid>
				<type>C</type>
				<process_name>{name}</process_name>
				<used_memory>{mebibytes} MiB</used_memory>
			</process_info>
		</processes>"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One that holds memory; the card by its index or its UUID."""

    pid: int
    name: str
    mebibytes: int
    user: str
    container: str = ""
    """Its id."""
    index: int | None = None
    uuid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """The sections of a probe that nvidia-smi and the PCI bus fill."""

    sections: Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class _Outputs:
    head: str
    blocks: list[str]
    rows: list[dict[str, str]]
    topology: str
    pci: str
    listing: str


def from_recording(
    recording: str,
    name: str,
    processes: Sequence[Process] = (),
    *,
    owners: Sequence[tuple[int, str, str]] = (),
) -> Cards:
    """A host of `tests/data/hosts` under UUIDs of its own. `owners`: pid, user and container of recorded processes."""
    return _sections(_read(recording, name), processes, owners)


def cards(
    recording: str,
    picked: Sequence[int],
    name: str,
    processes: Sequence[Process] = (),
    *,
    of: str | None = None,
    mebibytes: tuple[int, int] | None = None,
    link: str | None = None,
    screen: bool = True,
) -> Cards:
    """Cards of a recording, each as often as it is picked, at addresses and with UUIDs of their own.

    `of` renames them, `mebibytes` is another total and what the driver keeps of it, `link` joins every two. Without a
    `screen` none of the memory is used.
    """
    read = _read(recording, name)
    blocks, rows, pci = [], [], []
    for index, old in enumerate(picked):
        block, row = read.blocks[old], dict(read.rows[old])
        own = hashlib.sha256(f"{name} {index}".encode()).hexdigest()[:4]
        uuid = f"{row['uuid'][:13]}{own}{row['uuid'][17:]}"
        bus = f"00000000:{0x19 + 0x1A * index:02X}:00.0"
        block = block.replace(row["uuid"], uuid).replace(row["pci.bus_id"], bus)
        row |= {"index": str(index), "uuid": uuid, "pci.bus_id": bus}
        if of is not None:
            block, row["name"] = block.replace(row["name"], of), of
        if mebibytes is not None or not screen:
            total, kept = mebibytes or (int(row["memory.total"]), int(row["memory.reserved"]))
            block, row = _memory(block, row, total, kept, 0)
        if not screen:
            block = re.sub(
                r"<processes>.*?</processes>", "<processes>\n\t\t</processes>", block, flags=re.DOTALL
            )
            block = block.replace("<display_active>Enabled", "<display_active>Disabled")
            block = re.sub(r"<gpu_util>\d+ %", "<gpu_util>0 %", block)
            row |= {"display_active": "Disabled", "utilization.gpu": "0"}
        blocks.append(block)
        rows.append(row)
        pci.append(f"{bus[4:].lower()} 0x030200 nvidia {2 * index // len(picked)}")
    topology = read.topology if link is None else _matrix(len(picked), link)
    head = re.sub(r"(?<=<attached_gpus>)\d+", str(len(picked)), read.head)
    listing = "".join(f"GPU {row['index']}: {row['name']} (UUID: {row['uuid']})\n" for row in rows)
    made = _Outputs(
        head=head, blocks=blocks, rows=rows, topology=topology, pci="\n".join(pci) + "\n", listing=listing
    )
    return _sections(made, processes, ())


def failed(recording: str) -> Cards:
    """A host whose nvidia-smi says why it fails, whatever it is asked."""
    text = (HOSTS / recording / "failure.txt").read_text()
    code = int((HOSTS / recording / "failure.status").read_text())
    answers: dict[str, Any] = dict.fromkeys(
        ("nvidia_xml", "nvidia_csv", "nvidia_list", "nvidia_topo"), (text, code)
    )
    pci = (HOSTS / recording / "pci").read_text()
    return Cards(sections={**answers, "nvidia_owners": "", "nvidia_kernel": "", "nvidia_pci": pci})


def _read(recording: str, name: str) -> _Outputs:
    def own(first: re.Match[str]) -> str:
        return hashlib.sha256(f"{name} {first[0]}".encode()).hexdigest()[:8]

    def text(file: str) -> str:
        content = (HOSTS / recording / file).read_text()
        return _MIG.sub(own, _UUID.sub(own, content))

    xml = re.split(r"(?=\t<gpu id=)", text("query.xml"))
    last, end = xml[-1].split("</nvidia_smi_log>")
    lines = [line.split(", ") for line in text("gpus.csv").splitlines()]
    rows = [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]
    assert not end.strip(), end
    return _Outputs(
        head=xml[0],
        blocks=[*xml[1:-1], last],
        rows=rows,
        topology=text("topology.txt"),
        pci=text("pci"),
        listing=text("list.txt"),
    )


def _sections(read: _Outputs, processes: Sequence[Process], owners: Sequence[tuple[int, str, str]]) -> Cards:
    for process in processes:
        uuids = [row["uuid"] for row in read.rows]
        index = uuids.index(process.uuid) if process.uuid is not None else process.index
        assert index is not None
        row = read.rows[index]
        used = int(row["memory.used"]) + process.mebibytes
        block, read.rows[index] = _memory(
            read.blocks[index], row, int(row["memory.total"]), int(row["memory.reserved"]), used
        )
        told = _PROCESS.format(pid=process.pid, name=process.name, mebibytes=process.mebibytes)
        read.blocks[index] = re.sub(r"\t*</processes>", told, block, count=1)
    known = (*owners, *((one.pid, one.user, one.container) for one in processes))
    header = ", ".join(f"{name} [MiB]" if name.startswith("memory.") else name for name in FIELDS)
    lines = [header, *(", ".join(row[name] for name in FIELDS) for row in read.rows)]
    return Cards(
        sections={
            "nvidia_xml": read.head + "".join(read.blocks) + "</nvidia_smi_log>\n",
            "nvidia_csv": "".join(f"{line}\n" for line in lines),
            "nvidia_list": read.listing,
            "nvidia_topo": read.topology,
            "nvidia_owners": "".join(f"{pid} {user} ;0::{_scope(one)}\n" for pid, user, one in known),
            "nvidia_kernel": "",
            "nvidia_pci": read.pci,
        }
    )


def _scope(container: str) -> str:
    return f"/system.slice/docker-{container}.scope" if container else "/user.slice/user-1001.slice"


def _memory(
    block: str, row: Mapping[str, str], total: int, reserved: int, used: int
) -> tuple[str, dict[str, str]]:
    """The same card with these figures in both outputs."""
    free = total - reserved - used
    figures = "".join(
        f"\t\t\t<{name}>{size} MiB</{name}>\n"
        for name, size in (("total", total), ("reserved", reserved), ("used", used), ("free", free))
    )
    told = f"<fb_memory_usage>\n{figures}\t\t</fb_memory_usage>"
    block = re.sub(r"<fb_memory_usage>.*?</fb_memory_usage>", told, block, count=1, flags=re.DOTALL)
    sizes = {"total": total, "reserved": reserved, "used": used, "free": free}
    return block, {**row, **{f"memory.{name}": str(size) for name, size in sizes.items()}}


def _matrix(count: int, link: str) -> str:
    columns = "\t".join(f"GPU{number}" for number in range(count))
    lines = [f"\t{columns}\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"]
    for number in range(count):
        cells = "\t".join(" X " if other == number else link for other in range(count))
        node = 2 * number // count
        lines.append(f"GPU{number}\t{cells}\t{32 * node}-{32 * node + 31}\t{node}\t\tN/A")
    return "".join(f"{line}\n" for line in lines)
