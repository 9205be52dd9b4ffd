"""Who holds a GPU's memory, in words: every face and every refusal names an owner the same way."""

from collections.abc import Iterator, Sequence

from gpuplan.domain.fleet import Basis
from gpuplan.domain.plan import Candidate, Holding, Owner, PlacedGpu
from gpuplan.present.document import Line, Role, line, visible, wrapped
from gpuplan.present.numbers import gib
from gpuplan.units import plural

SHOWN_SHARE = 0.01
"""Of a card: less than that is the driver's own and no news."""
MOST_LINES = 16
MOST_IN_A_SENTENCE = 3


def owner(holding: Holding) -> str:
    """`python of alice, pid 4242, container foo`, `deployment qwen (container gpuplan-qwen-0)`."""
    match holding.owner:
        case Owner.OURS:
            return f"deployment {holding.name}" + (
                f" (container {holding.container})" if holding.container else ""
            )
        case Owner.PROCESS:
            return _process(holding)
        case Owner.UNKNOWN:
            return "an unknown owner"
        case Owner.HOST:
            return "the host's own programs"
        case Owner.RESERVE:
            return "the inventory's reserve"


def _process(holding: Holding) -> str:
    words = holding.name or "a process"
    if holding.user:
        words += f" of {holding.user}"
    if holding.pid is not None:
        words += f", pid {holding.pid}"
    if holding.container:
        words += f", container {holding.container}"
    return words


def size(holding: Holding) -> str:
    """`60.10 GiB`, `40.00 GiB predicted`, `an unknown part`."""
    if holding.bytes is None:
        return "an unknown part"
    predicted = " predicted" if holding.basis is Basis.COMPUTED else ""
    return f"{gib(holding.bytes)}{predicted}"


def sentence(held: Sequence[Holding]) -> str:
    """`60.10 GiB by python of alice, pid 4242; 1.00 GiB by the inventory's reserve`, most first."""
    ordered = sorted(held, key=lambda one: -(one.bytes or 0))
    words = [f"{size(one)} by {owner(one)}" for one in ordered[:MOST_IN_A_SENTENCE]]
    more = len(ordered) - MOST_IN_A_SENTENCE
    return "; ".join(words) + (f"; and {more} more" if more > 0 else "")


def is_named(held: Sequence[Holding]) -> bool:
    """Whether anybody can be named beside the inventory."""
    return any(one.owner not in (Owner.UNKNOWN, Owner.RESERVE) for one in held)


def way_out(held: Sequence[Holding], place: str, missing: str) -> str:
    """Whom to turn to for the memory that is missing on `place`: nothing of anybody's is ever ended for them."""
    biggest = max(held, key=lambda one: one.bytes or 0, default=None)
    if biggest is None or biggest.owner is Owner.UNKNOWN:
        return f"free {missing} on {place}"
    comma = "," if biggest.owner is Owner.PROCESS else ""
    has = f"{owner(biggest)}{comma} holds {size(biggest)} on {place}"
    match biggest.owner:
        case Owner.OURS:
            return f"{has}: stop it if it is no longer needed (gpuplan stop {biggest.name})"
        case Owner.PROCESS:
            return f"{has}: ask its owner ({missing} are missing)"
        case Owner.HOST:
            return f"{has}: {missing} of host memory are missing"
        case Owner.RESERVE:
            return f"{has}: lower reserve.vram there"


def is_shown(gpu: PlacedGpu) -> bool:
    """Whether what others hold of a GPU is worth a line; what the inventory alone keeps back is not."""
    least = gpu.total_bytes * SHOWN_SHARE
    return any(
        holding.owner is not Owner.RESERVE and (holding.bytes is None or holding.bytes >= least)
        for holding in gpu.held
    )


def held_lines(candidate: Candidate, width: int) -> Iterator[Line]:
    """A line for each owner on each GPU of a placement where others hold memory worth telling."""
    rows = [
        (f"{visible(host.host)}:{gpu.index}", holding)
        for host in candidate.placement
        for gpu in host.gpus
        if is_shown(gpu)
        for holding in gpu.held
        if holding.bytes is None or holding.bytes >= gpu.total_bytes * SHOWN_SHARE
    ]
    if not rows:
        return
    yield line("  held already:")
    for place, holding in rows[:MOST_LINES]:
        yield from wrapped(
            f"{size(holding)} by {owner(holding)}", width, first=f"    {place}  ", role=Role.HELD
        )
    if len(rows) > MOST_LINES:
        more = plural(len(rows) - MOST_LINES, "holding")
        yield from wrapped(f"… {more} more (all in -o json)", width, first="    ", role=Role.DIM)
