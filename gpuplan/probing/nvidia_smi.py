"""NVIDIA's GPUs as nvidia-smi shows them: the commands, and one report from their outputs.

The XML is the main source. CSV adds the compute capability and stands in where the XML cannot be read, `-L` names
MIG slices, `topo -m` tells links, the kernel's log tells Xid errors, the PCI bus tells devices without a driver.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Gpu, GpuProcess
from gpuplan.probing import nvidia_csv, nvidia_faults, nvidia_listing, nvidia_xml, process_owners, topology
from gpuplan.probing.command import Command
from gpuplan.probing.devices import DeviceReport
from gpuplan.probing.nvidia_cards import Card, devices, named
from gpuplan.probing.output import NOT_RUN, Output

VENDOR = "nvidia"
_GROUP = "nvidia-smi"
_PATH = "PATH=$PATH:/usr/lib/wsl/lib:/opt/bin:/run/nvidia/driver/usr/bin; "
"""Where nvidia-smi is on WSL and on hosts whose driver lives in a container, for a shell that was not a login."""
_FULL = ",".join(nvidia_csv.FIELDS)
_CORE = ",".join(nvidia_csv.CORE_FIELDS)

XML = Command(
    name="nvidia_xml",
    shell=f"{_PATH}x=$(nvidia-smi -q -x 2>&1); r=$?; printf '%s\\n' \"$x\" | grep -v '<supported_graphics_clock>'; exit $r",
    timeout=25,
    group=_GROUP,
)
"""Nine tenths of the XML are clocks a card can run at; they stay on the host."""
CSV = Command(
    name="nvidia_csv",
    shell=(
        f"{_PATH}nvidia-smi --query-gpu={_FULL} --format=csv,nounits"
        f" || nvidia-smi --query-gpu={_CORE} --format=csv,nounits"
    ),
    timeout=20,
    group=_GROUP,
)
LISTING = Command(name="nvidia_list", shell=f"{_PATH}nvidia-smi -L", group=_GROUP)
TOPOLOGY = Command(name="nvidia_topo", shell=f"{_PATH}nvidia-smi topo -m", group=_GROUP)
OWNERS = Command(
    name="nvidia_owners",
    shell=(
        f"{_PATH}for p in $(nvidia-smi --query-compute-apps=pid --format=csv,noheader 2>/dev/null); do\n"
        f"{process_owners.OWNERS}done; exit 0"
    ),
    group=_GROUP,
)
PCI = Command(
    name="nvidia_pci",
    shell="""\
for d in /sys/bus/pci/devices/*; do
[ -r "$d/vendor" ] || continue
read -r v <"$d/vendor"; [ "$v" = 0x10de ] || continue
read -r c <"$d/class"
n=-1; [ ! -r "$d/numa_node" ] || read -r n <"$d/numa_node"
m=-; [ ! -e "$d/driver" ] || m=$(readlink "$d/driver")
printf '%s %s %s %s\\n' "${d##*/}" "$c" "${m##*/}" "$n"
done; exit 0""",
    timeout=10,
)
KERNEL = Command(
    name="nvidia_kernel",
    shell="""\
{ dmesg 2>/dev/null || journalctl -k -b -q --no-pager 2>/dev/null; } |
grep -E 'NVRM: (Xid|The NVIDIA GPU)|fallen off the bus' | tail -n 200; exit 0""",
    timeout=10,
)
COMMANDS: tuple[Command, ...] = (PCI, XML, CSV, LISTING, TOPOLOGY, OWNERS, KERNEL)
_TELLING = (XML, CSV, LISTING)
"""Their failures are told, the first that says anything."""


def report(outputs: Mapping[str, Output]) -> DeviceReport:
    """What nvidia-smi and the kernel say of NVIDIA's devices; nothing at all on a host without them."""
    pci = nvidia_faults.pci_devices(outputs.get(PCI.name, NOT_RUN).text)
    log = nvidia_xml.parse(outputs.get(XML.name, NOT_RUN).text)
    table = nvidia_csv.parse(outputs.get(CSV.name, NOT_RUN).text)
    listed = nvidia_listing.parse(outputs.get(LISTING.name, NOT_RUN).text)
    matrix = topology.parse(outputs.get(TOPOLOGY.name, NOT_RUN).text)
    owners = process_owners.parse(outputs.get(OWNERS.name, NOT_RUN).text)
    nodes = {device.bus: device.numa_node for device in pci}
    known = [nvidia_listing.joined(card, listed) for card in _together(log.cards, table.cards)]
    known += list(nvidia_listing.left_over(known, listed))
    cards = [_placed(card, matrix.numa, nodes) for card in known]
    gpus, states = devices(cards)
    indexes = {card.bus: card.index for card in cards if card.bus is not None}
    texts = [outputs.get(command.name, NOT_RUN).text for command in _TELLING]
    kernel = outputs.get(KERNEL.name, NOT_RUN).text
    return DeviceReport(
        vendor=VENDOR,
        gpus=tuple(_owned(gpu, owners) for gpu in gpus),
        driver_version=log.driver_version or table.driver_version,
        runtime_version=log.cuda_version,
        links=matrix.links,
        conditions=(
            *_failures(outputs, bool(cards), log.whole, len(pci)),
            *nvidia_faults.lost_cards(texts, pci),
            *states,
            *nvidia_faults.xid_errors(kernel, indexes),
        ),
    )


def _together(log: Sequence[Card], table: Sequence[Card]) -> Iterable[Card]:
    """Cards of the XML with what CSV adds, and those only CSV could read, by UUID or bus."""
    rows = list(table)
    for card in log:
        row = next((row for row in rows if _same(card, row)), None)
        if row is None:
            yield card
            continue
        rows.remove(row)
        yield replace(
            card,
            index=row.index,
            memory=card.memory if card.memory.total is not None or row.memory.total is None else row.memory,
            compute_capability=row.compute_capability,
            mig=card.mig or row.mig,
        )
    yield from rows


def _same(card: Card, row: Card) -> bool:
    if card.uuid is not None and row.uuid is not None:
        return card.uuid == row.uuid
    return card.bus is not None and card.bus == row.bus


def _placed(card: Card, matrix: Mapping[int, int], nodes: Mapping[str, int | None]) -> Card:
    """NUMA node by the topology matrix, else by the PCI bus."""
    return replace(card, numa_node=matrix.get(card.index, nodes.get(card.bus or "")))


def _owned(gpu: Gpu, owners: Mapping[int, GpuProcess]) -> Gpu:
    return replace(gpu, processes=tuple(named(process, owners) for process in gpu.processes))


def _failures(outputs: Mapping[str, Output], read: bool, whole: bool, devices_found: int) -> Iterable[Fact]:
    """The tool's own failure: a hang always; anything else only where no card could be read, or not all of the XML."""
    told = [
        fact
        for command in _TELLING
        if (fact := nvidia_faults.failure(outputs.get(command.name, NOT_RUN), devices_found, command.timeout))
    ]
    hung = [fact for fact in told if fact.code == "GP604"]
    xml = outputs.get(XML.name, NOT_RUN)
    if hung:
        yield hung[0]
    elif not read:
        yield from told[:1]
    elif not whole and xml.exit_code is not None:
        detail = "the output is cut off" if "<nvidia_smi_log" in xml.text else "no XML in the output"
        figures = {"what": "nvidia-smi -q -x", "detail": detail}
        yield Fact(code="GP636", severity=Severity.WARNING, subject={}, figures=figures)
