"""Ascend NPUs through `npu-smi`, which prints tables and no JSON.

Two lines make a chip: card, name, health, power and temperature; then chip (and its physical id), bus, load and
memory. The second table lists processes. Widths and columns differ by release and card, so cells are taken by
what they hold: a 310P has no HBM column, a 910C two chips a card, a 910B4 in a container any card numbers.
`MB` are MiB. The totals are those printed; what a process can have of a 910B is less.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Gpu, GpuProcess
from gpuplan.probing import rocm_smi, tool_failure
from gpuplan.probing.command import Command
from gpuplan.probing.devices import DeviceReport
from gpuplan.probing.output import NOT_RUN, Output
from gpuplan.units import MIB

_VENDOR = "ascend"
_TOOL = "npu-smi"
_SECONDS = 15
_MOST_LINES = 20_000

_FIND = (
    'for t in "$(command -v npu-smi)" /usr/local/bin/npu-smi /usr/local/sbin/npu-smi; do [ -x "$t" ] && break; t=; done\n'
    '[ -n "$t" ] || { echo "npu-smi: not found"; exit 127; }\n'
)
_PCI = """\
for d in /sys/bus/pci/devices/*; do
  v=; read -r v <"$d/vendor" || continue
  [ "$v" = 0x19e5 ] || continue
  c=; read -r c <"$d/class"
  case $c in 0x12*) printf '%s %s\\n' "${d##*/}" "$c" ;; esac
done 2>/dev/null
"""
_CANN = """\
for f in /usr/local/Ascend/*/latest/*-linux/ascend_*_install.info /usr/local/Ascend/*/*-linux/ascend_*_install.info; do
  [ -r "$f" ] && grep -i '^version=' "$f"
done 2>/dev/null
"""

COMMANDS: tuple[Command, ...] = (
    Command(name="npu_pci", shell=_PCI, timeout=5),
    Command(name="npu_info", shell=_FIND + '"$t" info', timeout=_SECONDS, group=_VENDOR),
    Command(name="npu_map", shell=_FIND + '"$t" info -m', timeout=_SECONDS, group=_VENDOR),
    Command(name="npu_cann", shell=_CANN, timeout=5),
)

_VERSION = re.compile(r"npu-smi\s+\S+\s+Version:\s*([\w.+-]{1,40})")
_USED_OF_TOTAL = re.compile(r"(\d{1,9})\s{0,8}/\s{0,8}(\d{1,9})")
_NUMBER = re.compile(r"-?\d{1,6}(?:\.\d{1,6})?")
_MAP_HEADS = ("NPU ID", "Chip ID", "Chip Logic ID")
_WIDE_GAP = re.compile(r"\s{2,}|\t")
_VERDICT = re.compile(r"^.{0,300}\bret is -\d{1,6}", re.MULTILINE)
_CANN_VERSION = re.compile(r"^version=([\w.+-]{1,40})\s*$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chip:
    """One chip as the first table shows it."""

    card: int
    chip: int
    physical: int | None
    gpu: Gpu
    health: str


def report(outputs: Mapping[str, Output]) -> DeviceReport:
    """The chips of all cards, numbered as the runtime numbers them; a failure is a condition. Never raises."""
    info = outputs.get("npu_info", NOT_RUN)
    rows = list(_rows(info.text))
    chips = _numbered(list(_chips(rows)), _logic_ids(outputs.get("npu_map", NOT_RUN)))
    if not chips:
        missing = _failure(outputs, info)
        return DeviceReport(vendor=_VENDOR, conditions=() if missing is None else (missing,))
    processes = _processes(rows)
    version = _VERSION.search(info.text)
    return DeviceReport(
        vendor=_VENDOR,
        gpus=tuple(replace(chip.gpu, processes=_of(chip, chips, processes)) for chip in chips),
        driver_version=version.group(1) if version is not None else None,
        runtime_version=_cann(outputs.get("npu_cann", NOT_RUN).text),
        conditions=(*_unanswered(outputs), *(fact for chip in chips for fact in _conditions(chip))),
    )


def _rows(text: str) -> Iterator[list[str]]:
    """The cells of every line of a table; lines between tables and rulers are left out."""
    for line in text.splitlines()[:_MOST_LINES]:
        stripped = line.strip()
        if stripped.startswith("|") and stripped.endswith("|") and len(stripped) < 1000:
            yield [cell.strip() for cell in stripped.strip("|").split("|")]


def _chips(rows: Sequence[Sequence[str]]) -> Iterator[_Chip]:
    """Chips of the first table. A line of a card holds for every chip line below it."""
    card: tuple[int, str, str, int | None] | None = None
    for cells in rows:
        if len(cells) >= 2 and cells[1].casefold().startswith("process id"):
            return
        if len(cells) != 3:
            continue
        words = cells[0].split()
        ids = [int(word) for word in words if word.isdecimal() and len(word) < 7]
        if card is not None and len(ids) == len(words) in {1, 2} and (":" in cells[1] or cells[1] == "NA"):
            chip = _chip(card, ids, cells)
            if chip is not None:
                yield chip
        elif len(words) >= 2 and ids[:1] and words[0].isdecimal() and ":" not in cells[1]:
            numbers = _leading_numbers(cells[2])
            temperature = numbers[1] if len(numbers) > 1 else None
            card = (ids[0], " ".join(words[1:]), cells[1], temperature)


def _chip(card: tuple[int, str, str, int | None], ids: Sequence[int], cells: Sequence[str]) -> _Chip | None:
    number, name, health, temperature = card
    usages = [(int(used), int(total)) for used, total in _USED_OF_TOTAL.findall(cells[2])]
    used, total = next(((used, total) for used, total in reversed(usages) if total > 0), (0, 0))
    load = _leading_numbers(cells[2])
    gpu = Gpu(
        index=0,
        name=name,
        vendor=_VENDOR,
        backend="cann",
        total_bytes=total * MIB or None,
        free_bytes=max(0, total - used) * MIB if total else None,
        reported_bytes=total * MIB or None,
        pci_bus_id=rocm_smi.bus_id(cells[1]),
        utilization_percent=load[0] if load else None,
        temperature_celsius=temperature,
    )
    return _Chip(card=number, chip=ids[0], physical=ids[1] if len(ids) > 1 else None, gpu=gpu, health=health)


def _leading_numbers(cell: str) -> list[int | None]:
    """The words of a cell as whole numbers; a word that is none (`-`, `NA`) keeps its place."""
    words = cell.split()[:2]
    return [int(float(word)) if _NUMBER.fullmatch(word) else None for word in words]


def _numbered(chips: list[_Chip], logic: Mapping[tuple[int, int], int]) -> list[_Chip]:
    """Chips with the index the runtime gives them: the logic id, else the physical id, else the card, else by order."""
    given = [logic.get((chip.card, chip.chip)) for chip in chips]
    choices: tuple[list[int | None], ...] = (
        given,
        [chip.physical for chip in chips],
        [chip.card for chip in chips],
        list(range(len(chips))),
    )
    for indexes in choices:
        known = [index for index in indexes if index is not None]
        if len(known) == len(set(known)) == len(chips):
            pairs = sorted(zip(known, chips, strict=True), key=lambda pair: pair[0])
            return [replace(chip, gpu=replace(chip.gpu, index=index)) for index, chip in pairs]
    return chips


def _logic_ids(output: Output) -> dict[tuple[int, int], int]:
    """(card, chip) to chip logic id from `npu-smi info -m`; the control chip of a card (`Mcu`) has none.

    Columns are found by their heads: an Ascend 950 has a slot between card and chip, and no logic id.
    """
    found = {}
    columns = list(_MAP_HEADS)
    for line in output.text.splitlines()[:_MOST_LINES]:
        words = line[:1000].split()
        if words[:2] == ["NPU", "ID"]:
            columns = _WIDE_GAP.split(line[:1000].strip())
        if not set(_MAP_HEADS) <= set(columns) or len(words) < len(columns):
            continue
        card, chip, logic = (words[columns.index(head)] for head in _MAP_HEADS)
        if all(word.isdecimal() and len(word) < 7 for word in (card, chip, logic)):
            found[int(card), int(chip)] = int(logic)
    return found


def _processes(rows: Sequence[Sequence[str]]) -> dict[tuple[int, int | None], tuple[GpuProcess, ...]]:
    """Processes of the second table by (card, chip); a name may be blank, figures are MiB.

    A tool that counts no chips there has cards of one chip: the chip is None.
    """
    found: dict[tuple[int, int | None], list[GpuProcess]] = {}
    begun = False
    for cells in rows:
        if len(cells) >= 2 and cells[1].casefold().startswith("process id"):
            begun = True
            continue
        place = cells[0].split()
        numbers = [word.isdecimal() and len(word) < 10 for word in (*place, *cells[1:2])]
        if not begun or len(cells) < 4 or len(place) not in {1, 2} or not all(numbers):
            continue
        memory = cells[3]
        used = int(memory) * MIB if memory.isdecimal() and len(memory) < 10 else None
        process = GpuProcess(pid=int(cells[1]), name=tool_failure.one_line(cells[2]), used_bytes=used)
        chip = int(place[1]) if len(place) == 2 else None
        found.setdefault((int(place[0]), chip), []).append(process)
    return {place: tuple(held) for place, held in found.items()}


def _of(
    chip: _Chip, chips: Sequence[_Chip], held: Mapping[tuple[int, int | None], tuple[GpuProcess, ...]]
) -> tuple[GpuProcess, ...]:
    """The processes of a chip; those of a card are its only chip's."""
    alone = sum(other.card == chip.card for other in chips) == 1
    return (*held.get((chip.card, chip.chip), ()), *(held.get((chip.card, None), ()) if alone else ()))


def _conditions(chip: _Chip) -> Iterator[Fact]:
    subject = {"gpu": chip.gpu.index}
    if chip.health.casefold() != "ok":
        severity = Severity.WARNING if chip.health.casefold() == "warning" else Severity.ERROR
        detail = tool_failure.one_line(f"health {chip.health or 'unknown'}")
        yield Fact(code="GP608", severity=severity, subject=subject, figures={"detail": detail})
    if chip.gpu.total_bytes is None:
        detail = "the tool tells no size"
        yield Fact(code="GP609", severity=Severity.WARNING, subject=subject, figures={"detail": detail})


def _unanswered(outputs: Mapping[str, Output]) -> list[Fact]:
    output = outputs.get("npu_map", NOT_RUN)
    return [tool_failure.no_answer("npu-smi info -m", output)] if output.timed_out else []


def _failure(outputs: Mapping[str, Output], info: Output) -> Fact | None:
    """Why no chip is in the report; None where neither the tool nor a device is."""
    devices = [line for line in outputs.get("npu_pci", NOT_RUN).text.splitlines() if line.strip()]
    if not tool_failure.is_missing(info) and info != NOT_RUN:
        verdict = _VERDICT.search(info.text[:100_000])
        detail = tool_failure.one_line(verdict.group()) if verdict is not None else ""
        return tool_failure.failure(_TOOL, info, seconds=_SECONDS, detail=detail)
    if not devices:
        return None
    detail = "an Ascend NPU is present, npu-smi is not there"
    return tool_failure.failure(_TOOL, Output(text="", exit_code=127), seconds=_SECONDS, detail=detail)


def _cann(text: str) -> str | None:
    """The newest CANN installed. Several packages of one release name the same version; most named wins a tie."""
    found = Counter(_CANN_VERSION.findall(text[:100_000]))
    return max(found, key=lambda version: (_release(version), found[version]), default=None)


def _release(version: str) -> tuple[int, ...]:
    """A key by which `8.0.RC3` comes before `8.0.0`."""
    return tuple(-1 if part == "rc" else int(part) for part in re.findall(r"\d{1,6}|rc", version.casefold()))
