"""The rows of a fleet's list for any width: a host; a GPU with a bar split by who has its memory.

Every row has the same columns whatever names hosts, GPUs and programs go by. Pure: no row is made before it is shown.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuplan.domain.fact import Severity
from gpuplan.domain.fleet import Gpu, Host, HostStatus
from gpuplan.domain.plan import Holding, Owner
from gpuplan.planning.allocatable import Account, Ours, account, ours_by_gpu, ours_on
from gpuplan.planning.usable import hindrances
from gpuplan.present.document import Line, Role, Span, line, padded, width_of
from gpuplan.present.findings import word
from gpuplan.present.fleet_text import ROLES, counted_names, free_of_total, short_name
from gpuplan.present.steady import steady
from gpuplan.units import GIB, plural

OPENED, CLOSED, MARKED, PARTLY = "▾", "▸", "●", "○"
OURS_GLYPHS = ("█", "▓")
OURS_ROLES = (Role.WEIGHTS, Role.CACHE)
OTHERS_GLYPH, RESERVE_GLYPH, FREE_GLYPH = "▞", "░", "·"
_STATUS, _MEMORY, _LOAD, _HEAT = 11, 22, 5, 6
_WIDE = 98
"""From it on drivers and links are told."""
_FEWEST = 12
"""Cells below which labels and owners say nothing."""
_LONGEST_FREE = len("free 139.8 of 139.8 GiB")
_NO_NEWS_BYTES = GIB // 20
"""Less than that is 0.0 GiB in the row."""
_NARROW = 76
"""Below it there is no room for utilisation and temperature."""
_GAP = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Cells of every column; 0: it is left out."""

    name: int
    cards: int
    driver: int
    link: int
    labels: int
    gpu_name: int
    bar: int
    figures: int
    load: int
    """Utilisation and temperature."""
    health: int
    owners: int


def columns(width: int, longest_name: int) -> Columns:
    """The columns for a width in cells, the longest host name given."""
    most = 12 if width < _NARROW else 16 if width < _WIDE else 28 if width < 158 else 40
    name = max(4, min(longest_name, most))
    rest = width - (2 + name + 2 + _STATUS + 2 + _MEMORY + 2)
    driver, link = (10, 6) if width >= _WIDE else (0, 0)
    rest -= driver + link + (4 if driver else 0)
    labels = rest - (36 if width >= 158 else 30)
    labels = labels if labels >= _FEWEST else 0
    cards = max(3, rest - (labels + 2 if labels else 0))
    load = 0 if width < _NARROW else _LOAD + 1 + _HEAT
    figures = 20 if width < _WIDE else _LONGEST_FREE
    gpu = width - (8 + figures + 3 * 2 + (load + 2 if load else 0))
    health = 8 if width < _WIDE else 13
    gpu -= health + 2
    gpu_name = max(8, min(26, gpu * 3 // 5 if width < 118 else 26))
    bar = max(6, min(32, gpu - gpu_name))
    owners = max(0, gpu - gpu_name - bar - 2)
    return Columns(
        name=name,
        cards=cards,
        driver=driver,
        link=link,
        labels=labels,
        gpu_name=gpu_name,
        bar=bar,
        figures=figures,
        load=load,
        health=health,
        owners=owners if owners >= _FEWEST else 0,
    )


def header(shape: Columns) -> Line:
    """What the columns of host rows hold."""
    parts = [padded("  host", shape.name + 2), padded("status", _STATUS), padded("free of total", _MEMORY)]
    parts.append(padded("GPUs", shape.cards))
    if shape.driver:
        parts += [padded("driver", shape.driver), padded("link", shape.link)]
    if shape.labels:
        parts.append(padded("labels", shape.labels))
    return line(Span(_GAP.join(parts), Role.DIM))


# ---------------------------------------------------------------------- hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLook:
    """What a host's row says beside the host itself."""

    opened: bool | None = None
    """Whether its GPUs are shown beneath; None: there are none to show."""
    waiting: bool = False
    """It is being read."""
    unread: bool = False
    """It never was."""
    old: str = ""
    """Age of its figures where they should be fresher, `34 s old`."""
    marked: int = 0
    """GPUs chosen by hand."""


def status_of(host: Host, look: HostLook) -> Span:
    """One or two words on how a host is."""
    if look.waiting:
        return Span("waiting", Role.DIM)
    if look.unread:
        return Span("not read", Role.DIM)
    if host.status is not HostStatus.OK:
        return Span(host.status.value, Role.BAD)
    if look.old:
        return Span(look.old, Role.WARNING)
    severities = [fact.severity for fact in host.facts.conditions]
    for severity in (Severity.ERROR, Severity.WARNING):
        number = severities.count(severity)
        if number:
            return Span(plural(number, severity.value), ROLES[severity])
    return Span("ok", Role.GOOD)


def host_line(host: Host, shape: Columns, look: HostLook) -> Line:
    """`▾ h100-a  ok  412.0 of 640.0 GiB  8 × H100 80GB HBM3  580.95  nvlink  zone=a`."""
    fold = " " if look.opened is None else OPENED if look.opened else CLOSED
    mark = (
        " " if not look.marked else MARKED if look.marked >= len(_markable(host)) else PARTLY
    )  # a word count is in the status bar
    start = (
        fold + mark,
        Span(padded(steady(host.name), shape.name) + _GAP, Role.TITLE),
        _fitted(status_of(host, look), _STATUS),
        _GAP,
    )
    why = _why_none(host)
    if why:
        room = _MEMORY + 2 + shape.cards + (shape.driver + shape.link + 4 if shape.driver else 0)
        room += shape.labels + 2 if shape.labels else 0
        return line(*start, Span(padded(steady(why), room), Role.DIM if look.waiting else Role.BAD))
    memory, known = free_of_total(host)
    cards = counted_names(host.gpus) or ("" if look.waiting or look.unread else "no GPU")
    if not host.gpus and (look.waiting or look.unread):
        memory, known = "", True
    parts: list[str | Span] = [
        Span(padded(memory, _MEMORY), Role.PLAIN if known else Role.WARNING),
        _GAP,
        padded(steady(cards), shape.cards),
    ]
    if shape.driver:
        parts += [
            _GAP + padded(steady(host.facts.driver_version or ("–" if host.gpus else "")), shape.driver),
            _GAP + padded(steady(host.link or ("–" if host.gpus else "")), shape.link),
        ]
    if shape.labels:
        parts.append(Span(_GAP + padded(steady(label_words(host)), shape.labels), Role.DIM))
    return line(*start, *parts)


def _why_none(host: Host) -> str:
    """Why a host has no GPU to show; empty where it has, or none is known to be missing."""
    if host.status is not HostStatus.OK:
        failure = host.failure
        return f"{failure.stage}: {failure.detail}" if failure is not None else "no reason is known"
    errors = [fact for fact in host.facts.conditions if fact.severity is Severity.ERROR]
    if host.gpus or not errors:
        return ""
    return f"no GPU – [{errors[0].code}] {word(errors[0]).headline.removeprefix(f'{host.name}: ')}"


def label_words(host: Host) -> str:
    """`tier=prod zone=a`."""
    return " ".join(f"{key}={value}" for key, value in host.labels)


def markable(host: Host) -> tuple[int, ...]:
    """Indexes of the GPUs that marking a whole host marks: not those the inventory leaves out, slices for their card."""
    return tuple(gpu.index for gpu in _markable(host))


def _markable(host: Host) -> list[Gpu]:
    divided = {gpu.parent for gpu in host.gpus if gpu.parent is not None}
    return [gpu for gpu in host.gpus if not gpu.excluded and gpu.index not in divided]


# ---------------------------------------------------------------------- GPUs


def gpu_line(host: Host, gpu: Gpu, shape: Columns, *, ours: Ours | None = None, marked: bool = False) -> Line:
    """`●  0 H100 80GB HBM3  ████▞▞····  free 12.3 of 79.2 GiB  97 %  61 °C  ok  qwen 40.0, python of alice 9.0`."""
    ours = ours_by_gpu(host) if ours is None else ours
    index = f"{gpu.index:>3}" if gpu.index < 1000 else str(gpu.index)
    name = short_name(gpu)
    if gpu.parent is not None:
        name = f"└ MIG {gpu.profile}" if gpu.profile else f"└ {name}"
    start = (f"  {MARKED if marked else ' '} {index} ", padded(steady(name), shape.gpu_name), _GAP)
    load = f"{gpu.utilization_percent} %" if gpu.utilization_percent is not None else "–"
    heat = f"{gpu.temperature_celsius} °C" if gpu.temperature_celsius is not None else "–"
    measured = (
        f"{_GAP}{padded(load, _LOAD, right=True)} {padded(heat, _HEAT, right=True)}" if shape.load else ""
    )
    after = (measured, _GAP, _fitted(health_of(host, gpu, ours), shape.health))
    if gpu.total_bytes is None:
        unknown = padded("memory unknown", shape.bar + shape.figures + 2)
        return line(*start, Span(unknown, Role.WARNING), *after)
    books = account(gpu, ours_on(gpu, ours), host)
    figures = padded(free_words(gpu, short=shape.figures < _LONGEST_FREE), shape.figures)
    row = line(*start, *memory_bar(books, shape.bar), _GAP, figures, *after)
    if shape.owners:
        words = ", ".join(owner_words(books.held))
        row = (*row, Span(_GAP + padded(steady(words), shape.owners), Role.DIM))
    return row


def free_words(gpu: Gpu, *, short: bool = False) -> str:
    """`free 12.3 of 79.2 GiB` as the device reports it, or `12.3/79.2 GiB free`."""
    total = gpu.total_bytes or 0
    free = total if gpu.free_bytes is None else gpu.free_bytes
    if short:
        return f"{free / GIB:.1f}/{total / GIB:.1f} GiB free"
    return f"free {free / GIB:.1f} of {total / GIB:.1f} GiB"


def health_of(host: Host, gpu: Gpu, ours: Ours) -> Span:
    """Why it is not used, else the codes of what is wrong with it, else `ok`."""
    if gpu.excluded:
        return Span("excluded", Role.DIM)
    for left in hindrances(host, [gpu], ours):
        return Span(left.hindrance.name.lower(), Role.WARNING)
    here = [fact for fact in host.facts.conditions if fact.subject.get("gpu") in (gpu.index, gpu.parent)]
    here = [fact for fact in here if fact.subject.get("gpu") is not None]
    for severity in (Severity.ERROR, Severity.WARNING):
        codes = sorted({fact.code for fact in here if fact.severity is severity})
        if codes:
            more = f" +{len(codes) - 1}" if len(codes) > 1 else ""
            return Span(codes[0] + more, ROLES[severity])
    return Span("ok", Role.GOOD)


def memory_bar(books: Account, size: int) -> tuple[Span, ...]:
    """A bar of `size` cells: each deployment of ours, others, what is kept back, and what may be claimed."""
    parts = [*_parts(books.held), (books.allocatable_bytes, FREE_GLYPH, Role.FREE)]
    whole = max(1, sum(part for part, _, _ in parts))
    exact = [part * size / whole for part, _, _ in parts]
    cells = [int(value) for value in exact]
    order = sorted(range(len(parts)), key=lambda number: cells[number] - exact[number])
    for number in order[: size - sum(cells)]:
        cells[number] += 1
    spans = [
        Span(glyph * cells[number], role) for number, (_, glyph, role) in enumerate(parts) if cells[number]
    ]
    missing = size - sum(cells)
    return (*spans, Span(FREE_GLYPH * missing, Role.FREE)) if missing > 0 else tuple(spans)


def _parts(held: Sequence[Holding]) -> Iterator[tuple[int, str, Role]]:
    ours = [holding for holding in held if holding.owner is Owner.OURS]
    for number, holding in enumerate(ours):
        yield holding.bytes or 0, OURS_GLYPHS[number % 2], OURS_ROLES[number % 2]
    others = sum(holding.bytes or 0 for holding in held if holding.owner not in (Owner.OURS, Owner.RESERVE))
    yield others, OTHERS_GLYPH, Role.HELD
    kept = sum(holding.bytes or 0 for holding in held if holding.owner is Owner.RESERVE)
    yield kept, RESERVE_GLYPH, Role.WARNING


def owner_words(held: Sequence[Holding]) -> Iterator[str]:
    """`qwen 40.0`, `python of alice 9.0`, `others 1.2`, `reserve 1.0`: GiB, ours first, then most first."""
    ordered = sorted(held, key=lambda one: (one.owner is not Owner.OURS, -(one.bytes or 0)))
    for holding in ordered:
        if holding.bytes is not None and holding.bytes < _NO_NEWS_BYTES:
            continue
        size = "?" if holding.bytes is None else f"{holding.bytes / GIB:.1f}"
        yield f"{_owner(holding)} {size}"


def _owner(holding: Holding) -> str:
    match holding.owner:
        case Owner.OURS:
            return holding.name
        case Owner.PROCESS:
            name = holding.name.split(" ", 1)[0].rsplit("/", 1)[-1] or "a process"
            return f"{name} of {holding.user}" if holding.user else name
        case Owner.UNKNOWN:
            return "unknown"
        case Owner.HOST:
            return "the host"
        case Owner.RESERVE:
            return "reserve"


def legend() -> Line:
    """What the glyphs of a bar mean."""
    return line(
        Span(f"{OURS_GLYPHS[0]}{OURS_GLYPHS[1]} ours", OURS_ROLES[0]),
        "  ",
        Span(f"{OTHERS_GLYPH} others", Role.HELD),
        "  ",
        Span(f"{RESERVE_GLYPH} kept back", Role.WARNING),
        "  ",
        Span(f"{FREE_GLYPH} free", Role.FREE),
    )


def _fitted(span: Span, width: int) -> Span:
    return Span(padded(steady(span.text), width), span.role)


def width_of_names(hosts: Sequence[Host]) -> int:
    """Cells of the longest name."""
    return max((width_of(steady(host.name)) for host in hosts), default=4)
